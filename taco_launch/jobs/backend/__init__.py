"""Keep and run jobs: what every backend can do, and the agent on the head.

The agent on the head is one backend (agent.py). A flow knows nothing of how jobs are reached. To add one, write a module or
folder here that has `connect`, and its row in core/model/engines.py; or a package that has an entry point (hosts/plugins.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from taco_launch.core.errors import CANNOT_PLACE, HOST_FAILED, PlacementError, TacoLaunchError, UnusableError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.remote.credentials import Credentials

if TYPE_CHECKING:
    from taco_launch.core.model.host.hardware import Topology
    from taco_launch.core.model.host.job_containers import VariantUse
    from taco_launch.core.model.job_counts import JobCounts
    from taco_launch.core.model.job_facts import JobHost
    from taco_launch.core.model.job_rows import JobRow
    from taco_launch.core.model.job_view import JobUsage, JobView, LiveJob, Usage, WaitReasons
    from taco_launch.core.model.run.rank_samples import RankStack
    from taco_launch.core.model.slots import Occupancy
    from taco_launch.core.protocol.calls.caller_input import CallerInput
    from taco_launch.core.protocol.calls.copy_files import ReadFiles, WriteFiles
    from taco_launch.core.protocol.calls.exec_command import Exec
    from taco_launch.jobs.code.snapshot import Snapshot

# Takes a piece of a job's log.
Output = Callable[[bytes], None]


@dataclass(frozen=True)
class LogQuery:
    """What to read of a job's log: at most one of `rank`, `host`, `instance` and `agent` is given."""

    name: str
    rank: int | None = None
    # Where to start: a place in the log, or the last `tail` lines.
    offset: int = 0
    tail: int | None = None
    # Whether it continues until the job ends.
    follow: bool = True
    host: str | None = None
    instance: str | None = None
    # One attempt alone, counted from 1.
    attempt: int | None = None
    # Only lines since then: seconds since the epoch, or before now by the clock of the head.
    since: float | None = None
    ago: float | None = None
    # Whether each line starts with its time.
    timestamps: bool = False
    # The agent log instead.
    agent: bool = False
    # Only lines that match this regular expression; `tail` counts these.
    grep: str | None = None


def _ignore(_what: object = None) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class FollowListener:
    """Who is called while a job is followed."""

    # There is a job now, which can be stopped.
    accepted: Callable[[], None] = _ignore
    # The job as `submit` returns it, and again once it has its place where it had to wait.
    job: "Callable[[JobView], None]" = _ignore
    # Each change of its state before its end; the job that the call returns has the end.
    state: Callable[[str], None] = _ignore
    # Why it waits, whenever that changes.
    waits: "Callable[[WaitReasons], None]" = _ignore
    # What happens to the connection.
    say: Callable[[str], None] = _ignore


@dataclass(frozen=True)
class HostOccupancy:
    """A host and who has which of its slots; `problem` says why nobody knows that, `occupancy` is None then."""

    host: Host
    is_head: bool
    occupancy: "Occupancy | None"
    problem: str = ""
    # Whether jobs run there: without a container they run on the head alone.
    is_used: bool = True
    # What was in use while it was asked, None where that was not measured.
    usage: "Usage | None" = None


@dataclass(frozen=True)
class CopiesRemoved:
    """How many copies of code were removed from a host, or would be, and the bytes that this frees."""

    host: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Counters:
    """The jobs of a cluster as metrics count them: those that are kept, the sum of those that were removed, and what running ones use."""

    rows: "tuple[JobRow, ...]"
    removed: "JobCounts"
    warnings: tuple[str, ...] = ()
    live: "tuple[LiveJob, ...]" = ()


@dataclass(frozen=True)
class HeadFacts:
    """What the line of a job depends on, of the head itself; `problem` says why `openmpi` is None."""

    host: "JobHost"
    openmpi: str | None
    problem: str = ""
    # Only where it was requested, and can be read.
    topology: "Topology | None" = None


