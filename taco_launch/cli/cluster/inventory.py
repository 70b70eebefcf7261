"""inventory: what an inventory amounts to, and the schema for editors."""

import click

from taco_launch.cli.options.common import add_option, inventory_option, output_options, settings_of, talk_options
from taco_launch.cli.output import render


@click.command()
@inventory_option
@output_options
@talk_options
@add_option("--schema", is_flag=True, help="Print the JSON Schema of an inventory, for an editor's completion.")
@click.pass_context
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
    if schema:
        from taco_launch.inventory.schema.schema import json_schema

        render.data(json_schema(), "json")
        return
    settings = settings_of(ctx)
    render.inventory(settings.load(), settings.output)
