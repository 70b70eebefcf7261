"""list, get, top: jobs and hosts and their state, once or refreshed; prune: deletes old jobs."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.options.common import Seconds, Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import job_tables, node_tables, render
from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import size_text
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.job_view import JobView, LiveJob
from taco_launch.core.model.jobs import JobState
from taco_launch.core.model.slots import describe_holders
from taco_launch.jobs.backend import HostOccupancy
from taco_launch.jobs.request.caller import person

F = TypeVar("F", bound=Callable[..., Any])


def _states() -> list[str]:
    return [state.value for state in JobState]


def _complete_state(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(state) for state in _states() if state.startswith(incomplete.upper())]


def _check_states(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Accept names of states in lower case, too."""
    unknown = [state for state in value if state.upper() not in _states()]
    if unknown:
        raise click.BadParameter(f"unknown state {unknown[0]!r}; states: {', '.join(_states())}")
    return tuple(state.upper() for state in value)


def _watch_option(function: F) -> F:
    return add_option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")(function)


@verb("list", access=True, output=True)
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_job)
@_watch_option
@add_option("--mine", is_flag=True, help="Only your jobs.")
@add_option("--queue", metavar="NAME", help="Only jobs of this queue.")
@add_option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    callback=_check_states,
    shell_complete=_complete_state,
    help="Only jobs in this state. Repeatable.",
)
@add_option(
    "-n", "--last", type=click.IntRange(min=1), metavar="N", help="Show only the newest N of the selected jobs."
)
def list_(
    ctx: click.Context,
    /,
    *,
    names: tuple[str, ...],
    watch: bool,
    mine: bool,
    queue: str | None,
    states: tuple[str, ...],
    last: int | None,
    **access: Any,
) -> None:
    """List jobs, newest first; ended ones come last. A job whose record is damaged is a warning, with --json in `warnings`.

    With names or patterns, list only these jobs. A name or pattern without a job is an error (exit code 1), but not with -w.

    -o wide adds the duration, exit code, whether it runs as planned (VERIFIED), queue, priority, owner, reason, command,
    progress and the last line of the ranks.

    \b
    Examples:
      taco-launch list -o wide
      taco-launch list -n 5
      taco-launch list 'sweep-*'
      taco-launch list --mine --state QUEUED --state RUNNING
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    owner = person() if mine else None

    def query() -> tuple[Sequence[JobRow], Sequence[str]]:
        rows, warnings = backend.list()
        if not rows and settings.is_remote:
            warnings = (*warnings, *_other_heads(backend.nodes(settings.load())))
        wanted = named_jobs.select(rows, names, required=not watch)
        wanted = [row for row in wanted if (not states or row.state.value in states) and queue in (None, row.queue)]
        return [row for row in wanted if owner in (None, row.owner)][:last], warnings

    def table(rows: Sequence[JobRow]) -> str:
        return job_tables.job_list(rows, time.time(), wide=settings.output == "wide")

    _show(settings, query, table, lambda rows: {"jobs": to_json(rows)}, watch=watch)


def _other_heads(nodes: Sequence[HostOccupancy]) -> list[str]:
    """Return a warning where a head without jobs has hosts on which jobs run: they are in the queue of another head."""
    held = [
        f"{node.host.name}: {holders}"
        for node in nodes
        if node.occupancy is not None and (holders := describe_holders(node.occupancy.only_held()))
    ]
    head = next((node.host.name for node in nodes if node.is_head), "")
    return [f"{head} has no jobs, but its hosts run those of another head: {'; '.join(held)}"] if held else []


@verb(access=True, output=True)
@_watch_option
@click.argument("name", shell_complete=complete_job)
def get(ctx: click.Context, /, name: str, *, watch: bool, **access: Any) -> None:
    """Show one job: state, reason, hosts, progress, where the time went.

    -o wide adds the slots, the conditions and the events. `taco-launch arena get` has Arena's table of instances. -o yaml and --json print everything, with the fields of an
    MPIJob of the MPI Operator: kind, metadata, spec.runPolicy, status.

    DURATION is the time from the first start of the job to its end, or until now, without the time that it waited:
    before the first start, between attempts, and while it was suspended. `run` and `wait` print it at the
    end, as "after 6m (5m without waiting)" where it waited.

    \b
    Examples:
      taco-launch get vgg16
      taco-launch get vgg16 -o yaml
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    wide = settings.output == "wide"

    def table(job: JobView) -> str:
        return job_tables.one_job(job, time.time(), wide=wide)

    _show(settings, lambda: (backend.get(name), ()), table, job_tables.job_data, watch=watch)


