"""inventory: what an inventory amounts to, and the schema for editors."""

import click

from taco_launch.cli.options.common import add_option, settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.engines import ENGINES
from taco_launch.core.model.host.hosts import Container, Inventory
from taco_launch.hosts.doctor import missing_keys


@verb(inventory=True, output=True)
@add_option("--schema", is_flag=True, help="Print the JSON Schema of an inventory, for an editor's completion.")
def inventory(ctx: click.Context, *, schema: bool) -> None:
    """Check an inventory or a hostfile and show its hosts.

    -o json has every value, also those that are defaults; -o yaml is an inventory again, which can be used as one.

    \b
    Examples:
      taco-launch -i cluster.yaml inventory
      taco-launch -i hostfile inventory
      taco-launch -i hostfile inventory -o yaml > cluster.yaml
      taco-launch inventory --schema > inventory.schema.json
    """
    settings = settings_of(ctx)
    if not schema:
        for key, hosts in missing_keys(settings.load()):
            render.warning(settings, f"{hosts}: identity_file {key} does not exist on this machine")
    if schema or settings.output == "yaml":
        # Pydantic takes long to import.
        from taco_launch.hosts.inventory.to_document import document, json_schema  # noqa: PLC0415

        if schema:
            render.data(json_schema(), "json")
        else:
            render.data(document(settings.load()), "yaml")
        return
    _show(settings.load(), settings.output)


def _show(found: Inventory, output: str) -> None:
    """Print an inventory as JSON or as text."""
    if output == "json":
        render.data(to_json(found), output)
        return
    click.echo(f"Cluster: {found.cluster}")
    click.echo(f"Source:  {render.printable(found.source)}")
    without = ENGINES.get(found.engine, ENGINES["agent"]).without_image
    click.echo(f"Image:   {_image(found.container) if found.container else f'none: {without}'}")
    versions = ", ".join(f"{name} {version}" for name, version in found.versions)
    click.echo(f"mpirun:  {found.mpirun}{f' ({versions})' if versions else ''}\n")
    rows = []
    for host in found.hosts:
        groups = ",".join(name for name, members in found.groups if host.name in members)
        labels = ",".join(f"{key}={value}" for key, value in host.labels)
        name = host.name + (" (head)" if host.name == found.head else "")
        port = str(host.port) if host.connection == "ssh" else ""
        slots = "auto" if host.slots is None else str(host.slots)
        slots += f" (max {host.max_slots})" if host.max_slots is not None else ""
        rows.append([name, host.address, host.connection, host.user, port, slots, labels, groups])
    render.table(
        ["HOST", "ADDRESS", "CONNECTION", "USER", "PORT", "SLOTS", "LABELS", "GROUPS"], rows, numbers=("SLOTS", "PORT")
    )


def _image(container: Container) -> str:
    elsewhere = container.source != "registry"
    return render.printable(f"{container.image} (from {container.source})" if elsewhere else container.image)
