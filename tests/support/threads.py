"""The same work in several threads at once."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.patience import HANG


def side_by_side(work: Callable[..., object], arguments: Iterable[tuple[Any, ...]]) -> None:
    """Call `work` with each of the arguments, all at once, and wait until every call is over."""
    threads = [threading.Thread(target=work, args=each) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
