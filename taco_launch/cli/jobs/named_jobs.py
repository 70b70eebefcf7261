"""What the verbs share that do something to jobs by their names: each on its own, and another's only after a question."""

import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import Settings, add_option
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import host_errors, render
from taco_launch.core.errors import NoJobError, OwnerError, TacoLaunchError, UsageError
from taco_launch.core.model.instances import instances
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs.backend import Backend, Outcomes
from taco_launch.jobs.request.caller import person

F = TypeVar("F", bound=Callable[..., Any])
_PATTERN = frozenset("*?")
names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_job)
yes_option = add_option("--yes", is_flag=True, help="Do not ask, even if the job is another user's.")


def rank_options(function: F) -> F:
    """Add --rank and --instance, of which `rank_of` takes one."""
    function = add_option(
        "--instance",
        metavar="NAME",
        help="Use the first rank of this instance, such as JOB-worker-0; `taco-launch arena get` lists them.",
    )(function)
    return add_option("--rank", type=click.IntRange(min=0), metavar="N", help="Rank to use. Default: 0.")(function)


def rank_of(backend: Backend, name: str, options: Mapping[str, Any]) -> int:
    """Return the rank that `rank_options` name.

    Raises:
        UsageError: both are given, or the job has no such instance.
        NoJobError: there is no job of that name.
    """
    rank, instance = options["rank"], options["instance"]
    if instance is None:
        return rank or 0
    if rank is not None:
        raise UsageError("--rank and --instance cannot be combined: each names a rank", hint="use only one of them")
    job = backend.get(name)
    parts = instances(job.spec, job.record)
    found = next((part for part in parts if part.name == instance), None)
    if found is None:
        names = ", ".join(part.name for part in parts if part.ranks)
        hint = f"its instances are {names}" if names else "the job has no hosts yet"
        raise UsageError(f"job {name} has no instance {instance}", hint=hint)
    if not found.ranks:
        raise UsageError(
            f"instance {instance} has no ranks", hint="name an instance that has ranks, or a rank: --rank 0"
        )
    return found.ranks[0]


def matching(backend: Backend, names: Sequence[str]) -> tuple[str, ...]:
    """Return each job once, with the person's own jobs in place of a pattern such as 'sweep-*', the oldest first.

    Raises:
        NoJobError: a pattern matches none of these jobs.
    """
    if not any(map(_PATTERN.intersection, names)):
        return tuple(dict.fromkeys(names))
    rows, _warnings = backend.list()
    own = [row.name for row in reversed(rows) if row.owner in ("", person())]
    jobs: list[str] = []
    for name in names:
        matches = [job for job in own if fnmatchcase(job, name)] if _PATTERN.intersection(name) else [name]
        if not matches:
            raise NoJobError(f"none of your jobs matches {name!r}", hint="list all jobs: taco-launch list")
        jobs += matches
    return tuple(dict.fromkeys(jobs))


def select(rows: Sequence[JobRow], names: Sequence[str], *, required: bool) -> list[JobRow]:
    """Return the rows of jobs by their names and patterns, all rows without any.

    Raises:
        NoJobError: a name or pattern matches no job, and is `required` to match one.
    """
    for name in names if required else ():
        if not any(fnmatchcase(row.name, name) for row in rows):
            raise NoJobError(f"no job matches {name!r}", hint="list all jobs: taco-launch list")
    return [row for row in rows if not names or any(fnmatchcase(row.name, name) for name in names)]


def for_each_job(settings: Settings, names: tuple[str, ...], act: Callable[[str], tuple[str, str]]) -> int:
    """Do something with every job; one that fails does not keep the others from it. Gives the first failure's code.

    `act` returns the state of the job afterwards and the reason, which may be "".
    """
    code = 0
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        try:
            state, reason = act(name)
            rows.append({"name": name, "state": state, "reason": reason})
        except TacoLaunchError as error:
            render.error(error.message, error.hint)
            rows.append({"name": name, "error": {**host_errors.of_error(error), "host": None}})
            code = code or error.exit_code
            continue
        settings.talk(f"{name}: {state}{f': {render.printable(render.one_line(reason))}' if reason else ''}")
    if settings.output in ("json", "yaml"):
        render.data({"jobs": rows}, settings.output)
    return code


def change(
    names: Sequence[str],
    ask: Callable[[Sequence[str], str | None], Outcomes],
    verb: str,
    done: str,
    *,
    yes: bool,
) -> Outcomes:
    """Have one's own jobs changed by one call, and others' by a second one, after a question for each.

    `ask` calls the backend for some of the jobs, all of this owner if one is given.
    """
    outcomes = dict(ask(list(dict.fromkeys(names)), None if yes else person()).jobs)
    agreed = []
    for name, outcome in list(outcomes.items()):
        if isinstance(outcome, OwnerError):
            try:
                _confirm(outcome.message, name, verb, done)
                agreed.append(name)
            except TacoLaunchError as error:
                outcomes[name] = error
    if agreed:
        outcomes.update(ask(agreed, None).jobs)
    return Outcomes(outcomes)


def agree(
    backend: Backend,
    name: str,
    verb: str,
    done: str,
    can: Callable[[JobState], bool] = lambda _state: True,
    *,
    yes: bool,
) -> None:
    """Go on with one's own job, with another's only after a question: `verb` (stop) says what is to be `done` (stopped).

    There is no question for a job with which that cannot be done in its state, which `can` says: the head tells why.

    Raises:
        UsageError: it is another's, and stdin is not a terminal, so the question cannot be asked.
        TacoLaunchError: the answer is no.
        NoJobError: there is none of that name.
    """
    if yes:
        return
    job = backend.get(name)
    owner = job.spec.owner
    if owner not in ("", person()) and can(job.record.state):
        _confirm(f"job {name} is {owner}'s", name, verb, done)


def _confirm(whose: str, name: str, verb: str, done: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{whose}, and stdin is not a terminal", hint=f"ask its owner, or add --yes to {verb} it anyway"
        )
    if not click.confirm(f"{whose}: {verb} it?", err=True):
        raise TacoLaunchError(f"{whose}: {name} was not {done}")
