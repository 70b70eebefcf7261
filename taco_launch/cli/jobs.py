"""wait, stop, delete."""

import signal
from typing import TYPE_CHECKING, Any

import click

from taco_launch.cli import named_jobs, render
from taco_launch.cli.completion import complete_job
from taco_launch.cli.options import (
    Seconds,
    access_of,
    access_options,
    add_option,
    inventory_option,
    person,
    settings_of,
    talk_options,
)
from taco_launch.errors import NO_JOB, HostError, TacoLaunchError

if TYPE_CHECKING:
    from taco_launch.remote.head import Head


_name = click.argument("name", shell_complete=complete_job)


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
            job = jobs.follow(
                head,
                Follow(name, tail=0),
                lambda _data: None,
                status.state,
                settings.talk,
                lambda words: render.waits(settings, name, words),
            )
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
@add_option("--grace", type=Seconds(), metavar="TIME", help="Time until KILL, if less than the job's own.")
@named_jobs.yes_option
@named_jobs.names_argument
@click.pass_context
def stop(ctx: click.Context, /, names: tuple[str, ...], *, grace: float | None, yes: bool, **access: Any) -> int:
    """Stop jobs: TERM, then KILL after the grace time. Returns when nothing of them is left.

    Before it stops somebody else's job it asks; without a terminal that takes --yes.

    \b
    Example:
      taco-launch stop vgg16 resnet50
    """
    settings = settings_of(ctx)
    head = settings.head(access_of(access))

    def one(name: str) -> None:
        named_jobs.agree(head, name, "stop", "stopped", lambda state: not state.is_terminal, yes=yes)
        settings.talk(f"{name}: {_stop(head, name, grace)}")

    return named_jobs.each(names, one)


@click.command()
@inventory_option
@talk_options
@access_options
@named_jobs.yes_option
@named_jobs.names_argument
@click.pass_context
def delete(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Stop jobs if they still run, and remove their records and logs.

    Before it deletes somebody else's job it asks; without a terminal that takes --yes.

    \b
    Example:
      taco-launch delete vgg16
    """
    from taco_launch.flows import jobs

    settings = settings_of(ctx)
    head = settings.head(access_of(access))

    def one(name: str) -> None:
        named_jobs.agree(head, name, "delete", "deleted", yes=yes)
        _stop(head, name, None)
        for warning in jobs.delete(head, name):
            render.warning(settings, warning)
        settings.talk(f"{name}: deleted")

    return named_jobs.each(names, one)


def _stop(head: "Head", name: str, grace: float | None) -> str:
    """Stop a job, wait for its end, say how it ended."""
    from taco_launch.flows import jobs
    from taco_launch.flows.follow import Follow

    by = f"taco-launch stop of {person()}"
    job = jobs.stop(head, name, by, signal.SIGTERM, grace)
    if not job.record.state.is_terminal:
        job = jobs.follow(head, Follow(name, tail=0), lambda _data: None)
    elif job.record.reason != f"stopped by {by}":  # one that waited ends at once
        return f"it had ended: {job.record.state.value}"
    return f"{job.record.state.value}: {job.record.reason}"
