"""A profile: the options of an mpirun line in their order, each with its reason and the conditions it is under."""

from typing import Tuple

from taco_launch.frozen import dataclass


@dataclass(frozen=True)
class ProfileOption:
    """One option of the line.

    A word may hold `{name}`s, which are decided when the job is placed (`launch.decide` lists them); the option is left
    out where one of them has no value, or where a condition of `when` does not hold (`rdma`, `not light`).
    """

    words: Tuple[str, ...]
    why: str
    when: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """The options of a line between mpirun and the command; `source` is `shipped` or the file it was read from."""

    name: str = "none"
    entries: Tuple[ProfileOption, ...] = ()
    source: str = ""
