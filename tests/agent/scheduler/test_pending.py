"""What the scheduler takes of a job's spec for the queue."""

import os
from pathlib import Path

from taco_launch.agent.scheduler.pending import SCAN_SECONDS, PendingJobs
from taco_launch.agent.scheduler.slot_watch import HERE
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.jobs import JobSpec, JobState
from tests.support.queues import Queue


def test_what_a_job_may_have_of_its_hosts_and_where_these_are(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "state")
    here = Host("me", "127.0.0.1", connection="local", constraints=GpuConstraints(only=(1,), without=(0,)))
    far = Host("gpu2", "10.0.0.2", slots=2, labels=(("leaf", "a"),), constraints=GpuConstraints(without=(1,)))
    with jobs.create("a") as draft:
        records.write_spec(draft, JobSpec("a", ("true",), (here, far), np=1, exclusive=True))
        records.Events(draft).add(state.SUBMITTED, "why", id="id-a")
        jobs.mark("a")
        jobs.publish(draft, "a")
    shelf = PendingJobs(jobs)
    shelf.scan(0.0)
    found = shelf.entries["a"].waiting({}, again=False)
    assert (found.constraints, found.leaves, found.wanted.exclusive) == (
        ((HERE, here.constraints), ("gpu2", far.constraints)),
        (("gpu2", "a"),),
        True,
    )


def test_a_change_without_a_message_is_seen_in_time(queue: Queue) -> None:
    for name in "abc":
        queue.job(name)
    shelf = PendingJobs(queue.jobs)
    shelf.scan(queue.now)

    def states(seconds: float, *told: str) -> str:
        shelf.scan(queue.now + seconds, set(told))
        return "".join(name for name, entry in shelf.entries.items() if entry.is_waiting)

    for name in "ab":
        records.ended(records.Events(queue.jobs.get(name)), JobState.CANCELLED, 143, "by me")
    assert states(0.1, "a") == "bc"
    assert states(1.9) == "bc"
    assert states(SCAN_SECONDS) == "c"


def test_new_jobs_and_those_that_are_gone_are_told_of(queue: Queue) -> None:
    shelf = PendingJobs(queue.jobs)
    shelf.scan(queue.now)
    queue.job("a")
    shelf.scan(queue.now, {"a", "nosuch"})
    assert list(shelf.entries) == ["a"]
    queue.jobs.remove(queue.jobs.get("a"))
    shelf.scan(queue.now, {"a"})
    assert list(shelf.entries) == []


def test_a_clock_that_was_set_back_has_all_jobs_looked_at(queue: Queue) -> None:
    shelf = PendingJobs(queue.jobs)
    shelf.scan(queue.now)
    queue.job("a")
    shelf.scan(queue.now - 3600, set())
    assert list(shelf.entries) == ["a"]


def test_what_was_written_under_its_lock_or_against_it_is_read_at_the_next_look(queue: Queue) -> None:
    folders = [queue.job(name) for name in "ab"]
    shelf = PendingJobs(queue.jobs)
    shelf.scan(queue.now)
    records.ended(records.Events(folders[1]), JobState.CANCELLED, 143, "by me")
    locks = [shelf.lock(shelf.entries[name]) for name in "ab"]
    assert locks[0] is not None
    assert locks[1] is None  # it was changed before
    records.ended(records.Events(folders[0]), JobState.CANCELLED, 143, "by me")
    os.close(locks[0])
    shelf.scan(queue.now, set())
    assert [entry.state for entry in shelf.entries.values()] == [JobState.CANCELLED] * 2


def test_the_next_job_of_a_name_is_read_as_it_is(queue: Queue) -> None:
    queue.job("a")
    shelf = PendingJobs(queue.jobs)
    shelf.scan(queue.now)
    queue.jobs.remove(queue.jobs.get("a"))
    records.Events(queue.job("a", np=2, job_id="other")).add(state.WAITING, "why", hosts=())
    shelf.scan(queue.now)
    assert shelf.entries["a"].waiting({}, again=False).wanted.np == 2
