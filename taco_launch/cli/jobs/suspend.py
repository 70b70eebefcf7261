"""suspend, resume, resize: a job off its slots for a while, and on again; and on more or fewer hosts."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.options.common import Settings, access_of, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs.backend import Outcomes
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
    ask = settings.backend(access_of(access)).suspend
    return _change(settings, names, ask, ("suspend", "suspended"), lambda _state: True, yes=yes)


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
    ask = settings.backend(access_of(access)).resume
    return _change(settings, names, ask, ("resume", "resumed"), lambda state: state is JobState.QUEUED, yes=yes)


@verb(access=True, output=True)
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
@click.argument("hosts", type=click.IntRange(min=1), metavar="HOSTS")
def resize(ctx: click.Context, /, name: str, hosts: int, *, yes: bool, **access: Any) -> int:
    """Change how many hosts an elastic job uses at most.

    The job runs with --elastic. HOSTS is between MIN and MAX of its --hosts. With fewer hosts than it has now, the job gives
    the last ones up; with more, it uses hosts as they become free. Each change restarts its ranks from their last
    checkpoint. Asks before it changes another user's job; without a terminal, pass --yes.

    \b
    Example:
      taco-launch resize vgg16 2
    """
    settings = settings_of(ctx)
    ask = settings.backend(access_of(access)).resize

    def report(name: str) -> tuple[str, str]:
        return outcomes.job(name).record.state.value, f"it will use at most {hosts} host{'' if hosts == 1 else 's'}"

    outcomes = named_jobs.change(
        (name,), lambda some, owner: ask(some, hosts, person(), owner), "resize", "resized", yes=yes
    )
    return named_jobs.for_each_job(settings, (name,), report)


def _change(
    settings: Settings,
    names: tuple[str, ...],
    ask: Callable[[Sequence[str], str, str | None], Outcomes],
    verbs: tuple[str, str],
    tells: Callable[[JobState], bool],
    *,
    yes: bool,
) -> int:
    """Have jobs changed; of one whose state `tells` so, the reason is shown. Give the exit code."""

    def report(name: str) -> tuple[str, str]:
        record = outcomes.job(name).record
        return record.state.value, record.reason if tells(record.state) else ""

    outcomes = named_jobs.change(names, lambda some, owner: ask(some, person(), owner), *verbs, yes=yes)
    return named_jobs.for_each_job(settings, names, report)