@click.group(cls=SuggestingGroup)
def top() -> None:
    """Show GPU or slot usage by host or by job."""


@verb(group=top, access=True, output=True)
@_watch_option
def node(ctx: click.Context, /, *, watch: bool, **access: Any) -> None:
    """Show hosts with their GPUs: held by jobs, and in use.

    What is in use is measured while the host is asked. GPU USE is the share of time in which its GPUs ran a kernel, POWER is per
    GPU, and TEMP is that of the hottest. IO WAIT is the share of time in which CPUs had nothing to do but wait for disks.

    If no host has a GPU, slots are counted. If the inventory sets `slots`, the number of GPUs that jobs may use is shown.
    What -H HOST:SLOTS adds for one job counts in `top job` only. -o wide shows who holds each, and which containers hosts have besides the
    cluster's own. A host that does not answer is `notready`, with the reason on stderr.

    \b
    Example:
      taco-launch -i hosts.yaml top node -w
    """
    from taco_launch.cli.output import job_container_tables  # noqa: PLC0415 - `list` and `get` need nothing of set-up

    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))

    def query() -> tuple[Sequence[HostOccupancy], Sequence[str]]:
        found = backend.nodes(settings.load())
        return found, [f"{node.host.name}: {node.problem}" for node in found if node.problem]

    def data(nodes: Sequence[HostOccupancy]) -> Any:
        found = [node_tables.node_data(node) for node in nodes]
        containers = job_container_tables.rows(settings, access_of(access))
        return {
            "nodes": found,
            "containers": containers,
            **{key: sum(node[key] for node in found) for key in ("allocated", "total")},
        }

    wide = settings.output == "wide"

    def table(nodes: Sequence[HostOccupancy]) -> str:
        text = node_tables.top_nodes(nodes, wide=wide)
        others = job_container_tables.rows(settings, access_of(access)) if wide else []
        return "\n\n".join((text, job_container_tables.table(others))) if others else text

    _show(settings, query, table, data, watch=watch)


@verb(group=top, access=True, output=True)
@_watch_option
def job(ctx: click.Context, /, *, watch: bool, **access: Any) -> None:
    """Show jobs with their GPUs, use and progress.

    Jobs that ended are left out: `list` shows them. If no job has or had a GPU, slots are counted. -o wide adds the queue, priority,
    owner and whether it runs as planned (VERIFIED).

    What a job uses is the mean of its hosts over the last minute, sampled every ten seconds. GPU USE is the share of time in which
    its GPUs ran a kernel, POWER is per GPU, and TEMP is that of the hottest. CPU is how many CPUs of a host the job uses. IO WAIT
    is the share of time in which the host's CPUs had nothing to do but wait for disks. GOODPUT is the share of its time in which
    a job that prints its steps has trained. Jobs that hold the most slots come first, then those that request the most. Hints below the table name what may keep the GPUs idle, with the numbers of at least
    55 seconds.

    \b
    Example:
      taco-launch top job -w
    """
    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))

    def query() -> tuple[tuple[Sequence[JobRow], Sequence[LiveJob]], Sequence[str]]:
        rows, live, warnings = backend.live()
        return (rows, live), warnings

    def data(pair: tuple[Sequence[JobRow], Sequence[LiveJob]]) -> Any:
        held = sum(row.allocated for row in pair[0])
        jobs = node_tables.live_data(*pair)
        return {"jobs": jobs, "allocated": held, "requested": node_tables.total_requested(pair[0])}

    def table(pair: tuple[Sequence[JobRow], Sequence[LiveJob]]) -> str:
        return node_tables.top_jobs(pair[0], time.time(), wide=settings.output == "wide", live=pair[1])

    _show(settings, query, table, data, watch=watch)


