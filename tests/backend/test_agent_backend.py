"""Looking at a cluster and running beside its ranks, with a head that answers by heart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from taco_launch.backend.agent import AgentBackend
from taco_launch.model.host.hosts import Host, Inventory
from taco_launch.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.model.rows import encoded, row_of
from taco_launch.remote.agent_location import Seat
from taco_launch.remote.answers import Answer
from taco_launch.remote.head import AgentError, Frame, Head

HOSTS = (Host("gpu1", "10.0.0.1", slots=2), Host("gpu2", "10.0.0.2", gpus="none"))
INVENTORY = Inventory("hcc", "gpu1", HOSTS)
OCCUPANCY = {"host": "x", "slots": [{"name": "GPU-1"}], "gpus": 1}


class FakeHead:
    """Answers a call by its op, and keeps what it was asked."""

    def __init__(self, container: str = "", **answers: Any) -> None:
        self.seat, self.name = Seat("", container=container), "gpu1"
        self.answers, self.asked = answers, list[tuple[str, dict[str, Any]]]()

    def call(self, op: str, **request: Any) -> Any:
        self.asked.append((op, request))
        return [Answer(self.name, op, frame) for frame in self.answers.get(op, [])]

    @contextmanager
    def stream(self, op: str, **request: Any) -> Iterator[Iterator[Frame]]:
        self.asked.append((op, request))
        yield self.answers[op]()

    @property
    def backend(self) -> AgentBackend:
        return AgentBackend(cast("Head", self))


def test_rows_come_the_newest_first() -> None:
    def row(name: str, submitted: float | None) -> list[Any]:
        return encoded(row_of(JobSpec(name, ("true",), HOSTS), JobRecord("id", JobState.QUEUED, submitted=submitted)))

    answer = [{"rows": [row("a", 1.0), row("b", 2.0), row("c", None)]}, {"warning": "job d is damaged"}]
    rows, warnings = FakeHead(list=answer).backend.list()
    assert ([found.name for found in rows], warnings) == (["b", "a", "c"], ("job d is damaged",))


def test_the_nodes_of_a_cluster() -> None:
    head = FakeHead(
        "c", top=[{"host": "gpu1", "occupancy": OCCUPANCY}, {"host": "gpu2", "problem": "no route to host"}]
    )
    first, second = head.backend.nodes(INVENTORY)
    assert head.asked == [("top", {"hosts": [["gpu1", 2, "auto"], ["gpu2", None, "none"]], "here": "gpu1"})]
    assert first.occupancy is not None
    assert (first.is_head, first.occupancy.free, first.problem) == (True, 1, "")
    assert (second.is_head, second.occupancy, second.problem) == (False, None, "no route to host")


def test_without_a_container_only_the_head_is_asked() -> None:
    head = FakeHead(top=[{"host": "gpu1", "occupancy": OCCUPANCY}])
    _first, second = head.backend.nodes(INVENTORY)
    assert [host[0] for host in head.asked[0][1]["hosts"]] == ["gpu1"]
    assert second.problem.startswith("without a container jobs run on the head alone")


def said(frames: Any) -> tuple[FakeHead, list[tuple[str, bytes]], Any]:
    """Run a command, and give what it said and its exit code or what ended it."""
    head, heard = FakeHead(exec=frames), list[tuple[str, bytes]]()
    try:
        code: Any = head.backend.execute(
            "a",
            1,
            ("x",),
            lambda data: heard.append(("out", data)),
            lambda data: heard.append(("err", data)),
        )
    except BaseException as error:  # noqa: BLE001 - Ctrl-C too
        code = error
    return head, heard, code


def test_what_a_command_says() -> None:
    frames = [
        Frame({"stream": "err", "bytes": 1}, b"e"),
        Frame({"stream": "out", "bytes": 1}, b"o"),
        Frame({"exit": 3}),
    ]
    head, heard, code = said(lambda: iter(frames))
    assert (heard, code) == ([("err", b"e"), ("out", b"o")], 3)
    ((_op, request),) = head.asked
    assert (request["name"], request["rank"], request["command"]) == ("a", 1, ["x"])


def test_ctrl_c_ends_the_command() -> None:
    def interrupted() -> Iterator[Frame]:
        yield Frame({"stream": "out", "bytes": 1}, b"o")
        raise KeyboardInterrupt

    head, _heard, code = said(interrupted)
    assert isinstance(code, KeyboardInterrupt)
    (_op, begun), end = head.asked
    assert end == ("exec-end", {"name": "a", "token": begun["token"]})


@pytest.mark.parametrize("frames", [0, 1])
def test_a_refusal_is_passed_on(frames: int) -> None:
    def refused() -> Iterator[Frame]:
        yield from [Frame({"stream": "out", "bytes": 1}, b"o")] * frames
        raise AgentError("job a: it is LOST", None, 2)

    head, _heard, code = said(refused)
    assert isinstance(code, AgentError)
    assert [op for op, _request in head.asked] == ["exec"]


def test_a_job_whose_removal_was_cut_off_is_counted_once() -> None:
    row = encoded(row_of(JobSpec("j", ("true",), HOSTS), JobRecord("7", JobState.SUCCEEDED)))
    for last, count in (("", 1), ("7", 0)):
        found = FakeHead(metrics=[{"rows": [row], "removed": {"created": 3}, "last": last}]).backend.counters()
        assert (len(found.rows), found.removed.created) == (count, 3)
