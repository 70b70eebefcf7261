"""What was planned for an attempt of a job, as far as it can be compared with what runs."""

import enum
from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass


class PlannedTransport(enum.Enum):
    """What carries NCCL's data between hosts."""

    IB = "IB"
    SOCKET = "Socket"
    OFI = "OFI"


@dataclass(frozen=True)
class PlannedHost:
    """One host of the plan: its name in the inventory, its ranks, and the names that programs there give it.

    None is "not planned", and is not checked: `hcas` are the names of the HCAs that NCCL is to use, `gid_index` its GID
    index, `interface` the one that carries MPI's, Gloo's and NCCL's traffic over sockets, NCCL's bootstrap too. `gpus` are
    the values of CUDA_VISIBLE_DEVICES that its ranks may have, UUIDs or numbers; `all_gpus` says that these are all there are.
    """

    name: str
    ranks: Tuple[int, ...]
    hostnames: Tuple[str, ...] = ()
    hcas: Optional[Tuple[str, ...]] = None
    gid_index: Optional[int] = None
    interface: Optional[str] = None
    gpus: Optional[Tuple[str, ...]] = None
    all_gpus: bool = False


@dataclass(frozen=True)
class NcclPlan:
    """What NCCL is to do between hosts; None is "as it likes", and is not checked.

    `gdr` says whether GPUDirect RDMA is to be used. `one_world` says that the program makes one communicator of all ranks
    (Horovod does); others may have none of that size for a long time.
    """

    transport: Optional[PlannedTransport] = None
    gdr: Optional[bool] = None
    one_world: bool = False


@dataclass(frozen=True)
class RunPlan:
    """What was planned; None and empty tuples are not checked, and without `nccl` no rank is expected to use it.

    `env` are the variables that have to have reached every rank.
    """

    hosts: Tuple[PlannedHost, ...]
    nccl: Optional[NcclPlan] = None
    env: Tuple[Tuple[str, str], ...] = ()

    @property
    def np(self) -> int:
        """The world size."""
        return sum(len(host.ranks) for host in self.hosts)
