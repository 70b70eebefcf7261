"""Stand-ins for functions that fail."""

from collections.abc import Callable
from typing import NoReturn


def raiser(error: BaseException) -> Callable[..., NoReturn]:
    """Return a function that takes anything and raises this error."""

    def fail(*_given: object, **_more: object) -> NoReturn:
        raise error

    return fail
