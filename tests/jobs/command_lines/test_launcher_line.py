"""A launcher's line, whatever stands in it: it is read, or said to be unclear, and its program is not changed."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.launcher_line import read
from taco_launch.jobs.command_lines.mpirun_line import UnclearError

LAUNCHERS = (
    *(("mpirun",), ("horovodrun",), ("torchrun",), ("python3", "-m", "torch.distributed.launch")),
    *(("deepspeed",), ("srun",), ("accelerate", "launch")),
)
WORDS = (
    "-np 2 -H h:1 --hostfile -x A=1 PATH --mca pml --nnodes=2 --nproc_per_node -m --no_python - -- : = --gloo a.py ''"
)


@given(st.sampled_from(LAUNCHERS), st.lists(st.sampled_from([*WORDS.split(), ""]), max_size=8))
@example(("torchrun",), ["--nproc_per_node", "2"])
@example(("mpirun",), ["-H", "-H", "2"])
@example(("horovodrun",), ["--hosts=-H", "a.py"])
def test_any_line(launcher: tuple[str, ...], rest: list[str]) -> None:
    words = (*launcher, *rest)
    found = inner(words)
    if found is None:
        return
    assert found.words == len(launcher)
    try:
        line = read(words, found)
    except UnclearError:
        return
    program = line.program[line.program[:2].count("-m") + 1 :] if found.kind == "torch" else line.program
    if found.kind in ("deepspeed", "accelerate") and program[:1] == ("python3",):
        program = program[1:]
    assert line.program
    assert words[len(words) - len(program) :] == program
    assert not line.hosts.startswith("-")


@pytest.mark.parametrize(
    ("line", "size", "program", "hostfile"),
    [
        (
            "deepspeed --num_gpus 2 --num_nodes 2 --hostfile h t.py --zero 3",
            "--hosts 2 --slots-per-host 2",
            "python3 t.py --zero 3",
            "h",
        ),
        ("deepspeed --num_gpus=4 t.py", "--np 4", "python3 t.py", ""),
        (
            "srun -N 2 --ntasks-per-node=8 --mpi=pmix all_reduce_perf -g 1",
            "--hosts 2 --slots-per-host 8",
            "all_reduce_perf -g 1",
            "",
        ),
        ("accelerate launch --num_processes 16 --num_machines 2 t.py", "--np 16", "python3 t.py", ""),
        ("composer -n 8 t.py", "--np 8", "python3 t.py", ""),
        ("mpiexec.hydra -n 8 -ppn 4 -f h -genv A=2 a.out", "--np 8 --slots-per-host 4", "a.out", "h"),
        ("mpirun.real -np 2 a.out", "--np 2", "a.out", ""),
        ("python -m deepspeed.launcher.runner --num_gpus 4 t.py", "--np 4", "python3 t.py", ""),
        ("nohup env A=1 mpirun -np 2 a.out", "--np 2", "a.out", ""),
        ("numactl -N 0 torchrun --nproc_per_node 4 t.py", "--np 4", "numactl -N 0 python3 t.py", ""),
        ("uv run --with x torchrun --nproc_per_node 4 t.py", "--np 4", "uv run --with x python3 t.py", ""),
        ("apptainer exec --nv -B /a i.sif torchrun t.py", "--np 1", "apptainer exec --nv -B /a i.sif python3 t.py", ""),
        ("horovodrun -np 2 --network-interface eth0 python t.py", "--np 2", "python t.py", ""),
    ],
)
def test_launchers_that_count(line: str, size: str, program: str, hostfile: str) -> None:
    words = tuple(line.split())
    found = inner(words)
    assert found is not None
    said = read(words[found.begin :], found)
    assert (" ".join(said.size), " ".join(said.program), said.hostfile) == (size, program, hostfile)


def test_variables_before_a_launcher_are_those_of_the_ranks() -> None:
    words = ("A=1", "sudo", "-E", "-u", "me", "B=2", "mpirun", "-x", "C=3", "-np", "2", "a.out")
    found = inner(words)
    assert found is not None
    assert read(words[found.begin :], found).env == ("A=1", "B=2", "C=3")


@pytest.mark.parametrize(
    "line",
    [
        "env A=1 python t.py mpirun",
        "numactl -N 0 python t.py torchrun x",
        "sh -c torchrun x",
        "uv run t.py",
        "A=1",
        "env",
        "nohup",
    ],
)
def test_a_launchers_name_elsewhere_is_none(line: str) -> None:
    assert inner(line.split()) is None


@pytest.mark.parametrize(
    "line", ["srun --gres gpu:8 a.out", "deepspeed --include h:0 t.py", "accelerate launch --config_file c t.py"]
)
def test_what_has_no_counterpart_is_not_dropped(line: str) -> None:
    words = tuple(line.split())
    found = inner(words)
    assert found is not None
    with pytest.raises(UnclearError, match="no counterpart"):
        read(words, found)
