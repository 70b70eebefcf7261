"""A fact that was found, is known not to be there, or could not be read."""

from typing import Any, Optional, TypeVar, Union

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Unknown:
    """It could not be read, or not understood; `reason` holds the evidence."""

    reason: str


@dataclass(frozen=True)
class Absent:
    """It is known not to be there; `reason` says by what, where that helps."""

    reason: str = ""


T = TypeVar("T")


# A value, or the word on why there is none.
Found = Union[T, Absent, Unknown]

# What nobody requested.
NOT_ASKED = Unknown("not asked")


def not_told(why: str) -> Unknown:
    """Return an Unknown for a value that the output cannot hold, since the tool was not asked for it; `why` says so."""
    return Unknown(f"{NOT_ASKED.reason}: {why}")


def known_value(value: Found[T]) -> Optional[T]:
    """Return the value of a fact, None where it is not there or could not be read."""
    return None if isinstance(value, (Absent, Unknown)) else value


def was_requested(value: Any) -> bool:
    """Return whether somebody requested a value, whatever came of it."""
    return not (isinstance(value, Unknown) and value.reason.startswith(NOT_ASKED.reason))
