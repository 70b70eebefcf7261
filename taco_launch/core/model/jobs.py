"""Jobs: what was requested (JobSpec), what happened (Event), and what that amounts to (JobRecord)."""

import enum
from dataclasses import field
from typing import Any, Mapping, Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.host.hosts import Container, Host, Network, Notice
from taco_launch.core.model.stalls import Stall


class CleanUp(enum.Enum):
    """What of a job is ended or removed on its hosts when it has ended (MPI Operator: runPolicy.cleanPodPolicy).

    `RUNNING`: whatever still runs. `ALL`: the hosts' copies of its folder, besides. `NONE`: what the ranks of a job that
    succeeded have left running stays, until the job is deleted or another job takes its slots.
    """

    RUNNING = "running"
    ALL = "all"
    NONE = "none"


class Restart(enum.Enum):
    """After which failures a job is tried again (MPI Operator: restartPolicy Never, OnFailure, ExitCode, Always).

    `EXIT_CODE`: after a signal (a code of 128 or more) and the loss of a host, not after an exit code of its own.
    `ALWAYS`: after a fault of the program, too (core/lifecycle/retries.py).
    """

    NEVER = "never"
    ON_FAILURE = "on-failure"
    EXIT_CODE = "exit-code"
    ALWAYS = "always"


@dataclass(frozen=True)
class EarlySignal:
    """By which ranks are told to save their state: a signal's name without SIG, and how many seconds before TERM it is sent."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Policy:
    """When a job may begin, how it is ended, what it may use, and what happens then; times are seconds.

    `queue` and `priority` order the jobs that wait: first in first out within a queue and a priority, the higher number
    first. `queue_timeout` is how long the job may wait for its slots, 0 not at all, None for ever. `suspend`: it is
    submitted, and waits until it is resumed. `grace` is the time between TERM and KILL; `timeout` how long the job may
    run from its first start on, over all attempts, None for ever; `stall_timeout` how long it may hang, with no rank making
    progress, None for ever (it is told all the same); `silence_timeout` how long it may print nothing. `restart` and `backoff_limit` say after which failures
    and how many times it is tried again, the first time after `backoff`, then after twice as long each. `ttl` is how
    long its record is kept after its end, None until it is deleted. `host_loss_timeout` is the time without a heartbeat
    after which a guard ends its ranks; `log_max_bytes` the most bytes kept of each rank's log, the oldest dropped first.
    """

    grace: float = 10.0
    timeout: Optional[float] = None
    stall_timeout: Optional[float] = None
    silence_timeout: Optional[float] = None
    host_loss_timeout: float = 60.0
    log_max_bytes: int = 1 << 30
    progress: str = ""  # a pattern of core/progress/pattern.py; "": known formats are read
    queue: str = "default"
    priority: int = 0
    queue_timeout: Optional[float] = None
    suspend: bool = False
    clean_up: CleanUp = CleanUp.RUNNING
    restart: Restart = Restart.NEVER
    backoff_limit: int = 0
    backoff: float = 10.0
    ttl: Optional[float] = None
    # Whether the supervisor and the guards keep a log of what they decide and say.
    agent_log: bool = False
    # Whether a job of the same name and owner that has ended is deleted first.
    replace: bool = False
    # By which the ranks are told to save their state before the deadline, a stop or a suspension.
    signal: Optional[EarlySignal] = None
    strict: bool = False  # the job fails if it does not run as planned
    notify: Optional[str] = None  # gets a message at the job's end, a hang or a lost host
    notices: Tuple[Notice, ...] = ()  # the inventory's
    typed: str = ""  # how messages call taco-launch with the inventory, "" where they have none to name
    fail_on: str = ""  # "nan": a loss that is not a number ends the job
    retry_on: str = "any"  # "same-host": the next attempt waits for the hosts of the one before


@dataclass(frozen=True)
class TensorBoard:
    """A TensorBoard beside the job: the folder that it reads, from the ranks' folder on, and how long it outlives the job."""

    logdir: str
    grace: float


@dataclass(frozen=True)
class NetworkOverrides:
    """What the command line says about the network, None where it says nothing and the inventory decides.

    `transport` is `auto`, `tcp` or `rdma`.
    """

    transport: Optional[str] = None
    interface: Optional[str] = None
    gdr: Optional[bool] = None
    light: bool = False


