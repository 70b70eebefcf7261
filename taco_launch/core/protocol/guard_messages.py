"""The messages between the supervisor of a job and the guards of its hosts.

A supervisor, its guards and the wrappers of their ranks are of one version: a job runs to its end under the agent that it
was started with. `tests/core/protocol` holds the fields against what they were when jobs of that version may still run.
"""

from typing import Any, Mapping, Optional, Sequence

from taco_launch.core import trace
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import GpuConstraints
from taco_launch.core.model.job_view import Usage, check_usage
from taco_launch.core.model.slots import Occupancy, check_occupancy
from taco_launch.core.protocol.job_host_facts import JobHostFacts
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Roots, Welcome, check_roots

# A host tells more in no word, no log has a place or time beyond that, and no port a higher number.
_TEXT_CHARACTERS, _MOST, _LAST_PORT = 1 << 10, 1 << 63, (1 << 16) - 1
_MOST_SLOTS = 1 << 12
_CHOICE_CHARACTERS = 1 << 16

# --- the supervisor to a guard


class Supervise(Message):
    """Take charge of the guard, and request the facts of its host: all with `look`, and which of `ports` are in use."""

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
    # the name of the guard's host
    name: str = ""


class ProbeHost(Message):
    """Probe the host; `address` is what it is reached by."""

    op = "probe"
    subjects: Sequence[str]
    address: str


class Lease(Message):
    """Lease slots and ports of the host (slot_allocator.take)."""

    op = "lease"
    count: int
    ports: Sequence[int]
    # the port where the ranks meet, 0 for any of those `allowed`, None where they meet on another host
    rendezvous: Optional[int]
    allowed: Optional[Sequence[int]]
    cluster: str
    owner: str
    # which GPUs will do
    constraints: GpuConstraints
    # whether the job requires all slots of the host
    whole: bool
    # GPUs that are free on all hosts of the job
    shared: Sequence[int] = ()


class ReleaseSlots(Message):
    """Release the leased slots; with `look` report who holds which slot."""

    op = "unlease"
    look: bool


class Reach(Message):
    """Try to connect from the guard's host to the port where the ranks meet; `listens` says whether a process listens there already."""

    op = "reach"
    address: str
    port: int
    listens: bool = False


class FetchCode(Message):
    """Have the job's code on the host, and write it into the job's folder.

    It comes from the first of the hosts `sources` that has it, the last of which is the head. `snapshot` is "" where only `workdir` is to be looked at, which counts from the code, or else from `cwd`.
    """

    op = "fetch"
    snapshot: str
    sources: Sequence[str]
    # the agent's path on the head
    agent: str
    # whether the snapshot is a tree, or config files alone
    tree: bool
    # the absolute path of a link to the code, "" for none
    at: str
    workdir: str
    cwd: str


class Prepare(Message):
    """Pass `welcome` to the ranks; report a stall when they do nothing for `stall_after` seconds."""

    op = "prepare"
    welcome: Welcome
    stall_after: float


class Launch(Message):
    """Start the host's launcher in `caller`'s environment (None: the guard's own), with `environment` added."""

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
    """End all processes of the job, those of `roots` included. With `leave` what runs is left alone.

    With `listener` the guard reports who listens on the port where the ranks met.
    """

    op = "end"
    roots: Roots = ()
    leave: bool = False
    listener: bool = False


class Heartbeat(Message):
    """Show that the sender is alive. Sent in both directions."""

    op = "beat"


class StreamLogs(Message):
    """Send the logs of all ranks, each from the byte that `offsets` has for it (rank: offset; JSON's keys are text)."""

    op = "stream"
    offsets: Mapping[Any, int]


class Ack(Message):
    """The supervisor has received a rank's log up to `offset`."""

    op = "ack"
    rank: int
    offset: int


class Close(Message):
    """Close the guard; with `remove` it removes the job's folder first."""

    op = "close"
    remove: bool


# --- a guard to the supervisor


class HostReport(Message):
    """The facts of the host; only `error` and `hint` where it cannot be used."""

    op = "facts"
    host: JobHostFacts = JobHostFacts()
    occupancy: Optional[Occupancy] = None
    taken: Sequence[int] = ()
    boot: str = ""
    error: str = ""
    hint: Optional[str] = None

    def check(self) -> None:
        """Check that its slots or an error are given."""
        _check_slots(self.occupancy, self.error)


