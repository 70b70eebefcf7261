"""Scripts for sbatch that do without taco-launch; tests/e2e/test_slurm.py runs them."""

from dataclasses import replace

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, Policy
from taco_launch.jobs import sbatch_script

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
        "exec mpirun -n 4 --mca btl '^openib' -x A -x B echo 'a b'",
    ]
    assert missing == ("NCCL, UCX and MPI settings, which taco-launch takes from the hardware of the nodes",)


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
