"""The mpirun line, word for word; what is executed is the same line with the wrapper before the command."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.launch import mpirun
from taco_launch.launch.env import JOB_ID, JOB_NAME
from taco_launch.launch.separator import escape, unescape
from taco_launch.model.hosts import Host
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import HostSlots, LaunchPlan
from taco_launch.placement import place

LOCAL = Host("me", "127.0.0.1", slots=2, connection="local")
FAR = (Host("gpu1", "10.0.0.1", slots=8), Host("gpu2", "10.0.0.2", slots=8))
WRAPPER = ("/py", "-I", "-S", "/agent.pyz", "rank", "/job", "--")
BINDING = ("--bind-to", "none", "--map-by", "slot")


def plan(*, root: bool = False, **fields: Any) -> LaunchPlan:
    spec = JobSpec(**{"name": "j", "command": ("true",), "hosts": (LOCAL,), **fields})
    placement = place(spec.np, [HostSlots(host.name, host.slots or 0) for host in spec.hosts])
    return mpirun.plan(spec, "id1", placement, WRAPPER, root=root)


@pytest.mark.parametrize(
    ("fields", "options", "command"),
    [
        pytest.param({}, ("mpirun", "-np", "2", "-H", "localhost:2", *BINDING), ("true",), id="smallest"),
        pytest.param(
            {"root": True, "np": 1},
            ("mpirun", "-np", "1", "-H", "localhost:1", "--allow-run-as-root", *BINDING),
            ("true",),
            id="root",
        ),
        pytest.param(
            {"hosts": FAR, "np": 12, "mpirun": "/opt/ompi/bin/mpirun"},
            ("/opt/ompi/bin/mpirun", "-np", "12", "-H", "gpu1:8,gpu2:4", *BINDING),
            ("true",),
            id="two-hosts",
        ),
        pytest.param(
            {"env": (("A", None), ("B", "two words"), ("C", "")), "command": ("python3", "train.py", "--lr", "0.1")},
            ("mpirun", "-np", "2", "-H", "localhost:2", *BINDING, "-x", "A", "-x", "B=two words", "-x", "C="),
            ("python3", "train.py", "--lr", "0.1"),
            id="environment",
        ),
    ],
)
def test_the_line(fields: dict[str, Any], options: tuple[str, ...], command: tuple[str, ...]) -> None:
    made = plan(**fields)
    assert made.argv == (*options, *command)
    assert made.executed == (*options, *WRAPPER, *command)


def test_the_mark_is_set_for_the_launcher() -> None:
    assert dict(plan().env) == {JOB_NAME: "j", JOB_ID: "id1"}


def test_every_word_has_its_source_and_its_reason() -> None:
    made = plan(hosts=FAR, np=3, mpirun="/x/mpirun", env=(("A", None), ("B", "1")), command=("a", "b"), root=True)
    assert all(token.why for token in made.tokens)
    assert [(token.text, token.source) for token in made.tokens] == [
        ("/x/mpirun", "inventory"),
        ("-np", "user"),
        ("3", "user"),
        ("-H", "launcher"),
        ("gpu1:3", "launcher"),
        ("--allow-run-as-root", "fact"),
        *((word, "default") for word in BINDING),
        *((word, "user") for word in ("-x", "A", "-x", "B=1", "a", "b")),
    ]
    assert [token.source for token in plan().tokens[:3]] == ["default", "default", "default"]


@given(st.lists(st.text(), min_size=1, max_size=6))
@example([":", "a", "::"])
def test_executed_is_the_line_with_the_wrapper_before_the_command(command: list[str]) -> None:
    made = plan(command=tuple(command))
    options = len(made.tokens) - len(command)
    assert made.argv[options:] == tuple(command)
    assert made.executed[: options + len(WRAPPER)] == (*made.argv[:options], *WRAPPER)
    wrapped = made.executed[options + len(WRAPPER) :]
    assert [unescape(word) for word in wrapped] == command
    # A lone colon would begin a second program.
    assert ":" not in wrapped


@given(st.text() | st.text(":", max_size=5))
def test_escape_is_undone(word: str) -> None:
    assert unescape(escape(word)) == word


def test_escape_touches_colons_only() -> None:
    given = ["", ":", "::", "a:", ":a", " :", "x"]
    assert [escape(word) for word in given] == ["", "::", ":::", "a:", ":a", " :", "x"]


def test_the_line_can_be_pasted() -> None:
    assert mpirun.line(plan(command=("sh", "-c", "echo $RANK\n")).tokens) == (
        "mpirun -np 2 -H localhost:2 --bind-to none --map-by slot sh -c $'echo $RANK\\012'"
    )
