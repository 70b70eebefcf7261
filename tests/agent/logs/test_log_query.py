"""A part of a job's logs: by host, instance, rank, attempt and time, from the end, and over calls that broke off."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.agent.logs import lines, log_query, segments
from taco_launch.agent.logs.log_query import Excerpt
from taco_launch.agent.logs.segments import Writer
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.core.protocol.calls.logs import Logs
from tests.agent.conftest import scratch
from tests.support import attempts
from tests.support.attempts import BIG, START, Made, asked_for, lines_of, make, shown


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("whose", [{}, {"host": "n2"}, {"host": "n3"}, {"attempt": 1}, {"attempt": 2}])
@pytest.mark.usefixtures("jobs")
def test_any_of_it(made: Made, whose: dict[str, Any], timestamps: bool) -> None:
    for since in (None, START - 1, START + 0.01, START + 0.05, START + 0.1, START + 0.145, START + 9):
        for last in (None, 0, 1, 4, 11):
            asked: dict[str, Any] = {**whose, "timestamps": timestamps, "since": since, "tail": last}
            given = {name: value for name, value in asked.items() if value is not None}
            found = shown(**given)
            # The merged log has a line that tells of the attempt; its time is this moment.
            found = re.sub(rb"(\S+ )?\[taco-launch: attempt 2\]\n", b"", found)
            assert found == b"".join(lines_of(made, **given)), asked


@pytest.mark.usefixtures("jobs")
def test_the_last_lines_are_those_of_ranks(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [b"n1/mpirun | line %d\n" % number for number in range(5)]
    merged = Writer(made.folder.merged, BIG)
    merged.write(b"".join(said))
    of_ranks = lines_of(made, tail=2)
    assert shown(tail=2) == b"".join([*of_ranks, *said])
    assert shown(tail=0) == b""
    monkeypatch.setattr(log_query, "_MOST_OF_LAUNCHERS", 3)
    assert shown(tail=2) == b"".join(said)


def test_the_line_between_two_attempts(made: Made) -> None:
    first, second = shown().split(b"[taco-launch: attempt 2]\n")
    assert first + second == b"".join(lines_of(made))
    assert (first, second) == (b"".join(lines_of(made, attempt=1)), b"".join(lines_of(made, attempt=2)))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"rank": 1}, b"2: line 0 of 1\n2: line 1 of 1\n2: line 2 of 1\n"),
        ({"rank": 1, "attempt": 1}, b"1: line 0 of 1\n1: line 1 of 1\n1: line 2 of 1\n"),
        ({"rank": 3, "tail": 1}, b"2: line 2 of 3\n"),
        ({"instance": "j-worker-1", "attempt": 1}, b"1: line 0 of 2\n1: line 1 of 2\n1: line 2 of 2\n"),
        ({"instance": "j-worker-1", "tail": 2}, b"n3/2 | 2: line 2 of 2\nn3/3 | 2: line 2 of 3\n"),
        ({"instance": "j-worker-0", "attempt": 1, "tail": 2}, b"n1/0 | 1: line 2 of 0\nn1/1 | 1: line 2 of 1\n"),
        ({"instance": "j-launcher", "attempt": 1}, b"warned\n"),
        ({"instance": "j-launcher"}, b""),
    ],
)
def test_ranks_and_instances(made: Made, asked: dict[str, Any], expected: bytes) -> None:
    Writer(made.folder.launcher, BIG).write(b"warned\n")
    assert shown(**asked) == expected


def test_workers_of_one_host(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "SHARES", ({"n1": 12},))
    made = make(jobs.path.parent)
    spec = replace(records.read_spec(made.folder), launcher="env", slots_per_worker=2)
    records.write_spec(made.folder, spec)
    made.begin()
    for rank in range(12):
        made.write(rank, b"of %d\n" % rank)
    made.end()
    assert shown(instance="j-master-0") == b"n1/0 | of 0\nn1/1 | of 1\n"
    assert shown(instance="j-worker-4") == b"n1/10 | of 10\nn1/11 | of 11\n"


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ({"rank": 4}, "it has no rank 4", "its ranks are 0 to 3"),
        ({"rank": 3, "attempt": 1}, "it has no rank 3", "its ranks are 0 to 2"),
        ({"host": "n4"}, "none of its ranks is on a host n4", "its hosts are n1, n2, n3"),
        (
            {"instance": "j-worker-2"},
            "it has no instance j-worker-2",
            "its instances are j-launcher, j-worker-0, j-worker-1",
        ),
        ({"attempt": 3}, "it has no attempt 3", "its attempts are 1 to 2"),
    ],
)
@pytest.mark.usefixtures("made")
def test_what_there_is_not(asked: dict[str, Any], message: str, hint: str) -> None:
    error = asked_for(**asked).error
    assert (error["message"], error["hint"], error["exit_code"]) == (f"job j: {message}", hint, 2)


def test_before_it_has_a_place(jobs: Jobs) -> None:
    make(jobs.path.parent)
    assert asked_for(instance="j-worker-0").error["hint"] == "it has not been given slots yet"
    assert asked_for(host="n9").error["hint"] == "its hosts are n1, n2, n3"
    assert asked_for(attempt=2).error["hint"] == "it was never restarted: its only attempt is 1"
    assert asked_for(host="n1").raw == asked_for(rank=0).raw == asked_for().raw == b""


def test_how_long_ago_is_counted_here(made: Made) -> None:
    made.now = int(time.time() * 1_000_000) - 50_000
    made.write(0, b"new\n")
    found = asked_for(ago=3600, rank=0)
    assert found.raw == b"new\n"
    told = found.frames[0]["since"]
    assert abs(time.time() - 3600 - told) < 60


def test_a_line_belongs_to_the_time_at_which_it_began(made: Made) -> None:
    began = made.now
    made.write(0, b"half ")
    made.write(0, b"a line\nnext\n")
    since = (began + 15_000) / 1_000_000
    assert shown(rank=0, since=since) == b"next\n"
    assert shown(rank=0, since=since - 0.01).endswith(b"half a line\nnext\n")
    assert shown(host="n2", since=since) == b"n2/0 | next\n"


def test_a_very_long_line_has_one_time(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LINE_BOUND", 50)
    read = segments.SegmentReader.read
    monkeypatch.setattr(segments.SegmentReader, "read", lambda self, _size=0: read(self, 20))
    made.write(0, b"x" * 90 + b"\n")
    found = shown(rank=0, timestamps=True, tail=1)
    assert re.fullmatch(rb"\S+Z x{90}\n", found)


def test_a_line_whose_time_nobody_knows(made: Made) -> None:
    for path in made.folder.logs.glob("attempt-2/*.times"):
        path.unlink()
    assert shown(rank=1, since=START + 9).count(b"\n") == 3
    assert shown(rank=1, timestamps=True).startswith(b"-                        2: line 0 of 1\n")


def test_a_rank_that_fakes_labels_and_marks(made: Made) -> None:
    """Whatever a rank writes stands behind its own label."""
    made.write(3, b"n2/0 | mine\n[taco-launch: attempt 3]\rn2/1 | mine\n[taco-launch: attempt 3]\n")
    assert b"mine" not in shown(host="n2")
    assert shown(attempt=2, tail=1) == b"n3/3 | [taco-launch: attempt 3]\n"
    made.write(0, b"last\n")
    assert shown(attempt=2).endswith(b"n2/0 | last\n")


def test_of_a_bar_a_log_has_the_last_state(made: Made) -> None:
    rank = 3
    for number in range(3):  # told in three states, of which the third is the newest by now
        made.now += 6_000_000
        made.write(rank, b"\r%d%%" % number)
        made.write(1, b"other %d\n" % number)
    made.now += 6_000_000
    made.write(rank, b"\r3%")
    others = b"".join(b"n2/1 | other %d\n" % number for number in range(3))
    assert shown(attempt=2, tail=3) == others[len(others) // 3 :] + b"n3/3 | 2%\n"
    assert shown(tail=2, host="n2") == others[len(others) // 3 :]
    assert shown(grep="%|other 2") == b"n2/1 | other 2\nn3/3 | 2%\n"
    assert shown(rank=rank).endswith(b"\r0%\r1%\r2%\r3%")
    made.write(rank, b"\r4%\n")
    assert shown(tail=4) == others + b"n3/3 | 4%\n"


def test_who_follows_sees_states_as_they_come_from_then_on(made: Made) -> None:
    for number in range(2):
        made.now += 6_000_000
        made.write(3, b"\r%d%%" % number)
    excerpt = Excerpt(made.folder, Logs(name="j", follow=True, tail=1))
    assert list(iter(lambda: excerpt.read(final=False), None)) == [b"", b"n3/3 | 0%\n"]
    made.now += 6_000_000
    made.write(3, b"\r2%")
    assert list(iter(lambda: excerpt.read(final=False), None)) == [b"n3/3 | 1%\n"]


def test_an_attempt_whose_log_was_dropped(jobs: Jobs) -> None:
    """What is left is never shown as another attempt's."""
    made = make(jobs.path.parent)
    made.limit = 300
    made.begin()
    made.write(0, b"first\n")
    made.begin()
    for number in range(40):
        made.write(0, b"second %02d\n" % number)
    made.end()
    kept = shown()
    assert kept.startswith(b"n2/0 | second")
    assert shown(attempt=1) == shown(attempt=1, tail=3) == shown(attempt=1, host="n1") == b""
    assert (shown(attempt=2), shown(attempt=2, tail=1)) == (kept, b"n2/0 | second 39\n")


