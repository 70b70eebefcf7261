"""image: images for jobs are built on this machine, and the containers of them are listed."""

import click

from taco_launch.cli.options.common import access_of, add_option, settings_of, verb
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import job_container_tables, render
from taco_launch.setup.job_containers import build as flow


@click.group(cls=SuggestingGroup)
def image() -> None:
    """Build images for jobs, and list their containers.

    A job runs in another image than the inventory's with `run --image`.
    """


@verb("build", group=image, inventory=True)
@add_option("--from", "base", metavar="IMAGE", help="Base image to add packages to, such as the inventory's.")
@add_option("--requirements", metavar="FILE", help="Packages for pip, as `pip install -r` reads them.")
@add_option(
    "--apt", multiple=True, metavar="PACKAGE", help="Package of the distribution to install with apt-get. Repeatable."
)
@add_option("--wheels", metavar="DIR", help="Have pip install from the wheels in DIR alone, without a network.")
@add_option(
    "-f", "--file", "dockerfile", metavar="DOCKERFILE", help="Build from a Dockerfile; DIR is the build context."
)
@add_option("-t", "--tag", required=True, metavar="NAME", help="Name of the image, such as train:2.")
@click.argument("folder", required=False, metavar="[DIR]")
def build(
    ctx: click.Context,
    /,
    *,
    base: str | None,
    requirements: str | None,
    apt: tuple[str, ...],
    wheels: str | None,
    dockerfile: str | None,
    tag: str,
    folder: str | None,
) -> None:
    """Build an image with this machine's Docker Engine.

    `run --image NAME` copies it to the hosts then: one copy leaves this machine, and hosts pass it on. pip's settings
    PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_TRUSTED_HOST and those of proxies are taken from the environment.

    \b
    Examples:
      taco-launch image build --from registry.example.com/taco-train:1 --requirements requirements.txt -t mine:1
      taco-launch image build --from train:1 --apt libsndfile1 --requirements requirements.txt -t mine:2
      taco-launch image build -f Dockerfile -t mine:3 .
    """
    settings = settings_of(ctx)
    mpirun = settings.load().mpirun if settings.source is not None else "mpirun"
    given = (base or "", requirements or "", apt, wheels or "", dockerfile or "", folder or "")
    identity = flow.build(flow.BuildRequest(tag, *given, mpirun), settings.talk)
    click.echo(render.printable(identity))
    settings.talk(f"run a job in it: {settings.typed} run --image {tag} -- COMMAND")


@verb("list", group=image, access=True, output=True)
def list_(ctx: click.Context, /, **access: object) -> None:
    """List the containers that jobs have besides the cluster's own.

    `prune` removes those that no job has needed for a day.

    \b
    Example:
      taco-launch -i hosts.yaml image list
    """
    settings = settings_of(ctx)
    found = job_container_tables.rows(settings, access_of(access))
    if settings.output in ("json", "yaml"):
        render.data({"containers": found}, settings.output)
    else:
        click.echo(job_container_tables.table(found))
