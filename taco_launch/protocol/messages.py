"""The messages between the processes of a job, by who says them. A process is named by (pid, start): [number, clock ticks].

A supervisor, its guards and the wrappers of their ranks are of one version: a job runs to its end under the agent that it
was started with. `tests/protocol` holds the fields against what they were when jobs of that version may still run.
"""

from typing import Any, Mapping, Optional, Sequence

from taco_launch import trace
from taco_launch.protocol.message import Message

Roots = Sequence[Sequence[int]]

# --- a rank's wrapper, and others that a job consists of, to the guard of their host


class Register(Message):
    """A rank has started; `roots` are its wrapper and what started that."""

    op = "register"
    rank: int
    roots: Roots


class Exit(Message):
    """A rank has ended; to the supervisor also what its guard knows of that.

    `exit_code` is None where its wrapper was killed. `lost` bytes of its log were lost on a full disk; the log is `size` bytes
    long, where the supervisor is on another host. An `orphan` is a rank whose starter was gone before.
    """

    op = "exit"
    rank: int
    exit_code: Optional[int]
    reason: str = ""
    lost: int = 0
    orphan: bool = False
    size: int = 0


class Visit(Message):
    """A command wants to run beside a rank; `root` is its parent."""

    op = "visit"
    rank: int
    root: Sequence[int]


class Daemon(Message):
    """The launcher's daemon has started; `root` is what stays above it."""

    op = "daemon"
    root: Sequence[int]


# --- a guard to its host's ranks and visitors


class Welcome(Message):
    """What a rank starts with: what is added to its environment, and how its log is kept."""

    op = "welcome"
    environment: Mapping[str, str]
    log_max_bytes: int
    umask: int
    # how many processes share a slot
    processes: int = 1
    # which attempt's folder the log is in
    attempt: int = 1


class Visited(Message):
    """What a command beside a rank needs; no `roots` where the rank does not run."""

    op = "visited"
    roots: Roots = ()
    environment: Mapping[str, str] = {}
    umask: int = 0
    processes: int = 1


class Terminate(Message):
    """End by TERM. To a guard, and from it to its ranks."""

    op = "terminate"


class Release(Message):
    """A rank that has ended may tell its launcher. To a guard, and from it to its ranks."""

    op = "release"


# --- the supervisor to a guard


class Supervise(Message):
    """The guard is this job's; it tells facts of its host: all of them with `look`, and which of `ports` are taken."""

    op = "supervise"
    job_id: str
    # it ends the job when it hears nothing for so many seconds
    host_loss_timeout: float
    look: bool
    # of the host's slots: Host.size and Host.gpus
    size: str
    gpus: str
    # the first and the last
    ports: Optional[Sequence[int]] = None
    # whether it is to send Trace
    agent_log: bool = False
    # of the guard's host
    name: str = ""


class ProbeHost(Message):
    """Probe the host; `address` is what it is reached by."""

    op = "probe"
    subjects: Sequence[str]
    address: str


class Lease(Message):
    """Take slots of the host, and ports; see slot_allocator.take."""

    op = "lease"
    count: int
    ports: Sequence[int]
    # the port where the ranks meet, 0 for any of those `allowed`, None where they meet on another host
    rendezvous: Optional[int]
    allowed: Optional[Sequence[int]]
    cluster: str
    owner: str
    # which GPUs will do (GpuConstraints)
    terms: Mapping[str, Any]
    # all slots of the host
    whole: bool
    # GPUs that are free on all hosts of the job
    shared: Sequence[int] = ()


class Unlease(Message):
    """Let the slots go; with `look` say who has which."""

    op = "unlease"
    look: bool


class Reach(Message):
    """Try whether the port where the ranks meet is reached from there."""

    op = "reach"
    address: str
    port: int


class Prepare(Message):
    """What the ranks are welcomed with; they hang when they do nothing for `stall_after` seconds."""

    op = "prepare"
    welcome: Welcome
    stall_after: float


class Launch(Message):
    """Start what starts the ranks of the host, in `caller`'s environment or, None, in the guard's own, with `environment`."""

    op = "launch"
    argv: Sequence[str]
    caller: Optional[Mapping[str, str]]
    environment: Mapping[str, str]
    cwd: str
    umask: int
    attempt: int
    log_max_bytes: int


class Launched(Message):
    """The launcher has started on the head."""

    op = "launched"
    root: Sequence[int]


