"""The whole table, in the order in which texts of one line are told."""

from taco_launch.core.signatures.known.containers import CONTAINERS, DOCKER
from taco_launch.core.signatures.known.cuda import CUDA
from taco_launch.core.signatures.known.fabrics import EFA, UCX
from taco_launch.core.signatures.known.frameworks import FRAMEWORKS
from taco_launch.core.signatures.known.help_topics import HELP_TOPICS
from taco_launch.core.signatures.known.mpich import MPICH
from taco_launch.core.signatures.known.mpirun import LAUNCHER, RANKS
from taco_launch.core.signatures.known.nccl import NCCL, NCCL_DEVICES
from taco_launch.core.signatures.known.open_mpi import OPEN_MPI
from taco_launch.core.signatures.known.slurm import SLURM
from taco_launch.core.signatures.known.ssh import SSH
from taco_launch.core.signatures.known.system import SYSTEM
from taco_launch.core.signatures.known.torch import TORCH, TORCH_RANKS
from taco_launch.core.signatures.known.training import TRAINING
from taco_launch.core.signatures.known.unknown import UNKNOWN

TABLE = (
    *SSH,
    *LAUNCHER,
    *OPEN_MPI,
    *HELP_TOPICS,
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
