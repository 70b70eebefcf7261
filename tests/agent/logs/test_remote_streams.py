"""Logs of other hosts come over whole and once, however often the connection is made anew."""

import socket
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.remote_streams import LogReceiver, LogSender
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import LogData
from tests.agent.conftest import scratch


def whole(folder: JobFolder, rank: int) -> bytes:
    reader = segments.SegmentReader(folder.rank(rank))
    found = b""
    while data := reader.read():
        found += data
    reader.close()
    return found


def times(folder: JobFolder, rank: int) -> list[int]:
    """Return the time of every byte."""
    reader, found = segments.SegmentReader(folder.rank(rank)), []
    while reader.read(500):
        told = reader.times()
        ends = [*(place for place, _at in told[1:]), reader.offset]
        found += [at for (place, at), end in zip(told, ends, strict=True) for _byte in range(place, end)]
    reader.close()
    return found


def folders(below: Path) -> tuple[JobFolder, JobFolder]:
    made = JobFolder(below / "there"), JobFolder(below / "here")
    for folder in made:
        folder.logs.mkdir(parents=True)
    return made


STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.binary(max_size=2000), st.sampled_from(["", "lost", "cut"])), max_size=12
)


def logs(line: JsonConnection) -> list[LogData]:
    return [message for message in line.receive() or () if isinstance(message, LogData)]


@settings(max_examples=60)
@given(STEPS)
def test_everything_comes_once_and_in_order(steps: list[tuple[int, bytes, str]]) -> None:
    with scratch() as below:
        there, here = folders(below)
        finished: list[Path] = []
        sender, keeper = LogSender(there), LogReceiver(here, 1 << 20, finished.append)
        writers = [segments.Writer(there.rank(rank), 1 << 20) for rank in range(2)]
        written, now = [b"", b""], 1_000_000
        came: tuple[list[int], list[int]] = ([], [])
        ours, theirs = socket.socketpair()
        for rank in range(2):
            sender.add(rank)
        for rank, data, what in [*steps, (0, b"", "cut")]:
            now += 25_000  # as this host's clock tells; the other's may tell anything
            writers[rank].write(data, now)
            written[rank] += data
            came[rank].extend([now] * len(data))
            line, other = JsonConnection(ours), JsonConnection(theirs)
            moved = sender.step(line)
            messages = logs(other) if moved else []
            for message in messages:
                if what != "lost":
                    told, offset = keeper.take(message)
                    sender.acknowledge(told, offset)
            if what:  # the connection is made again
                sender.go_on({str(told): offset for told, offset in keeper.offsets.items()})
        sizes = sender.sizes()
        for rank, size in sizes.items():
            keeper.ends_at(rank, size)
        while not keeper.whole():
            assert sender.step(line)
            for message in logs(other):
                sender.acknowledge(*keeper.take(message))
        assert sorted(finished) == [here.rank(rank) for rank in range(2)]
        keeper.close()
        ours.close()
        theirs.close()
        assert [whole(here, rank) for rank in range(2)] == written
        assert tuple(times(here, rank) for rank in range(2)) == came


def test_a_guard_reads_ahead_only_so_far(tmp_path: Path) -> None:
    there, _here = folders(tmp_path)
    segments.Writer(there.rank(0), 1 << 30).write(bytes(10 << 20))
    sender = LogSender(there)
    sender.add(0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = JsonConnection(ours)
        while sender.step(line):
            pass
        assert line.waiting < 3 << 20
        sender.acknowledge(0, 2 << 20)
        assert sender.step(line)


def test_what_was_rotated_away_is_told(tmp_path: Path) -> None:
    there, here = folders(tmp_path)
    writer = segments.Writer(there.rank(3), 200)
    for number in range(100):
        writer.write(b"line %03d\n" % number)
    sender, keeper = LogSender(there), LogReceiver(here, 1 << 20, lambda _rank: None)
    sender.add(3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        while sender.step(JsonConnection(ours)):
            for message in logs(JsonConnection(theirs)):
                sender.acknowledge(*keeper.take(message))
    keeper.ends_at(3, sender.sizes()[3])
    assert keeper.whole()
    text = whole(here, 3).decode()
    assert text.startswith("[taco-launch: ")
    assert "bytes dropped by log rotation before they were read]\n" in text
    assert text.endswith("line 099\n")


def test_a_piece_that_is_here_in_part(tmp_path: Path) -> None:
    _there, here = folders(tmp_path)
    keeper = LogReceiver(here, 1 << 20, lambda _rank: None)
    keeper.take(LogData(rank=0, offset=0, times=[[0, 50_000]], data=b"abcd"))
    told = keeper.take(LogData(rank=0, offset=1, times=[[0, 50_000], [2, 70_000], [5, 90_000]], data=b"bcdefgh"))
    assert told == (0, 8)
    assert whole(here, 0) == b"abcdefgh"
    assert times(here, 0) == [50_000] * 4 + [70_000] * 2 + [90_000] * 2
