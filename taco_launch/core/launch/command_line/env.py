"""The environment of a job's processes: its mark, and what each rank is told about its place."""

import re
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:  # every rank imports this file, and the model takes longer to import than all else a rank needs
    from taco_launch.core.model.jobs import JobSpec
    from taco_launch.core.model.plans import LaunchPlan, Placement

# The mark: a process whose environment holds this variable with a job's id belongs to that job.
JOB_ID = "TACO_LAUNCH_JOB_ID"
JOB_NAME = "TACO_LAUNCH_JOB"
# The folder of Open MPI's session folders, in that of a job on each of its hosts.
SESSIONS = "mpi"
# Which try of its job a rank is of, from 1 on; and as torchrun counts them, which starts each of ours anew at 0.
_ATTEMPT, _RESTARTS = "TACO_LAUNCH_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"
# What Horovod's elastic driver sets for each rank beside its number (horovod/runner/gloo_run.py).
HOROVOD_ELASTIC = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_ELASTIC": "1"}
# Our number of a host's first rank, where the launcher renumbers its ranks whenever a host comes or goes.
FIRST_RANK = "TACO_LAUNCH_FIRST_RANK"
# In the environment of what looks after jobs, and belongs to none: a job may submit another, and be above all of that.
SERVICE = "TACO_LAUNCH_SERVICE"

# What an inherited environment says of the transport, the libraries and their knobs.
_RELEVANT = ("HOROVOD_", "LIGHT_", "NCCL_", "OMPI_MCA_", "PRTE_MCA_", "UCX_")
# Which GPUs a process may use (CUDA C++ Programming Guide, "CUDA Environment Variables"): UUIDs, or indices.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_NCCL_DEBUG = "NCCL_DEBUG"  # and NCCL_DEBUG_FILE, NCCL_DEBUG_SUBSYS
GPU_ORDER = "CUDA_DEVICE_ORDER"
# The interface that torch's gloo and TensorPipe use; an exact name (torch.distributed, "Environment variables").
TORCH_SOCKETS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_ALSO = ("LD_LIBRARY_PATH", VISIBLE_GPUS, GPU_ORDER, "OMP_NUM_THREADS", *TORCH_SOCKETS)

# Rank, local rank and world size as launchers give them to their processes. The first that are set count: mpirun's caller
# may have been given torchrun's.
RANK_VARIABLES = (
    # Open MPI: mpirun(1), 4.1 and 5.0
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    # Hydra: MPICH 4 and 5, Intel MPI 2021
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    # torchrun, and our own
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
)
# The descriptor by which a rank of Hydra reaches its proxy.
PMI_FD = "PMI_FD"
PROXY_AGENT = "TACO_LAUNCH_PROXY_AGENT"
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
# What a launcher of MPI gives its ranks: where one of them submits a job, that job's ranks are others.
OF_MPI = ("OMPI_COMM_WORLD_", "PMI_", "MPI_LOCAL")
# The number of a process's host, by the name of torchrun and by that of its --node_rank. PyTorch Lightning reads these and
# LOCAL_RANK where no launcher that it knows has started it, never RANK (LightningEnvironment).
_NODE = ("GROUP_RANK", "NODE_RANK")


def mark(name: str, job_id: str) -> Tuple[Tuple[str, str], ...]:
    """Return the variables that mark a process as belonging to a job."""
    return (JOB_NAME, name), (JOB_ID, job_id)


def attempt_env(number: int, *, elastic: bool) -> Dict[str, str]:
    """Return the variables by which the ranks of an attempt, from 1 on, know which it is; torchrun counts its own restarts."""
    return {_ATTEMPT: str(number), **({} if elastic else {_RESTARTS: str(number - 1)})}


