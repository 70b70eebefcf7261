"""Lines that match a pattern: of any part of a job's logs, the last ones, as they come; and patterns that take for ever."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.api.log_stream import logs
from taco_launch.agent.logs import grep
from taco_launch.agent.logs.grep import Grep
from taco_launch.agent.logs.segments import Writer
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.errors import UsageError
from taco_launch.core.protocol.calls.logs import LogChunk, Logs
from tests.support.agent_calls import call
from tests.support.attempts import BIG, Made, asked_for, lines_of, shown

BEHIND = re.compile(rb"(?:\S+Z )?\S+/\S+ *\| (.*)", re.DOTALL)


@pytest.mark.parametrize("pattern", ["line 1", "^1: .* of [02]$", "n2", "^$", "(?i)LINE", "of"])
@pytest.mark.parametrize("whose", [{}, {"host": "n2"}, {"attempt": 2}, {"timestamps": True}])
@pytest.mark.usefixtures("jobs")
def test_lines_of_the_merged_log(made: Made, whose: dict[str, Any], pattern: str) -> None:
    """A label is no part of what is looked at, nor is the time."""

    def matches(line: bytes) -> bool:
        behind = BEHIND.fullmatch(line)
        assert behind
        return re.search(pattern, behind[1].decode().rstrip("\n")) is not None

    wanted = [line for line in lines_of(made, **whose) if matches(line)]
    assert shown(grep=pattern, **whose) == b"".join(wanted)
    for last in (0, 1, 3, 100):
        assert shown(grep=pattern, tail=last, **whose) == b"".join(wanted[len(wanted) - min(last, len(wanted)) :])


@pytest.mark.usefixtures("made")
def test_a_ranks_own_log(jobs: Jobs) -> None:
    del jobs
    assert shown(grep="^2: line [12]", rank=0) == b"2: line 1 of 0\n2: line 2 of 0\n"
    assert shown(grep="line", rank=0, tail=1) == b"2: line 2 of 0\n"


def test_a_line_is_looked_at_when_it_is_whole(jobs: Jobs, running: JobFolder) -> None:
    """A follower that was cut off goes on with the place where a line began."""
    request = Logs(name="running", rank=0, follow=True, grep="whole$", offset=0, seconds=1e-9)

    def follow(offset: int) -> tuple[int, bytes]:
        chunks = [each for each in logs(jobs, "", request.replace(offset=offset)) if isinstance(each, LogChunk)]
        return (chunks[-1].offset if chunks else offset), b"".join(chunk.data for chunk in chunks)

    writer = Writer(running.rank(0), BIG)
    writer.write(b"not yet ")
    offset, data = follow(0)
    assert data == b""
    writer.write(b"whole\nnext")
    offset, data = follow(offset)
    assert data == b"not yet whole\n"
    assert follow(offset)[1] == b""


@pytest.mark.usefixtures("made", "jobs")
def test_what_is_no_pattern() -> None:
    assert "'(' is not a regular expression" in asked_for(grep="(").error["message"]
    assert "longer than 1000 characters" in asked_for(grep="x" * 1001).error["message"]


def test_a_pattern_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch, running: JobFolder) -> None:
    monkeypatch.setattr(grep, "_SECONDS", 1)
    Writer(running.rank(0), BIG).write(b"a" * 60 + b"b\n")
    begun = time.process_time()
    answer = call("logs", name="running", grep="(a+)+$", rank=0)
    assert answer.error["message"] == "--grep: the search took more than 1 s on 62 bytes of the log"
    assert time.process_time() - begun < 10


def test_what_is_no_text() -> None:
    assert Grep("^\ufffd$", labelled=False).matching([b"\xff\n", b"a"]) == [True, False]


@given(st.lists(st.binary(max_size=30)), st.booleans())
def test_any_lines(lines: list[bytes], labelled: bool) -> None:
    found = Grep("", labelled=labelled)
    assert [found._matches(line) for line in lines] == [True] * len(lines)


def test_patterns_are_checked_before_anybody_is_asked() -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        grep.compiled("*")