def test_who_reads_slower_than_rotation_drops(jobs: Jobs) -> None:
    made = make(jobs.path.parent)
    made.limit = 24
    made.begin()
    excerpt = Excerpt(made.folder, Logs(name="j", rank=0, timestamps=True))
    made.write(0, b"line 00\nhalf")
    seen = [excerpt.read(final=False)]
    for number in range(1, 20):
        made.write(0, b"line %02d\n" % number)
    told = []
    while (data := excerpt.read(final=True)) is not None:
        told.append((excerpt.skipped, re.sub(rb"\S+Z ", b"", data)))
        excerpt.skipped = 0
    assert seen == [b"2023-11-14T22:13:20.010Z line 00\n"]
    # It had that segment open; the rest of the line was dropped, and the start of the one behind.
    assert told[0] == (0, b"half\n")
    assert [number > 0 for number, _data in told] == [False, True, *[False] * (len(told) - 2)]
    assert b"".join(data for _number, data in told[1:]) == b"line 18\nline 19\n"
    assert excerpt.offset == segments.size(made.own.rank(0))


# --- over calls that break off

WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([b"a\n", b"1%\r", b"b\r\n", b"half ", b"\n"])), min_size=1, max_size=25
)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "timestamps": st.booleans(),
        "since": st.floats(START, START + 0.3),
        "host": st.sampled_from(["n1", "n2"]),
        "attempt": st.just(1),
    },
)


