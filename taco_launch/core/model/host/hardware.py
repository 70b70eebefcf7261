"""What the GPUs and RDMA devices of a host are; sizes are bytes, rates are Gbit/s."""

from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import NOT_ASKED, Found


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds GPU memory; `memory` is None where the driver does not say."""

    gpu: str  # its UUID
    pid: int
    name: str
    memory: Optional[int]  # bytes


@dataclass(frozen=True)
class MigInstance:
    """One MIG instance; `profile` is `1g.10gb` and the like."""

    gpu: int
    profile: str
    uuid: str


@dataclass(frozen=True)
class Gpu:
    """`pci` is `0000:1b:00.0`, as sysfs writes it; `mig` whether MIG mode is on.

    `uuid` and `name` are empty where a captured output does not show them. `ecc_uncorrected` counts errors since the
    driver was loaded. `remap_pending` and `remap_failed` are about rows of memory that are to be replaced by spare ones.
    `temperature` is in degrees Celsius, `width` and `max_width` are lanes of PCIe. `slowdowns` names what keeps the
    clocks low now, in NVML's words (`HwThermalSlowdown`), idleness left out.
    """

    index: int
    uuid: str
    name: str
    pci: Found[str]
    memory: Found[int]  # bytes
    memory_used: Found[int]  # bytes
    mig: Found[bool]
    numa: Found[int]  # the NUMA node
    ecc_uncorrected: Found[int]
    ecc: Found[bool] = NOT_ASKED  # whether it is on
    remap_pending: Found[bool] = NOT_ASKED
    remap_failed: Found[bool] = NOT_ASKED
    persistence: Found[bool] = NOT_ASKED  # whether it is on
    temperature: Found[int] = NOT_ASKED
    width: Found[int] = NOT_ASKED
    max_width: Found[int] = NOT_ASKED
    slowdowns: Found[Tuple[str, ...]] = NOT_ASKED


@dataclass(frozen=True)
class Driver:
    """`loaded` is the version in the kernel, `installed` the one on the disk; `open` says the open kernel modules run.

    `fabric_manager` is how its unit stands (`active`, `failed`, ...), `fabric_version` the version of its program.
    """

    loaded: Found[str]
    installed: Found[str]
    cuda: Found[str]
    open: Found[bool]
    fabric_manager: Found[str]
    fabric_version: Found[str] = NOT_ASKED


@dataclass(frozen=True)
class Board:
    """What the kernel says of the places that GPUs sit in, whether a driver runs them or not.

    `gpus` and `nvswitches` are PCI addresses. `iommu` is `translates` or `passes` (all memory as it is), Absent where no
    GPU is behind one. `acs` are the PCI bridges whose Access Control Services send traffic between devices up to the
    root complex.
    """

    gpus: Tuple[str, ...]
    nvswitches: Tuple[str, ...]
    iommu: Found[str]
    acs: Found[Tuple[str, ...]]


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a host, in PCI order (nvidia-smi's); `lost` holds its words on those that it cannot reach."""

    driver: Driver
    gpus: Found[Tuple[Gpu, ...]]
    processes: Found[Tuple[GpuProcess, ...]]
    mig_instances: Found[Tuple[MigInstance, ...]]
    lost: Tuple[str, ...] = ()
    board: Found[Board] = NOT_ASKED


# The link of two HCAs whose rows a captured matrix does not have.
UNSEEN = "?"


@dataclass(frozen=True)
class Topology:
    """`nvidia-smi topo -m`: `links` is square and symmetric over `gpus` followed by `nics`.

    A link is `X`, `SYS`, `NODE`, `PHB`, `PXB`, `PIX` or `NV<number of NVLinks>`, and UNSEEN between HCAs. `gpus` are `GPU0`.., `nics` the names
    of HCAs (the legend's, where the header only numbers them). `cpus` and `numa` are of each GPU.
    """

    gpus: Tuple[str, ...]
    nics: Tuple[str, ...]
    links: Tuple[Tuple[str, ...], ...]
    cpus: Tuple[Optional[str], ...] = ()
    numa: Tuple[Optional[str], ...] = ()