def elastic_env(first: int) -> Dict[str, str]:
    """Return the variables of a host's torchrun where hosts come and go; `first` is our number of its first rank.

    torchrun must not have the ranks meet at its own store: hosts that join later wait for ever for an address that it tells
    in the first round alone (torch 2.13, DynamicRendezvousHandler.next_rendezvous).
    """
    return {FIRST_RANK: str(first), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def launch_agent(wrapper: Sequence[str]) -> Tuple[Tuple[str, str], ...]:
    """Return the variables by which mpirun starts its daemons on other hosts behind a wrapper; none where it cannot.

    Open MPI 4.1 and PRRTE 3 split the value at blanks, without any quoting, and take the wrapped word for their own.
    """
    if any(word.split() != [word] for word in wrapper):
        return ()
    words = " ".join(wrapper)
    return ("OMPI_MCA_orte_launch_agent", f"{words} orted"), ("PRTE_MCA_prte_launch_agent", f"{words} prted")


def proxy_agent(wrapper: Sequence[str]) -> Tuple[Tuple[str, str], ...]:
    """Return the variable by which Hydra's proxies start behind a wrapper (launchers/hydra.py); none where they cannot."""
    if not all(_PLAIN.fullmatch(word) for word in wrapper):  # ssh has the other host's shell read it
        return ()
    return ((PROXY_AGENT, " ".join(wrapper)),)


def relevant(environ: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """Return the variables of an environment that a line has to do with, by name."""
    return tuple(
        sorted((name, value) for name, value in environ.items() if name.startswith(_RELEVANT) or name in _ALSO)
    )


def has_nccl_file(spec: "JobSpec", launch: "LaunchPlan") -> bool:
    """Return whether NCCL writes its messages into a file beside the log: only if nothing but the default sets NCCL_DEBUG.

    The default NCCL_DEBUG=WARN shows warnings alone, which the rank's wrapper copies into the log.
    """
    given = [(token.text, token.source) for token in launch.tokens if token.text.startswith(_NCCL_DEBUG)]
    return given == [(f"{_NCCL_DEBUG}=WARN", "default")] and not any(
        name.startswith(_NCCL_DEBUG) for name, _value in spec.env
    )


def rank_of(environ: Mapping[str, str]) -> Optional[Tuple[int, int, int]]:
    """Read (rank, local rank, world size) from a process's environment, None where no launcher started it."""
    for names in RANK_VARIABLES:
        values = [environ.get(name, "") for name in names]
        if all(value.isascii() and value.isdecimal() and len(value) < 10 for value in values):
            return int(values[0]), int(values[1]), int(values[2])
    return None


def local_env(spec: "JobSpec", placement: "Placement", master_port: int, host: str) -> Dict[str, str]:
    """Return what every rank's environment on a host holds besides its own rank: the user's `-x NAME=VALUE`, the rendezvous.

    The variables are torch.distributed's (its `env://` initialisation), so that a DDP script runs unchanged. A value
    that the user gives wins. torchrun gives its ranks the rendezvous itself.
    """
    from taco_launch.core.model.launchers import launcher_of  # noqa: PLC0415 - every rank imports this file

    values: Dict[str, str] = {}
    if not launcher_of(spec).sets_rendezvous:
        values["MASTER_ADDR"], values["MASTER_PORT"] = rendezvous(spec, placement, master_port)
        values["WORLD_SIZE"] = str(placement.np // spec.procs_per_gpu)
        for number, share in enumerate(placement.shares):
            if share.host == host:
                values["LOCAL_WORLD_SIZE"] = str(share.ranks)
                values.update((name, str(number)) for name in _NODE)
        if spec.procs_per_gpu > 1:  # each slot is what a host is elsewhere
            values["LOCAL_WORLD_SIZE"] = "1"
            values = {name: value for name, value in values.items() if name not in _NODE}
    for name, value in spec.env:
        if value is None:  # the caller's, which every process of the job inherits
            values.pop(name, None)
        else:
            values[name] = value
    return values


def rendezvous(spec: "JobSpec", placement: "Placement", master_port: int) -> Tuple[str, str]:
    """Return MASTER_ADDR and MASTER_PORT: the host of rank 0 and a port there, unless the user gives others."""
    first = next(host for host in spec.hosts if host.name == placement.shares[0].host)
    given = dict(spec.env)
    return given.get("MASTER_ADDR") or first.address, given.get("MASTER_PORT") or str(master_port)


def rank_env(rank: int, local_rank: int, shared: Mapping[str, str], processes: int = 1) -> Dict[str, str]:
    """Add a rank's own numbers to what `local_env` gave.

    Where `processes` of them share each slot, a slot is what a container with one GPU is elsewhere: RANK is the slot's, and
    each process sees its one GPU.
    """
    if processes == 1:
        return {"RANK": str(rank), "LOCAL_RANK": str(local_rank), **shared}
    slot, index = divmod(local_rank, processes)
    own = {
        "RANK": str(rank // processes),
        **{name: str(rank // processes) for name in _NODE},
        "LOCAL_RANK": "0",
        "PROCESS_INDEX": str(index),
        "PROCESS_NUM": str(processes),
    }
    gpus = shared.get(VISIBLE_GPUS, "")
    return {**own, **shared, **({VISIBLE_GPUS: gpus.split(",")[slot % (gpus.count(",") + 1)]} if gpus else {})}


def process_words(local_rank: int, processes: int) -> Tuple[str, ...]:
    """Return what stands behind the command of a process that shares its slot, by the names that cube-studio has."""
    if processes == 1:
        return ()
    return "--process_index", str(local_rank % processes), "--process_num", str(processes)