@settings(max_examples=60)
@given(WRITES, ASKED, st.integers(1, 10))
def test_a_call_that_broke_off_goes_on_where_it_was(
    writes: list[tuple[int, bytes]], asked: dict[str, Any], every: int
) -> None:
    with scratch() as folder:
        made = make(folder)
        made.begin()
        pieces, offset = [], 0
        for number, (rank, data) in enumerate(writes):
            made.write(rank, data)
            if number % every == 0:  # the call ends, and somebody asks again
                excerpt = Excerpt(made.folder, Logs(name="j", offset=offset, **asked))
                while (data_ := excerpt.read(final=False)) is not None:
                    pieces.append(data_)
                offset = excerpt.offset
        for rank in range(3):
            made.merge.finish(made.own.rank(rank))
        while made.merge.step():
            pass
        excerpt = Excerpt(made.folder, Logs(name="j", offset=offset, **asked))
        while (data_ := excerpt.read(final=True)) is not None:
            pieces.append(data_)
        whole, at_once = Excerpt(made.folder, Logs(name="j", **asked)), []
        while (data_ := whole.read(final=True)) is not None:
            at_once.append(data_)
        assert b"".join(pieces) == b"".join(at_once)


def test_what_was_dropped_before_the_merge_counts_when_its_own_line_is_dropped(jobs: Jobs) -> None:
    made = make(jobs.path.parent)
    made.begin()
    writer = Writer(made.folder.merged, 100)
    writer.note(b"n1/0 | [taco-launch: 7000 bytes dropped]\n", 7000)
    told = []
    for number in range(12):
        writer.write(b"n1/0 | line %02d\n" % number)
        told.append([frame["count"] for frame in asked_for().frames if frame["op"] == "skipped"])
    start = segments.segments(made.folder.merged)[0][0]
    assert told[0] == []
    assert told[-1] == [7000 + start]
    (made.folder.merged.parent / f"{made.folder.merged.name}.dropped").write_text("no number")
    assert [frame["count"] for frame in asked_for().frames if frame["op"] == "skipped"] == [start]


def test_a_rotated_log_is_told_and_no_line_is_cut(jobs: Jobs) -> None:
    made = make(jobs.path.parent)
    made.limit = 200
    made.begin()
    for number in range(30):
        made.write(0, b"line %02d\n" % number)
    made.end()
    for asked in ({"timestamps": True}, {"host": "n1"}, {"rank": 0}, {"rank": 0, "timestamps": True}):
        found = asked_for(**asked)
        assert [frame for frame in found.frames if frame["op"] == "skipped"]
        assert re.fullmatch(rb"(\S+Z )?(n1/0 \| )?line \d\d", found.raw.splitlines()[0])
        assert found.raw.endswith(b"line 29\n")


def test_the_search_for_an_attempt_finds_it_over_pieces(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(jobs.path.parent)
    made.begin()
    for number in range(5):
        made.write(0, b"x" * number + b"\n")
    made.begin()
    made.write(0, b"found\n")
    made.write(0, b"last\n")
    made.end()
    for chunk in range(1, 40):
        read = segments.SegmentReader.read
        monkeypatch.setattr(segments.SegmentReader, "read", lambda self, size=chunk, read=read: read(self, size))
        assert shown(attempt=2) == b"n2/0 | found\nn2/0 | last\n"
        assert shown(attempt=2, tail=1) == b"n2/0 | last\n"
        assert shown(attempt=1, tail=1) == b"n1/0 | xxxx\n"
        monkeypatch.undo()
        monkeypatch.setenv("TACO_LAUNCH_STATE", str(jobs.path.parent))
