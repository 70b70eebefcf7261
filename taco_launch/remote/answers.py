"""What a frame of an agent's answer may hold: each key is read to its type here, once.

An agent is a program on a host, and a host may be anybody's by now: what is missing or of another type is that host's
error, wherever it is used. Nobody uses keys that are not known here.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from taco_launch.errors import HostError
from taco_launch.frozen import dataclass
from taco_launch.model.codec import from_json, to_json
from taco_launch.model.jobs import LATEST, Event, JobRecord, JobSpec, JobState
from taco_launch.model.launchers import LAUNCHERS

# Why a job waits: (host, why), what concerns no single host under "".
Words = tuple[tuple[str, str], ...]

_MOST_EXIT = 255
_MOST_RANKS, _MOST_SLOTS = 1 << 20, 1 << 12
_MOST = 1 << 63


@dataclass(frozen=True)
class Job:
    """A job as the head tells it; `events` only where they were asked for, `folder` is the head's."""

    spec: JobSpec
    record: JobRecord
    folder: str
    events: tuple[Event, ...] = ()


class Answer(dict[str, Any]):
    """The values of a frame, read; one that is missing is its host's error."""

    def __init__(self, host: str, op: str, data: Mapping[str, Any]) -> None:
        """Read what a host answered to an operation.

        Raises:
            HostError: a value is not what its key stands for.
        """
        self._what = f"{host}: {op}"
        super().__init__()
        for key, value in data.items():
            try:
                self[key] = _READ[key](value) if key in _READ else value
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise self._strange(f"{key}: {error}") from None

    def __missing__(self, key: str) -> Any:
        """Refuse.

        Raises:
            HostError: always.
        """
        raise self._strange(f"there is no {key}")

    def _strange(self, why: str) -> HostError:
        return HostError(f"{self._what}: not a message of taco-launch: {why:.200}")


@contextmanager
def understood(host: str, what: str) -> Iterator[None]:
    """Take what goes wrong in reading what a host said for that host's error.

    Raises:
        HostError: something did: the host, what it was asked for, and what is wrong with it.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise HostError(f"{host}: {what}: its answer is not understood: {error!r:.200}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.40} is no count")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r:.40} is no time")
    return float(value)


def _exit(value: Any) -> int:
    if _count(value) > _MOST_EXIT:
        raise ValueError(f"{value!r:.40} is no exit code")
    return int(value)


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _words(value: Any) -> Words:
    return tuple((_text(host), _text(why)) for host, why in value)


def _state(value: Any) -> str:
    return JobState(value).value


def _stream(value: Any) -> str:
    if value not in ("out", "err"):
        raise ValueError(f"{value!r:.40} is no stream")
    return str(value)


def _job(value: Any) -> Job:
    events = tuple(from_json(Event, event) for event in value.get("events", ()))
    spec, record = from_json(JobSpec, value["spec"]), from_json(JobRecord, value["record"])
    ranks = [share.ranks for share in record.shares]
    if not spec.hosts or spec.launcher not in LAUNCHERS or spec.procs_per_gpu < 1 or (spec.slots_per_worker or 1) < 1:
        raise ValueError("it is no job that anybody could submit")
    if min(record.np, *ranks, 0) < 0 or max(record.np, sum(ranks)) > _MOST_RANKS:
        raise ValueError(f"fewer than 0 or more than {_MOST_RANKS} ranks")
    _bounded(to_json((spec, record, events)))
    return Job(spec, record, _text(value["folder"]), events)


def _rows(value: Any) -> Any:
    from taco_launch.model.rows import decoded  # noqa: PLC0415 - of lists alone

    return tuple(map(decoded, value))


def _removed(value: Any) -> Any:
    from taco_launch.model.tallies import BOUNDS, Tally  # noqa: PLC0415 - of metrics alone

    found = from_json(Tally, value)
    counts = (
        found.created,
        found.successful,
        found.failed,
        found.cancelled,
        *(n for w in found.waits for n in w.counts),
    )
    if not all(0 <= count < _MOST for count in counts) or any(len(w.counts) != len(BOUNDS) + 1 for w in found.waits):
        raise ValueError("counts that no jobs have")
    if not all(math.isfinite(w.seconds) and w.seconds >= 0 for w in found.waits):
        raise ValueError("a wait that no job has had")
    return found


def _bounded(value: Any) -> None:
    """Refuse numbers that nobody can show: a time beyond the year 9999, a count beyond 64 bits."""
    level = [value]
    while level:
        for number in level:
            most = LATEST if isinstance(number, float) else _MOST
            if isinstance(number, (int, float)) and not abs(number) <= most:  # no NaN either
                raise ValueError(f"{number!r:.40} is out of range")
        inner = [part for part in level if isinstance(part, (dict, list))]
        level = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]


def _occupancy(value: Any) -> Any:
    from taco_launch.model.slots import Occupancy  # noqa: PLC0415 - of `top` alone

    found = from_json(Occupancy, value)
    if not 0 <= found.gpus <= len(found.slots):
        raise ValueError(f"{found.gpus} GPUs and {len(found.slots)} slots")
    return found


def _topology(value: Any) -> Any:
    from taco_launch.model.host.hardware import Topology  # noqa: PLC0415 - of a plan alone

    return from_json(Topology, value)


def _known(value: Any) -> Any:
    """Read what is known of a host, as JobHost names that."""
    from taco_launch.model.job_facts import JobHost  # noqa: PLC0415 - of a plan alone

    host = from_json(JobHost, {**value, "host": ""})
    if not all(0 <= (count or 0) <= _MOST_SLOTS for count in (host.slots, host.gpus)):
        raise ValueError(f"fewer than 0 or more than {_MOST_SLOTS} slots")
    return value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "accepted": _text,
    "began": _job,
    "exit": _exit,
    "host": _text,
    "job": _job,
    "known": _known,
    "last": _text,
    "log": _or_none(_count),
    "occupancy": _occupancy,
    "offset": _count,
    "openmpi": _or_none(_text),
    "problem": _text,
    "removed": _removed,
    "rows": _rows,
    "since": _or_none(_seconds),
    "skipped": _count,
    "state": _state,
    "stream": _stream,
    "topology": _or_none(_topology),
    "waiting": _words,
    "warning": _text,
}
