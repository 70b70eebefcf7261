"""The errors that a host reports: in its kernel log, counters, memory and the site's health programs."""

from typing import Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Absent, Found
from taco_launch.core.model.slots import Drain


@dataclass(frozen=True)
class Xid:
    """One error of the NVIDIA driver in the kernel log: `device` is a PCI address, `seconds` when after the boot it came.

    `text` is what the driver says behind the number.
    """

    number: int
    device: str
    seconds: float
    text: str


@dataclass(frozen=True)
class ErrorCounter:
    """One counter of `device` (`mlx5_0 port 1`, `eth0`): its value, and what came to it between two looks."""

    device: str
    name: str
    total: int
    gained: int


@dataclass(frozen=True)
class Counters:
    """The counters of two looks that are `seconds` apart; `uptime` is how long the host had run, in seconds."""

    each: Tuple[ErrorCounter, ...]
    seconds: float
    uptime: float


@dataclass(frozen=True)
class MemoryErrors:
    """The errors that EDAC counted on one memory controller since its driver was loaded."""

    controller: str
    corrected: int
    uncorrected: int


@dataclass(frozen=True)
class Mount:
    """A mounted file system of a disk; `inodes` is how many percent of them are in use, None where it has no such limit."""

    path: str
    read_only: bool
    inodes: Found[int]


@dataclass(frozen=True)
class NvLinks:
    """The NVLinks of one GPU: numbers of those that are down, and (link, counter, count) of errors."""

    gpu: int
    down: Tuple[int, ...]
    errors: Tuple[Tuple[int, str, int], ...]


@dataclass(frozen=True)
class GpuMemory:
    """Pages of a GPU's memory that were retired for errors (before Ampere), and its PCIe generation.

    `pending` says that pages wait for a reset to be retired. `generation` is told for a GPU that works (P0) alone: others slow their link by design.
    """

    gpu: int
    retired: Found[int]
    pending: Found[bool]
    generation: Found[int]
    max_generation: Found[int]  # what the GPU and its slot can do


@dataclass(frozen=True)
class Provided:
    """The verdict of one of the site's health programs: `level` is `ok`, `warning` or `fault`, `text` is its own."""

    program: str
    level: str
    text: str


@dataclass(frozen=True)
class HealthFacts:
    """The facts that only a health check requests; `provided` has the installed health programs, or why one did not answer.

    `drain` is Absent where the host is open to jobs.
    """

    xids: Found[Tuple[Xid, ...]]
    counters: Found[Counters]
    memory: Found[Tuple[MemoryErrors, ...]]
    mounts: Found[Tuple[Mount, ...]]
    nvlinks: Found[Tuple[NvLinks, ...]]
    gpus: Found[Tuple[GpuMemory, ...]]
    provided: Tuple[Tuple[str, Found[Provided]], ...]
    drain: Found[Drain] = Absent()
