"""Looking at a cluster and running beside its ranks, with a head that answers by heart."""

import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from taco_launch.core.errors import PlacementError, TacoLaunchError, UnusableError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_counts import JobCounts
from taco_launch.core.model.job_rows import encoded, row_of
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import CodeSnapshot, JobRecord, JobSpec, JobState
from taco_launch.core.model.slots import Occupancy, SlotState
from taco_launch.core.protocol.calls import Notice, Reply, Request
from taco_launch.core.protocol.calls.caller_input import (
    MOST_DATA,
    CallerInput,
    EndOfInput,
    Hangup,
    InputData,
    WindowSize,
    input_of,
)
from taco_launch.core.protocol.calls.exec_command import Exec, Exited, Output, Terminal
from taco_launch.core.protocol.calls.hosts import HostSize, SlotsReply, Top
from taco_launch.core.protocol.calls.job_list import Counted, Rows
from taco_launch.core.protocol.calls.jobs import Accepted, JobReply
from taco_launch.core.protocol.calls.snapshots import wanted
from taco_launch.core.protocol.frames import FrameReader
from taco_launch.jobs.backend import require_started
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient, AgentError
from taco_launch.jobs.backend.agent_location import AgentLocation
from taco_launch.jobs.backend.dialogue import Dialogue
from taco_launch.jobs.code import snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.support.job_rows import job
from tests.support.patience import HANG

HOSTS = (Host("gpu1", "10.0.0.1", slots=2), Host("gpu2", "10.0.0.2", gpus="none"))
INVENTORY = Inventory("hcc", "gpu1", HOSTS)
OCCUPANCY = Occupancy("x", (SlotState("GPU-1"),), 1)


class FakeHead:
    """Replies to a request by its op, and keeps what was requested."""

    def __init__(self, container: str = "", **answers: Any) -> None:
        self.location, self.name = AgentLocation("", container=container), "gpu1"
        self.answers, self.asked = answers, list[Request]()
        self.frames, self.closed = list[CallerInput](), threading.Event()
        self._reader = FrameReader(input_of, MOST_DATA)

    def call(self, request: Request) -> list[Reply]:
        self.asked.append(request)
        return list(self.answers.get(request.op, []))

    @contextmanager
    def converse(self, request: Request) -> Iterator[Dialogue]:
        self.asked.append(request)
        with Dialogue(self.answers[request.op](), self, self.name) as talk:
            yield talk

    def write(self, data: bytes) -> None:
        self.frames += cast("list[CallerInput]", self._reader.feed(data))

    def close(self) -> None:
        self.closed.set()

    @property
    def backend(self) -> AgentBackend:
        return AgentBackend(cast("AgentClient", self))


def test_rows_come_the_newest_first() -> None:
    def row(name: str, submitted: float | None) -> list[Any]:
        return encoded(row_of(JobSpec(name, ("true",), HOSTS), JobRecord("id", JobState.QUEUED, submitted=submitted)))

    answer = [Rows(rows=[row("a", 1.0), row("b", 2.0), row("c", None)]), Notice(text="job d is damaged")]
    rows, warnings = FakeHead(list=answer).backend.list()
    assert ([found.name for found in rows], warnings) == (["b", "a", "c"], ("job d is damaged",))


def test_the_nodes_of_a_cluster() -> None:
    head = FakeHead(
        "c", top=[SlotsReply(host="gpu1", occupancy=OCCUPANCY), SlotsReply(host="gpu2", problem="no route to host")]
    )
    first, second = head.backend.nodes(INVENTORY)
    assert head.asked == [
        Top(
            hosts=[HostSize(name="gpu1", slots=2, gpus="auto"), HostSize(name="gpu2", slots=None, gpus="none")],
            here="gpu1",
        )
    ]
    assert first.occupancy is not None
    assert (first.is_head, first.occupancy.free, first.problem) == (True, 1, "")
    assert (second.is_head, second.occupancy, second.problem) == (False, None, "no route to host")


def test_without_a_container_only_the_head_is_asked() -> None:
    head = FakeHead(top=[SlotsReply(host="gpu1", occupancy=OCCUPANCY)])
    _first, second = head.backend.nodes(INVENTORY)
    (request,) = head.asked
    assert isinstance(request, Top)
    assert [host.name for host in request.hosts] == ["gpu1"]
    assert second.problem.startswith("without a container jobs run on the head alone")


def said(frames: Any, *given: CallerInput, terminal: Terminal | None = None) -> tuple[FakeHead, list[Any], Any]:
    """Run a command, and give what it said and its exit code or what ended it."""
    head, heard = FakeHead(exec=frames), list[tuple[str, bytes]]()

    def out(data: bytes) -> None:
        heard.append(("out", data))

    def err(data: bytes) -> None:
        heard.append(("err", data))

    try:
        code: Any = head.backend.at_rank(Exec(name="a", rank=1, command=["x"], terminal=terminal), given, out, err)
    except BaseException as error:  # noqa: BLE001 - Ctrl-C too
        code = error
    return head, heard, code


