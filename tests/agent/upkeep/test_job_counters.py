"""Counts of jobs never fall: what was removed continues being counted, once, whatever goes wrong on the way."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.agent.upkeep import job_counters
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import from_json
from taco_launch.core.model.job_counts import JobCounts
from taco_launch.core.model.job_rows import decoded
from tests.support.agent_calls import PLACED, SUCCEEDED, call, submitted
from tests.support.raisers import raiser

FAILED = (state.ENDED, {"state": "FAILED", "exit_code": 3})
CANCELLED = (state.ENDED, {"state": "CANCELLED", "exit_code": 143})


def told() -> tuple[int, int, int, int, int]:
    """Return how many jobs there ever were, were successful, failed, were cancelled, and have started."""
    (frame,) = [frame for frame in call("metrics").frames if "rows" in frame]
    tally = from_json(JobCounts, frame["removed"])
    for row in map(decoded, frame["rows"]):
        if row.id != frame["last"]:
            tally = tally.with_job(row)
    begun = sum(sum(waits.counts) for waits in tally.waits)
    return tally.created, tally.successful, tally.failed, tally.cancelled, begun


def some(jobs: Jobs) -> list[str]:
    submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)
    submitted(jobs, "b", (state.PLACED, PLACED), FAILED)
    submitted(jobs, "c", CANCELLED)
    submitted(jobs, "d", (state.ENDED, {"state": "LOST", "exit_code": 1}))
    return ["a", "b", "c", "d"]


ALL = (4, 1, 2, 1, 2)


def test_delete(jobs: Jobs) -> None:
    assert told() == (0, 0, 0, 0, 0)
    for name in some(jobs):
        assert told() == ALL
        call("delete", names=[name])
    assert told() == ALL
    submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)  # the name may be used again
    assert told() == (5, 2, 2, 1, 3)


def test_prune(jobs: Jobs) -> None:
    some(jobs)
    assert len(call("prune", since=-1, owner=None, dry_run=False).frames[-1]["rows"]) == 4
    assert list(jobs.all()) == []
    assert told() == ALL


def test_a_removal_that_is_cut_off_counts_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    some(jobs)
    monkeypatch.setattr(jobs, "remove", raiser(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        job_counters.removed(jobs, jobs.get("a"))
    assert jobs.get("a").path.exists()
    assert told() == ALL
    monkeypatch.undo()
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(jobs.path.parent))
    call("delete", names=["a"])
    assert told() == ALL
    call("delete", names=["b"])
    assert told() == ALL


def test_a_full_disk_keeps_nobody_from_removing(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is removed, which makes room; then it is counted."""
    some(jobs)
    written: list[Any] = []
    write = records.write_json

    def full(path: Path, value: Any) -> None:
        if jobs.folder("a").path.exists():
            raise OSError(28, os.strerror(28))
        written.append(value)
        write(path, value)

    monkeypatch.setattr(records, "write_json", full)
    job_counters.removed(jobs, jobs.get("a"))
    assert not (jobs.path / "a").exists()
    assert len(written) == 1
    assert told() == ALL


def test_a_record_that_nobody_can_read(jobs: Jobs) -> None:
    some(jobs)
    (jobs.path / "a" / "spec.json").write_text("{")
    assert told() == (3, 0, 2, 1, 1)
    job_counters.removed(jobs, jobs.get("a"))
    assert told() == (3, 0, 2, 1, 1)


REFUSED = (state.ENDED, {"state": "FAILED", "exit_code": 4})
WAITED = (state.WAITING, {"hosts": [["me", "0 of 2 free"]]})


def test_a_job_that_is_refused_at_once_never_counts(jobs: Jobs) -> None:
    """Not while it is looked at either, or the numbers would fall; one that has waited counts, however it ends."""
    submitted(jobs, "new")
    assert told() == (0, 0, 0, 0, 0)
    submitted(jobs, "refused", REFUSED)
    submitted(jobs, "unusable", (state.ENDED, {"state": "FAILED", "exit_code": 5}))
    assert told() == (0, 0, 0, 0, 0)
    job_counters.removed(jobs, jobs.get("refused"))
    assert told() == (0, 0, 0, 0, 0)
    submitted(jobs, "waits", WAITED)
    submitted(jobs, "late", WAITED, REFUSED)
    submitted(jobs, "suspended", (state.SUSPENDED, {}), (state.RESUMED, {}))
    submitted(jobs, "own", (state.PLACED, PLACED), REFUSED)
    submitted(jobs, "dead", (state.ENDED, {"state": "FAILED", "exit_code": 125}))
    assert told() == (5, 0, 3, 0, 1)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tally": 1, "last": ""}', '{"tally": {"created": "x"}, "last": ""}'])
def test_a_file_that_is_damaged(jobs: Jobs, text: str) -> None:
    some(jobs)
    (jobs.path / ".counts.json").write_text(text)
    assert told() == ALL
    call("delete", names=["a"])
    assert told() == ALL


def test_two_who_remove_and_one_who_looks(jobs: Jobs) -> None:
    """Processes that remove jobs side by side, while somebody counts: it is the same number all the time."""
    for number in range(40):
        submitted(jobs, f"j{number}", (state.PLACED, PLACED), SUCCEEDED)
    script = (
        "import sys\nfrom pathlib import Path\nfrom taco_launch.agent.upkeep import job_counters\n"
        "from taco_launch.agent.store.folders import Jobs\njobs = Jobs(Path(sys.argv[1]))\n"
        "for name in sys.argv[2:]: job_counters.removed(jobs, jobs.get(name))"
    )
    halves = [[f"j{number}" for number in range(half, 40, 2)] for half in (0, 1)]
    removing = [subprocess.Popen([sys.executable, "-c", script, str(jobs.path.parent), *names]) for names in halves]
    seen = set()
    while any(process.poll() is None for process in removing):
        seen.add(told()[:2])
    assert [process.returncode for process in removing] == [0, 0]
    assert seen | {told()[:2]} == {(40, 40)}
    assert list(jobs.all()) == []