@dataclass(frozen=True)
class Gid:
    """One slot in use of a port's GID table; `type` is `IB/RoCE v1` or `RoCE v2`; `gid` as eight groups of four digits."""

    index: int
    gid: str
    type: Found[str]
    netdev: Found[str]


@dataclass(frozen=True)
class Port:
    """`state` is `ACTIVE`, `DOWN`, `INIT` or `ARMED`; `link_layer` is `InfiniBand` or `Ethernet`; `rate` in Gbit/s."""

    number: int
    state: Found[str]
    physical: Found[str]  # such as LinkUp
    link_layer: Found[str]
    rate: Found[float]
    gids: Found[Tuple[Gid, ...]]


@dataclass(frozen=True)
class Hca:
    """One RDMA device; `interfaces` are the network interfaces of its ports and of its PCI device.

    `name` is `unnamed`, and a port's number 0, where a captured output does not show them.
    """

    name: str
    ports: Tuple[Port, ...]
    pci: Found[str]
    numa: Found[int]  # the NUMA node
    firmware: Found[str]
    type: Found[str]  # such as MT4123
    guid: Found[str]  # of the node
    interfaces: Found[Tuple[str, ...]]


@dataclass(frozen=True)
class PeerMemory:
    """The module that lets an HCA reach GPU memory.

    `exists` names the modules that modinfo finds, `loaded` the one in the kernel, `comes_back` says what loads it again
    after a reboot (a path or a unit); `dmabuf` says whether kernel and driver can do without it (Linux 5.12 or newer
    and open kernel modules). `at_boot` is all that loads one: (path or unit, module); `blocked` what keeps one from being
    loaded at boot: (path, module). `headers` says whether those of the running kernel are there, to build a module with;
    `secure_boot` whether the kernel takes signed modules only, which is asked where GPUs or their driver are.
    """

    exists: Found[Tuple[str, ...]]
    loaded: Found[str]
    comes_back: Found[str]
    clients: Found[Tuple[str, ...]]
    dmabuf: Found[bool]
    at_boot: Found[Tuple[Tuple[str, str], ...]] = NOT_ASKED
    blocked: Found[Tuple[Tuple[str, str], ...]] = NOT_ASKED
    headers: Found[bool] = NOT_ASKED
    secure_boot: Found[bool] = NOT_ASKED


@dataclass(frozen=True)
class Adapters:
    """The network adapters of the kind that mlx5 drives: PCI addresses; and the versions of mlx5_core.

    `loaded` is the one in the kernel, `installed` the one on the disk; `untold` where the module names none, as those of
    newer kernels do.
    """

    pci: Tuple[str, ...]
    loaded: Found[str]
    installed: Found[str]


@dataclass(frozen=True)
class Rdma:
    """`ofed` is what `ofed_info -s` says (`MLNX_OFED_LINUX-5.4-1.0.3.0`); Absent is the kernel's own driver."""

    hcas: Found[Tuple[Hca, ...]]
    ofed: Found[str]
    peer_memory: PeerMemory
    modules: Found[Tuple[str, ...]]  # in the kernel
    devices: Found[Tuple[str, ...]]  # that programs open, below /dev
    adapters: Found[Adapters] = NOT_ASKED


@dataclass(frozen=True)
class Distance:
    """How far a GPU is from an HCA: PIX, PXB, PHB, NODE or SYS, nearest first."""

    gpu: int
    hca: str
    link: Found[str]


@dataclass(frozen=True)
class PciDevice:
    """A GPU or an HCA on PCI.

    `kind` is `gpu` or `hca`; `name` is an HCA's name, a GPU's PCI address. `path` leads from the host bridge
    (`pci0000:17`) over the bridges' addresses to the device's own (`0000:1b:00.0`). `numa` is None where the platform
    names no node. Speeds are GT/s, widths lanes; None where the kernel does not say.
    """

    kind: str
    name: str
    path: Tuple[str, ...]
    numa: Optional[int] = None
    speed: Optional[float] = None
    max_speed: Optional[float] = None
    width: Optional[int] = None
    max_width: Optional[int] = None

    @property
    def address(self) -> str:
        """The device's own PCI address."""
        return self.path[-1]
