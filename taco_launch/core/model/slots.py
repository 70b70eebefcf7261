"""The slots of a host: what they are called, and who has each of them at a moment."""

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model import codec


@dataclass(frozen=True)
class SlotHolder:
    """The job that has a slot.

    `id` is the mark of its present attempt, `since` when it took the slot (seconds since the epoch). `job` is empty where
    a job has it that has not said its name yet.
    """

    job: str
    id: str
    since: float
    cluster: str = ""
    owner: str = ""


# The start of `SlotState.foreign` if the users of a slot cannot be listed: the driver lists none for a lost GPU.
UNKNOWN_USERS = "with unknown users"


@dataclass(frozen=True)
class SlotState:
    """One slot: a GPU's UUID, or `slot-N`.

    `foreign` says in words why it is given to nobody though no job has it: processes that are not ours on that GPU, or
    what is not known ("used by process 4711 (python3 of alice)"); it is empty where the slot can be had.
    """

    name: str
    holder: Optional[SlotHolder] = None
    foreign: str = ""

    @property
    def is_free(self) -> bool:
        """Whether a job may take it."""
        return self.holder is None and not self.foreign

    @property
    def is_unknown(self) -> bool:
        """Whether nobody can tell who uses it."""
        return self.foreign.startswith(UNKNOWN_USERS)


# Kinds of drains: a fault of the node ends by `host resume` alone, after a check; what a user causes, such as a full disk,
# may end by itself.
NODE, USER = "node", "user"
_DRAINED = "drained by "


@dataclass(frozen=True)
class Drain:
    """That a host takes no new jobs: who asked for that and why, and since when (seconds since the epoch).

    `kind` is NODE or USER. `policy` says that no person decided it: `check --drain` wrote it, for faults of `checks`.
    """

    by: str
    since: float
    reason: str
    kind: str = NODE
    policy: bool = False
    checks: Tuple[str, ...] = ()

    @property
    def author(self) -> str:
        """Who drained the host: a user, or the policy as that user runs it."""
        return f"policy of {self.by}" if self.policy else self.by


def read_drain(data: bytes, path: str, since: float = 0.0) -> Drain:
    """Read the record of a drain; one that cannot be read, of a file written at `since`, drains the host all the same."""
    try:
        return codec.from_json(Drain, codec.load(data))
    except ValueError as error:
        return unreadable_drain(path, str(error), since)


def unreadable_drain(path: str, why: str, since: float) -> Drain:
    """Return the drain of a host whose record is there and cannot be read."""
    return Drain("an unknown user", since, f"{path} cannot be read ({why})")


def describe_drain(drain: Drain, since: str = "") -> str:
    """Return who has drained a host and why, with a time if it is given: `drained by ann since 14:02 (new cable)`.

    Of a drain by the policy also what ends it.
    """
    end = "" if not drain.policy else "; until its cause is gone" if drain.kind == USER else "; until `host resume`"
    when = f" since {since}" if since else ""
    return f"{_DRAINED}{drain.author}{when} ({drain.reason}{end})"


@dataclass(frozen=True)
class Override:
    """That a person opened a host in spite of faults: who and when (seconds since the epoch), and which: (check, words)."""

    by: str
    since: float
    faults: Tuple[Tuple[str, str], ...]


@dataclass(frozen=True)
class Occupancy:
    """The slots of a host and who holds them; `host` is the host's own name, `gpus` the number of its slots that are GPUs.

    GPUs come first, in the order of their indices; `models` are their names, where they are known, with
    ` MIG` behind that of a GPU that is divided into instances. Of a drained host no slot is free; who may have its slots
    all the same, to measure it, is not told of the drain.
    """

    host: str
    slots: Tuple[SlotState, ...]
    gpus: int = 0
    models: Tuple[str, ...] = ()
    drain: Optional[Drain] = None

    @property
    def free(self) -> int:
        """How many slots a job may take."""
        return sum(slot.is_free for slot in self.slots)

    @property
    def unshown_drain(self) -> Optional[Drain]:
        """The drain, None where a slot shows it: one that a job holds shows its job."""
        return None if any(slot.foreign.startswith(_DRAINED) for slot in self.slots) else self.drain

    def only_held(self) -> "Occupancy":
        """Return it with only the slots that jobs hold; GPUs are not counted, since their indices no longer match."""
        held = tuple(slot for slot in self.slots if slot.holder is not None)
        return replace(self, slots=held, gpus=0, drain=None)

    def without(self, refused: Mapping[str, str]) -> "Occupancy":
        """Return it with slots that cannot be had besides: (name, why)."""
        slots = tuple(
            replace(slot, foreign=refused.get(slot.name, "")) if slot.is_free else slot for slot in self.slots
        )
        return replace(self, slots=slots)


def check_occupancy(occupancy: Occupancy) -> None:
    """Check what a host reports of itself.

    Raises:
        ValueError: more slots are GPUs than there are.
    """
    if not 0 <= occupancy.gpus <= len(occupancy.slots):
        raise ValueError(f"{occupancy.gpus} GPUs and {len(occupancy.slots)} slots")


# How slots without a GPU are called, before their number.
SLOT = "slot-"
PORT = "port-"


def names(uuids: Sequence[str], slots: int) -> Tuple[str, ...]:
    """Name the slots of a host: its GPUs by their UUIDs, in the driver's order, those beyond them `slot-N`."""
    return (*uuids, *(f"slot-{number}" for number in range(len(uuids), slots)))[:slots]


def port_name(port: int) -> str:
    """Name the lease of a TCP port, which a host gives as it gives slots."""
    return f"{PORT}{port}"


def is_gpu(name: str) -> bool:
    """Return whether a slot is a GPU."""
    return name.startswith("GPU-")


def describe_holders(occupancy: Occupancy, *, jobs: bool = True) -> str:
    """Return who has the slots of a host: jobs with their owners, and processes that are not ours; GPUs by their indices.

    Without `jobs` the latter alone. A drain is told also where no slot shows it. Nothing is said where all of them are free.
    """
    found: Dict[str, List[int]] = {}
    for number, slot in enumerate(occupancy.slots):
        if slot.holder is not None:
            owner = f" ({slot.holder.owner})" if slot.holder.owner else ""
            words = (f"job {slot.holder.job}{owner}" if slot.holder.job else "a job") if jobs else ""
        else:
            words = slot.foreign
        if words:
            found.setdefault(words, []).append(number)
    told = []
    for words, numbers in found.items():
        gpus = ",".join(str(number) for number in numbers if number < occupancy.gpus)
        told.append(f"{words}: {f'GPU {gpus}' if gpus else f'{len(numbers)} slot' + 's' * (len(numbers) > 1)}")
    if occupancy.unshown_drain is not None:
        told.append(describe_drain(occupancy.unshown_drain))
    return "; ".join(told)