class Leased(Message):
    """The leased slots, why these GPUs, the HCAs near each of them (LocalHcas), the port where the ranks meet.

    Without slots (None): `error`, or who has what is missing: `occupancy`, the `ports`, and `who` has the rendezvous.
    """

    op = "leased"
    slots: Optional[Sequence[str]]
    choice: Optional[GpuChoice] = None
    near: Sequence[Sequence[Sequence[str]]] = ()
    port: Optional[int] = None
    ports: Sequence[int] = ()
    occupancy: Optional[Occupancy] = None
    who: str = ""
    error: str = ""

    def check(self) -> None:
        """Check that it says why there are no slots, and that what it says of them is such as a job's record may hold."""
        if self.slots is None:
            _check_slots(self.occupancy, self.error)
        elif len(self.slots) > _MOST_SLOTS or max(map(len, self.slots), default=0) > _TEXT_CHARACTERS:
            raise ValueError(f"more than {_MOST_SLOTS} slots, or long names")
        if self.choice is not None and len(str(to_json(self.choice))) > _CHOICE_CHARACTERS:
            raise ValueError("choice is too long")
        if not all(0 <= port <= _LAST_PORT for port in (self.port or 0, *self.ports)):
            raise ValueError(f"port is {self.port}, ports are {str(self.ports)[:60]}")


class SlotsReleased(Message):
    """Who holds which slots, after the job's were released."""

    op = "unleased"
    occupancy: Occupancy

    def check(self) -> None:
        """Check that no more slots are GPUs than there are."""
        check_occupancy(self.occupancy)


class Reached(Message):
    """Why the port cannot be reached from the guard's host, "" where it can."""

    op = "reached"
    why: str


class CodeFetched(Message):
    """The code is there: in `tree`, with the ranks to start in `folder`; each is "" where there is none. `error` says why not.

    `received` bytes came from other hosts; `notes` is what went wrong on the way and was put right.
    """

    op = "fetched"
    folder: str = ""
    tree: str = ""
    received: int = 0
    seconds: float = 0.0
    notes: Sequence[str] = ()
    error: str = ""
    hint: str = ""


class Probed(Message):
    """The output of the probe."""

    op = "probed"
    text: str


class RankStarted(Message):
    """A rank has started."""

    op = "started"
    rank: int
    roots: Roots

    def check(self) -> None:
        """Check that its roots are processes."""
        check_roots(self.roots)


class UsageSample(Message):
    """How much of the host's hardware was used since the last sample."""

    op = "usage"
    usage: Usage

    def check(self) -> None:
        """Check that a host can have these numbers."""
        check_usage(self.usage)


class LauncherEnded(Message):
    """The host's own launcher has ended with this exit code: -n for signal n."""

    op = "done"
    code: int


class LogData(Message):
    """A piece of a rank's log from `offset` on; `times` are (place in the piece, time as logs/timestamps.py has it)."""

    op = "log"
    rank: int
    offset: int
    times: Sequence[Sequence[int]]
    data: bytes = b""

    def check(self) -> None:
        """Check that they are places and times."""
        pairs = all(len(pair) == 2 and min(pair) >= 0 and max(pair) < _MOST for pair in self.times)
        if not pairs or not 0 <= self.offset < _MOST:
            raise ValueError(f"offset is {str(self.offset)[:60]}, times are {str(self.times)[:60]}")


class Ended(Message):
    """The job has ended on the host: the processes `left`, why there may be more, the size of each log in bytes."""

    op = "ended"
    left: Sequence[int] = ()
    unknown: str = ""
    sizes: Mapping[Any, int] = {}
    listener: str = ""

    def check(self) -> None:
        """Check that its sizes are those of logs: by the numbers of ranks, as JSON writes them."""
        for rank, size in self.sizes.items():
            if not (str(int(rank)) == str(rank) and 0 <= size < _MOST):
                raise ValueError(f"sizes has {str(rank)[:60]!r}: {str(size)[:60]}")


class Trace(Message):
    """A line for the job's agent log, and its time."""

    op = "trace"
    at: str
    text: str

    def check(self) -> None:
        """Check that it is one line as trace.py makes them: a host could write others' lines into the log, or too much."""
        for value, most in ((self.at, trace.TIME_CHARACTERS), (self.text, trace.LINE_CHARACTERS)):
            if len(value) > most or not value.isprintable():
                raise ValueError(f"it is not a line: {value[:60]!r}")


class GaveUp(Message):
    """The guard has ended the job without an order, and why."""

    op = "gave-up"
    reason: str


def _check_slots(occupancy: Optional[Occupancy], error: str) -> None:
    """Check that a guard's message has the holders of its host's slots, or the reason why they are unknown.

    Raises:
        ValueError: the message has neither, or the holders are wrong.
    """
    if occupancy is not None:
        check_occupancy(occupancy)
    elif not error:
        raise ValueError("either the slots or an error is needed")
