"""The last result of each nightly run that this machine records, as families of metrics."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from taco_launch.agent.store.folders import state_folder
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.nightly import record, schedule
from taco_launch.bench.nightly.record import Installation, LastRun
from taco_launch.bench.nightly.status import BROKEN
from taco_launch.bench.nightly.summary import NightlyOutcome
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.jobs.metrics.families import gauge

_OUTCOMES = (*(outcome.value for outcome in NightlyOutcome), BROKEN)


@dataclass(frozen=True)
class LastResult:
    """The last result of a nightly run; times are in seconds since the epoch.

    `outcome` is "" and `ended` None before the first result, `ended` also where it was broken off. `ratios` are those of tonight to the baseline,
    each with its labels. `started` is 0 before the first start, `due` when its schedule had it start last, None without one.
    """

    name: str
    started: float = 0.0
    outcome: str = ""
    ended: float | None = None
    due: float | None = None
    ratios: tuple[tuple[Mapping[str, str], float], ...] = ()


def families(results: tuple[LastResult, ...]) -> tuple[Metric, ...]:
    """Return the families of nightly runs."""
    judged = [result for result in results if result.outcome]
    return (
        gauge(
            "night_outcome",
            "For every outcome of a nightly run 1 if its last result has it, else 0.",
            (
                ({"night": result.name, "outcome": outcome}, float(outcome == result.outcome))
                for result in judged
                for outcome in _OUTCOMES
            ),
        ),
        gauge(
            "night_start_timestamp_seconds",
            "When a nightly run last started, in seconds since the epoch; 0 before its first start.",
            (({"night": result.name}, result.started) for result in results),
        ),
        gauge(
            "night_end_timestamp_seconds",
            "When the last result of a nightly run was complete, in seconds since the epoch; none where it was broken off.",
            (({"night": result.name}, result.ended) for result in results if result.ended is not None),
        ),
        gauge(
            "night_due_timestamp_seconds",
            "When the schedule of an installed nightly run last had it start, in seconds since the epoch.",
            (({"night": result.name}, result.due) for result in results if result.due is not None),
        ),
        gauge(
            "night_ratio",
            "The mean of the last nightly run divided by the mean of its baseline, of every cell and metric that has both.",
            (({"night": result.name, **labels}, ratio) for result in results for labels, ratio in result.ratios),
        ),
    )


def results(environ: Mapping[str, str], uid: int, now: datetime) -> tuple[tuple[LastResult, ...], tuple[str, ...]]:
    """Return the last result of each nightly run, by name, and warnings about those that cannot be read."""
    nights = state_folder(environ, uid) / "nights"
    readable, warnings = [], []
    for run_folder in sorted(path for path in nights.glob("*") if path.is_dir()):
        try:
            result = _result(run_folder, now)
        except TacoLaunchError as error:
            warnings.append(f"nightly run {run_folder.name}: {error.message}")
            continue
        if result is not None:
            readable.append(result)
    return tuple(readable), tuple(warnings)


def _result(run_folder: Path, now: datetime) -> LastResult | None:
    """Return the last result of a nightly run, None where it never ran and is not installed.

    Raises:
        TacoLaunchError: a record or a summary cannot be read.
    """
    last, installation = record.read(run_folder, LastRun), record.read(run_folder, Installation)
    if last is None and installation is None:
        return None
    due = None if installation is None else _due(installation, now)
    if last is None:
        return LastResult(run_folder.name, due=due)
    if last.ended is not None:
        summary = Path(last.summary).with_suffix(".json") if last.summary else None
        return LastResult(run_folder.name, last.started, last.outcome, last.ended, due, _ratios(summary))
    if not record.runs(run_folder, last):
        return LastResult(run_folder.name, last.started, BROKEN, None, due)
    # While it runs, the result is that of the one before.
    before = max(run_folder.glob("????-??-??-*.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if before is None:
        return LastResult(run_folder.name, last.started, due=due)
    values = _read(before)
    return LastResult(
        run_folder.name, last.started, str(values["outcome"]), float(values["ended"]), due, _ratios(before)
    )


def _due(installation: Installation, now: datetime) -> float | None:
    """Return when the schedule last had a nightly run start since it was installed, None where that is still to come."""
    latest = schedule.latest(installation.scheduled.schedule, now, skipping=installation.scheduler != "cron")
    return latest.timestamp() if latest.timestamp() > installation.installed else None


def _ratios(summary: Path | None) -> tuple[tuple[Mapping[str, str], float], ...]:
    """Return the ratio of each judged metric with its labels; nothing where there is no summary.

    Raises:
        TacoLaunchError: the summary cannot be read.
    """
    if summary is None:
        return ()
    ratios = {tuple(labels.items()): ratio for labels, ratio in _labelled(_read(summary)["judged"])}
    return tuple((dict(labels), ratio) for labels, ratio in ratios.items())


def _labelled(judged: list[Any]) -> Iterator[tuple[Mapping[str, str], float]]:
    for one in judged:
        if one["tonight"] is not None and one["baseline"]:
            cell = Cell(one["workload"], one["variant"], one["ranks"])
            yield (
                {"cell": cell.name, "metric": one["metric"], "hosts": ",".join(one["hosts"]), "gpu": one["gpu"]},
                one["tonight"] / one["baseline"],
            )


def _read(summary: Path) -> dict[str, Any]:
    """Return a summary as its file has it.

    Raises:
        TacoLaunchError: it cannot be read, or is none.
    """
    try:
        values = json.loads(summary.read_bytes())
        _check(values)
    except OSError as error:
        raise TacoLaunchError(f"{summary}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise TacoLaunchError(f"{summary}: is not in the format of this version") from None
    return dict(values)


def _check(values: Any) -> None:
    """Check what is used of a summary.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    NightlyOutcome(values["outcome"])
    float(values["ended"])
    tuple(_labelled(values["judged"]))
