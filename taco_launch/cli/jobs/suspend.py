"""suspend, resume: a job off its slots for a while, and on again."""

from typing import Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.options.common import access_of, settings_of, verb
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs.request.caller import person


@verb(access=True, output=True)
@named_jobs.yes_option
@named_jobs.names_argument
def suspend(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Stop jobs and free their slots until they are resumed.

    A job that waits for its slots waits for `resume` instead. Its time (--timeout) starts over. Asks before it
    suspends another user's job; without a terminal, pass --yes.

    \b
    Example:
      taco-launch suspend vgg16
      taco-launch resume vgg16
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))

    def report(name: str) -> tuple[str, str]:
        record = outcomes.job(name).record
        return record.state.value, record.reason

    outcomes = named_jobs.change(
        names, lambda some, owner: backend.suspend(some, person(), owner), "suspend", "suspended", yes=yes
    )
    return named_jobs.for_each_job(settings, names, report)


@verb(access=True, output=True)
@named_jobs.yes_option
@named_jobs.names_argument
def resume(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Queue suspended jobs again.

    Asks before it resumes another user's job; without a terminal, pass --yes.

    \b
    Example:
      taco-launch resume vgg16 resnet50
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))

    def report(name: str) -> tuple[str, str]:
        record = outcomes.job(name).record
        return record.state.value, record.reason if record.state is JobState.QUEUED else ""

    outcomes = named_jobs.change(
        names, lambda some, owner: backend.resume(some, person(), owner), "resume", "resumed", yes=yes
    )
    return named_jobs.for_each_job(settings, names, report)
