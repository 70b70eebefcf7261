"""The scheduler, step by step, on folders made by hand, with agents and hosts that do as they are told."""

import os
import time
from typing import Any

import pytest

from taco_launch.agent.host import occupancy
from taco_launch.agent.scheduler import scheduler
from taco_launch.agent.scheduler.pending import PendingJobs
from taco_launch.agent.scheduler.slot_watch import HERE, SlotQuery
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobState
from tests.conftest import eventually
from tests.support.agent_calls import locked
from tests.support.queues import Queue

PLACED = {"kind": "placed", "data": {"np": 1, "hosts": ["me"], "line": "mpirun"}}
REFUSED = {"kind": "waiting", "data": {"hosts": [["me", "0 of 2 free"]]}}
ENDED = {"kind": "ended", "data": {"state": "SUCCEEDED", "exit_code": 0}}


def test_nothing_is_pending(queue: Queue) -> None:
    assert queue.step() is None


def test_the_first_begins_and_its_supervisor_has_the_lock(queue: Queue) -> None:
    folder = queue.job("a", says=PLACED)
    (folder.path / "hold").touch()
    queue.job("b", says=PLACED)
    assert queue.step() is not None
    eventually(lambda: queue.runs("a"))
    assert records.try_lock(folder) is None
    queue.step(1)
    assert (queue.runs("a"), queue.runs("b")) == (1, 0)  # b waits for what comes of a
    (folder.path / "hold").unlink()
    queue.until(lambda: queue.runs("b"))
    queue.until(lambda: queue.step() is None)
    assert queue.runs("a") == 1


def test_who_waits_is_told_why(queue: Queue) -> None:
    queue.job("a", np=2, says=REFUSED)
    queue.job("b", np=2)
    queue.hosts.tell("holder", "")
    queue.step()  # which has it watch the host
    queue.until(lambda: queue.record("b").waiting, 1)
    assert queue.runs("a") <= 1
    clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(0))
    words = f"1 of 2 free, 1 held by job holder of bob (another queue) since {clock}"
    assert queue.record("b").waiting == (("", "number 2 in the queue, behind a"), ("me", words))
    queue.hosts.tell("holder", "other")
    queue.until(lambda: "other" in dict(queue.record("b").waiting)["me"], 2)
    count = len(records.read_events(queue.jobs.get("b")))
    queue.step(5)
    queue.step(5)
    assert len(records.read_events(queue.jobs.get("b"))) == count  # nothing new to say


def test_who_waits_is_told_when_it_starts_by_the_time_limits(queue: Queue) -> None:
    holder = queue.job("holder", timeout=3600)
    lock = locked(holder)
    queue.now = time.time()
    records.Events(holder).add(state.PLACED, "why", np=2, hosts=["me"], line="mpirun", attempt=1)
    records.Events(holder).add(state.RUNNING, "runs")
    started = queue.record("holder").started
    assert started is not None
    queue.job("a", np=2, says=REFUSED, timeout=600)
    queue.job("b", np=2)
    queue.hosts.tell("holder", "holder")
    words = "expected to start by {}, by the time limits of the jobs before it"
    first, second = (words.format(occupancy.clock(started + 3600 + 40 + later)) for later in (0, 640))
    queue.until(lambda: ("", first) in queue.record("a").waiting and ("", second) in queue.record("b").waiting, 1)
    assert queue.record("b").waiting[0] == ("", "number 2 in the queue, behind a")
    os.close(lock)


def test_who_waits_for_a_limited_time_is_told_when_it_gives_up(queue: Queue) -> None:
    holder = queue.job("holder", timeout=3600)
    lock = locked(holder)
    queue.now = time.time()
    records.Events(holder).add(state.PLACED, "why", np=2, hosts=["me"], line="mpirun", attempt=1)
    records.Events(holder).add(state.RUNNING, "runs")
    queue.job("a", np=2, says=REFUSED, queue_timeout=40)
    queue.hosts.tell("holder", "holder")
    submitted = queue.record("a").submitted
    assert submitted is not None
    due = occupancy.clock(submitted + 40, "%H:%M:%S")

    def concerning_no_host() -> list[
        str
    ]:  # its agent's own words, which may be read before the scheduler's, are of hosts
        return [why for host, why in queue.record("a").waiting if not host]

    queue.until(lambda: concerning_no_host() == [f"gives up waiting at {due} (--queue-timeout)"], 0.1)
    queue.until(lambda: queue.record("a").state.is_terminal, 5)
    assert "gives up" not in queue.record("a").reason
    os.close(lock)


