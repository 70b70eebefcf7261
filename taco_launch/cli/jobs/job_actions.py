"""wait, stop, delete, suspend, resume, resize: await the end of jobs, or change them."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.jobs.start_job import code_of, launcher_errors, print_job_data
from taco_launch.cli.options.common import Seconds, Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import job_output, render
from taco_launch.cli.output.waiting import waiting
from taco_launch.core.errors import DEADLINE, TacoLaunchError
from taco_launch.core.model.job_view import JobView, age
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs.backend import Backend, FollowListener, LogQuery, Outcomes
from taco_launch.jobs.request.caller import person

# By how many seconds the clock of a head may differ from this machine's.
_SKEW = 2.0


class _TimeoutReached(KeyboardInterrupt):
    """The time of `wait --timeout` is over; what Ctrl-C ends, it ends."""


@verb(access=True, output=True)
@add_option("--timeout", type=Seconds(1), metavar="TIME", help="Stop waiting after TIME. The jobs continue.")
@named_jobs.names_argument
def wait(ctx: click.Context, /, names: tuple[str, ...], *, timeout: float | None, **access: Any) -> int:
    """Wait for jobs to end and exit with the job's code.

    A pattern such as 'sweep-*' means all of your own jobs whose names match. Of several jobs, the exit code is that of the first NAME whose job failed, 0 if none did. It is 125 if a job was not found, if no rank
    could start, or if --strict ended it, 143 if it was stopped, and 124 if the jobs have not ended after --timeout. --json prints the job, or the error; of several jobs, {"jobs": [...]}.

    \b
    Examples:
      taco-launch wait vgg16 && echo trained
      taco-launch wait vgg16 'sweep-*' --timeout 30m
      taco-launch wait vgg16 --json
    """
    settings = settings_of(ctx)
    ended: list[JobView] = []
    with launcher_errors():
        backend = settings.backend(access_of(access))
        names = named_jobs.matching(backend, names)
        with _at_most(timeout, names, ended):
            for name in names:
                ended.append(_awaited(settings, backend, name))
                job_output.ending(settings, ended[-1])
    print_job_data(settings, *ended)
    return next(filter(None, map(code_of, ended)), 0)


def _awaited(settings: Settings, backend: Backend, name: str) -> JobView:
    with waiting(settings.quiet, name) as status:
        watch = FollowListener(
            state=status.state, waits=lambda words: render.waits(settings, name, words), say=settings.talk
        )
        return backend.follow(LogQuery(name, tail=0), lambda _data: None, watch)


@verb(access=True, output=True)
@add_option(
    "--grace",
    type=Seconds(),
    metavar="TIME",
    help="Time between TERM and KILL. It cannot be longer than the job's own --grace, the default.",
)
@named_jobs.yes_option
@named_jobs.names_argument
def stop(ctx: click.Context, /, names: tuple[str, ...], *, grace: float | None, yes: bool, **access: Any) -> int:
    """Stop jobs: TERM, then KILL after the grace time. Returns when none of their processes is left.

    A pattern such as 'sweep-*' means all of your own jobs whose names match. Asks before it stops another user's job;
    without a terminal, pass --yes.

    \b
    Examples:
      taco-launch stop vgg16 resnet50
      taco-launch stop 'sweep-*'
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    names = named_jobs.matching(backend, names)
    by = f"{person()} (taco-launch stop)"
    # What ended before had ended already; what waited ends at once.
    before = time.time() - (_SKEW if settings.source else 0.0)

    def ask(some: Sequence[str], owner: str | None) -> Outcomes:
        return backend.stop(some, by, signal.SIGTERM, grace, owner)

    def report(name: str) -> tuple[str, str]:
        job = outcomes.job(name)
        if not job.record.state.is_terminal:
            job = backend.follow(LogQuery(name, tail=0), lambda _data: None)
        elif (job.record.ended or 0.0) < before or job.record.reason != f"stopped by {by}":
            return job.record.state.value, "it had already ended"
        return job.record.state.value, job.record.reason

    outcomes = named_jobs.change(names, ask, "stop", "stopped", yes=yes)
    return named_jobs.for_each_job(settings, names, report)


@verb(access=True, output=True)
@named_jobs.yes_option
@named_jobs.names_argument
def delete(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Stop jobs and delete their records and logs.

    A pattern such as 'sweep-*' means all of your own jobs whose names match. Asks before it deletes another user's job;
    without a terminal, pass --yes.

    \b
    Examples:
      taco-launch delete vgg16
      taco-launch delete 'sweep-*'
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    names = named_jobs.matching(backend, names)
    by = f"{person()} (taco-launch delete)"

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
def _at_most(seconds: float | None, names: Sequence[str], ended: Sequence[JobView]) -> Iterator[None]:
    """End the block after so many seconds, if any; `ended` grows with each of the jobs that has ended, in their order.

    Raises:
        TacoLaunchError: one has not ended by then.
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
        name = names[min(len(ended), len(names) - 1)]
        error = TacoLaunchError(
            f"job {name} has not ended after {age(seconds)}; it was not stopped", hint=f"taco-launch get {name}"
        )
        error.exit_code = DEADLINE
        raise error from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@verb(access=True, output=True)
@named_jobs.yes_option
@named_jobs.names_argument
def suspend(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Stop jobs and free their slots until they are resumed.

    A job that waits for its slots waits for `resume` instead. Its time (--timeout) starts over. A pattern such as 'sweep-*'
    means all of your own jobs whose names match. Asks before it suspends another user's job; without a terminal, pass --yes.

    \b
    Example:
      taco-launch suspend vgg16
      taco-launch resume vgg16
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    names = named_jobs.matching(backend, names)
    return _change(settings, names, backend.suspend, ("suspend", "suspended"), lambda _state: True, yes=yes)


@verb(access=True, output=True)
@named_jobs.yes_option
@named_jobs.names_argument
def resume(ctx: click.Context, /, names: tuple[str, ...], *, yes: bool, **access: Any) -> int:
    """Queue suspended jobs again.

    A pattern such as 'sweep-*' means all of your own jobs whose names match. Asks before it resumes another user's job;
    without a terminal, pass --yes.

    \b
    Example:
      taco-launch resume vgg16 resnet50
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    names = named_jobs.matching(backend, names)
    return _change(
        settings, names, backend.resume, ("resume", "resumed"), lambda state: state is JobState.QUEUED, yes=yes
    )


@verb(access=True, output=True)
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
@click.argument("hosts", type=click.IntRange(min=1), metavar="HOSTS")
def resize(ctx: click.Context, /, name: str, hosts: int, *, yes: bool, **access: Any) -> int:
    """Change how many hosts an elastic job uses at most.

    The job runs with --elastic. HOSTS is between MIN and MAX of its --hosts. With fewer hosts than it has now, the job gives
    the last ones up; with more, it uses hosts as they become free. Under torchrun each change restarts all ranks from their
    last checkpoint; under horovod the ranks that are left continue from their last commit. Asks before it changes another
    user's job; without a terminal, pass --yes.

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
