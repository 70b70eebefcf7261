"""A launcher's line as options of `run`: each part of it is among them, or named as left out."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.translation import Translation, translate
from tests.support.command_line import VERBS

CASES = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text("utf-8"))


def translated(line: str) -> Translation:
    words = shlex.split(line)
    found = inner(words)
    assert found is not None
    return translate(words, found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["typed"])
def test_a_line(case: dict[str, Any]) -> None:
    done = translated(case["typed"])
    hostfile = ["-i", done.hostfile] if done.hostfile and "-H" not in done.options else []
    assert shlex.join([*hostfile, "run", *done.options, "--", *done.program]) == case["here"]
    assert [row.original for row in done.left_out if not row.is_remark] == case["without"]
    assert all(row.why for row in done.left_out)


def test_a_program_that_may_be_an_options_value_is_named() -> None:
    remarks = [row for row in translated("accelerate launch --same_network true --tee 3 main.py").rows if row.is_remark]
    assert [row.original for row in remarks] == ["true"]
    assert "although --tee follows it" in remarks[0].why


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "mpirun -np 2 --what ./a.out ./b.out",
            "is no option that is known here, and './a.out' or './b.out' may be the",
        ),
        (
            "srun -N 2 apptainer exec i.sif bash -c 'cd /x && torchrun t.py'",
            "starts a container, whose script starts torchrun",
        ),
        ("mpiexec.hydra -configfile a.cfg", "may start several programs in the same job"),
        ("mpirun -configfile a.cfg", "may start several programs in the same job"),
        (
            "mpirun -n 1 ./server : -n 8 ./worker",
            "starts a second program, or one with other settings, in the same job",
        ),
        ("srun -n 1 ./server : -n 8 ./worker", "starts a second program, or one with other settings, in the same job"),
        ("torchrun --nproc-per-node 4 / --a 1", "is a folder, and no program"),
        ("mpirun -np 2 ./bin/ a", "is a folder, and no program"),
        ("flux run -N 4-n 48 ./a", "is not a number"),
        ("mpirun -npernode 4-x 1 ./a", "is not a number"),
        ("deepspeed --launcher openmpi --launcher_args '-x' t.py", "has no value"),
        ("mpiexec.hydra -n 1 -env A 1 a : -n 1 a", "starts a second program"),  # A is for the first part alone
        ("srun -n 4 --multi-prog a.conf", "may start several programs in the same job"),
        ("srun -N 2 --ntasks-per-node=1 apptainer run x.sif all_reduce_perf -g 8", "is one process of MPI for several"),
        ("srun -N 2 --ntasks-per-node=1 --gres=gpu:8 --mpi=pmix a.out", "is one process of MPI for several GPUs"),
    ],
)
def test_a_line_that_may_be_two_jobs_is_refused(line: str, problem: str) -> None:
    with pytest.raises(UnclearError, match=problem):
        translated(line)


def test_ranks_with_several_gpus_are_named() -> None:
    (row,) = [row for row in translated("mpirun -np 2 ./all_reduce_perf -b 8 -g 2").rows if row.is_remark]
    assert (row.original, row.why.partition(": ")[2]) == ("-g 2", "-g 1, and 2 times the ranks")


@pytest.mark.parametrize(
    ("line", "original", "why"),
    [
        ("mpirun -np 2 --mca plm_rsh_args '-p 50' a", "--mca plm_rsh_args '-p 50'", "key `port` in the inventory"),
        ("mpirun -np 2 -bynode a", "-bynode", "fill one host after the other: --slots-per-host N spreads them"),
        ("mpirun -np 2 -rf f a", "-rf f", "chooses the host of each rank by a file, which is not read"),
        ("mpirun -np 2 --map-by seq a", "--map-by seq", "chooses the host of each rank by a file, which is not read"),
        ("srun -n 4 -N 3 a", "-N 3", "this number of hosts does not divide the ranks, and is not kept"),
        ("srun -n 4 --gpus 8 a", "--gpus 8", "asks for 8 GPUs, and each of the 4 ranks has one"),
        (
            "srun -n 4 a --launcher=slurm",
            "--launcher slurm",
            "SLURM_*, which are not set here: --launcher pytorch reads",
        ),
        ("deepspeed --launcher openmpi t.py", "--launcher openmpi", "--launcher decides how the ranks meet"),
    ],
)
def test_the_reason_of_an_option(line: str, original: str, why: str) -> None:
    (row,) = [row for row in translated(line).rows if row.original == original]
    assert why in row.why


@pytest.mark.parametrize(
    ("line", "original", "here", "why"),
    [
        ("srun -n 2 --signal=USR1@120 a", "--signal=USR1@120", "--signal USR1@120", ""),
        ("srun -n 2 --signal=B:SIGTERM@60 a", "--signal=B:SIGTERM@60", "--signal TERM@60", ""),
        ("srun -n 2 --signal 10 a", "--signal 10", "--signal USR1", ""),
        ("srun -n 2 --signal KILL@9 a", "--signal KILL@9", "", "must be one of USR1, USR2, HUP, INT, TERM"),
        ("srun -n 2 -J 'my job' a", "-J 'my job'", "--name my-job", "a job name has only letters, digits"),
        (
            "srun -n 2 -J _train:lr=0.1 a",
            "-J _train:lr=0.1",
            "--name train-lr-0.1",
            "a job name has only letters, digits",
        ),
        ("srun -n 2 -J '###' a", "-J '###'", "", "a job name has only letters, digits"),
        ("srun -n 2 -J my_job.1 a", "-J my_job.1", "--name my_job.1", ""),
        ("mpirun -np 2 -x FOO a", "-x FOO", "-x FOO", "the ranks have the value in your environment"),
        ("mpirun -np 2 -x PATH a", "-x PATH", "", "the ranks have that of their host or container"),
    ],
)
def test_the_row_of_an_option(line: str, original: str, here: str, why: str) -> None:
    (row,) = [row for row in translated(line).rows if row.original == original]
    assert row.here == here
    assert row.why.startswith(why)
    assert bool(row.why) == bool(why)


def test_the_word_in_doubt_of_an_inner_launcher_is_named() -> None:
    line = "srun -N 2 torchrun --nnodes 2 --what ./a.py ./b.py"
    with pytest.raises(UnclearError) as caught:
        translated(line)
    assert line.split()[caught.value.index] == "--what"


@pytest.mark.parametrize(
    "script",
    [
        "'torchrun t.py > log'",
        "'torchrun *.py'",
        "'! torchrun t.py'",
        "'while :; do torchrun t.py; done'",
        "'torchrun ~/t.py {1,2}'",
        "'torchrun t.py $1' _ a",
    ],
)
def test_a_shell_that_does_more_than_start_a_launcher_is_not_removed(script: str) -> None:
    with pytest.raises(UnclearError, match="is a script that starts torchrun, and does more"):
        translated(f"srun bash -c {script}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["typed"])
def test_the_command_line_accepts_what_is_printed(case: dict[str, Any]) -> None:
    done = translated(case["typed"])
    with VERBS["run",].make_context("run", [*done.options, "--", *done.program]) as context:
        assert context.params["command"] == done.program


@pytest.mark.parametrize(("gres", "told"), [("gpu:v100:4", "--gpu-model v100"), ("gpu:4", ""), ("gpu:4(S:0-1)", "")])
def test_the_model_of_the_gpus_is_told(gres: str, told: str) -> None:
    (row,) = [
        each
        for each in translated(f"srun -N 2 --ntasks-per-node 4 --gres={gres} a.out").rows
        if "--gres" in each.original
    ]
    assert row.why.partition("for that model only: ")[2] == told