class EndJob(Message):
    """End all that is the job's; `roots` besides what the guard knows. With `leave` what runs is left alone.

    With `listener` the guard says who has the port where the ranks met.
    """

    op = "end"
    roots: Roots = ()
    leave: bool = False
    listener: bool = False


class Beat(Message):
    """Somebody is there. Both ways."""

    op = "beat"


class StreamLogs(Message):
    """Send logs from here on: bytes that the supervisor has, by rank (JSON's keys are text)."""

    op = "stream"
    offsets: Mapping[Any, int]


class Ack(Message):
    """The supervisor has a rank's log up to here."""

    op = "ack"
    rank: int
    offset: int


class Close(Message):
    """The guard may end; with `remove` the job's folder goes."""

    op = "close"
    remove: bool


# --- a guard to the supervisor


class HostReport(Message):
    """What is known of the host; only `error` and `hint` where it cannot be used."""

    op = "facts"
    host: Mapping[str, Any] = {}
    occupancy: Mapping[str, Any] = {}
    taken: Sequence[int] = ()
    boot: str = ""
    error: str = ""
    hint: Optional[str] = None


class Leased(Message):
    """The slots that were taken, why these GPUs (GpuChoice), the HCAs near them, the port where the ranks meet.

    Without slots (None): `error`, or who has what is missing: `occupancy`, the `ports`, and `who` has the rendezvous.
    """

    op = "leased"
    slots: Optional[Sequence[str]]
    choice: Optional[Mapping[str, Any]] = None
    near: Sequence[Any] = ()
    port: Optional[int] = None
    ports: Sequence[int] = ()
    occupancy: Mapping[str, Any] = {}
    who: str = ""
    error: str = ""


class Unleased(Message):
    """Who has which slots, after ours were let go."""

    op = "unleased"
    occupancy: Mapping[str, Any]


class Reached(Message):
    """Why the port is not reached from there, "" where it is."""

    op = "reached"
    why: str


class Probed(Message):
    """What the probe said."""

    op = "probed"
    text: str


class RankStarted(Message):
    """A rank has started."""

    op = "started"
    rank: int
    roots: Roots


class LauncherEnded(Message):
    """The host's own launcher has ended: -n for signal n."""

    op = "done"
    code: int


class StallReport(Message):
    """For how many seconds the host's ranks do nothing (0: they do again), and what each is seen doing (RankLook)."""

    op = "pulse"
    silent: float
    ranks: Sequence[Mapping[str, Any]]


class LogData(Message):
    """A piece of a rank's log from `offset` on; `times` are (place in the piece, time as logs/timestamps.py has it)."""

    op = "log"
    rank: int
    offset: int
    times: Sequence[Sequence[int]]
    data: bytes = b""


class Ended(Message):
    """The job has ended on the host: processes that are `left`, why there may be more, how long each log is."""

    op = "ended"
    left: Sequence[int] = ()
    unknown: str = ""
    sizes: Mapping[Any, int] = {}
    listener: str = ""


class Trace(Message):
    """A line for the job's agent log, and when it was."""

    op = "trace"
    at: str
    text: str

    def check(self) -> None:
        """Check that it is one line as trace.py makes them: a host could write others' lines into the log, or too much."""
        for value, most in ((self.at, trace.TIME_CHARACTERS), (self.text, trace.LINE_CHARACTERS)):
            if len(value) > most or not value.isprintable():
                raise ValueError(f"it is no line: {value[:60]!r}")


class GaveUp(Message):
    """The guard has ended the job by itself."""

    op = "gave-up"
    reason: str


# --- what brings a supervisor to a guard of another host (guard/relay.py), to the supervisor


class Attached(Message):
    """What follows is the guard's."""

    op = "attached"


class NoGuard(Message):
    """No guard answers there; `boot` is the host's boot id, `debug` the file of the guard's last words."""

    op = "no-guard"
    boot: str
    debug: str


class Refused(Message):
    """The job cannot be there."""

    op = "refused"
    reason: str


class Cleared(Message):
    """What is left of a job on a host that was ended there without its guard; as in Ended."""

    op = "cleared"
    left: Sequence[int] = ()
    unknown: str = ""


class FolderRemoved(Message):
    """The same, and the folder is gone."""

    op = "removed"
    left: Sequence[int] = ()
    unknown: str = ""


class StrayLine(Message):
    """A line that is no message, as a login script may print."""

    op = "noise"
    text: str
