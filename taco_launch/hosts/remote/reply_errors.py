"""What goes wrong in reading what a host said is that host's error: a host may be anybody's by now."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from taco_launch.core.errors import HostError
from taco_launch.hosts.remote.session import ANSWER_BYTES


@contextmanager
def understood(host: str, what: str) -> Iterator[None]:
    """Take what goes wrong in reading what a host said for that host's error.

    Raises:
        HostError: something did: the host, the request, and what is wrong with it.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise HostError(f"{host}: {what}: its answer is not understood: {error!r:.200}") from None


# What a program of a host may print in one line; of progress bars, one is drawn over the other.
LONGEST = 1 << 20


def lines(stream: IO[bytes], host: str, what: str) -> Iterator[bytes]:
    """Yield the lines of an answer, each with its end.

    Raises:
        HostError: one is too long, or all together are.
    """
    left = ANSWER_BYTES
    for line in iter(lambda: stream.readline(LONGEST + 1), b""):
        left -= len(line)
        if len(line) > LONGEST or left < 0:
            most = f"a line of more than {LONGEST >> 10} KiB" if len(line) > LONGEST else f"{ANSWER_BYTES >> 20} MiB"
            raise HostError(f"{host}: {what}: its answer is too long: it has {most}")
        yield line
