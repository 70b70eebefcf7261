"""A launcher's line, whatever stands in it: it is read, or said to be unclear, and its program is not changed."""

from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.launch.nested_launcher import inner
from taco_launch.request.lines.launcher_line import read
from taco_launch.request.lines.mpirun_line import UnclearError

LAUNCHERS = (("mpirun",), ("horovodrun",), ("torchrun",), ("python3", "-m", "torch.distributed.launch"))
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
    assert line.program
    assert words[len(words) - len(program) :] == program
    assert not line.hosts.startswith("-")