@dataclass(frozen=True)
class ProfileOption:
    """One option of the line.

    A word may hold `{name}`s, which are decided when the job is placed (`launch.decide` lists them); the option is left
    out where one of them has no value, or where a condition of `when` does not hold (`rdma`, `not light`).
    """

    words: Tuple[str, ...]
    why: str
    when: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """The options of a line between mpirun and the command; `source` is `shipped` or the file it was read from."""

    name: str = "none"
    entries: Tuple[ProfileOption, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class CodeSnapshot:
    """The code of a job, and its config files, as they were when it was submitted; `id` is the SHA-256 of the manifest.

    `source` is a folder of the controller or git+URL, "" where there are config files alone; `ref` and `commit` are git's, and
    `dirty` is a hash of what differs from the commit, "" where nothing does. `at` is an absolute path where a link to the
    code is put, "" for none.
    """

    id: str
    source: str = ""
    ref: str = ""
    commit: str = ""
    dirty: str = ""
    files: int = 0
    bytes: int = 0
    at: str = ""


@dataclass(frozen=True)
class JobSpec:
    """All that the head needs to run a job: no file of the controller is named, nothing is left to look up there.

    `np` is the number of ranks, None for every slot of `hosts`; `host_count` how many of `hosts` have to be taken (with `least_hosts` as
    many as are free when it starts, at least that many; with `elastic` it gains and loses hosts in this range while it runs), and
    `slots_per_host` how many ranks each of them, None where that is all one; `head` is the name of the host that mpirun runs on. A job that
    counts workers has `slots_per_worker`: so many ranks are one worker's, which has them on one host. A job that counts ranks may have
    `most_per_host`: no host has more of them. `procs_per_gpu` processes share each slot, and with `mps` CUDA's Multi-Process Service, both
    only with env. `env` holds the `-x` and environment knobs of the command line: (name, value), the value None where the caller's is
    taken; `mca` holds its MCA parameters. `launcher` is a key of LAUNCHERS; with `per_host`, only with env, one process is started on each
    host for all of the job's slots there. `cwd` is the folder the ranks start in, `workdir` the one that was asked for, if any. `mpirun` is
    a path, or a bare name looked up on the caller's PATH. `network`, `container` and `versions` (of openmpi, nccl, horovod) are the
    inventory's; `asked` goes before them. `code` is what the hosts get before the ranks start, which start in it, or in `workdir`: that is
    absolute, or a folder of the code. `exclusive`: no other job is to have a slot of the hosts that this one is on. With `slurm`, Slurm
    decides on the hosts.
    """

    name: str
    command: Tuple[str, ...]
    hosts: Tuple[Host, ...]
    np: Optional[int] = None
    host_count: Optional[int] = None
    slots_per_host: Optional[int] = None
    slots_per_worker: Optional[int] = None
    most_per_host: Optional[int] = None
    launcher: str = "mpirun"
    per_host: bool = False
    procs_per_gpu: int = 1
    mps: bool = False
    head: str = ""
    env: Tuple[Tuple[str, Optional[str]], ...] = ()
    mca: Tuple[Tuple[str, str], ...] = ()
    asked: NetworkOverrides = field(default_factory=NetworkOverrides)
    profile: Profile = field(default_factory=Profile)
    network: Network = field(default_factory=Network)
    container: Optional[Container] = None
    versions: Tuple[Tuple[str, str], ...] = ()
    cwd: str = "/"
    mpirun: str = "mpirun"
    cluster: str = "local"
    owner: str = ""
    policy: Policy = field(default_factory=Policy)
    exclusive: bool = False
    least_hosts: Optional[int] = None
    elastic: bool = False
    code: Optional[CodeSnapshot] = None
    workdir: str = ""
    tensorboard: Optional[TensorBoard] = None
    slurm: Optional[SlurmOptions] = None

    def is_here(self, host: Host) -> bool:
        """Return whether a host is the one that mpirun runs on."""
        return host.connection == "local" or host.name == self.head


# Seconds since the epoch in the year 9999: nobody can show a later time.
LATEST = 253_402_300_799
# Kubernetes' PriorityClass: what users may give.
MOST_PRIORITY = 1_000_000_000
MOST_RETRIES = 1_000_000
MOST_RANKS = 1 << 20


class JobState(enum.Enum):
    """Where a job stands."""

    QUEUED = "QUEUED"
    SUSPENDED = "SUSPENDED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    RESTARTING = "RESTARTING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more happens to a job in this state."""
        return self in _TERMINAL

    @property
    def waits(self) -> bool:
        """Whether nothing of the job runs, and it has no supervisor: it waits for its slots, a time or a word."""
        return self in _WAITING


_WAITING = frozenset((JobState.QUEUED, JobState.SUSPENDED, JobState.RESTARTING))
_TERMINAL = frozenset((JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST))


@dataclass(frozen=True)
class Event:
    """One thing that happened to a job; `time` is seconds since the epoch, `data` what the kind of event carries.

    `hint` says what to type next, where the reason is an error that has one.
    """

    time: float
    kind: str
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended: `exit_code` as a shell would report it (signal n: 128+n).

    With `consequence`, its own last output blames another rank. `killed` is who killed it by signal 9, if that is known. Of
    the first to fail, `lines` are the last ones that it wrote, and `log` is where they stand: HOST:PATH.
    """

    rank: int
    host: str
    exit_code: int
    reason: str = ""
    consequence: bool = False
    log: str = ""
    lines: Tuple[str, ...] = ()
    killed: str = ""


@dataclass(frozen=True)
class Finding:
    """A known text in a log: what it means and what to do.

    `signature` is the text's short name, `cause` one or two sentences, `next` what to type or change. `host` is the
    host that the text is about, "" where it names none; `line` is the number of its line, counted from 1 (0: no line
    says so, the exit code does).
    """

    signature: str
    cause: str
    next: str
    host: str
    line: int


@dataclass(frozen=True)
class Transition:
    """A change of a job's state, and why."""

    time: float
    state: JobState
    reason: str = ""


@dataclass(frozen=True)
class HostRanks:
    """The ranks of a job on one host, and the slots that they have: GPU UUIDs, or slot-0, slot-1 without GPUs.

    `choice` says why these GPUs, where there were several sets of them. `first` is as in Share.
    """

    host: str
    ranks: int
    slots: Tuple[str, ...] = ()
    choice: Optional[GpuChoice] = None
    first: Optional[int] = None


@dataclass(frozen=True)
class VerifiedRun:
    """Whether an attempt runs as planned: `status` is True, False or Unknown, as Kubernetes has it.

    `why` tells what was compared, the first mismatch, or what is not known; `next` explains a mismatch, and what to do.
    """

    status: str
    why: str = ""
    next: str = ""


@dataclass(frozen=True)
class JobRecord:
    """A job as every command sees it: the fold of its events.

    Times are seconds since the epoch, None where it has not come to that. `reason` says in words why the job is where
    it is, `hint` what to type next. `exit_code` is the job's own, None until the end; 125 means that no rank ever ran, or
    that it is strict and did not run as planned. `line` is its mpirun line, `warnings` what there is to know of that.
    `findings` is what the logs of a failed job tell of the failure, in the log of the launcher or of the rank to blame.

    `mark` is the id of the present or last attempt, by which its processes are known: `id` of the first one; `attempt`
    counts them, 0 before the first. `waiting` is why it has no place yet, as last looked at: (host, why), what concerns
    no single host under "". `not_before` is when the next attempt may begin, `left_out` the hosts that it had better not
    have, of which `lost` is the one that was lost, if any. `shares` is where its ranks are, `transitions` every change of state, the first the submission. `admitted` says that
    it was let in, to its slots or to wait for them; a job that is refused at its first try never is. `stalled` is set while
    its attempt hangs, and of one that hung to its end. `verified` is whether its attempt runs as planned, None: not known yet.
    """

    id: str
    state: JobState
    reason: str = ""
    np: int = 0  # 0 before it has a place
    hosts: Tuple[str, ...] = ()
    submitted: Optional[float] = None
    started: Optional[float] = None
    ended: Optional[float] = None
    exit_code: Optional[int] = None
    line: str = ""
    warnings: Tuple[str, ...] = ()
    first_failure: Optional[RankEnd] = None  # the rank to blame
    findings: Tuple[Finding, ...] = ()
    mark: str = ""
    attempt: int = 0
    waiting: Tuple[Tuple[str, str], ...] = ()
    not_before: Optional[float] = None
    left_out: Tuple[str, ...] = ()
    lost: str = ""
    shares: Tuple[HostRanks, ...] = ()
    transitions: Tuple[Transition, ...] = ()
    admitted: bool = False
    stalled: Optional[Stall] = None
    verified: Optional[VerifiedRun] = None
    hint: str = ""
    excused: int = 0  # retries after a fault of hardware, which `backoff_limit` does not count
    done: Tuple[int, ...] = ()  # ranks that ended well some seconds before the others
    blamed: Optional[Finding] = None  # what the logs of the attempt before told of its failure, with the host to blame

    @property
    def first_start(self) -> Optional[float]:
        """When its first attempt started; `started` is the time from which --timeout counts, anew after a suspension."""
        return next((change.time for change in self.transitions if change.state is JobState.STARTING), self.started)

    @property
    def pause(self) -> Tuple[float, Optional[float]]:
        """For how many seconds it waited after its first start, and since when it does, None where it does not."""
        begun, spent, since = False, 0.0, None
        for change in self.transitions:
            starts = change.state is JobState.STARTING
            if since is not None and (starts or change.state.is_terminal):
                spent, since = spent + change.time - since, None
            elif begun and since is None and change.state.waits:
                since = change.time
            begun = begun or starts
        return spent, since

    def training(self, now: float) -> Optional[float]:
        """Return the seconds from its first start to its end, or `now`, without those that it waited; None before that."""
        begun = self.first_start
        if begun is None:
            return None
        spent, since = self.pause
        end = now if self.ended is None else self.ended
        return (end if since is None else since) - begun - spent
