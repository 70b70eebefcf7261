"""The whole table, in the order in which texts of one line are told."""

from taco_launch.signatures.containers import CONTAINERS
from taco_launch.signatures.mpi import MPI
from taco_launch.signatures.mpirun import LAUNCHER, RANKS
from taco_launch.signatures.nccl import NCCL
from taco_launch.signatures.nccl_devices import NCCL_DEVICES
from taco_launch.signatures.nccl_network import NCCL_NETWORK
from taco_launch.signatures.slurm import SLURM
from taco_launch.signatures.ssh import SSH
from taco_launch.signatures.system import SYSTEM
from taco_launch.signatures.torch import TORCH
from taco_launch.signatures.torch_ranks import TORCH_RANKS
from taco_launch.signatures.training import TRAINING

TABLE = (
    *SSH,
    *LAUNCHER,
    *MPI,
    *NCCL,
    *NCCL_DEVICES,
    *NCCL_NETWORK,
    *TRAINING,
    *TORCH,
    *TORCH_RANKS,
    *CONTAINERS,
    *SYSTEM,
    *SLURM,
    *RANKS,
)
