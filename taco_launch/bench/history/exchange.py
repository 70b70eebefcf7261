"""Write ladders and their runs as JSON and CSV, and read them back.

JSON is `{"format", "version", "circumstances", "ladders"}`: each ladder holds its runs, each run its readings and the
place of its circumstances in the list of those. CSV has a row per reading, one for a run without any and
one for a ladder without runs; hosts and circumstances are JSON lists there, and what does not exist is empty.
"""

import csv
import errno
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import is_name
from taco_launch.bench.history.history import Ladder, LadderKind
from taco_launch.bench.logs import MOST_BYTES
from taco_launch.bench.model.runs import Cell, Measurement, Metric, Run, RunEnvironment, is_reading
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.jobs import LATEST

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_FORMAT, _VERSION = "taco-launch history", 1
_RUN = ("repeat", "warm_up", "job", "started", "seconds", "gpu", "why", "log")
_OF_LADDER = (
    "ladder",
    "matrix",
    "kind",
    "digest",
    "seed",
    "cluster",
    "ladder_started",
    "ladder_ended",
    "outcome",
    "accepted",
    "variants",
)
_OF_RUN = ("position", "workload", "variant", "ranks", *_RUN, "hosts")
_OF_READING = ("metric", "unit", "higher_is_better", "value")
COLUMNS = (*_OF_LADDER, *_OF_RUN, *_OF_READING, "circumstances")
# What is not named here is text.
_TYPES = {
    **dict.fromkeys(("seed", "position", "ranks", "repeat"), "int64"),
    **dict.fromkeys(("ladder_started", "ladder_ended", "started", "seconds", "value"), "float64"),
    **dict.fromkeys(("accepted", "warm_up", "higher_is_better"), "bool"),
    **dict.fromkeys(("variants", "hosts", "circumstances"), "json"),
}
_MOST = 1 << 63
# Files of earlier versions lack the first: they have the other, which is the first variant, or neither.
_LATER, _EARLIER = "variants", "baseline"
_LONGEST_NAME = 253  # RFC 1035, section 2.3.4
_FACT = 3  # host, what, value
# Where a spreadsheet may see a cell that starts with a sign of a formula: with {} before, behind a separator and blanks.
_FORMULA = r"^{0}(?='*[\t\r\n])|((?:^|[;\t\r\n]) *){0}(?='*[=+\-@＝＋－＠])"  # noqa: RUF001 - the full-width signs are meant
_TO_MARK, _MARKED = (re.compile(_FORMULA.format(mark)) for mark in ("", "'"))
T = TypeVar("T")


class HistoryEntry(NamedTuple):
    """A ladder and its runs, as (position, run)."""

    ladder: Ladder
    runs: tuple[tuple[int, Run], ...]


def write_json(entries: Iterable[HistoryEntry], file: "SupportsWrite[str]") -> None:
    """Write ladders as JSON."""
    places: dict[RunEnvironment, int] = {}
    ladders = []
    for entry in entries:
        runs = []
        for position, run in entry.runs:
            place = places.setdefault(run.circumstances, len(places))
            readings = [{**asdict(reading.metric), "value": reading.value} for reading in run.readings]
            told = {"position": position, **asdict(run.cell), **{name: getattr(run, name) for name in _RUN}}
            runs.append({**told, "hosts": run.hosts, "readings": readings, "circumstances": place})
        head = {**asdict(entry.ladder), "kind": entry.ladder.kind.value, "runs": runs}
        del head["imported"]  # each history says that for itself
        ladders.append(head)
    facts = [one.facts for one in places]
    json.dump({"format": _FORMAT, "version": _VERSION, "circumstances": facts, "ladders": ladders}, file, indent=1)
    file.write("\n")


def write_csv(entries: Iterable[HistoryEntry], file: "SupportsWrite[str]") -> None:
    """Write ladders as CSV; the file leaves the ends of lines as they are.

    Where a spreadsheet would take a text for a formula an apostrophe is put (OWASP, CSV Injection): at its start, and
    behind ';', a tab or the end of a line, which may end a cell. `read` removes it.
    """
    # All texts in quotes: with minimal quoting one that holds a bare carriage return stands without.
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    for row in _flat(entries):
        writer.writerow({name: _marked(value) if isinstance(value, str) else value for name, value in row.items()})


def _marked(text: str) -> str:
    return _TO_MARK.sub(lambda found: f"{found[1] or ''}'", text)


def _unmarked(text: str) -> str:
    return _MARKED.sub(lambda found: found[1] or "", text)


