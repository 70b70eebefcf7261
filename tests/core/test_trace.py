"""What is traced: nothing unless it was requested, one bounded line each, and no value that may be a secret."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core import trace
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol.calls.exec_command import Exec
from taco_launch.core.protocol.calls.jobs import CallerEnvironment, Submit
from taco_launch.core.protocol.connection import StrayLine
from taco_launch.core.protocol.guard_messages import Heartbeat, Launch, LogData, Prepare, Reached
from taco_launch.core.protocol.rank_messages import Register, Welcome

SECRET = "hunter2"
SPEC = JobSpec("j", ("train", SECRET), (Host("n1", "10.0.0.1"),), env=(("TOKEN", SECRET),))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []
    trace.start(trace.MESSAGES, lambda _at, text: found.append(text))
    yield found
    trace.start(trace.OFF, lambda _at, _text: None)


def test_nothing_is_traced_unless_it_was_requested(lines: list[str]) -> None:
    trace.start(trace.OFF, lambda _at, text: lines.append(text))
    trace.decision("x")
    trace.message("sent", Register(rank=1, roots=[]))
    assert lines == []
    trace.start(trace.DECISIONS, lambda _at, text: lines.append(text))
    trace.decision("placed: on n1")
    trace.message("sent", Register(rank=1, roots=[]))
    assert lines == ["placed: on n1"]


class _Costly:
    def __str__(self) -> str:
        raise AssertionError("it is written, and nobody reads it")


def test_what_is_not_traced_is_not_written(lines: list[str]) -> None:
    trace.start(trace.OFF, lambda _at, text: lines.append(text))
    trace.decision("%s", _Costly())
    trace.message("sent", Reached(why=_Costly()))  # type: ignore[arg-type]
    trace.start(trace.DECISIONS, lambda _at, text: lines.append(text))
    trace.message("sent", Reached(why=_Costly()))  # type: ignore[arg-type]
    trace.decision("%s of %s", 1, "n2")
    trace.decision("100 % of n2")
    assert lines == ["1 of n2", "100 % of n2"]


def test_a_message_is_a_line_with_its_peer(lines: list[str]) -> None:
    trace.message("sent", Register(rank=1, roots=[[7, 8]]), "n2")
    trace.message("received", Reached(why=""))
    assert lines == ["sent register (n2): rank=1, roots=[[7, 8]]", "received reached: why=''"]


def test_what_comes_all_the_time_is_left_out(lines: list[str]) -> None:
    trace.message("sent", Heartbeat())
    trace.message("sent", LogData(rank=1, offset=1, times=(), data=b"x"))
    assert lines == []


def test_no_value_of_a_variable_and_no_command_line_is_shown(lines: list[str]) -> None:
    environment = {"TOKEN": SECRET}
    welcome = Welcome(environment=environment, log_max_bytes=1, umask=18)
    trace.message("sent", welcome)
    trace.message("sent", Prepare(welcome=welcome, stall_after=1.0))
    launch = Launch(
        argv=["mpirun", "-x", SECRET],
        caller=environment,
        environment=environment,
        cwd="/",
        umask=18,
        attempt=1,
        log_max_bytes=1,
    )
    trace.message("sent", launch)
    trace.message("sent", launch.replace(caller=None))
    trace.message("sent", Exec(name="j", rank=0, command=["curl", SECRET]))
    trace.message("received", StrayLine(text=repr(launch.encode())))
    trace.message("sent", Submit(spec=SPEC, caller=CallerEnvironment(environment=environment, umask=18)))
    assert SECRET not in "\n".join(lines)
    assert (
        lines[0]
        == "sent welcome: environment=(1 not shown), log_max_bytes=1, umask=18, processes=1, attempt=1, folder='', nccl_file=False"
    )
    assert "caller=None" in lines[3]
    assert lines[4] == "sent exec: name='j', rank=0, command=(2 not shown), terminal=None"
    assert lines[5].startswith("received noise: text=(")
    assert lines[6].startswith("sent submit: spec=JobSpec, caller=(environment=(1 not shown)")


@given(st.text(max_size=2000))
def test_any_text_is_one_bounded_line(text: str) -> None:
    found: list[str] = []
    trace.start(trace.MESSAGES, lambda _at, line: found.append(line))
    trace.decision(text)
    trace.message("received", Reached(why=text))
    trace.start(trace.OFF, lambda _at, _text: None)
    assert len(found) == 2
    assert all(line.isprintable() and len(line) <= 300 for line in found)


def test_the_time_is_utc_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.core.trace.time.time", lambda: 1700000000.0625)
    assert trace.stamp() == "2023-11-14T22:13:20.062Z"
