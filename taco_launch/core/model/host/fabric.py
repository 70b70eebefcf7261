"""What follows from the facts of several hosts for a job between them: HCAs, GID index, interface."""

from typing import Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Found


@dataclass(frozen=True)
class GidChoice:
    """The slot of a RoCE port's GID table that NCCL is to use; `why` says so in words."""

    hca: str
    port: int
    gid_index: int
    why: str


@dataclass(frozen=True)
class FabricChoice:
    """One value for all hosts, and why it is that one."""

    value: str
    why: str


@dataclass(frozen=True)
class HostValue:
    """A variable of the environment that has to differ from host to host: its value on one of them, and why."""

    host: str
    name: str
    value: str
    why: str


@dataclass(frozen=True)
class HostGid:
    """The GID choice of one port in use."""

    host: str
    choice: GidChoice


@dataclass(frozen=True)
class Anomaly:
    """A host that is not as the others are or as it should be, and what is odd about it."""

    host: str
    what: str


@dataclass(frozen=True)
class Fabric:
    """The choices for a set of hosts.

    `link_layer` is `InfiniBand` or `Ethernet`. `hcas` is NCCL_IB_HCA's value (`=mlx5_0:1,mlx5_1:1`), `gid_index`
    NCCL_IB_GID_INDEX's, `address_range` NCCL_IB_ADDR_RANGE's, `interface` a name or a CIDR that is on every host. A
    choice is Absent where it is not to be set for all hosts; then `host_env` holds what each host needs. `gids` are
    the choices that `gid_index` rests on, `left_out` ports that are there and are not used.
    """

    link_layer: Found[FabricChoice]
    hcas: Found[FabricChoice]
    gid_index: Found[FabricChoice]
    address_range: Found[FabricChoice]
    interface: Found[FabricChoice]
    host_env: Tuple[HostValue, ...] = ()
    gids: Tuple[HostGid, ...] = ()
    left_out: Tuple[Anomaly, ...] = ()
    odd: Tuple[Anomaly, ...] = ()
