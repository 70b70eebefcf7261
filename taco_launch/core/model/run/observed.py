"""What is seen of an attempt of a job: by rank what its wrapper, its sockets and NCCL's log tell."""

from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class InterfaceTraffic:
    """The TCP connections of a rank on one interface: how many, their bytes (None: not told), the other ends' addresses.

    `interface` is "" where it is not known, and several names with commas where more than one has the address.
    """

    interface: str
    connections: int
    bytes: Optional[int]
    peers: Tuple[str, ...] = ()


@dataclass(frozen=True)
class NcclHca:
    """An HCA port in NCCL's list: its place there, which names it in `NET/IB/0`, its name, port and link layer."""

    index: int
    name: str
    port: int
    link_layer: str


@dataclass(frozen=True)
class NcclCommunicator:
    """A communicator as one of its members tells of it; `complete` when its initialisation has ended.

    `ranks` is its size, `rank` the member's number within it, `device` the CUDA device, `bus_id` its PCI address in
    NCCL's hexadecimal form, "" where not told. `id` is the same for all members and "" before NCCL 2.17.
    """

    ranks: int
    rank: int
    device: int
    bus_id: str = ""
    id: str = ""
    complete: bool = False


@dataclass(frozen=True)
class NcclConnection:
    """A kind of channel between two ranks of a communicator, however many channels are alike.

    `transport` is IB, Socket, OFI, the name of another network plugin, P2P, SHM, NVLS or COLLNET; `detail` what stands
    behind P2P/ or SHM/. `direction` is `send` or `receive` as seen by the rank that tells it, "" where NCCL does not say
    so (P2P, SHM). `device` is the place in the list of HCAs or interfaces. `gdr` says whether GPUDirect RDMA is used.
    """

    source: int
    target: int
    transport: str
    direction: str = ""
    device: Optional[int] = None
    gdr: bool = False
    detail: str = ""

    @property
    def told_by(self) -> int:
        """The rank that printed it."""
        return self.target if self.direction == "receive" else self.source

    @property
    def is_network(self) -> bool:
        """Whether it leaves the host, or could."""
        return self.direction != ""


@dataclass(frozen=True)
class NcclProcess:
    """What one process told of NCCL in its log.

    `host` is the name that NCCL gives the host, `pid` the process there. `network` is the network that it chose: IB,
    Socket, a plugin's name. `plugin` is the network plugin that was loaded, "" where none was. `interfaces` are those of
    its sockets, `bootstrap` the interface and `oob` that of NET/IB's out-of-band data. `gdr_of_hca` is (HCA, whether
    GPUDirect RDMA can be used with it), `gid_indices` those of its connections. `env` holds what it says that the
    environment set, `warnings` the first of its warnings, `rings` whether all rings are connected. `no_ib` says why there
    is no InfiniBand, "" where there may be.
    """

    host: str
    pid: int
    version: str = ""
    network: str = ""
    plugin: str = ""
    no_ib: str = ""
    bootstrap: str = ""
    oob: str = ""
    hcas: Tuple[NcclHca, ...] = ()
    interfaces: Tuple[str, ...] = ()
    communicators: Tuple[NcclCommunicator, ...] = ()
    connections: Tuple[NcclConnection, ...] = ()
    gdr_of_hca: Tuple[Tuple[str, bool], ...] = ()
    too_far: str = ""
    gid_indices: Tuple[int, ...] = ()
    env: Tuple[Tuple[str, str], ...] = ()
    nvls: Optional[bool] = None
    warnings: Tuple[str, ...] = ()
    rings: bool = False


@dataclass(frozen=True)
class NcclLog:
    """A log of NCCL's: its processes in the order they first spoke.

    `torn` counts lines that were cut or mixed with others, `cut` says that more was there than was read.
    """

    processes: Tuple[NcclProcess, ...] = ()
    torn: int = 0
    cut: bool = False


@dataclass(frozen=True)
class SeenRank:
    """What is seen of one rank; None is "not known".

    `host` is the host of the inventory whose guard saw it. `world_size` is what its own library said, `world_source`
    which. `env` holds those of the plan's variables that it has; None where its environment was not read. `sockets` are
    its connections to other hosts, by interface. `libraries` are (name, version) of those of MPI, NCCL, CUDA and torch that
    it has loaded, with the size of the file where its name has no version.
    """

    rank: int
    host: str
    world_size: Optional[int] = None
    world_source: str = ""
    env: Optional[Tuple[Tuple[str, str], ...]] = None
    sockets: Optional[Tuple[InterfaceTraffic, ...]] = None
    libraries: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SeenRun:
    """All that is seen of an attempt."""

    ranks: Tuple[SeenRank, ...] = ()
    nccl: NcclLog = NcclLog()
