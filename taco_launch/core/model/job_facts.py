"""What is known of the hosts of a job when its line is made."""

from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass

# For each GPU that a job has on a host, the names of the HCAs at PIX or PXB, at PHB, at NODE, at SYS.
LocalHcas = Tuple[Tuple[Tuple[str, ...], ...], ...]


@dataclass(frozen=True)
class JobHost:
    """One host; None is "not known" everywhere.

    `slots` is how many ranks it takes, `gpus` how many GPUs it has. `single_copy` says whether one process may read
    another's memory there (process_vm_readv(2)). `models` are the GPUs' names as Occupancy has them. `cpus` is how many
    CPUs a job's processes may run on, as the scheduler counts them, and `cores` how many cores these are.
    """

    host: str
    slots: Optional[int] = None
    gpus: Optional[int] = None
    single_copy: Optional[bool] = None
    models: Tuple[str, ...] = ()
    cpus: Optional[int] = None
    cores: Optional[int] = None


@dataclass(frozen=True)
class SharedValue:
    """A value that all hosts of a job share, None where there is none, and why."""

    value: Optional[str]
    why: str


@dataclass(frozen=True)
class Capability:
    """Whether all hosts of a job can do something, None where that is not known, and why."""

    able: Optional[bool]
    why: str


@dataclass(frozen=True)
class FabricFacts:
    """What the facts of a job's hosts say of the network between them.

    `interface` is a name; `network` is that name, or where the names differ the CIDR that holds the addresses of all.
    `hcas` is NCCL_IB_HCA's value, `gid_index` NCCL_IB_GID_INDEX's, `address_range` NCCL_IB_ADDR_RANGE's. `finds_gid`
    says whether NCCL 2.21 or newer ends at the same GIDs by itself. `rdma` and `gdr` are about what exists, whatever
    is requested; where no host has an HCA, `hcas_there` is False. `link_layer` is `InfiniBand`, `Ethernet` or "".
    `host_env` holds what differs from host to host: (host, name, value). `gids` is (host, GID index) of every port in
    use. `odd` is what is wrong with a host's network, a sentence each, `odd_ports` the same of its RDMA ports.
    `down_ports` are RDMA ports that the job would use, were they ACTIVE as on other hosts: (host, port, state).
    """

    interface: SharedValue
    network: SharedValue
    rdma: Capability
    gdr: Capability
    hcas: SharedValue
    gid_index: SharedValue
    address_range: SharedValue
    hcas_there: bool = True
    link_layer: str = ""
    finds_gid: bool = True
    host_env: Tuple[Tuple[str, str, str], ...] = ()
    gids: Tuple[Tuple[str, int], ...] = ()
    odd_ports: Tuple[str, ...] = ()
    down_ports: Tuple[Tuple[str, str, str], ...] = ()
    odd: Tuple[str, ...] = ()


@dataclass(frozen=True)
class JobFacts:
    """The hosts of a job and the head's software; None is "not known".

    `root`: whether mpirun runs as root. `environment` holds what mpirun inherits that the line has to do with: (name,
    value) of LD_LIBRARY_PATH, CUDA_VISIBLE_DEVICES and of what NCCL, Horovod, LightCC, Open MPI and UCX read, None where it is a container's
    that nobody has looked into. Versions are as the software says them: `4.1.4`. `between` is None where nobody has
    looked at the hosts. `daemon_ports` are those that the job's mpirun and its daemons have for themselves, of
    `network.port_range`. `near` is by host, of those that the job has some GPUs of, and not all; so are `pinned`, the
    indices of the GPUs that a job will have whatever else runs: of a line that is only shown, when no slot is leased yet.
    """

    root: bool
    environment: Optional[Tuple[Tuple[str, str], ...]] = None
    openmpi: Optional[str] = None
    nccl: Optional[str] = None
    horovod: Optional[str] = None
    hosts: Tuple[JobHost, ...] = ()
    between: Optional[FabricFacts] = None
    daemon_ports: Tuple[int, ...] = ()
    near: Tuple[Tuple[str, LocalHcas], ...] = ()
    pinned: Tuple[Tuple[str, Tuple[int, ...]], ...] = ()
