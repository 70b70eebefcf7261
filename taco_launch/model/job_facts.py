"""What is known of the hosts of a job when its line is made."""

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class JobHost:
    """One host; None is "not known" everywhere.

    `slots` is how many ranks it takes, `gpus` how many GPUs it has. `single_copy` says whether one process may read
    another's memory there (process_vm_readv(2)). `interface` carries the address that the other hosts reach it at;
    `gid_index` is that of RoCE v2 over IPv4 on it. `link_layer` is that of the RDMA ports a job uses, `InfiniBand` or
    `Ethernet`.
    """

    host: str
    slots: Optional[int] = None
    gpus: Optional[int] = None
    single_copy: Optional[bool] = None
    interface: Optional[str] = None
    gid_index: Optional[int] = None
    link_layer: Optional[str] = None


@dataclass(frozen=True)
class JobFacts:
    """The hosts of a job and the head's software; None is "not known".

    `root`: whether mpirun runs as root. `environment` holds what mpirun inherits that the line has to do with: (name,
    value) of LD_LIBRARY_PATH and of what NCCL, Horovod, LightCC, Open MPI and UCX read, None where it is a container's
    that nobody has looked into. Versions are as the software says them: `4.1.4`.
    """

    root: bool
    environment: Optional[Tuple[Tuple[str, str], ...]] = None
    openmpi: Optional[str] = None
    nccl: Optional[str] = None
    horovod: Optional[str] = None
    hosts: Tuple[JobHost, ...] = ()
