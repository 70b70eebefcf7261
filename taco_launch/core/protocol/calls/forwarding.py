"""The call about a port of a rank's host: forward. Connections are streams of one call, each with a number.

Of each stream no more than STREAM_WINDOW bytes are on their way: who has passed some on credits them to the other side.
"""

from taco_launch.core.protocol.calls import Reply, Request, check_counts
from taco_launch.core.protocol.calls.caller_input import CallerInput

STREAM_WINDOW = 1 << 18
MOST_STREAMS = 256
# Of one frame.
STREAM_CHUNK = 1 << 15
_MOST_PORT = 65535


class Forward(Request):
    """Connect streams to a port of a rank's host, on its loopback. Replies: ForwardReady, StreamData and the like, Exited."""

    op = "forward"
    takes_input = True
    name: str
    rank: int
    port: int

    def check(self) -> None:
        """Check the port."""
        if not 0 < self.port <= _MOST_PORT:
            raise ValueError(f"port is {self.port}")


class ForwardBoard(Request):
    """Connect streams to the TensorBoard of a job, on the head. Replies as of Forward, for as long as that runs."""

    op = "forward-board"
    takes_input = True
    name: str


# --- from the caller


class OpenStream(CallerInput):
    """Connect a new stream."""

    op = "open"
    stream: int


class SendData(CallerInput):
    """Data of a stream, to the port."""

    op = "send"
    stream: int
    data: bytes = b""


class SendEnd(CallerInput):
    """There is no more data to the port."""

    op = "send-end"
    stream: int


class SendCredit(CallerInput):
    """So many bytes that came from the port have gone on."""

    op = "send-credit"
    stream: int
    count: int

    def check(self) -> None:
        """Check that it is a count."""
        check_counts(count=self.count)


class DropStream(CallerInput):
    """The stream is over, whatever is on its way."""

    op = "drop"
    stream: int


# --- to the caller


class StreamReply(Reply):
    """What concerns one stream, or all of them."""


class ForwardReady(StreamReply):
    """Streams can be opened; `host` is the name of the rank's host by itself."""

    op = "forward-ready"
    host: str


class StreamData(StreamReply):
    """Data of a stream, from the port."""

    op = "stream"
    stream: int
    data: bytes = b""


class StreamEnd(StreamReply):
    """There is no more data from the port."""

    op = "stream-end"
    stream: int


class StreamCredit(StreamReply):
    """So many bytes have gone on to the port."""

    op = "stream-credit"
    stream: int
    count: int

    def check(self) -> None:
        """Check that it is a count."""
        check_counts(count=self.count)


class StreamClosed(StreamReply):
    """The stream is over: the port refused it or broke it off, and why; "" where both sides have ended."""

    op = "stream-closed"
    stream: int
    why: str = ""
