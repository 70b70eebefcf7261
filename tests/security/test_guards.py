"""A malicious host of a job: whatever its guard says, the supervisor goes on, and other hosts' ranks are as they are.

Its memory, its record and the head's disk are limited by what the job asked for, not by what the host says.
"""

import json
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.logs import segments
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.plans import Placement, Share
from taco_launch.core.protocol.connection import JsonConnection, StrayLine
from taco_launch.core.protocol.guard_messages import Ended, LogData, RankStarted
from taco_launch.core.protocol.message import KINDS, Message
from taco_launch.core.protocol.rank_messages import Exit


def heard(line: dict[str, Any], data: bytes = b"") -> Message:
    """Return what a supervisor takes of a line that a guard says."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(json.dumps({**line, "bytes": len(data)} if data else line).encode() + b"\n" + data)
        messages = JsonConnection(ours).receive() or []
    assert len(messages) == 1
    return messages[0]


class Gang:
    """A job of rank 0 on the head, n1, and rank 1 on n2."""

    def __init__(self, path: Path, launcher: str = "mpirun") -> None:
        self.folder = JobFolder(path / "job")
        self.folder.logs.mkdir(parents=True)
        self.ranks = Ranks(self.folder, records.Events(self.folder), 1 << 20)
        self.here = GuardConnection(Host("n1", "10.0.0.1"), self.folder)
        self.evil = RemoteGuardConnection(Host("n2", "10.0.0.2"), self.folder, "agent", [], 1.0)
        self.ranks.place(Placement((Share("n1", 1), Share("n2", 1)), "so"), self.here, 1, LAUNCHERS[launcher], "")
        self.ranks.keep("n2")
        self.say(self.here, RankStarted(rank=0, roots=[[1, 2]]))
        self.say(self.evil, RankStarted(rank=1, roots=[[1, 2]]))

    def say(self, link: GuardConnection, *messages: Message) -> None:
        for message in messages:
            self.ranks.note(link, message, blame=True)


@pytest.mark.parametrize("rank", [0, 2, -2, 1 << 40])
def test_a_host_tells_of_its_own_ranks_alone(tmp_path: Path, rank: int) -> None:
    gang = Gang(tmp_path)
    gang.say(
        gang.evil,
        RankStarted(rank=rank, roots=[[1, 2]]),
        LogData(rank=rank, offset=0, times=[[0, 1]], data=b"forged\n"),
        Exit(rank=rank, exit_code=7),
        Ended(sizes={str(rank): 1 << 40}),
    )
    assert gang.ranks.started == {0: "n1", 1: "n2"}
    assert (gang.ranks.ended, gang.ranks.failures) == ({}, [])
    assert not list(gang.folder.logs.glob("rank-*"))
    assert gang.ranks.whole("n2")
    gang.say(gang.evil, LogData(rank=1, offset=0, times=[[0, 1]], data=b"own\n"), Exit(rank=1, exit_code=0, size=4))
    assert (gang.ranks.ended, segments.last_words(gang.folder.rank(1))) == ({1: 0}, "own\n")


@pytest.mark.parametrize(("launcher", "kept"), [("mpirun", False), ("torchrun", True)])
def test_a_host_has_a_launchers_log_where_it_has_a_launcher(tmp_path: Path, launcher: str, kept: bool) -> None:
    gang = Gang(tmp_path, launcher)
    gang.say(gang.evil, LogData(rank=-1, offset=0, times=[[0, 1]], data=b"x\n"), Ended(sizes={"-1": 2}))
    assert bool(segments.segments(gang.folder.launcher_on("n2"))) == kept


@pytest.mark.parametrize(
    "line",
    [
        {"op": "log", "rank": 1, "offset": 0, "times": [[]]},
        {"op": "log", "rank": 1, "offset": 0, "times": [[0, 1], [2]]},
        {"op": "log", "rank": 1, "offset": 0, "times": [[0, 1 << 70]]},
        {"op": "log", "rank": 1, "offset": 0, "times": [[0, -1]]},
        {"op": "log", "rank": 1, "offset": -1, "times": [[0, 1]]},
        {"op": "log", "rank": 1, "offset": 10**4000, "times": [[0, 1]]},
        {"op": "ended", "sizes": {"x": 1}},
        {"op": "ended", "sizes": {"²": 1}},
        {"op": "ended", "sizes": {"1": -1}},
        {"op": "ended", "sizes": {"1": 1 << 70}},
        {"op": "started", "rank": 1, "roots": [[1]]},
        {"op": "exit", "rank": 1, "exit_code": 1, "reason": "x" * (1 << 13)},
        {"op": "exit", "rank": 1, "exit_code": 1, "size": -1},
        {"op": "pulse", "silent": float("nan"), "ranks": []},
        {"op": "pulse", "silent": 1.0, "ranks": [{"rank": 1, "last_line": "x" * 2000}]},
        {"op": "pulse", "silent": 1.0, "ranks": [{"rank": 1, "silent": float("inf")}]},
        {"op": "leased", "slots": ["x" * 2000]},
        {"op": "leased", "slots": ["x"] * 5000},
        {"op": "leased", "slots": ["x"], "port": 1 << 16},
        {"op": "register", "rank": 1, "roots": [[1, 2, 3]]},
        {"op": "daemon", "root": []},
        {"op": "visit", "rank": 1, "root": [1]},
    ],
    ids=lambda line: json.dumps(line)[:60],
)
def test_what_no_guard_says_is_no_message(line: dict[str, Any]) -> None:
    assert isinstance(heard(line, b"x" if line["op"] == "log" else b""), StrayLine)


_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 1 << 31, 1 << 63, 10**300, 1e300, float("nan")]),
    st.text(max_size=3),
    st.lists(st.one_of(st.integers(-2, 1 << 65), st.lists(st.integers(-2, 3), max_size=3)), max_size=3),
    st.dictionaries(st.sampled_from(["0", "1", "-1", "x", "9" * 30]), st.integers(-2, 1 << 65), max_size=2),
)
_OF_RANKS: tuple[type[Message], ...] = (RankStarted, Exit, LogData, Ended)


@st.composite
def _said(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    kind = draw(st.sampled_from(_OF_RANKS))
    usual = {"rank": 1, "roots": [], "exit_code": 0, "offset": 0, "times": [[0, 1]]}
    odd = draw(st.sampled_from([name for name, _kind in kind._fields if name != "data"]))
    return {**usual, odd: draw(_ODD), "op": kind.op}, b"x" if kind is LogData else b""


@given(st.lists(_said(), min_size=1, max_size=8))
def test_nothing_that_a_guard_says_ends_the_supervisor(said: list[tuple[dict[str, Any], bytes]]) -> None:
    with tempfile.TemporaryDirectory() as path:
        gang = Gang(Path(path))
        for line, data in said:
            message = heard(line, data)
            if type(message) in KINDS.values():
                gang.say(gang.evil, message)
        gang.ranks.step()
        assert gang.ranks.ended.keys() <= {1}


def test_a_record_stays_one_that_can_be_read(tmp_path: Path) -> None:
    """A host that changes its mind all day, and has much to say of itself."""
    folder = JobFolder(tmp_path / "job")
    folder.path.mkdir()
    events = records.Events(folder)
    events.add(state.SUBMITTED, id="a")
    for _time in range(100):
        events.add(state.WAITING, "x" * (1 << 20), hosts=[("n2", "y" * (1 << 19))])
    events.add(state.WAITING, "huge", hosts=[("n2", "y" * (1 << 26))])
    events.add(state.ENDED, "z" * (1 << 26), state="FAILED", exit_code=1)
    assert folder.events.stat().st_size < records._MOST_BYTES // 2
    record = records.record(folder)
    assert (record.exit_code, len(record.reason)) == (1, 1 << 14)
