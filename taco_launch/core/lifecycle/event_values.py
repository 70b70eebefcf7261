"""Read the values of a job's events. A rank, or a disk, may have changed them: counts, names and how many there are have limits."""

from typing import Any, Tuple

from taco_launch.core.model.codec import from_json
from taco_launch.core.model.jobs import LATEST, MOST_RANKS, HostRanks

_MOST_NAMES, _MOST_CHARACTERS = 1 << 14, 255


def check_time(seconds: float) -> None:
    """Check the time of an event, in seconds since the epoch.

    Raises:
        ValueError: nobody can show it.
    """
    if not 0 <= seconds <= LATEST:
        raise ValueError(f"the time {seconds:g}")


def count(value: Any) -> int:
    """Return a number of ranks or attempts, or an exit code.

    Raises:
        ValueError: no job has that number.
    """
    number = int(value)
    if not 0 <= number <= MOST_RANKS:
        raise ValueError(f"{number} is out of range")
    return number


def name(value: Any) -> str:
    """Return the name of a host, or the id of a job.

    Raises:
        ValueError: it is too long.
    """
    text = str(value)
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"a name of {len(text)} characters")
    return text


def names(values: Any) -> Tuple[str, ...]:
    """Return the names of hosts. Raises as `few` and `name` do."""
    return tuple(map(name, few(values)))


def few(values: Any) -> Tuple[Any, ...]:
    """Return what is told of each host.

    Raises:
        ValueError: no job has so many hosts.
    """
    if len(values) > _MOST_NAMES:
        raise ValueError(f"{len(values)} hosts")
    return tuple(values)


def shares(values: Any) -> Tuple[HostRanks, ...]:
    """Return the ranks of each host. Raises as `few`, `name` and `count` do."""
    found = tuple(from_json(HostRanks, value) for value in few(values))
    names([share.host for share in found])
    count(sum(count(share.ranks) for share in found))
    return found
