"""Scripts for sbatch that do without taco-launch; tests/e2e/test_slurm.py runs them."""

from dataclasses import replace

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import EarlySignal, JobSpec, Policy
from taco_launch.jobs import sbatch_script

HARDWARE = "settings of NCCL, UCX, MPI and OpenMP that follow from the hardware of the nodes"
SPEC = JobSpec(name="j", command=("echo", "a b"), hosts=(Host("n1", "n1"),), np=4, cwd="/home/a b")


def test_the_lines_of_a_job_of_mpirun() -> None:
    spec = replace(SPEC, env=(("A", "it's"), ("B", None)), mca=(("btl", "^openib"),), policy=Policy(timeout=90.0))
    text, missing = sbatch_script.script(replace(spec, slurm=SlurmOptions(partition="gpu")))
    assert text.splitlines() == [
        "#!/bin/sh",
        "#SBATCH --job-name=j",
        "#SBATCH --ntasks=4",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=2",
        "#SBATCH --output=j-%j.log",
        "set -e",
        "cd '/home/a b'",
        """export A='it'"'"'s'""",
        "MASTER_ADDR=$(hostname)",
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
        "export MASTER_ADDR MASTER_PORT",
        (
            "exec mpirun -n 4 --mca btl '^openib' -x MASTER_ADDR -x MASTER_PORT -x A -x B sh -c 'export"
            " RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK"
            " LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE; exec \"$@\"' sh echo 'a b'"
        ),
    ]
    assert missing == (HARDWARE,)


def test_what_a_job_has_beside_its_command_is_kept_or_named() -> None:
    policy = Policy(signal=EarlySignal("USR1", 30.0), stall_timeout=60.0, fail_on="nan", backoff_limit=2)
    text, missing = sbatch_script.script(replace(SPEC, policy=policy, workdir="src"), "/data/proj")
    assert "#SBATCH --signal=USR1@30" in text
    assert "\ncd /data/proj/src\n" in text
    names = [words.split(",")[0] for words in missing[2:]]
    assert missing[:2] == (HARDWARE, "the copy of the code on each host: all nodes must have /data/proj")
    assert names == ["--backoff-limit", "--stall-timeout", "--fail-on"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"np": None}, "no fixed number of ranks"),
        ({"launcher": "torchrun"}, "same number of ranks on each host"),
        ({"launcher": "env", "procs_per_gpu": 2}, "no counterpart"),
    ],
)
def test_what_slurm_cannot_start_alone_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sbatch_script.script(replace(SPEC, **change))  # type: ignore[arg-type]