def read(path: Path) -> tuple[HistoryEntry, ...]:
    """Read what `write_json` or `write_csv` wrote; the content says which.

    Raises:
        TacoLaunchError: it cannot be read, or is none; says where and what is wrong.
    """
    try:
        text = untrusted.read_named(path, MOST_BYTES).decode("utf-8")
    except OSError as error:
        hint = "export fewer sweeps: bench export --last N" if error.errno == errno.EFBIG else ""
        raise TacoLaunchError(f"{path}: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError as error:
        raise TacoLaunchError(f"{path}: is not a history export: not UTF-8 at byte {error.start}") from None
    try:
        return _entries(json.loads(text) if text.lstrip().startswith("{") else _from_csv(text))
    except (ValueError, RecursionError, csv.Error) as error:
        raise TacoLaunchError(
            f"{path}: is not a history export, or is damaged: {error}",
            hint="to read the log of a benchmark, add --workload horovod, tf_cnn or nccl-tests",
        ) from None


def _flat(entries: Iterable[HistoryEntry]) -> Iterator[dict[str, Any]]:
    for ladder, runs in entries:
        head = {"ladder": ladder.id, "ladder_started": ladder.started, "ladder_ended": ladder.ended}
        head |= {name: getattr(ladder, name) for name in ("matrix", "digest", "seed", "cluster", "outcome", "accepted")}
        head |= {"kind": ladder.kind.value, "variants": json.dumps(ladder.variants)}
        if not runs:
            yield head
        for position, run in runs:
            told = {**head, "position": position, **asdict(run.cell), **{name: getattr(run, name) for name in _RUN}}
            told["hosts"] = json.dumps(run.hosts)
            told["circumstances"] = json.dumps(run.circumstances.facts)
            for reading in run.readings:
                metric = reading.metric
                better = {"higher_is_better": metric.higher_is_better}
                yield {**told, "metric": metric.name, "unit": metric.unit, **better, "value": reading.value}
            if not run.readings:
                yield told


def _from_csv(text: str) -> dict[str, Any]:
    """Return the rows as the document that `write_json` makes, but for the circumstances, which stand in each run.

    Raises:
        ValueError: a column is missing, or a row has another number of columns.
    """
    csv.field_size_limit(1 << 30)  # the facts of hundreds of hosts
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    missing = [name for name in COLUMNS if name not in (*(reader.fieldnames or ()), _LATER)]
    if missing:
        raise ValueError(f"no column {missing[0]}")
    ladders: dict[str, dict[str, Any]] = {}
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    for row in reader:
        at = f"line {reader.line_num}"
        if None in row or None in row.values():
            raise ValueError(f"{at}: expected {len(COLUMNS)} columns")
        names = (*COLUMNS, _EARLIER)
        values = {name: _parsed(row.get(name, ""), _TYPES.get(name, ""), f"{at}: {name}") for name in names}
        named = {"id": values["ladder"], "started": values["ladder_started"], "ended": values["ladder_ended"]}
        ladder = ladders.setdefault(values["ladder"], {**values, **named, "runs": []})
        if values["position"] is None:
            continue
        run = runs.get((values["ladder"], values["position"]))
        if run is None:
            run = {**values, "readings": []}
            runs[values["ladder"], values["position"]] = run
            ladder["runs"].append(run)
        if values["value"] is not None:
            run["readings"].append({**values, "name": values["metric"]})
    return {"format": _FORMAT, "version": _VERSION, "circumstances": [], "ladders": list(ladders.values())}


def _parsed(marked: str, kind: str, where: str) -> Any:
    text = _unmarked(marked)
    try:
        if kind == "json":
            return json.loads(text) if text else None
        if kind == "bool":
            return {"True": True, "False": False, "": None}[text]
        if kind:
            number = int if kind == "int64" else float
            return number(text) if text else None
    except (ValueError, KeyError):
        raise ValueError(f"{where}: {text[:40]!r} is not valid") from None
    return text


def _entries(data: Any) -> tuple[HistoryEntry, ...]:
    if (data.get("format"), data.get("version")) != (_FORMAT, _VERSION):
        raise ValueError(f'"format" must be "{_FORMAT}" and "version" must be {_VERSION}')
    places = enumerate(_of(data, "circumstances", list, "document"))
    facts = [_circumstances(one, f"circumstances[{place}]") for place, one in places]
    ladders = enumerate(_of(data, "ladders", list, "document"))
    return tuple(_entry(ladder, facts, f"ladders[{place}]") for place, ladder in ladders)


def _entry(data: Any, facts: Sequence[RunEnvironment], where: str) -> HistoryEntry:
    ladder = Ladder(
        id=_id(data, where),
        matrix=_of(data, "matrix", str, where),
        kind=LadderKind(_of(data, "kind", str, where)),
        digest=_of(data, "digest", str, where),
        seed=_of(data, "seed", int, where),
        cluster=_of(data, "cluster", str, where),
        started=_time(data, "started", where),
        ended=None if data.get("ended") is None else _time(data, "ended", where),
        outcome=_of(data, "outcome", str, where),
        accepted=_of(data, "accepted", bool, where),
        variants=_variants(data, where),
    )
    runs = [_run(run, facts, f"{where}.runs[{place}]") for place, run in enumerate(_of(data, "runs", list, where))]
    if len({position for position, _ in runs}) < len(runs):
        raise ValueError(f"{where}: a position occurs twice")
    return HistoryEntry(ladder, tuple(runs))


def _variants(data: Any, where: str) -> tuple[str, ...]:
    if data.get(_LATER) is not None:
        named = {str(place): name for place, name in enumerate(_of(data, _LATER, list, where))}
        return tuple(_of(named, place, str, f"{where}.{_LATER}") for place in named)
    first = _of(data, _EARLIER, str, where) if _EARLIER in data else ""
    return (first,) if first else ()


def _id(data: Any, where: str) -> str:
    """Return a ladder's id: a part of the names of its jobs, and of a path.

    Raises:
        ValueError: the id cannot be a part of a name.
    """
    found: str = _of(data, "id", str, where)
    if not is_name(found):
        raise ValueError(
            f"{where}.id: {found[:80]!r} is not a valid sweep id: use letters, digits, '.', '_' and '-', at most 63 characters"
        )
    return found


def _run(data: Any, facts: Sequence[RunEnvironment], where: str) -> tuple[int, Run]:
    readings = []
    for place, reading in enumerate(_of(data, "readings", list, where)):
        at = f"{where}.readings[{place}]"
        value = _of(reading, "value", float, at)
        if not is_reading(value):
            raise ValueError(f"{at}.value: {value} is not a reading")
        metric = Metric(
            _of(reading, "name", str, at), _of(reading, "unit", str, at), _of(reading, "higher_is_better", bool, at)
        )
        readings.append(Measurement(metric, value))
    on = data.get("circumstances")
    if isinstance(on, int) and not 0 <= on < len(facts):
        raise ValueError(f"{where}.circumstances: index {on} does not exist")
    hosts = _of(data, "hosts", list, where)
    if not all(isinstance(host, str) and len(host) <= _LONGEST_NAME for host in hosts):
        raise ValueError(f"{where}.hosts: must be a list of host names")
    run = Run(
        cell=Cell(_of(data, "workload", str, where), _of(data, "variant", str, where), _of(data, "ranks", int, where)),
        repeat=_of(data, "repeat", int, where),
        warm_up=_of(data, "warm_up", bool, where),
        job=_of(data, "job", str, where),
        started=_time(data, "started", where),
        seconds=_time(data, "seconds", where),
        hosts=tuple(hosts),
        gpu=_of(data, "gpu", str, where),
        readings=tuple(readings),
        why=_of(data, "why", str, where),
        log=_of(data, "log", str, where),
        circumstances=facts[on] if isinstance(on, int) else _circumstances(on, where),
    )
    return _of(data, "position", int, where), run


def _circumstances(data: Any, where: str) -> RunEnvironment:
    is_list = isinstance(data, list) and all(isinstance(fact, list) and len(fact) == _FACT for fact in data)
    if not is_list or not all(isinstance(word, str) for fact in data for word in fact):
        raise ValueError(f"{where}.circumstances: must be a list of [host, what, value]")
    return RunEnvironment(tuple((host, what, value) for host, what, value in data))


def _time(data: Any, name: str, where: str) -> float:
    """Return a time in seconds since 1970, which has to be one that a calendar has.

    Raises:
        ValueError: the value is no such time.
    """
    value = _of(data, name, float, where)
    if not 0 <= value <= LATEST:
        raise ValueError(f"{where}.{name}: {value:.40g} is not a time")
    return value


def _of(data: Any, name: str, kind: type[T], where: str) -> T:
    """Return the value of a key, which has to be of a kind, and one that SQLite can keep; a whole number is a float too.

    Raises:
        ValueError: the value is of another kind, out of range, or not text in UTF-8.
    """
    value = data.get(name) if isinstance(data, dict) else None
    if kind is float and type(value) is int and abs(value) < _MOST:
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}.{name}: {str(value)[:40]} is not of type {kind.__name__}")
    if isinstance(value, int) and not abs(value) < _MOST:
        raise ValueError(f"{where}.{name}: {str(value)[:40]} is out of range")
    if isinstance(value, str) and value != value.encode("utf-8", "replace").decode():
        raise ValueError(f"{where}.{name}: {value!r:.40} is not text in UTF-8")
    return value
