"""A launcher as the command of a job, and options of other launchers: what is refused, warned of, and told instead."""

import shlex
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import call, failing, succeeding

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases" / "launchers_inside.yaml").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two").write_text("cluster: two\nnetwork: {interface: eth0}\nhosts:\n  n[1-2]: {slots: 2}\n", encoding="ascii")
    Path("job.yaml").write_text(
        "np: 2\ncommand: mpirun -np 4 -x A=1 --mca pml ob1 python3 train.py\n", encoding="ascii"
    )


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["typed"])
def test_refused_with_the_line_as_it_is_typed_here(case: dict[str, str]) -> None:
    assert failing(*shlex.split(case["typed"])).splitlines()[-1] == f"hint: {case['told']}"


@pytest.mark.parametrize("typed", CASES["let_be"])
def test_let_be(typed: str) -> None:
    verb, *words = shlex.split(typed)
    result = succeeding(verb, "--dry-run", *words)
    assert "warning" not in result.stderr


@pytest.mark.parametrize(("typed", "told"), CASES["warned"])
def test_warned_of(typed: str, told: str) -> None:
    verb, *words = shlex.split(typed)
    result = succeeding(verb, "--dry-run", *words)
    assert f"warning: {told}" in result.stderr
    shell = call(verb, "--dry-run", "--", "bash", "-c", *words[words.index("--") + 1 :])
    assert "warning" not in shell.stderr


@pytest.mark.parametrize(("typed", "told"), CASES["foreign"])
def test_another_launchers_option(typed: str, told: str) -> None:
    assert told in failing(*shlex.split(typed))


def test_a_flag_may_have_a_value_as_arenas_have() -> None:
    typed = ("run", "--dry-run", "--np", "1", "--exclusive=false", "--light=false")
    assert call(*typed, "--gputopology=true", "--", "true", "--light=true").stdout.endswith(" true --light=true\n")
    told = call("run", "--gputopology=false", "--exclusive=true", "--np", "2", "--", "mpirun", "true").stderr
    assert told.endswith("hint: taco-launch run --np 2 --exclusive --no-gputopology -- true\n")


@pytest.mark.parametrize(("line", "hint"), [("python3 t.py", "remove them"), ("python3 t.py $RANK", "bash -c '...'")])
def test_a_long_line_in_quotes(line: str, hint: str) -> None:
    result = failing("submit", f"{line} {'x ' * 200}")
    assert hint in result
    assert ("remove them" in result) == ("$" not in line)
    assert len(result) < 250


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-",), "'-' is no program\nhint: name a program"),
        (("",), "the program is an empty word: ''\nhint: a variable in the command may be unset"),
        (("-", "np", "2"), "a blank divides the option -np\nhint: write -np as one word"),
    ],
)
def test_what_is_no_program(words: tuple[str, ...], said: str) -> None:
    assert said in failing("run", "--", *words)
