"""list, get, logs, wait, stop, delete."""

import getpass
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from taco_launch.cli import render
from taco_launch.cli.options import (
    Seconds,
    access_of,
    access_options,
    inventory_option,
    output_options,
    settings_of,
    talk_options,
)
from taco_launch.errors import NO_JOB, HostError, TacoLaunchError

if TYPE_CHECKING:
    from taco_launch.remote.head import Head


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the jobs of this machine; nobody else is asked while somebody types."""
    if settings_of(ctx).elsewhere:
        return []
    from taco_launch.agent.folders import Jobs, state_folder

    found = Jobs(state_folder(os.environ, os.geteuid())).all()
    return [CompletionItem(folder.name) for folder in found if folder.name.startswith(incomplete)]


_name = click.argument("name", shell_complete=_complete)
_names = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete)


@click.command("list")
@inventory_option
@output_options
@access_options
@click.pass_context
def list_(ctx: click.Context, /, **access: Any) -> None:
    """List all jobs, the newest first.

    \b
    Example:
      taco-launch list -o wide
    """
    from taco_launch.flows import jobs

    settings = settings_of(ctx)
    found, warnings = jobs.jobs(settings.head(access_of(access)))
    for warning in warnings:
        click.echo(f"warning: {render.printable(warning)}", err=True)
    render.job_list(found, settings.output)


@click.command()
@inventory_option
@output_options
@access_options
@_name
@click.pass_context
def get(ctx: click.Context, /, name: str, **access: Any) -> None:
    """Show one job: its state and why, its ranks, what happened when.

    \b
    Example:
      taco-launch get vgg16 --json
    """
    from taco_launch.flows import jobs

    settings = settings_of(ctx)
    render.job(jobs.get(settings.head(access_of(access)), name), settings.output)


@click.command()
@inventory_option
@talk_options
@access_options
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends. Ctrl-C only leaves it.")
@click.option("-t", "--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last LINES lines.")
@click.option("--rank", type=click.IntRange(min=0), help="One rank's output alone, byte for byte.")
@_name
@click.pass_context
def logs(ctx: click.Context, /, name: str, *, follow: bool, tail: int | None, rank: int | None, **access: Any) -> None:
    """Print a job's output: of all ranks, each line behind HOST/RANK, or of one.

    With -f, a connection to the head that is lost is made again, and the output goes on where it broke off.

    \b
    Examples:
      taco-launch logs -f vgg16
      taco-launch logs -t 20 --rank 0 vgg16
    """
    from taco_launch.flows import jobs
    from taco_launch.flows.follow import Follow

    settings = settings_of(ctx)
    out = render.LogOutput(sys.stdout.buffer, colour=rank is None)
    what = Follow(name, rank=rank, tail=tail, follow=follow)
    job = jobs.follow(settings.head(access_of(access)), what, out.write, say=settings.talk)
    if follow:
        render.ending(settings, job)


@click.command()
@inventory_option
@talk_options
@access_options
@_name
@click.pass_context
def wait(ctx: click.Context, /, name: str, **access: Any) -> int:
    """Wait for a job's end and exit with its code.

    \b
    Example:
      taco-launch wait vgg16 && echo trained
    """
    from taco_launch.flows import jobs
    from taco_launch.flows.follow import Follow

    settings = settings_of(ctx)
    try:
        with render.waiting(settings.quiet, name) as status:
            head = settings.head(access_of(access))
            job = jobs.follow(head, Follow(name, tail=0), lambda _data: None, status.state, settings.talk)
    except HostError:
        raise
    except TacoLaunchError as error:
        error.exit_code = NO_JOB
        raise
    render.ending(settings, job)
    return job.record.exit_code or 0


@click.command()
@inventory_option
@talk_options
@access_options
@click.option("--grace", type=Seconds(), metavar="SECONDS", help="Seconds until KILL, if less than the job's own.")
@_names
@click.pass_context
def stop(ctx: click.Context, /, names: tuple[str, ...], grace: float | None, **access: Any) -> int:
    """Stop jobs: TERM, then KILL after the grace time. Returns when nothing of them is left.

    \b
    Example:
      taco-launch stop vgg16 resnet50
    """
    settings = settings_of(ctx)
    head = settings.head(access_of(access))
    return _each(names, lambda name: settings.talk(f"{name}: {_stop(head, name, grace)}"))


@click.command()
@inventory_option
@talk_options
@access_options
@_names
@click.pass_context
def delete(ctx: click.Context, /, names: tuple[str, ...], **access: Any) -> int:
    """Stop jobs if they still run, and remove their records and logs.

    \b
    Example:
      taco-launch delete vgg16
    """
    from taco_launch.flows import jobs

    settings = settings_of(ctx)
    head = settings.head(access_of(access))

    def one(name: str) -> None:
        _stop(head, name, None)
        for warning in jobs.delete(head, name):
            render.warning(settings, warning)
        settings.talk(f"{name}: deleted")

    return _each(names, one)


def _stop(head: "Head", name: str, grace: float | None) -> str:
    """Stop a job, wait for its end, say how it ended."""
    from taco_launch.flows import jobs
    from taco_launch.flows.follow import Follow

    job = jobs.stop(head, name, f"taco-launch stop of {getpass.getuser()}", signal.SIGTERM, grace)
    if job.record.state.is_terminal:
        return f"it had ended: {job.record.state.value}"
    job = jobs.follow(head, Follow(name, tail=0), lambda _data: None)
    return f"{job.record.state.value}: {job.record.reason}"


def _each(names: tuple[str, ...], act: Callable[[str], None]) -> int:
    """Do something with every job; one that fails does not keep the others from it. Gives the first failure's code."""
    code = 0
    for name in dict.fromkeys(names):
        try:
            act(name)
        except TacoLaunchError as error:
            render.error(error.message, error.hint)
            code = code or error.exit_code
    return code


VERBS = (list_, get, logs, wait, stop, delete)
