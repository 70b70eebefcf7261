"""The scheduler is woken or started where one is needed, by whom ever; there is never more than one."""

import os
import select
import subprocess
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs, make_private
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobSpec, Policy
from tests.agent.conftest import PYTHON, write_agent
from tests.conftest import eventually
from tests.support.agent_calls import HOSTS, locked
from tests.support.patience import HANG
from tests.support.threads import side_by_side

# `schedule LOCK`: notes its start, keeps the lock for as long as a file `hold` is there.
AGENT = """
import os, sys, time
here = os.path.dirname(sys.argv[0])
with open(here + "/started", "a") as started:
    started.write(" ".join(sys.argv[1:2]) + "\\n")
while os.path.exists(here + "/hold"):
    time.sleep(0.01)
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    return Jobs(tmp_path / "state")


@pytest.fixture
def scheduler(tmp_path: Path) -> Path:
    """An agent whose scheduler only tells that it was started."""
    write_agent(tmp_path / "agent.pyz", AGENT)
    return tmp_path / "agent.pyz"


def started(scheduler: Path) -> int:
    file = scheduler.with_name("started")
    return len(file.read_text().splitlines()) if file.exists() else 0


def job(jobs: Jobs, name: str, *events: tuple[str, dict[str, Any]], **policy: Any) -> JobFolder:
    with jobs.create(name) as draft:
        records.write_spec(draft, JobSpec(name=name, command=("true",), hosts=HOSTS, policy=Policy(**policy)))
        writer = records.Events(draft)
        for kind, data in ((state.SUBMITTED, {"id": name}), *events):
            writer.add(kind, **data)
        jobs.mark(name)
        return jobs.publish(draft, name)


PLACED = (state.PLACED, {"np": 1, "hosts": ["me"], "line": "mpirun"})
ENDED = (state.ENDED, {"state": "FAILED", "exit_code": 1})


@pytest.mark.parametrize(
    ("events", "policy", "needed"),
    [
        ((), {}, True),
        ((PLACED,), {}, False),
        ((PLACED, ENDED), {}, False),
        ((PLACED, ENDED), {"ttl": 60}, True),
        ((PLACED, ENDED), {"ttl": 86400}, False),
        ((PLACED, (state.RESTARTING, {"delay": 60})), {}, True),
        (((state.SUSPENDED, {}),), {}, False),
        (((state.SUSPENDED, {}), (state.RESUMED, {})), {}, True),
    ],
)
def test_which_jobs_need_a_scheduler(jobs: Jobs, events: Any, policy: dict[str, Any], needed: bool) -> None:
    assert scheduler_wakeup.needs_one(job(jobs, "a", *events, **policy)) is needed


def test_a_job_that_is_being_tried_needs_none(jobs: Jobs) -> None:
    folder = job(jobs, "a")
    lock = locked(folder)
    assert not scheduler_wakeup.needs_one(folder)
    os.close(lock)
    assert scheduler_wakeup.needs_one(folder)


def test_what_is_no_job_needs_none(jobs: Jobs) -> None:
    assert not scheduler_wakeup.needs_one(jobs.folder("gone"))
    job(jobs, "a").events.write_bytes(b"{")
    assert not scheduler_wakeup.needs_one(jobs.folder("a"))


def test_one_is_started_where_one_is_needed(jobs: Jobs, scheduler: Path) -> None:
    scheduler_wakeup.ensure(jobs, str(scheduler))
    job(jobs, "runs", PLACED)
    scheduler_wakeup.ensure(jobs, str(scheduler))
    assert started(scheduler) == 0
    job(jobs, "waits")
    scheduler.with_name("hold").touch()
    for _call in range(3):
        scheduler_wakeup.ensure(jobs, str(scheduler))
    eventually(lambda: started(scheduler) > 0)
    assert scheduler_wakeup.try_lock(jobs) is None  # it was handed over, and is nobody else's meanwhile
    assert started(scheduler) == 1
    scheduler.with_name("hold").unlink()

    def free() -> bool:
        lock = scheduler_wakeup.try_lock(jobs)
        if lock is not None:
            os.close(lock)
        return lock is not None

    eventually(free, 10)
    scheduler_wakeup.ensure(jobs, str(scheduler))
    eventually(lambda: started(scheduler) == 2)


def test_one_that_is_there_is_woken(jobs: Jobs, scheduler: Path) -> None:
    lock = scheduler_wakeup.try_lock(jobs)
    assert lock is not None
    scheduler_wakeup.wake(jobs, str(scheduler))  # nobody listens yet
    with scheduler_wakeup.listen(jobs) as server:
        assert not select.select([server], [], [], 0)[0]
        scheduler_wakeup.wake(jobs, str(scheduler))
        assert select.select([server], [], [], HANG)[0]
    os.close(lock)
    assert started(scheduler) == 0
    with scheduler_wakeup.listen(jobs):  # in the place of the one before
        scheduler_wakeup.notify(jobs)


def test_a_deep_folder(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / ("deep" * 40))
    lock = scheduler_wakeup.try_lock(jobs)
    assert lock is not None
    with scheduler_wakeup.listen(jobs) as server:
        scheduler_wakeup.notify(jobs)
        assert select.select([server], [], [], HANG)[0]
    os.close(lock)


@pytest.mark.parametrize(
    ("messages", "names"),
    [
        ([("a",), ("b", "c"), ("a",)], {"a", "b", "c"}),
        ([], set()),
        ([("a",), ()], None),
        ([("!",), ("a",)], None),  # as the version before wakes it
        ([("../a",)], None),
        ([tuple(f"job-{number}" for number in range(1000))], None),
        ([(f"job-{number}",) for number in range(10)], None),  # the eleventh may have been lost
    ],
)
def test_messages_name_the_jobs_to_look_at(jobs: Jobs, messages: list[tuple[str, ...]], names: set[str] | None) -> None:
    make_private(jobs.queue)
    with scheduler_wakeup.listen(jobs) as server:
        for message in messages:
            scheduler_wakeup.notify(jobs, *message)
        assert scheduler_wakeup.changed_jobs(server) == names
        assert scheduler_wakeup.changed_jobs(server) == set()


def test_of_many_who_wake_it_one_starts_it(jobs: Jobs, scheduler: Path) -> None:
    scheduler.with_name("hold").touch()
    side_by_side(scheduler_wakeup.wake, [(jobs, str(scheduler))] * 20)
    eventually(lambda: started(scheduler) > 0)
    scheduler.with_name("hold").unlink()
    assert started(scheduler) == 1


# --- the real one


def test_the_scheduler_ends_where_nothing_is_pending(jobs: Jobs, agent: Path) -> None:
    job(jobs, "a", PLACED, ENDED)
    job(jobs, "b", (state.SUSPENDED, {}))
    done = subprocess.run([*PYTHON, str(agent), "schedule"], capture_output=True, timeout=HANG, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert jobs.pending() == ["b"]


def test_a_second_scheduler_ends_at_once(jobs: Jobs, agent: Path) -> None:
    job(jobs, "a", (state.RESTARTING, {"delay": 600}))
    first = subprocess.Popen([*PYTHON, str(agent), "schedule"])
    try:
        eventually((jobs.queue / "sock").exists)
        assert subprocess.run([*PYTHON, str(agent), "schedule"], timeout=HANG, check=False).returncode == 0
        assert first.poll() is None
        records.Events(jobs.folder("a")).add(state.ENDED, state="CANCELLED", exit_code=143)
        scheduler_wakeup.notify(jobs)
        assert first.wait(HANG) == 0
    finally:
        first.kill()
        first.wait()


def test_a_job_that_comes_as_the_scheduler_goes_is_not_missed(jobs: Jobs, scheduler: Path) -> None:
    """Whoever comes between its last look and its end finds the lock taken: it looks again behind that."""
    lock = scheduler_wakeup.try_lock(jobs)
    assert lock is not None
    job(jobs, "a")
    scheduler_wakeup.wake(jobs, str(scheduler))
    assert started(scheduler) == 0
    # as the end of schedule.main does
    os.close(lock)
    scheduler_wakeup.ensure(jobs, str(scheduler))
    eventually(lambda: started(scheduler) == 1)