@verb(access=True, output=True)
@add_option(
    "--older-than",
    "--since",
    "older_than",
    type=Seconds(unit=True),
    required=True,
    metavar="TIME",
    help="Delete jobs that ended longer ago than this, with its unit: 90s, 15m, 3h, 2d. Arena calls this option --since.",
)
@add_option("--all", "everybody", is_flag=True, help="Delete other users' jobs too.")
@add_option(
    "--unused",
    type=Seconds(unit=True),
    default=86400.0,
    show_default="1d",
    metavar="TIME",
    help="Remove containers that were created for jobs (--image, --data) and that no job has used for this long.",
)
@add_option("--dry-run", is_flag=True, help="Only list the jobs and containers.")
def prune(
    ctx: click.Context, /, *, older_than: float, everybody: bool, unused: float, dry_run: bool, **access: Any
) -> None:
    """Delete the records and logs of your old jobs.

    Also removes containers that jobs brought (--image, --data) and that no waiting or running job needs, with their images.
    Copies of code that no job has used for as long go as well.

    \b
    Examples:
      taco-launch prune --older-than 30d --unused 1h
      taco-launch prune --older-than 3h --dry-run
      taco-launch prune --older-than 30d
    """
    from taco_launch.cli.output import job_container_tables  # noqa: PLC0415 - `list` and `get` need nothing of set-up

    settings = settings_of(ctx)
    backend = settings.backend(access_of(access))
    rows, warnings = backend.prune(older_than, None if everybody else person(), dry_run=dry_run)
    containers = job_container_tables.prune(settings, access_of(access), unused, dry_run=dry_run)
    copies, more = backend.prune_code(older_than, settings.load(), dry_run=dry_run)
    for warning in (*warnings, *more):
        render.warning(settings, warning)
    if settings.output in ("json", "yaml"):
        render.data({"jobs": to_json(rows), "containers": containers, "code": to_json(copies)}, settings.output)
    elif rows:
        click.echo(job_tables.job_list(rows, time.time(), wide=settings.output == "wide"))
    for each in containers:
        settings.talk(f"container {each['key']} ({each['told']}): {'would be removed' if dry_run else 'removed'}")
    count = "1 job" if len(rows) == 1 else f"{len(rows)} jobs"
    gone = "would be removed" if dry_run else "removed"
    settings.talk(f"{count} {gone}")
    if any(each.count or each.bytes for each in copies):
        hosts = "1 host" if len(copies) == 1 else f"{len(copies)} hosts"
        settings.talk(f"{size_text(sum(each.bytes for each in copies))} of copied code on {hosts} {gone}")


T = TypeVar("T")


def _show(
    settings: Settings,
    query: Callable[[], tuple[T, Sequence[str]]],
    table: Callable[[T], str],
    data: Callable[[T], Any],
    *,
    watch: bool,
) -> None:
    """Print what `query` finds, as a table or as data, and its warnings on stderr: once, or again and again."""
    if watch:
        if settings.output in ("json", "yaml"):
            raise UsageError(f"-w prints tables only, not {settings.output}", hint="omit --watch, or --json and -o")

        def drawn() -> str:
            found, warnings = query()
            return "\n".join((table(found), *(f"warning: {render.printable(warning)}" for warning in warnings)))

        render.watch(drawn)
    found, warnings = query()
    for warning in warnings:
        render.warning(settings, warning)
    if settings.output in ("json", "yaml"):
        render.data({**data(found), "warnings": list(warnings)} if warnings else data(found), settings.output)
    else:
        click.echo(table(found))
