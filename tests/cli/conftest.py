"""What all tests of the command line have."""

from collections.abc import Iterator

import pytest

from taco_launch.core import trace


@pytest.fixture(autouse=True)
def nothing_is_traced_afterwards() -> Iterator[None]:
    """Take back a -v, which holds for the process."""
    yield
    trace.start(trace.OFF, lambda _at, _text: None)