def test_what_a_command_says() -> None:
    frames = [
        Output(stream="err", data=b"e"),
        Output(stream="out", data=b"o"),
        Exited(code=3),
    ]
    head, heard, code = said(lambda: iter(frames), terminal=Terminal(kind="xterm", rows=2, columns=3))
    assert (heard, code) == ([("err", b"e"), ("out", b"o")], 3)
    assert head.asked == [Exec(name="a", rank=1, command=["x"], terminal=Terminal(kind="xterm", rows=2, columns=3))]
    assert head.closed.is_set()
    assert Hangup() not in head.frames


def test_what_is_given_goes_there_while_it_answers() -> None:
    given = (InputData(data=b"in"), WindowSize(rows=5, columns=7))
    begun = threading.Event()

    def replies() -> Iterator[Reply]:
        yield Output(stream="out", data=b"o")
        assert begun.wait(HANG)
        yield Exited(code=0)

    def typed() -> Iterable[CallerInput]:
        yield from given
        begun.set()

    head = FakeHead(exec=replies)
    request = Exec(name="a", rank=1, command=["x"])
    assert head.backend.at_rank(request, typed(), lambda _data: None, lambda _data: None) == 0
    assert head.frames[:2] == list(given)
    assert head.frames[2:] in ([], [EndOfInput()])


def test_ctrl_c_ends_the_command() -> None:
    def interrupted() -> Iterator[Reply]:
        yield Output(stream="out", data=b"o")
        raise KeyboardInterrupt

    head, _heard, code = said(interrupted)
    assert isinstance(code, KeyboardInterrupt)
    assert head.frames[-1] == Hangup()
    assert head.closed.is_set()


@pytest.mark.parametrize("frames", [0, 1])
def test_a_refusal_is_passed_on(frames: int) -> None:
    def refused() -> Iterator[Reply]:
        yield from [Output(stream="out", data=b"o")] * frames
        raise AgentError("job a: it is LOST", None, 2)

    head, _heard, code = said(refused)
    assert isinstance(code, AgentError)
    assert [request.op for request in head.asked] == ["exec"]


def test_an_answer_without_a_code() -> None:
    _head, _heard, code = said(lambda: iter([Output(stream="out", data=b"o")]))
    assert str(code) == "gpu1: the connection ended before the exit code of exec arrived"


def test_a_job_whose_removal_was_cut_off_is_counted_once() -> None:
    row = encoded(row_of(JobSpec("j", ("true",), HOSTS), JobRecord("7", JobState.SUCCEEDED)))
    for last, count in (("", 1), ("7", 0)):
        found = FakeHead(metrics=[Counted(rows=[row], removed=JobCounts(created=3), last=last)]).backend.counters()
        assert (len(found.rows), found.removed.created) == (count, 3)


def test_code_goes_in_the_call_that_submits_its_job(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"some code")
    taken = snapshot.take(walk(str(tmp_path / "tree"), print), (), tmp_path / "cache")
    spec = JobSpec("a", ("true",), HOSTS[:1], head="gpu1", code=CodeSnapshot(taken.id, "tree"))
    job = JobView(spec, JobRecord("7", JobState.QUEUED), "/jobs/a")
    head = FakeHead(
        "c", submit=lambda: iter([wanted([taken.id]), wanted(taken.places), Accepted(name="a"), JobReply(job=job)])
    )
    backend = head.backend
    backend.provide_code(taken, print)
    assert backend.submit(spec, {}) == job
    (request,) = head.asked
    assert request.takes_input
    assert [getattr(frame, "data", frame) for frame in head.frames] == [zlib.compress(taken.text, 1), b"some code"]
    assert head.closed.is_set()


# --- A job that ended before its ranks could start is an error, with the hosts and their reasons as data


@pytest.mark.parametrize(
    ("code", "reason", "kind", "reasons"),
    [
        (
            4,
            "9 ranks do not fit\n  gpu1: 2 slots\n  gpu2: 0 of 2 free, 2 held by job a",
            PlacementError,
            ("gpu1", "gpu2"),
        ),
        (5, "2 hosts cannot be used\n  gpu1: no answer\n  gpu2: no key", UnusableError, ("gpu1", "gpu2")),
        (125, "the launcher exited with code 1 before any rank started", TacoLaunchError, ()),
    ],
)
def test_its_kind(code: int, reason: str, kind: type[TacoLaunchError], reasons: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        require_started(job("a", 1, JobState.FAILED, 0.0, exit_code=code, started=None, reason=reason))
    assert (caught.value.message, caught.value.exit_code) == (f"job a: {reason}", code)
    assert tuple(host for host, _why in getattr(caught.value, "reasons", ())) == reasons


def test_a_job_that_started_is_no_error() -> None:
    require_started(job("a", 1, JobState.FAILED, 0.0, exit_code=1, started=1.0, reason="rank 0 exited"))
