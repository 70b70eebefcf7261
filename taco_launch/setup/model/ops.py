"""What set-up does to a host: operations of stages, and why a host cannot be set up. An operation is text; nothing is run here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal, TypeVar

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.facts import HostFacts, SetupFile
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.hosts.inventory.ranges import fold

# The name of a stage: that of its file in setup/stages.
Stage = str
T = TypeVar("T")
# Docker unpacks a stream beside it before it takes the layers from there.
_UNPACKED = 2


@dataclass(frozen=True)
class SourceImage:
    """What the controller has of an image: `where`, as people name it, and what an engine may call the image (`ids`).

    `size` is what it holds in bytes, unpacked.
    """

    where: str
    ids: frozenset[str]
    size: int

    @property
    def space(self) -> int:
        """How many bytes a host takes for it while it comes: the stream, and what docker makes of it."""
        return self.size * (1 + _UNPACKED)


# What stops while an operation is applied: running containers of ours, every container, or the whole host.
Disrupts = Literal["nothing", "container", "docker", "host"]


@dataclass(frozen=True)
class FileTarget:
    """A file to be there: absolute path, content, mode; folders that are missing are made, 0700 in our own, else 0755.

    It appears whole, by rename; `in_place` is for what is mounted into a container, which would keep the old one: the
    same file gets the new content. A secret one is never shown nor logged. `shown` is the path that `--diff` shows it
    as, where a script moves it on.
    """

    path: str
    data: bytes = field(repr=False)
    mode: int = 0o644
    secret: bool = False
    in_place: bool = False
    shown: str = ""


def _as_it_is(facts: HostFacts) -> HostFacts:
    return facts


@dataclass(frozen=True)
class Op:
    """One thing to do on one host.

    `name` is what a person reads (`daemon.json: add registry-mirrors`), `why` the fact that calls for it. `files` are put
    first, whole and by rename; then `script` runs as root: POSIX sh under `set -eu`, its arguments in `args` ($1...), its input
    empty. An empty script does nothing. `old` is (path, text as it is now) of files whose change `--diff` shows.
    `seconds` is the longest that it may take. `expect` gives the facts as they should be afterwards. `reveals` says that
    nothing is known before it is done of what stages of containers have to do. `idle` is where no job may run meanwhile, in the words of
    scripts/idle.sh, where that is not the training container that it `disrupts`.
    """

    stage: Stage
    name: str
    why: str
    script: str = ""
    args: tuple[str, ...] = ()
    files: tuple[FileTarget, ...] = ()
    disrupts: Disrupts = "nothing"
    seconds: float = 120
    old: tuple[tuple[str, str], ...] = ()
    expect: Callable[[HostFacts], HostFacts] = field(default=_as_it_is, compare=False)
    reveals: bool = False
    idle: str = ""


@dataclass(frozen=True)
class Problem:
    """Why a host cannot be set up from this stage on: what, where, the evidence, and what to type next.

    `hardware` is before all stages. `stops` is what is not begun because of it: its stage and those after it; with `host`
    nothing on the host, so that it is reported before a long pull; with `cluster` nothing on any host, because all have one
    image. `passes` says that it is gone once a job ends.
    """

    stage: Stage
    message: str
    hint: str = ""
    stops: Literal["stage", "host", "cluster"] = "stage"
    passes: bool = False


@dataclass(frozen=True)
class PlanContext:
    """What a stage's plan for one host depends on beside that host: the inventory, all hosts' facts, what was made so far."""

    inventory: Inventory
    # Of the hosts that answered.
    facts: Mapping[str, HostFacts]
    # What the user allows to stop (`--disrupt`).
    disrupt: Literal["nothing", "docker", "host"] = "nothing"
    # Of the image, once a host has resolved the tag.
    digest: str | None = None
    # What the registry has under the tag, where hosts are to get that.
    latest: str | None = None
    # What the registry has under the tag, where hosts keep theirs.
    now: str | None = None
    # The cluster's SSH key (private, public), once the head has made it.
    cluster_key: tuple[bytes, str] | None = field(default=None, repr=False)
    # The public half of the one that the head is to replace (`--rotate-keys`), "" for none.
    retired: str = ""
    # The public host keys of the containers' sshd, once they are there: (host, key).
    host_keys: tuple[tuple[str, str], ...] = ()
    # The text of the head's file of host keys as it is.
    known_hosts: str = ""
    # Whether this call sets the head up as well, and it has not failed: only then a key that does not exist will be.
    with_head: bool = True
    # The agent: its file name and content, which is empty where every host has a file of that name.
    agent: tuple[str, bytes] | None = None
    # The program that reads stacks: its file name and content.
    py_spy: tuple[str, bytes] | None = None
    # The docker packages on the controller: (file name, content) of each.
    packages: tuple[tuple[str, bytes], ...] = ()
    # For the image's registry.
    password: str | None = field(default=None, repr=False)
    # What the controller has of an image that no registry gives, or why it has none.
    given: SourceImage | str = ""
    # The packages of the NVIDIA container toolkit on the controller.
    toolkit_packages: tuple[tuple[str, bytes], ...] = ()
    # The keys that sign the repositories, where the inventory names files; else they are Docker's and NVIDIA's.
    docker_key: bytes | None = None
    toolkit_key: bytes | None = None
    # The packages on the controller that bring nv_peer_mem.
    peermem_packages: tuple[tuple[str, bytes], ...] = ()
    # What the head has of `StageRules.head_files`, by path.
    head_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what is the same for all hosts of a plan: made the first time that it is requested."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def host(self, name: str) -> Host:
        """Return a host of the inventory by its name."""
        return next(host for host in self.inventory.hosts if host.name == name)


# Plans a stage for one host: it yields nothing where all is right, and never raises.
StagePlanner = Callable[[Host, HostFacts, PlanContext], Iterator[Op | Problem]]


@dataclass(frozen=True)
class Removal:
    """What a stage's part of a teardown depends on, for one host. What set-up made there is known."""

    facts: HostFacts
    # What set-up made, by its path.
    files: Mapping[str, SetupFile]
    cluster: str
    # Whether the host has anything of the cluster.
    has_cluster: bool
    # Whether no other cluster uses the host: what all share goes too.
    is_last: bool
    # The image to be removed, None where it stays.
    image: str | None
    # What set-up put into daemon.json (docker_removal.ADDED), "" where it put nothing.
    added: str


