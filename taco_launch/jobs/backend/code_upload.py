"""A job's code on its way to the head, in the call that submits the job: the head says what it lacks, and gets that alone."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator

from taco_launch.core import trace
from taco_launch.core.errors import HostError
from taco_launch.core.manifest import size_text
from taco_launch.core.protocol.calls import Reply
from taco_launch.core.protocol.calls.caller_input import WINDOW, pieces
from taco_launch.core.protocol.calls.snapshots import CodeWanted
from taco_launch.jobs.backend.dialogue import Dialogue
from taco_launch.jobs.code.snapshot import Snapshot

# Less than that is sent before anybody wonders.
_SILENT_BYTES = 16 << 20
_SAY_SECONDS = 2.0


def answered(talk: Dialogue, host: str, snapshot: Snapshot, say: Callable[[str], None]) -> Iterator[Reply]:
    """Yield the replies to a job that is submitted; those that want its code are answered.

    Raises:
        UsageError: a file has changed since the snapshot was made.
        HostError: `host` wants what is not in the code, or more than once.
    """
    left = {snapshot.id, *snapshot.places}
    for reply in talk.replies:
        if not isinstance(reply, CodeWanted):
            talk.finish()
            yield reply
            continue
        wanted = reply.hashes
        for content in wanted:
            if content not in left:
                raise HostError(f"{host}: the host requested a file that is not part of the code: {content[:12]}")
            left.remove(content)
        if wanted == [snapshot.id]:
            _send(talk, zlib.compress(snapshot.text, 1))  # most of it is hashes, which no level makes smaller
        else:
            _send_contents(talk, host, snapshot, wanted, say)


def _send_contents(
    talk: Dialogue, host: str, snapshot: Snapshot, wanted: list[str], say: Callable[[str], None]
) -> None:
    total = sum(map(snapshot.size, wanted))
    trace.decision("code: %s lacks %s files, %s bytes", host, len(wanted), total)
    progress, sent = _Progress(total, say), 0
    for data in _joined(piece for content in wanted for piece in snapshot.read(content)):
        if not _send(talk, data):
            return  # what the head says next tells why
        sent += len(data)
        progress.tell(sent)


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield small pieces together: each frame costs time."""
    data = bytearray()
    for part in parts:
        data += part
        if len(data) >= WINDOW:
            yield bytes(data)
            data.clear()
    if data:
        yield bytes(data)


def _send(talk: Dialogue, data: bytes) -> bool:
    """Send data; return whether anybody still listens."""
    return all(talk.send(frame) for frame in pieces(data))


class _Progress:
    """Says how far it is, now and then, where it takes long."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._say = total, say
        self._at = time.monotonic() + _SAY_SECONDS
        self._begun = time.monotonic()
        self._said = False
        if total > _SILENT_BYTES:
            self._said = True
            say(f"sending the code to the head: {size_text(total)}")

    def tell(self, sent: int) -> None:
        """Note how many bytes were sent."""
        now = time.monotonic()
        if not self._said or now < self._at:
            return
        self._at = now + _SAY_SECONDS
        rate = sent / max(now - self._begun, 0.001)
        self._say(f"sent {size_text(sent)} of {size_text(self._total)}, {size_text(int(rate))}/s")
