"""JobSpec -> a script for sbatch that does without taco-launch: pure."""

import math
import posixpath
from collections.abc import Iterator
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.slurm import batch_script

# The script runs on the first node, where rank 0 is. Ports below 32768 are given to no outgoing connection (Linux).
_MEETING_PLACE = """\
MASTER_ADDR=$(hostname)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT"""
_SRUN = "srun --kill-on-bad-exit"
# What each launcher calls a rank's numbers: those of `env`, in its order.
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK")
_OF_A_RANK = {
    "mpirun": [f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")],
    "hydra": ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    "env": ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_NODEID"],
}
_OF_A_HOST = ["SLURM_NODEID", "SLURM_JOB_NUM_NODES"]
_ONE_ON_EACH_NODE = f"{_SRUN} --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1"


def script(spec: JobSpec, code: str = "") -> tuple[str, tuple[str, ...]]:
    """Return a script for sbatch that runs the job's command on its own, and what the job has that the script has not.

    `code` is the folder or repository that the job copies to each host, "" for none.

    Raises:
        UsageError: Slurm cannot start such a job by itself, or the number of its ranks is not set.
    """
    if spec.procs_per_gpu > 1 or spec.mps:
        raise UsageError("--procs-per-gpu and --mps have no counterpart in a batch script of Slurm")
    if spec.np is None and spec.slots_per_host is None:
        raise UsageError(
            f"job {spec.name} has no fixed number of ranks, which a batch script requires",
            hint="add np, or slotsPerHost, to the job file",
        )
    spec, policy = replace(spec, slurm=replace(spec.slurm or SlurmOptions(), array=None)), spec.policy
    options = [directive.option for directive in batch_script.requested(spec)]
    if policy.timeout is not None:
        options.append(f"--time={math.ceil(policy.timeout / 60)}")
    if policy.signal is not None:  # sbatch(1): to the steps, within the time limit
        options.append(f"--signal={policy.signal.name}@{math.ceil(policy.signal.seconds)}")
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {option}" for option in options),
        f"#SBATCH --output={spec.name}-%j.log",
        "set -e",
    ]
    folder = posixpath.normpath(posixpath.join(code, spec.workdir)) if code.startswith("/") else spec.cwd
    lines += [f"cd {shell([folder])}"]
    lines += [f"export {name}={shell([value])}" for name, value in spec.env if value is not None]
    return "\n".join((*lines, *_start(spec), "")), tuple(_missing(spec, code))


def _start(spec: JobSpec) -> Iterator[str]:
    """Yield the lines that start the ranks. Raises as `script` does."""
    launcher, command = launcher_of(spec), shell(spec.command)
    numbered = _OF_A_HOST if spec.per_host else _OF_A_RANK.get(spec.launcher, [])
    values = {name: f"${variable}" for name, variable in zip(_NAMES, numbered, strict=False) if variable}
    if spec.slots_per_host is not None and not spec.per_host:
        values["LOCAL_WORLD_SIZE"] = str(spec.slots_per_host)
    exported = " ".join(f"{name}={value}" for name, value in values.items())
    rank = f"sh -c 'export {exported}; exec \"$@\"' sh {command}"
    ranks = () if spec.np is None else ("-n", str(spec.np))
    yield _MEETING_PLACE
    if launcher.is_open_mpi:
        mca = (word for name, value in spec.mca for word in ("--mca", name, value))
        names = ("MASTER_ADDR", "MASTER_PORT", *(name for name, _value in spec.env))
        passed = (word for name in names for word in ("-x", name))
        yield f"exec {shell([launcher.program, *ranks, *mca, *passed])} {rank}"
    elif launcher.is_single:
        yield f"exec {shell([launcher.program, *ranks])} {rank}"
    elif launcher.sets_rendezvous:
        if spec.slots_per_host is None:
            raise UsageError(
                "torchrun requires the same number of ranks on each host",
                hint="set hosts and slotsPerHost in the job file instead of np",
            )
        options = f"--nproc_per_node={spec.slots_per_host} --nnodes=$SLURM_JOB_NUM_NODES --node_rank=$SLURM_NODEID"
        where = "--master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"
        yield f"exec {_ONE_ON_EACH_NODE} sh -c 'exec torchrun {options} {where} --no_python \"$@\"' sh {command}"
    else:
        yield f"exec {_ONE_ON_EACH_NODE if spec.per_host else _SRUN} {rank}"


def _missing(spec: JobSpec, code: str) -> Iterator[str]:
    policy = spec.policy
    yield "settings of NCCL, UCX, MPI and OpenMP that follow from the hardware of the nodes"
    if spec.container is not None:
        yield f"the container {spec.container.image}: the script runs the command on the nodes themselves"
    if spec.slurm is not None and spec.slurm.container is not None:
        yield f"the container {spec.slurm.container.image}: the script runs the command on the nodes themselves"
    if code:
        where = f"all nodes must have {code}" if code.startswith("/") else f"put {code} where the script runs"
        yield f"the copy of the code on each host: {where}"
    options = {
        "--backoff-limit": policy.backoff_limit,
        "--stall-timeout": policy.stall_timeout,
        "--silence-timeout": policy.silence_timeout,
        "--fail-on": policy.fail_on,
        "--strict": policy.strict,
        "--notify": policy.notify,
        "--config-file": spec.code is not None and not spec.code.source,
        "--tensorboard": spec.tensorboard,
    }
    yield from (f"{option}, which sbatch has no counterpart for" for option, value in options.items() if value)