def test_who_waits_for_long_is_told_of_changes_less_often(queue: Queue) -> None:
    folder = queue.job("a", np=2, says=REFUSED)
    queue.hosts.tell("x", "x")
    queue.refused("a")
    queue.now += 3600
    before = len(records.read_events(folder))
    for turn in range(72):
        queue.hosts.tell("x", f"y{turn}")
        queue.step(1)
    assert before + 2 <= len(records.read_events(folder)) <= before + 4


def test_a_job_begins_when_its_slots_are_free(queue: Queue) -> None:
    queue.job("a", np=2, says=REFUSED)
    queue.hosts.tell("holder", "")
    queue.until(lambda: queue.record("a").waiting)
    runs = queue.runs("a")
    for _turn in range(3):
        queue.step(10)
    assert queue.runs("a") == runs
    queue.hosts.tell("", "")
    queue.until(lambda: queue.runs("a") == runs + 1, 2)


def test_a_job_that_found_no_place_where_there_seemed_to_be_one_rests(queue: Queue) -> None:
    queue.job("a", np=2, says=REFUSED)
    queue.hosts.tell("", "")
    queue.until(lambda: queue.runs("a") >= 2 and queue.record("a").waiting, 0.1)
    begin, runs = queue.now, queue.runs("a")
    queue.until(lambda: queue.runs("a") == runs + 2, 0.5)
    assert queue.now - begin > 3  # longer each time
    queue.until(lambda: queue.runs("a") >= runs + 4, 0.5)  # and rests for 16 s now
    holder = queue.job("b", ttl=86400)
    lock = locked(holder)
    records.Events(holder).add(state.PLACED, "why", np=1, hosts=["me"], line="mpirun")
    queue.step(1)
    runs = queue.runs("a")
    records.ended(records.Events(holder), JobState.SUCCEEDED, 0, "why")
    queue.until(lambda: queue.runs("a") == runs + 1)
    os.close(lock)


def test_a_supervisor_that_ends_without_a_word_is_started_again_but_not_for_ever(queue: Queue) -> None:
    queue.job("a")
    queue.until(lambda: queue.record("a").state.is_terminal, 1)
    record = queue.record("a")
    assert (record.state, record.exit_code, queue.runs("a")) == (JobState.LOST, 125, 3)
    assert record.reason.startswith("its supervisor ended 3 times without giving a reason: KeyError: what; see ")
    queue.until(lambda: queue.step() is None)
    assert queue.jobs.pending() == []


def test_a_job_whose_time_is_over(queue: Queue) -> None:
    folder = queue.job("late", np=2, says=REFUSED, queue_timeout=30)
    queue.hosts.tell("holder", "holder")
    queue.refused("late")
    queue.step(31)
    record = queue.record("late")
    assert (record.state, record.exit_code) == (JobState.FAILED, 4)
    assert record.reason.startswith("got no slots within its --queue-timeout of 30 s\n  me: 0 of 2 free, 2 held by job")
    assert not folder.caller.exists()


def test_a_job_that_may_not_wait_is_ended_once_it_is_sure_that_it_has_to(queue: Queue) -> None:
    queue.job("a", np=2, says=REFUSED)
    queue.refused("a")
    queue.job("hasty", queue_timeout=0)
    queue.step(1)
    assert queue.record("hasty").state is JobState.QUEUED  # nobody knows yet
    queue.hosts.tell("x", "x")
    queue.step(1)
    assert queue.record("hasty").exit_code == 4
    assert queue.runs("hasty") == 0


def test_those_before_a_job_are_told_in_the_order_of_the_queue(queue: Queue) -> None:
    for name in "abc":
        queue.job(name, np=2, says=REFUSED)
    queue.hosts.tell("holder", "")
    queue.step()
    queue.until(lambda: ("", "number 3 in the queue, behind a, b") in queue.record("c").waiting, 1)
    assert queue.record("c").waiting[0] == ("", "number 3 in the queue, behind a, b")


