"""A call that goes on in both directions: its replies, and the frames that are sent meanwhile by threads of their own."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType

from taco_launch.core import trace
from taco_launch.core.protocol.calls import Reply
from taco_launch.core.protocol.calls.caller_input import ALIVE_SECONDS, Alive, CallerInput, Hangup
from taco_launch.hosts.remote.transport import CommandInput

# What is said last has so long to go out: a connection that hangs keeps nobody waiting.
_LAST_SECONDS = 1.0


class Dialogue:
    """One such call; a context manager that tells the agent when it is left before its end."""

    def __init__(self, replies: Iterator[Reply], stdin: CommandInput, host: str) -> None:
        """Take the call's replies, which are its caller's to read, and its input; `host` is for the trace."""
        self._answer = replies
        self._stdin = stdin
        self._host = host
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._whole = False

    def __enter__(self) -> "Dialogue":  # noqa: PYI034 - typing.Self is of Python 3.11
        """Show from now on that we are there."""
        threading.Thread(target=self._live, daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End it."""
        left = not self._whole and not self._over.is_set()
        self._over.set()
        if left:
            leaving = threading.Thread(target=self._send, args=(Hangup(),), daemon=True)
            leaving.start()
            leaving.join(_LAST_SECONDS)
        self._stdin.close()

    @property
    def replies(self) -> Iterator[Reply]:
        """The replies, one after the other."""
        yield from self._answer
        self._whole = True

    def send(self, frame: CallerInput) -> bool:
        """Send a frame, and wait as long as the agent takes no more; return whether anybody still listens."""
        return not self._over.is_set() and self._send(frame)

    def finish(self) -> None:
        """Send no more; the call goes on, and nothing tells the agent when it is left."""
        self._over.set()
        with self._lock:
            self._stdin.close()

    def feed(self, frames: Iterable[CallerInput]) -> None:
        """Send frames in a thread of their own, as they come."""

        def work() -> None:
            for frame in frames:
                if not self.send(frame):
                    return

        threading.Thread(target=work, daemon=True).start()

    def _send(self, frame: CallerInput) -> bool:
        trace.message("sent", frame, self._host)
        with self._lock, contextlib.suppress(OSError):
            self._stdin.write(frame.encode())
            return True
        return False

    def _live(self) -> None:
        while not self._over.wait(ALIVE_SECONDS):
            if not self.send(Alive()):
                return
