"""The whole table, in the order in which texts of one line are told."""

from taco_launch.signatures.mpi.fabrics import EFA, UCX
from taco_launch.signatures.mpi.mpich import MPICH
from taco_launch.signatures.mpi.mpirun import LAUNCHER, RANKS
from taco_launch.signatures.mpi.open_mpi import OPEN_MPI
from taco_launch.signatures.texts.containers import CONTAINERS, DOCKER
from taco_launch.signatures.texts.cuda import CUDA
from taco_launch.signatures.texts.frameworks import FRAMEWORKS
from taco_launch.signatures.texts.nccl import NCCL
from taco_launch.signatures.texts.nccl_devices import NCCL_DEVICES
from taco_launch.signatures.texts.slurm import SLURM
from taco_launch.signatures.texts.ssh import SSH
from taco_launch.signatures.texts.system import SYSTEM
from taco_launch.signatures.texts.torch import TORCH
from taco_launch.signatures.texts.torch_ranks import TORCH_RANKS
from taco_launch.signatures.texts.training import TRAINING
from taco_launch.signatures.texts.unknown import UNKNOWN

TABLE = (
    *SSH,
    *LAUNCHER,
    *OPEN_MPI,
    *UCX,
    *EFA,
    *MPICH,
    *NCCL,
    *NCCL_DEVICES,
    *TRAINING,
    *CUDA,
    *TORCH,
    *TORCH_RANKS,
    *FRAMEWORKS,
    *CONTAINERS,
    *DOCKER,
    *SYSTEM,
    *SLURM,
    *RANKS,
    *UNKNOWN,
)
