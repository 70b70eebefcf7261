"""Counts of jobs that never fall: those that are there, and a small file that adds up those whose records were removed.

The file names the last job that was counted: when the removal of a record is cut off behind the count, neither the next
removal nor anybody who reads counts that job twice.
"""

import contextlib
import fcntl
from typing import Iterator, NamedTuple, Tuple

from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder, Jobs, make_private
from taco_launch.agent.upkeep import job_index
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.job_counts import JobCounts
from taco_launch.core.model.job_rows import row_of

_NAME = ".counts.json"
_LOCK = ".counts.lock"


class _Kept(NamedTuple):
    """What the removed jobs add up to, and the id of the last of them."""

    tally: JobCounts = JobCounts()
    last: str = ""


def removed(jobs: Jobs, folder: JobFolder) -> None:
    """Remove the record of a job of this head for good, counted.

    Raises:
        OSError: it cannot be removed.
    """
    with _locked(jobs, fcntl.LOCK_EX):
        before = _read(jobs)
        try:
            row = row_of(records.read_spec(folder), records.record(folder))
        except TacoLaunchError:  # nobody could read it, and nobody has counted it
            jobs.remove(folder)
            return
        after = before if row.id == before.last else _Kept(before.tally.with_job(row), row.id)
        written = _write(jobs, after)
        jobs.remove(folder)
        if not written:  # now there may be room on the disk
            _write(jobs, after)


def counted(jobs: Jobs) -> Tuple[job_index.IndexedJobs, JobCounts, str]:
    """Return the jobs that are kept, what the removed ones add up to, and the id of the last of these: all of one moment."""
    with _locked(jobs, fcntl.LOCK_SH):
        kept = _read(jobs)
        return job_index.current_rows(jobs), kept.tally, kept.last


@contextlib.contextmanager
def _locked(jobs: Jobs, how: int) -> Iterator[None]:
    make_private(jobs.path)
    with untrusted.locked(jobs.path / _LOCK, how):
        yield


def _read(jobs: Jobs) -> _Kept:
    try:
        told = records.read_json(jobs.path / _NAME)
        return _Kept() if told is None else from_json(_Kept, told)
    except ValueError:  # damaged: a count from nothing on is taken for a restart
        return _Kept()


def _write(jobs: Jobs, kept: _Kept) -> bool:
    try:
        records.write_json(jobs.path / _NAME, {"tally": to_json(kept.tally), "last": kept.last})
    except OSError:
        return False
    return True
