"""What goes wrong in reading what a host said is that host's error: a host may be anybody's by now."""

from collections.abc import Iterator
from contextlib import contextmanager

from taco_launch.errors import HostError


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
