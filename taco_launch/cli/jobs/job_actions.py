"""wait, stop, delete."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.jobs.exit_code import code_of, launcher_errors, print_job_data
from taco_launch.cli.options.common import Seconds, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import render
from taco_launch.cli.output.waiting import waiting
from taco_launch.core.errors import DEADLINE, TacoLaunchError
from taco_launch.jobs.backend import FollowListener, LogQuery, Outcomes
from taco_launch.jobs.request.caller import person


class _TimeoutReached(KeyboardInterrupt):
    """The time of `wait --timeout` is over; what Ctrl-C ends, it ends."""


_name = click.argument("name", shell_complete=complete_job)


@verb(access=True, output=True)
@add_option("--timeout", type=Seconds(1), metavar="TIME", help="Stop waiting after TIME. The job continues.")
@_name
def wait(ctx: click.Context, /, name: str, *, timeout: float | None, **access: Any) -> int:
    """Wait for a job to end and exit with its code.

    The exit code is 125 if the job was not found, if no rank ran, or if --strict ended it, and 124 if it has not ended after --timeout. --json
    prints the job, or the error.

    \b
    Examples:
      taco-launch wait vgg16 && echo trained
      taco-launch wait vgg16 --timeout 30m
      taco-launch wait vgg16 --json
    """
    settings = settings_of(ctx)
    with launcher_errors(), _at_most(timeout, name), waiting(settings.quiet, name) as status:
        watch = FollowListener(
            state=status.state, waits=lambda words: render.waits(settings, name, words), say=settings.talk
        )
        backend = settings.backend(access_of(access))
        job = backend.follow(LogQuery(name, tail=0), lambda _data: None, watch)
    render.ending(settings, job)
    print_job_data(settings, job)
    return code_of(job)


@verb(access=True, output=True)
@add_option(
    "--grace", type=Seconds(), metavar="TIME", help="Time between TERM and KILL, if shorter than the job's own --grace."
)
@named_jobs.yes_option
@named_jobs.names_argument
def stop(ctx: click.Context, /, names: tuple[str, ...], *, grace: float | None, yes: bool, **access: Any) -> int:
    """Stop jobs: TERM, then KILL after the grace time. Returns when none of their processes is left.

    Asks before it stops another user's job; without a terminal, pass --yes.

    \b
    Example:
      taco-launch stop vgg16 resnet50
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    by = f"taco-launch stop of {person()}"

    def ask(some: Sequence[str], owner: str | None) -> Outcomes:
        return backend.stop(some, by, signal.SIGTERM, grace, owner)

    def report(name: str) -> tuple[str, str]:
        job = outcomes.job(name)
        if not job.record.state.is_terminal:
            job = backend.follow(LogQuery(name, tail=0), lambda _data: None)
        elif job.record.reason != f"stopped by {by}":  # one that waited ends at once
            return job.record.state.value, "it had already ended"
        return job.record.state.value, job.record.reason

    outcomes = named_jobs.change(names, ask, "stop", "stopped", yes=yes)
    return named_jobs.for_each_job(settings, names, report)


@verb(access=True, output=True)
@named_jobs.yes_option
@named_jobs.names_argument
def delete(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Stop jobs and delete their records and logs.

    Asks before it deletes another user's job; without a terminal, pass --yes.

    \b
    Example:
      taco-launch delete vgg16
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    by = f"taco-launch delete of {person()}"

    def report(name: str) -> tuple[str, str]:
        if outcomes.existing(name) is not None:
            backend.follow(LogQuery(name, tail=0), lambda _data: None)
            show(backend.delete([name])).existing(name)
        return "deleted", ""

    def show(deleted: Outcomes) -> Outcomes:
        for warning in deleted.warnings:
            render.warning(settings, warning)
        return deleted

    outcomes = named_jobs.change(
        names, lambda some, owner: show(backend.delete(some, by, owner)), "delete", "deleted", yes=yes
    )
    return named_jobs.for_each_job(settings, names, report)


@contextmanager
def _at_most(seconds: float | None, name: str) -> Iterator[None]:
    """End the block after so many seconds, if any.

    Raises:
        TacoLaunchError: the job has not ended by then.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _TimeoutReached

    if seconds is None:
        yield
        return
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TimeoutReached:
        error = TacoLaunchError(
            f"job {name} has not ended after {render.age(seconds)}; it continues", hint=f"taco-launch get {name}"
        )
        error.exit_code = DEADLINE
        raise error from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