def test_who_is_resumed_waits_behind_those_that_came_meanwhile(queue: Queue) -> None:
    folder = queue.job("a", np=2, says=REFUSED)
    records.Events(folder).add(state.SUSPENDED, "by me")
    queue.job("b", np=2, says=REFUSED)
    queue.hosts.tell("x", "x")
    records.Events(folder).add(state.RESUMED, "resumed by me")
    queue.until(lambda: ("", "number 2 in the queue, behind b") in queue.record("a").waiting, 0.1)
    assert "" not in dict(queue.record("b").waiting)


def test_the_next_attempt_comes_after_its_delay(queue: Queue) -> None:
    queue.job("a", says=ENDED)
    records.Events(queue.jobs.get("a")).add(state.RESTARTING, "it failed", delay=40)
    queue.step()
    queue.step(35)
    lock = locked(queue.jobs.get("a"))  # nobody was started, who would have it
    os.close(lock)
    queue.until(lambda: queue.runs("a") == 1, 1)


def test_a_suspended_job_keeps_nobody_and_needs_nobody(queue: Queue) -> None:
    queue.job("a", np=2)
    records.Events(queue.jobs.get("a")).add(state.SUSPENDED, "by me")
    assert queue.step() is None
    queue.job("b", np=2, says=ENDED)
    queue.until(lambda: queue.record("b").state is JobState.SUCCEEDED)
    assert queue.runs("a") == 0


def test_what_has_ended_is_no_longer_looked_at_and_others_slots_are(queue: Queue) -> None:
    queue.job("a", says=ENDED)
    queue.until(lambda: queue.record("a").state is JobState.SUCCEEDED)
    nudged = queue.hosts.nudged
    queue.until(lambda: queue.step() is None)
    assert queue.jobs.pending() == []
    assert queue.hosts.nudged > nudged


@pytest.mark.parametrize("says", [ENDED, {"kind": "restarting", "data": {"delay": 600}}], ids=["ends", "waits again"])
def test_slots_that_are_let_go_are_looked_for_at_once(queue: Queue, says: dict[str, Any]) -> None:
    folder = queue.job("a", ttl=86400)
    records.Events(folder).add(state.PLACED, "why", np=1, hosts=["me"], line="mpirun")
    lock = locked(folder)
    queue.step()
    nudged = queue.hosts.nudged
    queue.step()
    assert queue.hosts.nudged == nudged
    records.Events(folder).add(says["kind"], "why", **says["data"])
    queue.step()
    assert queue.hosts.nudged == nudged + 1
    os.close(lock)


def test_a_job_that_has_changed_since_it_was_read_is_not_written_to(queue: Queue) -> None:
    folder = queue.job("a")
    shelf = PendingJobs(queue.jobs)
    shelf.scan(queue.now)
    (entry,) = shelf.entries.values()
    lock = shelf.lock(entry)
    assert lock is not None
    assert shelf.lock(entry) is None  # somebody has it
    os.close(lock)
    records.Events(folder).add(state.ENDED, state="CANCELLED", exit_code=143)
    assert shelf.lock(entry) is None
    shelf.scan(queue.now)
    assert entry.state is JobState.CANCELLED


def test_a_stop_without_a_message_is_done_in_time(queue: Queue) -> None:
    """Who asks for it may be killed before it wakes the scheduler, which others wake meanwhile."""
    queue.job("a", np=2, says=REFUSED)
    queue.hosts.tell("x", "x")
    queue.refused("a")
    queue.step()
    pauses = [queue.step(0.5, set())]
    records.write_json(queue.jobs.get("a").stop, {"by": "me", "signal": 15, "grace": None})
    pauses += [queue.step(0.5, set()) for _turn in range(2)]
    assert queue.record("a").state is JobState.QUEUED
    assert pauses == [pytest.approx(seconds) for seconds in (1.5, 1.0, 0.5)]
    queue.step(0.5, set())
    assert queue.record("a").state is JobState.CANCELLED