@dataclass(frozen=True)
class Outcomes:
    """What became of each job that a call named: the job as it is then, None if it was deleted, or the error."""

    jobs: "Mapping[str, JobView | TacoLaunchError | None]"
    # About hosts that keep something of a job.
    warnings: tuple[str, ...] = ()

    def existing(self, name: str) -> "JobView | None":
        """Return one of the jobs, None if it was deleted, or raise its error."""
        outcome = self.jobs[name]
        if isinstance(outcome, TacoLaunchError):
            raise outcome
        return outcome

    def job(self, name: str) -> "JobView":
        """Return one of the jobs of a call that deletes none, or raise its error."""
        job = self.existing(name)
        assert job is not None
        return job


class JobContainers(Protocol):
    """Keeps a record of the containers that jobs have beside the cluster's own."""

    # Called with each job before it starts; returns it with its container.
    prepare: Callable[[JobSpec], JobSpec]

    def find_variant(self, key: str) -> str:
        """Return the record of such a container, empty where there is none, and note that it is used."""

    def variants(self) -> "tuple[VariantUse, ...]":
        """Return these containers, and which jobs need them."""


class Backend(Protocol):
    """Keeps jobs and runs them.

    Every call raises HostError where the backend cannot be reached or its answer is not whole, and NoJobError for a job
    that it does not keep.
    """

    @property
    def name(self) -> str:
        """Its name in messages: the head's."""

    @property
    def typed(self) -> str:
        """How taco-launch is called for it, for hints."""

    @property
    def containers(self) -> JobContainers | None:
        """What keeps the containers that jobs have of their own; None where jobs have none."""

    def provide_code(self, snapshot: "Snapshot", say: Callable[[str], None]) -> None:
        """Keep a snapshot for the jobs that name it: it is sent with the first that the backend lacks it for.

        `say` is told how far that is.
        """

    def submit(self, spec: JobSpec, environ: Mapping[str, str]) -> "JobView":
        """Start a job, which continues whatever happens to the caller.

        The job that is returned has a place, is known to wait for one, or has ended already.

        Raises:
            UsageError: its name is taken, or it asks for hosts that no job can have.
        """

    def run(self, spec: JobSpec, environ: Mapping[str, str], output: Output, watch: FollowListener) -> "JobView":
        """Start a job and follow it to its end; a connection that is lost is made again. Raises as `submit` does."""

    def get(self, name: str) -> "JobView":
        """Return a job with its events."""

    def list(self) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
        """Return a row of every job, the newest first, and warnings about records that could not be read."""

    def live(self) -> "tuple[tuple[JobRow, ...], tuple[LiveJob, ...], tuple[str, ...]]":
        """Return what `list` returns, and what the running jobs use."""

    def used(self, name: str) -> "JobUsage | None":
        """Return what a job has used since its start, None where nothing was measured."""

    def follow(self, query: LogQuery, output: Output, watch: FollowListener = ...) -> "JobView":
        """Return a job's log to `output` as it comes; return the job as it stands then."""

    # The next five name several jobs. None of them is waited for before all are told, so that none starts in place of another.
    # With `owner`, a job of another user has OwnerError as its outcome.

    def stop(
        self, names: Sequence[str], by: str, number: int, grace: float | None = None, owner: str | None = None
    ) -> Outcomes:
        """Ask jobs to end by a signal, and by KILL after their grace time or `grace` seconds if that is less."""

    def suspend(self, names: Sequence[str], by: str, owner: str | None = None) -> Outcomes:
        """End the ranks of jobs; return once each waits for `resume`, or has ended after all."""

    def resume(self, names: Sequence[str], by: str, owner: str | None = None) -> Outcomes:
        """Have suspended jobs wait for their slots again."""

    def resize(self, names: Sequence[str], hosts: int, by: str, owner: str | None = None) -> Outcomes:
        """Have running elastic jobs use at most so many hosts. Returns at once."""

    def delete(self, names: Sequence[str], by: str | None = None, owner: str | None = None) -> Outcomes:
        """Remove the records of jobs that have ended; with `by`, ask those that have not to end, and keep their records."""

    def prune(self, since: float, owner: str | None, *, dry_run: bool) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
        """Remove the records of jobs that ended more than `since` seconds ago, of one owner or all; return them.

        With `dry_run` they stay.
        """

    def prune_code(
        self, since: float, inventory: Inventory, *, dry_run: bool
    ) -> "tuple[tuple[CopiesRemoved, ...], tuple[str, ...]]":
        """Remove the copies of code that no job needs and that were last used so many seconds ago; return warnings besides."""

    def nodes(self, inventory: Inventory) -> tuple[HostOccupancy, ...]:
        """Return who has which slots of each host; one that does not answer says why."""

    def counters(self) -> Counters:
        """Return what metrics count."""

    def stacks(self, name: str) -> "tuple[tuple[RankStack, ...], Mapping[str, str]]":
        """Return what each rank of a running job does, and why a host told nothing of its ranks.

        Raises:
            UsageError: the job does not run.
        """

    def at_rank(
        self, request: "Exec | ReadFiles | WriteFiles", given: "Iterable[CallerInput]", out: Output, err: Output
    ) -> int:
        """Run a command beside a rank, or copy files from or to its host; return the exit code, 0 for files that are whole.

        A thread reads the input of a command, or the archive (agent/rank/tree_pack.py) that is written there, from `given`.
        `out` gets what the command prints, or the archive that is read; `err` gets messages. On a terminal of its own a
        command prints everything to `out`. The end of this call ends the command; files that are not whole are removed.
        """

    def facts(self, *, mpirun: str, path: str, count_slots: bool, topology: bool) -> HeadFacts:
        """Return what the line of a job depends on, of the head itself."""

    def send_message(self, to: str, message: Mapping[str, object]) -> str:
        """Send a message to an address from the head, once; return why that failed, "" where it did not."""

    def prestart(self, operation: str) -> None:
        """Prepare for a call that is still being made up, where that saves time."""


