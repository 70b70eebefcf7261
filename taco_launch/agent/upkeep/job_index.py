"""One line of every job of this head, fast: the lines of jobs that have ended, or have never started, are kept in one file.

Of these no process writes anything but events, so a line holds for as long as the events file has the same size and time of
change, and while nothing is asked of a job that waits. The file is recreated where it is missing, damaged or of another version.
"""

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import recovery
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.job_rows import FIELDS, decoded, encoded, is_over, row_of

if TYPE_CHECKING:
    from taco_launch.agent.upkeep.job_output import JobOutput
    from taco_launch.core.model.jobs import JobRecord

_NAME = ".index.json"

# As core/model/job_rows.py encodes it.
Row = List[Any]
# Of each job that has ended or never started: size and time of change (ns) of its events file, its line.
_Kept = Dict[str, Tuple[int, int, Row]]


class IndexedJobs(NamedTuple):
    """The lines of all jobs, by name, and what could not be read."""

    rows: List[Row]
    warnings: List[str]


def current_rows(jobs: Jobs) -> IndexedJobs:
    """Return a line of every job, true at this moment."""
    before = _read(jobs)
    after: _Kept = {}
    found = IndexedJobs([], [])
    guests: List[str] = []
    for name in _names(jobs):
        stamp = _stamp(f"{jobs.path}/{name}/events.jsonl")
        kept = before.get(name)
        if (
            kept is not None
            and stamp == (kept[0], kept[1])
            and (is_over(kept[2]) or not recovery.is_asked(JobFolder(jobs.path / name)))
        ):
            after[name] = kept
            found.rows.append(kept[2])
            continue
        folder = JobFolder(jobs.path / name)
        try:
            if folder.is_guest:
                guests.append(name)
                continue
            record = recovery.current_record(folder)
            spec = records.read_spec(folder)
            now = time.time()
            last, progress, goodput = _output(folder, record, spec.policy.progress, now)
            with records.intact(folder, folder.spec):  # a job that cannot be shown must not hide the others
                command = shell(spec.command)
                row = row_of(spec, record, command=command, last_line=last, progress=progress, now=now, goodput=goodput)
                line = encoded(row)
                decoded(line)
        except TacoLaunchError as error:
            if folder.path.is_dir():  # not removed meanwhile
                found.warnings.append("; ".join(filter(None, (error.message, error.hint))))
            continue
        found.rows.append(line)
        never_ran = row.state.waits and record.started is None and not recovery.is_asked(folder)
        if (row.state.is_terminal or never_ran) and stamp is not None:
            after[name] = (*stamp, line)
    if guests and not found.rows:
        found.warnings.append(
            f"this host is the head of no job, but ranks of {len(guests)} job{'s' * (len(guests) > 1)} of another head ran here, "
            f"such as {guests[0]}: is `head` in the inventory right?"
        )
    if after != before:
        _write(jobs, after)
    return found


def _output(folder: JobFolder, record: "JobRecord", pattern: str, now: float) -> "JobOutput":
    from taco_launch.agent.upkeep import job_output  # noqa: PLC0415 - who submits a job needs none of it

    return job_output.read(folder, record, pattern, now) if record.started else job_output.JobOutput()


def _names(jobs: Jobs) -> List[str]:
    try:
        return sorted(name for name in os.listdir(jobs.path) if not name.startswith("."))
    except FileNotFoundError:
        return []


def _stamp(events: str) -> Optional[Tuple[int, int]]:
    try:
        told = os.stat(events)  # noqa: PTH116 - as fast as it can be, for tens of thousands
    except OSError:
        return None
    return told.st_size, told.st_mtime_ns


def _read(jobs: Jobs) -> _Kept:
    try:
        told = records.read_json(jobs.path / _NAME)
        if told is None or told["fields"] != list(FIELDS):
            return {}
        return {
            name: (size, mtime, row) for name, (size, mtime, row) in told["jobs"].items() if len(row) == len(FIELDS)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(jobs: Jobs, kept: _Kept) -> None:
    path = jobs.path / _NAME
    with contextlib.suppress(OSError):  # without it the next look only takes longer
        if kept:
            records.write_json(path, {"fields": FIELDS, "jobs": kept})
        else:
            path.unlink()
