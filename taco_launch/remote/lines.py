"""The lines of a host's answer while it comes: none is longer, and there are no more of them, than an honest host's."""

from collections.abc import Iterator
from typing import IO

from taco_launch.errors import HostError
from taco_launch.remote.session import ANSWER_BYTES

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
