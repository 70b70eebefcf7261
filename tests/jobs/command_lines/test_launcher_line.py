"""A launcher's line, whatever stands in it: it is read, or said to be unclear, and its program is not changed."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.hosts.inventory.profile_check import WORDS as OF_PROFILES
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, UnclearError, read

LAUNCHERS = (
    *(("mpirun",), ("horovodrun",), ("torchrun",), ("python3", "-m", "torch.distributed.launch")),
    *(("deepspeed",), ("srun",), ("accelerate", "launch"), ("mpiexec.hydra",), ("composer",), ("colossalai", "run")),
    *(("mpirun_rsh",), ("mpiexec_mpt",)),
)
WORDS = (
    "-np 2 -H h:1 --hostfile -x A=1 PATH --mca pml --nnodes=2 --nproc_per_node -m --no_python - -- : = --gloo a.py ''"
    " -N2 --ntasks -genv -genvlist C,D --mixed_precision --include h@g:0 --what -t 1:00:00"
)


def line_of(words: tuple[str, ...], variables: dict[str, str] | None = None) -> LauncherLine:
    found = inner(words)
    assert found is not None
    return read(words[found.begin :], found, variables)


@given(st.sampled_from(LAUNCHERS), st.lists(st.sampled_from([*WORDS.split(), ""]), max_size=8))
@example(("torchrun",), ["--nproc_per_node", "2"])
@example(("mpirun",), ["-H", "-H", "2"])
@example(("horovodrun",), ["--hosts=-H", "a.py"])
@example(("deepspeed",), ["--include", "-np", "2"])
@example(("mpirun",), ["-genvlist", "--", "2"])
@example(("mpirun",), ["--mca", "--", "pml", "2"])
def test_any_line(launcher: tuple[str, ...], rest: list[str]) -> None:
    words = (*launcher, *rest)
    found = inner(words)
    if found is None:
        return
    assert found.words == len(launcher)
    try:
        line = read(words, found)
    except UnclearError as error:
        words[error.index]  # there is such a word
        return
    assert line.program
    assert words[len(words) - len(line.program) :] == line.program
    read_words = [word for part in {part.index: part for part in line.parts}.values() for word in part.words]
    assert read_words == [word for word in words[found.words : line.begin] if word != "--"]
    assert not any(part.value.startswith("-") for part in line.of(table.HOSTS))


@pytest.mark.parametrize(
    "launcher", ["torchrun", "python3 -m torch.distributed.run", "python -m torch.distributed.launch"]
)
def test_a_python_before_the_script_of_torchrun_is_refused(launcher: str) -> None:
    with pytest.raises(UnclearError, match="torchrun starts Python itself") as caught:
        line_of((*launcher.split(), "--nproc-per-node", "2", "python3.11", "train.py"))
    assert caught.value.hint == "remove python3.11 before the script"
    assert line_of((*launcher.split(), "--no-python", "python3", "train.py")).program == ("python3", "train.py")


VALUES = st.from_regex("[a-z0-9=./]{0,6}", fullmatch=True)
NAMES = st.from_regex("[A-Z][A-Z0-9_]{0,5}", fullmatch=True)
DASHES = st.sampled_from(["-", "--"])


@st.composite
def lines(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, Any]]:
    """A line of mpirun, and what it says."""
    expected: dict[str, Any] = {"ranks": [], "env": [], "mca": [], "bare": [], "hosts": []}
    words = [draw(st.sampled_from(["mpirun", "/usr/bin/mpirun", "mpiexec"]))]
    for kind in draw(st.lists(st.sampled_from(["np", "x", "bare", "far", "mca", "host", "root"]), max_size=6)):
        dash, name, value = draw(DASHES), draw(NAMES), draw(VALUES)
        if kind == "np":
            expected["ranks"].append(("", str(draw(st.integers(1, 999)))))
            words += [dash + draw(st.sampled_from(["np", "n"])), expected["ranks"][-1][1]]
        elif kind == "x":
            expected["env"].append((name, value))
            words += ["-x", f"{name}={value}"]
        elif kind == "bare":
            expected["env"].append(("known", "its value"))
            words += ["-x", "known"]
        elif kind == "far":
            expected["bare"].append(("unknown", ""))
            words += ["-x", "unknown"]
        elif kind == "mca":
            expected["mca"].append((name, value))
            words += [dash + "mca", name, value]
        elif kind == "host":
            expected["hosts"].append(("", name))
            words += [dash + "H", name]
        else:
            words.append("--allow-run-as-root")
    program = [draw(NAMES), *draw(st.lists(st.from_regex("-{0,2}[a-z]{1,4}", fullmatch=True), max_size=4))]
    return (*words, *program), {**expected, "program": tuple(program)}


@given(lines())
def test_lines_of_mpirun(line: tuple[tuple[str, ...], dict[str, Any]]) -> None:
    words, expected = line
    actual = line_of(words, {"known": "its value"})
    assert actual.program == expected.pop("program")
    for use, values in expected.items():
        assert [(part.name, part.value) for part in actual.of(use)] == values


def test_a_line_of_hydra_has_the_variables_that_it_is_started_with() -> None:
    words = [
        "mpiexec",
        "-n",
        "2",
        "-np",
        "4",
        "-ppn",
        "1",
        "-genv",
        "A",
        "b",
        "-genvlist",
        "C,D",
        "-hosts",
        "h1,h2",
        "-f",
        "FILE",
        "-l",
        "-iface",
        "eth0",
        "prog",
        "-n",
        "x",
    ]
    line = line_of(tuple(words), {"C": "v"})
    assert line.kind == "hydra"
    assert [(part.use, part.name, part.value) for part in line.parts if part.use != table.OMITTED] == [
        ("env", "C", "v"), ("ranks", "", "2"), ("ranks", "", "4"), ("each", "", "1"), ("env", "A", "b"), ("env", "C", "v"),
        ("bare", "D", ""), ("hosts", "", "h1,h2"), ("hostfile", "", "FILE"),
    ]  # fmt: skip
    assert line.program == ("prog", "-n", "x")


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


def test_a_profile_counts_the_words_of_an_option_as_the_table_does() -> None:
    counted = {name: meaning.words for name, meaning in table.OPTIONS["mpirun"].items()}
    assert {name: words for name, words in OF_PROFILES.items() if counted.get(name) != words} == {}
