"""JobSpec -> a script for sbatch that does without taco-launch: pure."""

import math
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
_OF_A_RANK = {
    "RANK": "$SLURM_PROCID",
    "LOCAL_RANK": "$SLURM_LOCALID",
    "WORLD_SIZE": "$SLURM_NTASKS",
    "GROUP_RANK": "$SLURM_NODEID",
}
_OF_A_HOST = {"RANK": "$SLURM_NODEID", "WORLD_SIZE": "$SLURM_JOB_NUM_NODES"}
_ONE_ON_EACH_NODE = f"{_SRUN} --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1"


def script(spec: JobSpec) -> tuple[str, tuple[str, ...]]:
    """Return a script for sbatch that runs the job's command on its own, and what the job has that the script has not.

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
    spec = replace(spec, slurm=spec.slurm or SlurmOptions())
    options = [f"#SBATCH {directive.option}" for directive in batch_script.requested(spec)]
    if spec.policy.timeout is not None:
        options.append(f"#SBATCH --time={math.ceil(spec.policy.timeout / 60)}")
    lines = ["#!/bin/sh", *options, f"#SBATCH --output={spec.name}-%j.log", "set -e"]
    lines += [f"cd {shell([spec.workdir or spec.cwd])}"]
    lines += [f"export {name}={shell([value])}" for name, value in spec.env if value is not None]
    return "\n".join((*lines, *_start(spec), "")), tuple(_missing(spec))


def _start(spec: JobSpec) -> Iterator[str]:
    """Yield the lines that start the ranks. Raises as `script` does."""
    launcher, command = launcher_of(spec), shell(spec.command)
    ranks = () if spec.np is None else ("-n", str(spec.np))
    if launcher.is_open_mpi:
        mca = (word for name, value in spec.mca for word in ("--mca", name, value))
        passed = (word for name, _value in spec.env for word in ("-x", name))
        yield f"exec {shell([launcher.program, *ranks, *mca, *passed])} {command}"
    elif launcher.is_single:
        yield f"exec {shell([launcher.program, *ranks])} {command}"
    elif launcher.sets_rendezvous:
        if spec.slots_per_host is None:
            raise UsageError(
                "torchrun requires the same number of ranks on each host",
                hint="set hosts and slotsPerHost in the job file instead of np",
            )
        yield _MEETING_PLACE
        options = f"--nproc_per_node={spec.slots_per_host} --nnodes=$SLURM_JOB_NUM_NODES --node_rank=$SLURM_NODEID"
        where = "--master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"
        yield f"exec {_ONE_ON_EACH_NODE} sh -c 'exec torchrun {options} {where} --no_python \"$@\"' sh {command}"
    else:
        yield _MEETING_PLACE
        values = _OF_A_HOST if spec.per_host else _OF_A_RANK
        if spec.slots_per_host is not None and not spec.per_host:
            values = {**values, "LOCAL_WORLD_SIZE": str(spec.slots_per_host)}
        exported = " ".join(f"{name}={value}" for name, value in values.items())
        yield f"exec {_ONE_ON_EACH_NODE if spec.per_host else _SRUN} sh -c 'export {exported}; exec \"$@\"' sh {command}"


def _missing(spec: JobSpec) -> Iterator[str]:
    yield "NCCL, UCX and MPI settings, which taco-launch takes from the hardware of the nodes"
    if spec.container is not None:
        yield f"the container {spec.container.image}: the script runs the command on the nodes themselves"
    if spec.code is not None:
        yield "the copy of the code: the script runs in the folder, which all nodes have to share"
    if spec.policy.backoff_limit:
        yield "the retries of --backoff-limit"
    if spec.tensorboard is not None:
        yield "TensorBoard"
