"""A fact that was found, is known not to be there, or could not be read."""

from dataclasses import dataclass
from typing import TypeVar, Union


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
