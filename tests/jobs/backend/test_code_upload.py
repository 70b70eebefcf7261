"""Code on its way to a head: only what that lacks, once, in the call that submits the job; what comes is checked."""

import hashlib
import os
import queue
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from taco_launch.agent.api import snapshot_upload
from taco_launch.agent.rank.caller_stream import CallerStream
from taco_launch.agent.snapshots import store as stores
from taco_launch.agent.snapshots.checkout import check_out
from taco_launch.agent.snapshots.store import SnapshotStore
from taco_launch.agent.store.folders import Jobs
from taco_launch.core import manifest
from taco_launch.core.errors import HostError, UsageError, write_hint
from taco_launch.core.protocol.calls import Reply
from taco_launch.core.protocol.calls.caller_input import CallerInput, pieces
from taco_launch.core.protocol.calls.jobs import Accepted
from taco_launch.core.protocol.calls.snapshots import CodeWanted, wanted
from taco_launch.jobs.backend import code_upload
from taco_launch.jobs.code import snapshot
from taco_launch.jobs.code.snapshot import Snapshot
from taco_launch.jobs.code.tree_walk import walk
from tests.support.full_disk import FullDisk
from tests.support.patience import HANG


class Agent:
    """The agent's side of a call, in a thread behind a pipe; what it replies ends in an error, or in Accepted."""

    def __init__(self, state: Path, of: str) -> None:
        self.sent, self.finished, self.asked = 0, False, list[list[str]]()
        read, write = os.pipe()
        self._from, self._to = os.fdopen(read, "rb"), os.fdopen(write, "wb", buffering=0)
        self._said: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._answer, args=(state, of), daemon=True)
        self._thread.start()

    def _answer(self, state: Path, of: str) -> None:
        try:
            for reply in snapshot_upload.receive(Jobs(state), of, CallerStream(self._from)):
                self._said.put(reply)
            self._said.put(Accepted(name="a"))
        except Exception as error:  # noqa: BLE001 - the test's to see
            self._said.put(error)
        self._from.close()

    @property
    def replies(self) -> Iterator[Reply]:
        while True:
            reply = self._said.get(timeout=HANG)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, CodeWanted):
                self.asked.append(reply.hashes)
            yield reply
            if isinstance(reply, Accepted):
                return

    def send(self, frame: CallerInput) -> bool:
        assert not self.finished
        data = frame.encode()
        self.sent += len(data)
        try:
            while data:
                data = data[self._to.write(data) :]
        except BrokenPipeError:
            return False
        return True

    def finish(self) -> None:
        self.finished = True
        self._to.close()
        self._thread.join(HANG)


class Sent(NamedTuple):
    """What came of a call: what was wanted, what was sent for it, and what the user saw."""

    asked: list[list[str]]
    bytes: int
    said: list[str]


def send(state: Path, taken: Snapshot) -> Sent:
    agent, said = Agent(state, taken.id), list[str]()
    try:
        found = list(code_upload.answered(agent, "gpu1", taken, said.append))  # type: ignore[arg-type]
    finally:
        agent.finish()
    assert [reply.op for reply in found] == ["accepted"]
    return Sent(agent.asked, agent.sent, said)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for number in range(5):
        (root / f"f{number}").write_bytes(os.urandom((4 << 20) + number))
    return root


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def take(tree: Path) -> Snapshot:
    return snapshot.take(walk(str(tree), print), (), tree.parent / "cache")


def left_over(state: Path) -> list[str]:
    return [
        path.name
        for path in (state / "snapshots").rglob("*")
        if not re.fullmatch("packs|[0-9a-f]{64}|.*\\.incoming", path.name)
    ]


def test_a_head_gets_what_it_lacks_in_the_call_that_submits(tree: Path, state: Path) -> None:
    taken, store = take(tree), SnapshotStore(state)
    first = send(state, taken)
    assert first.asked == [[taken.id], list(taken.places)]
    assert first.said[0] == "sending the code to the head: 20 MiB"
    with store.open(taken.id) as pack:
        assert pack.manifest == taken.manifest
        for content, place in pack.places().items():
            assert os.pread(place.file, place.size, place.offset) == b"".join(taken.read(content))
    # unchanged: not a byte
    assert send(state, taken) == ([], 0, [])
    (tree / "f3").write_bytes(b"changed")
    edited = send(state, take(tree))
    assert edited.asked[1:] == [[hashlib.sha256(b"changed").hexdigest()]]
    assert edited.bytes < 2000
    assert left_over(state) == []


class Talk:
    """A head that says what it likes."""

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.sent = iter(replies), list[bytes]()

    def send(self, frame: CallerInput) -> bool:
        self.sent.append(frame.encode())
        return True

    def finish(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("content", ["manifest", "foreign"])
def test_a_head_gets_nothing_else_and_nothing_twice(tree: Path, content: str) -> None:
    """It may be anybody's by now: files of ours that are no code are none of its business."""
    taken = take(tree)
    foreign = hashlib.sha256(Path("/etc/hostname").read_bytes()).hexdigest()
    talk = Talk(wanted([taken.id]), wanted([foreign if content == "foreign" else taken.id]))
    with pytest.raises(HostError, match="gpu1: the host requested a file that is not part of the code"):
        list(code_upload.answered(talk, "gpu1", taken, print))  # type: ignore[arg-type]
    assert len(talk.sent) == 1


def test_a_file_that_changes_meanwhile(tree: Path, state: Path) -> None:
    taken = take(tree)
    (tree / "f4").write_bytes(b"x")
    with pytest.raises(UsageError, match="f4: changed while it was copied"):
        send(state, taken)


def receives(state: Path, of: str, *sent: bytes) -> Exception:
    """Have something sent to the agent, which is then left; return its error."""
    agent = Agent(state, of)
    for data in sent:
        for frame in pieces(data):
            agent.send(frame)
    agent.finish()
    with pytest.raises((UsageError, BrokenPipeError)) as caught:
        list(agent.replies)
    return caught.value


def test_a_connection_that_breaks_leaves_what_came_and_the_next_goes_on_there(tree: Path, state: Path) -> None:
    taken = take(tree)
    contents = list(taken.places)
    first, second = (b"".join(taken.read(content)) for content in contents[:2])
    assert isinstance(receives(state, taken.id, zlib.compress(taken.text), first, second[:1000]), BrokenPipeError)
    assert not SnapshotStore(state).use(taken.id)
    assert send(state, taken).asked[1] == contents[1:]
    assert left_over(state) == []
    with SnapshotStore(state).open(taken.id) as pack:
        assert check_out(pack, state / "written") == []


def test_what_comes_is_checked(tree: Path, state: Path) -> None:
    taken = take(tree)
    for sent, why in (
        ((zlib.compress(b"{}"),), "the manifest of snapshot .* is damaged"),
        ((b"no zlib",), "its manifest is damaged"),
        ((zlib.compress(bytes(manifest.MOST_BYTES + 1)),), "its manifest is too large"),
    ):
        error = receives(state, taken.id, *sent)
        assert re.search(f"the head rejected the uploaded code: {why}", str(error)), error
    assert not SnapshotStore(state).use(taken.id)


def test_a_full_disk(tree: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "os", FullDisk())
    with pytest.raises(OSError, match="No space left") as caught:
        send(state, take(tree))
    assert "taco-launch prune" in write_hint(caught.value, "/x")
    assert left_over(state) == []
