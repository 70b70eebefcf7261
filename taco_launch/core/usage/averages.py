"""Average the use of hardware over time and hosts, and keep a series short."""

from typing import Any, Dict, Sequence, Tuple

from taco_launch.core.model.job_view import Usage

# Of a job: at ten seconds each, points are merged for the first time after 40 minutes.
MOST_POINTS = 240
# Of these the highest value counts, of all others the mean over time.
_HIGHEST = ("time", "cpus", "gpus", "temperature")
# A point that covers less of its time than this is still open.
_OPEN = 0.75
_DIGITS = 4


def mean(usages: Sequence[Usage], seconds: float) -> Usage:
    """Return the mean of at least one, weighted by their seconds, as one that covers `seconds`."""
    values: Dict[str, Any] = {"seconds": seconds}
    for name in Usage.__dataclass_fields__:
        pairs = [(getattr(usage, name), usage.seconds) for usage in usages if getattr(usage, name) is not None]
        if name == "seconds" or not pairs:
            continue
        if name in _HIGHEST:
            values[name] = max(value for value, _weight in pairs)
        else:
            total = sum(weight for _value, weight in pairs)
            values[name] = float(f"{sum(value * weight for value, weight in pairs) / total:.{_DIGITS}g}")
    return Usage(**values)


def over_time(usages: Sequence[Usage]) -> Usage:
    """Return the mean of what was measured one after the other."""
    return mean(usages, sum(usage.seconds for usage in usages))


def over_hosts(usages: Sequence[Usage]) -> Usage:
    """Return the mean of what was measured at the same time on several hosts."""
    return mean(usages, max(usage.seconds for usage in usages))


def with_point(series: Sequence[Usage], every: float, point: Usage) -> Tuple[float, Tuple[Usage, ...]]:
    """Add a point to a series whose points cover `every` seconds; where it becomes too long, merge each two neighbours."""
    points = list(series)
    if points and points[-1].seconds < _OPEN * every:
        points[-1] = over_time((points[-1], point))
    else:
        points.append(point)
    if len(points) > MOST_POINTS:
        every *= 2
        points = [over_time(points[index : index + 2]) for index in range(0, len(points), 2)]
    return every, tuple(points)