def keep_all(_removal: Removal) -> Iterator[Op | Problem]:
    """Plan nothing: for a stage of which nothing stays but what other stages take back."""
    return iter(())


@dataclass(frozen=True)
class HostFolder:
    """A folder of hosts that a stage mounts into the container."""

    stage: Stage
    path: str
    # Whether the container can write there.
    is_writable: bool


@dataclass(frozen=True)
class ProofFailure:
    """What is wrong with hosts: `what` they cannot do, the evidence, and what to type next.

    `at` are the hosts that it is the fault of, where these are others. `is_fault` is False where nothing is broken, and only a
    step on hosts that this call did not set up is left.
    """

    hosts: tuple[str, ...]
    what: str
    evidence: str
    hint: str = ""
    at: tuple[str, ...] = ()
    is_fault: bool = True

    def __str__(self) -> str:
        """Return one line: hosts, what, evidence."""
        return f"{fold(self.hosts)} {self.what}: {self.evidence}"


@dataclass(frozen=True)
class StageRun:
    """What a stage does on hosts beside its plan: what is known of them, and functions, so that stages import none that act."""

    cluster: PlanContext
    # The hosts that it is about, and all that are set up.
    hosts: tuple[str, ...]
    chosen: tuple[str, ...]
    # Whether hosts get what the registry has under the image's tag now (`--pull`).
    pull: bool
    # Whether the stages were applied: before that, only what no plan changes can be proved.
    is_applied: bool
    # Reads what the controller has of the image, or why it has none.
    read_image: Callable[[Container], SourceImage | str]
    # Asks the registry for the digest of the image, for so many seconds. It raises HostError.
    ask_registry: Callable[[int], str | None]
    # Brings the image to the hosts; gives those that failed, with their errors. It raises HostError.
    send_image: Callable[[SourceImage], Mapping[str, TacoLaunchError]]
    # Proves that containers have the GPUs of their hosts.
    compare_gpus: Callable[[], tuple[ProofFailure, ...]]
    # Runs a command on a host. It raises HostError.
    run: Callable[[str, Command], Result]


def prove_gpus(run: StageRun) -> tuple[ProofFailure, ...]:
    """Return whose container has not the GPUs of its host."""
    return run.compare_gpus()


@dataclass(frozen=True)
class StageRules:
    """What set-up needs to know of a stage, which is at the end of its file as STAGE; the fields are in the order of its life."""

    # Subjects of a host's facts that its plan reads.
    facts: tuple[str, ...]
    plan: StagePlanner
    # The stages whose work its plan builds on.
    after: tuple[Stage, ...] = ()
    # Reads what its plan needs beside hosts' facts, from the controller or a registry. It raises HostError.
    learn: Callable[[StageRun], PlanContext] = lambda run: run.cluster
    # The folders that it mounts, which a host must have before anything is started there.
    mounts: Callable[[Inventory], Iterator[HostFolder]] = lambda _inventory: iter(())
    # Brings to hosts what their operations need. It gives the hosts that failed, with their errors, and raises HostError.
    before_apply: Callable[[StageRun], Mapping[str, TacoLaunchError]] = lambda _run: {}
    # Subjects of a host's facts that it may change: they are requested again when it is done.
    changes: tuple[str, ...] = ()
    # Its proofs: each gives what is wrong. One that several stages name runs once.
    prove: tuple[Callable[[StageRun], tuple[ProofFailure, ...]], ...] = ()
    # Plans to take back what it made: it yields nothing where nothing of it is there.
    take_back: Callable[[Removal], Iterator[Op | Problem]] = keep_all
    # Whether a container may get its GPUs, or lose them, by it: its work is done before `prove` is asked.
    gives_gpus: bool = False
    # Whether it makes the cluster's SSH key on the head, and gives it to all hosts.
    has_key: bool = False
    # Whether each training container has its own part of it, also one that a job has of its own.
    of_container: bool = False
    # Whether it makes the training container.
    makes_container: bool = False
    # Whether `--pull` is for it.
    pulls: bool = False
    # Whether it runs only where `--only` names it; such a stage requires no container.
    optional: bool = False
    # Files of the head that its plan for other hosts needs; they are secret.
    head_files: tuple[str, ...] = ()