# `connect` of a backend's own module, with the arguments of the one below.
Connect = Callable[["Inventory | None", "Credentials | None", Mapping[str, str], str], AbstractContextManager[Backend]]


def require_started(job: "JobView") -> None:
    """Make an error of a job that ended before its ranks could start, with its reason and code.

    Raises:
        PlacementError: it does not fit; with the reason of each host, a line each in its own reason.
        UnusableError: its hosts cannot be used; with their reasons.
        TacoLaunchError: it ended otherwise.
    """
    record = job.record
    if not record.state.is_terminal or record.started is not None or not record.exit_code:
        return
    message, *lines = f"job {job.spec.name}: {record.reason}".split("\n")
    reasons = tuple((host, why) for host, _colon, why in (line.strip().partition(": ") for line in lines))
    error: TacoLaunchError
    if record.exit_code == CANNOT_PLACE:
        error = PlacementError(message, reasons, record.hint or None)
    elif record.exit_code == HOST_FAILED:
        error = UnusableError("\n".join((message, *lines)), record.hint or None, reasons)
    else:
        error = TacoLaunchError("\n".join((message, *lines)), record.hint or None)
    error.exit_code = record.exit_code
    raise error


def connect(
    inventory: Inventory | None, access: Credentials | None, environ: Mapping[str, str], typed: str
) -> AbstractContextManager[Backend]:
    """Return what keeps an inventory's jobs, until the block ends: the engine that it names; None for this machine's agent.

    Nothing is connected to before it is needed. `access` holds what hosts may ask for, `environ` is the caller's
    environment, and `typed` how hints call taco-launch.

    Raises:
        SpecError: ~/.ssh/config cannot be read.
        UsageError: the engine is of a package that is not installed, or cannot be loaded.
    """
    return _find_connect("agent" if inventory is None else inventory.engine)(inventory, access, environ, typed)


def _find_connect(engine: str) -> Connect:
    """Return `connect` of a backend: of its module here, else of another package."""
    name, module = f"{__package__}.{engine}", None
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or name):
            raise
    own: Connect | None = getattr(module, "connect", None)  # modules that backends share have none
    return own or import_module("taco_launch.hosts.plugins").load_backend(engine)