def test_all_that_a_supervisor_writes_is_seen_though_nobody_tells(queue: Queue) -> None:
    folder = queue.job("a", says=PLACED)
    (folder.path / "hold").touch()
    queue.step()
    (folder.path / "hold").unlink()
    entry = queue.scheduler._pending.entries["a"]
    eventually(lambda: (queue.step(0.0, set()), entry.state is JobState.STARTING)[1])


def test_a_record_goes_after_its_time(queue: Queue) -> None:
    folder = queue.job("a", says=ENDED, ttl=60)
    queue.until(lambda: queue.record("a").state is JobState.SUCCEEDED)
    assert queue.step(30) is not None  # somebody has to be there
    assert folder.path.exists()
    queue.now += 60
    queue.until(lambda: not folder.path.exists())
    queue.until(lambda: queue.step() is None)


def test_a_record_that_stays_for_long_needs_nobody_until_then(queue: Queue) -> None:
    queue.job("a", says=ENDED, ttl=86400)
    queue.until(lambda: queue.record("a").state is JobState.SUCCEEDED)
    queue.until(lambda: queue.step() is None)
    assert queue.jobs.pending() == ["a"]


def test_a_job_that_runs_and_has_lost_its_supervisor_is_found(queue: Queue) -> None:
    folder = queue.job("a")
    records.Events(folder).add(state.PLACED, "why", np=1, hosts=["me"], line="mpirun")
    queue.until(lambda: queue.record("a").state is JobState.LOST, 5)


def test_marks_of_jobs_that_are_gone_go(queue: Queue) -> None:
    queue.jobs.mark("gone")
    assert queue.step() is None
    assert queue.jobs.pending() == ["gone"]
    queue.step(100)
    assert queue.jobs.pending() == []


def test_a_job_that_cannot_be_read_stops_nobody(queue: Queue) -> None:
    queue.job("a").spec.write_text("{", encoding="ascii")
    records.write_json(queue.job("c").stop, {"by": "me"})  # and no signal
    queue.job("b", says=ENDED)
    queue.until(lambda: queue.record("b").state is JobState.SUCCEEDED)
    queue.jobs.remove(queue.jobs.folder("c"))
    queue.until(lambda: queue.step() is None)


def test_a_waiting_job_is_stopped_and_its_hosts_are_no_longer_watched(queue: Queue) -> None:
    queue.job("a", says=REFUSED)
    queue.until(lambda: queue.record("a").waiting and queue.hosts.wanted == {SlotQuery(HERE, "2", "auto")})
    records.write_json(queue.jobs.get("a").stop, {"by": "me", "signal": 15, "grace": None})
    queue.until(lambda: queue.record("a").state is JobState.CANCELLED)
    assert queue.step() is None
    assert queue.hosts.wanted == set()


def test_a_first_job_is_tried_now_and_then_though_a_host_does_not_answer(queue: Queue) -> None:
    queue.job("a", says=REFUSED)
    queue.hosts.silent = {HERE: "ssh: no route"}
    queue.until(lambda: queue.runs("a") == 1 and queue.record("a").waiting)
    for _turn in range(5):
        queue.step(10)
    runs = queue.runs("a")
    queue.until(lambda: queue.runs("a") > runs, 10)


# --- without a scheduler


def test_who_has_nobody_before_begins_without_any_scheduler(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(_jobs: Jobs, _agent: str, lock: int) -> None:
        started.append("s")
        os.close(lock)

    monkeypatch.setattr("taco_launch.agent.upkeep.scheduler_wakeup.start", start)
    (queue.job("a", says=PLACED).path / "hold").touch()
    scheduler.admit(queue.jobs, str(queue.agent), "a")
    eventually(lambda: queue.runs("a"))
    assert started == []
    queue.job("b")
    scheduler.admit(queue.jobs, str(queue.agent), "b")
    assert started == ["s"]  # b waits for what comes of a
    assert queue.runs("b") == 0


@pytest.mark.parametrize("file", ["lock", "debug.log"])
def test_a_job_whose_files_are_damaged_holds_up_no_other(queue: Queue, file: str) -> None:
    folder = queue.job("a", says=PLACED)
    queue.job("b", says=PLACED)
    (folder.path / file).unlink(missing_ok=True)
    (folder.path / file).mkdir()
    queue.step()
    queue.until(lambda: queue.runs("b"), 1)
    assert queue.runs("a") == 0
