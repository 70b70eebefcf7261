"""The text of `get`: why a job waits, what came before, when it is tried again."""

import re
import time
from dataclasses import replace

from taco_launch.cli.output import job_tables
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.job_rows import row_of
from taco_launch.core.model.jobs import Event, Finding, HostRanks, JobState, Policy, RankEnd, Restart, Transition
from taco_launch.core.model.stalls import RankLook, Stall, shown_time
from tests.support.job_rows import GPUS, NOW, ROWS, job, text


def test_get_of_a_running_job() -> None:
    found = job("dist", 3, JobState.RUNNING, 60, shares=GPUS, started=NOW - 57, reason="every rank has started")
    assert (
        text(job_tables.one_job(found, NOW, wide=False))
        == f"""\
STATUS: RUNNING
REASON: every rank has started
HOSTS: gpu1 (rank 0), gpu2 (ranks 1-2)
DURATION: 57s

COMMAND: python3 train.py
LAUNCHER: mpirun
RANKS: 3
STARTED: {time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(NOW - 57))}"""
    )


def test_get_says_why_a_job_waits() -> None:
    waiting = (
        ("gpu1", "0 of 2 free, 2 held by job a since 14:02"),
        ("gpu3", "does not answer"),
        ("", "job b is first"),
    )
    found = job("next", 1, JobState.QUEUED, 5, waiting=waiting, reason="waiting for its slots")
    found = replace(found, spec=replace(found.spec, policy=Policy(priority=7)))
    assert (
        text(job_tables.one_job(found, NOW, wide=False))
        == """\
STATUS: QUEUED
REASON: waiting for its slots

COMMAND: python3 train.py
LAUNCHER: mpirun
RANKS: 1
PRIORITY: 7

WAITING:
  gpu1: 0 of 2 free, 2 held by job a since 14:02
  gpu3: does not answer
  job b is first"""
    )


def test_get_says_when_it_is_tried_again() -> None:
    found = job("again", 1, JobState.RESTARTING, 60, not_before=NOW + 20, reason="rank 0 on gpu1 exited with code 1")
    policy = Policy(restart=Restart.ON_FAILURE, backoff_limit=3)
    states = (JobState.QUEUED, JobState.STARTING, JobState.RESTARTING)
    changes = tuple(map(Transition, (NOW - 60, NOW - 50, NOW - 10), states, ("", "", "rank 0 on gpu1 failed")))
    record = replace(found.record, attempt=1, transitions=changes, shares=GPUS, hosts=("gpu1", "gpu2"))
    found = replace(found, spec=replace(found.spec, policy=policy), record=record)
    at = time.strftime("%H:%M:%S", time.localtime(NOW + 20))
    shown = text(job_tables.one_job(found, NOW, wide=False))
    assert "\nREASON: rank 0 on gpu1 exited with code 1\nATTEMPT: 1 of 4 failed\nDURATION: 40s\n" in shown
    assert "HOSTS" not in shown  # those of the attempt before
    assert shown.endswith(f"\n\nWAITING:\n  attempt 2 starts in 20s, at {at}")
    assert "gpu2" not in text(job_tables.one_job(found, NOW, wide=True))
    for late in (20, 21):
        assert job_tables.one_job(found, NOW + late, wide=False).endswith("WAITING:\n  attempt 2 starts now")
    queued = replace(found, record=replace(record, state=JobState.QUEUED, waiting=(("gpu1", "full"),)))
    earlier = "EARLIER FAILURE: attempt 1: rank 0 on gpu1 failed\n"
    shown = text(job_tables.one_job(queued, NOW + 21, wide=False))
    assert f"\nATTEMPT: 1 of 4 failed\n{earlier}" in shown
    assert shown.endswith("\n\nWAITING:\n  gpu1: full")
    runs = replace(found, record=replace(record, state=JobState.RUNNING, attempt=2, not_before=None))
    assert f"\nATTEMPT: 2 of 4\n{earlier}HOSTS: " in text(job_tables.one_job(runs, NOW, wide=False))


SUSPENDED = (
    Transition(NOW - 60, JobState.QUEUED),
    Transition(NOW - 50, JobState.STARTING),
    Transition(NOW - 30, JobState.SUSPENDED, "suspended by ann"),
)


def test_get_of_a_job_that_was_suspended() -> None:
    """Its training lasts from its first start on, less what it was suspended; an attempt is counted where one may fail."""
    found = job("a", 1, JobState.SUSPENDED, 60, attempt=1, transitions=SUSPENDED, reason="suspended by ann")
    assert text(job_tables.one_job(found, NOW, wide=False)).endswith(
        "\n\nWAITING:\n  suspended by ann; taco-launch resume a starts it"
    )
    changes = (*SUSPENDED, Transition(NOW - 12, JobState.QUEUED), Transition(NOW - 5, JobState.STARTING))
    again = replace(found.record, state=JobState.RUNNING, attempt=2, started=NOW - 5, transitions=changes)
    over = replace(again, state=JobState.CANCELLED, ended=NOW - 1)
    for record, ran in ((found.record, 20), (again, 25), (over, 24)):
        shown = text(job_tables.one_job(replace(found, record=record), NOW, wide=False))
        assert f"DURATION: {ran}s" in shown
        assert row_of(found.spec, record).training(NOW) == ran
        assert ("\nENDED: " in shown) == (record is over)
    assert "ATTEMPT" not in shown
    policy = Policy(restart=Restart.ON_FAILURE, backoff_limit=2)
    counted = replace(found, spec=replace(found.spec, policy=policy))
    assert "\nATTEMPT: 1 of 4 suspended\n" in job_tables.one_job(counted, NOW, wide=False)


def test_a_job_that_waits_for_another_attempt_does_not_train() -> None:
    changes = (*SUSPENDED[:2], Transition(NOW - 30, JobState.RESTARTING, "host gpu2 lost"))
    found = job("a", 1, JobState.QUEUED, 60, attempt=1, transitions=(*changes, Transition(NOW - 20, JobState.QUEUED)))
    assert found.record.training(NOW) == 20
    runs = replace(found.record, transitions=(*found.record.transitions, Transition(NOW - 5, JobState.STARTING)))
    assert row_of(found.spec, runs).training(NOW) == 25


def test_get_tells_where_the_time_of_a_job_went() -> None:
    changes = (Transition(NOW - 7200, JobState.QUEUED), Transition(NOW - 3600, JobState.STARTING))
    found = job(
        "a", 1, JobState.RUNNING, 7200, attempt=1, transitions=(*changes, Transition(NOW - 3590, JobState.RUNNING))
    )
    told = "GOODPUT: ran 50 % of the 2h since its submission; queued 1h, starting 10s"
    assert told in job_tables.one_job(found, NOW, wide=False)
    prompt = replace(found.record, transitions=(replace(changes[0], time=NOW - 3610), *found.record.transitions[1:]))
    assert "GOODPUT" not in job_tables.one_job(replace(found, record=prompt), NOW, wide=False)
    assert "GOODPUT: ran 99 % of the 1h " in job_tables.one_job(replace(found, record=prompt), NOW, wide=True)
    waits = replace(found.record, state=JobState.QUEUED, transitions=changes[:1])
    assert "GOODPUT" not in job_tables.one_job(replace(found, record=waits), NOW, wide=True)


def test_get_of_a_job_that_nobody_has_looked_at() -> None:
    shown = text(job_tables.one_job(job("a", 3, JobState.QUEUED, 1), NOW, wide=True))
    assert "\nRANKS: 3\n" in shown
    assert shown.endswith("WAITING:\n  waiting for slots")


def test_wide_list_names_one_host_of_those_that_had_no_place() -> None:
    reason = (
        "got no slots within its --queue-timeout of 5 s; job b is before it\n  gpu1: full\n  gpu2: full\n  gpu3: gone"
    )
    late = replace(ROWS[2], exit_code=4, reason=reason)
    (line,) = job_tables.job_list((late,), NOW, wide=True).splitlines()[1:]
    assert line.endswith("5 s; job b is before it; gpu1: full; and 2 more hosts  python3 train.py")


def test_the_events_have_the_number_of_their_attempt() -> None:
    kinds = ("submitted", "placed", "running", "restarting", "waiting", "placed", "ended")
    events = tuple(Event(NOW, kind, data={"attempt": 2 if at == 5 else 1}) for at, kind in enumerate(kinds))
    found = replace(job("a", 1, JobState.RUNNING, 1), events=events)
    lines = text(job_tables.one_job(found, NOW, wide=True)).splitlines()[-7:]
    assert [line.split()[3:-1] for line in lines] == [[], ["1"], ["1"], ["1"], [], ["2"], ["2"]]


def test_get_explains_a_failure() -> None:
    finding = Finding("oom", "A GPU ran out of memory.", "use a smaller batch", "gpu1", 3)
    found = job("bad", 1, JobState.FAILED, 60, exit_code=1, reason="rank 0 failed", findings=(finding,), started=NOW)
    lines = text(job_tables.one_job(found, NOW, wide=False)).splitlines()
    assert lines[1:5] == [
        "REASON: rank 0 failed",
        "CAUSE: A GPU ran out of memory.",
        "NEXT: use a smaller batch",
        "EXIT CODE: 1",
    ]


def test_get_shows_both_exit_codes_of_a_job_that_never_ran() -> None:
    shown = text(job_tables.one_job(job("late", 1, JobState.FAILED, 60, exit_code=4), NOW, wide=False))
    assert "EXIT CODE: 4 (`run` and `wait` exit with 125)\n" in shown


def test_wide_get() -> None:
    changes = (Transition(NOW - 60, JobState.QUEUED, "waiting"), Transition(NOW - 50, JobState.RUNNING, "runs"))
    found = job("dist", 3, JobState.RUNNING, 60, shares=GPUS, transitions=changes, line="mpirun -np 3", attempt=1)
    found = replace(found, spec=replace(found.spec, policy=Policy(restart=Restart.EXIT_CODE, backoff_limit=1)))
    shown = text(job_tables.one_job(replace(found, events=(Event(NOW, "running", "a\nb"),)), NOW, wide=True))
    for line in (
        "OWNER: alice",
        "QUEUE: default",
        "SLOTS: gpu1: GPU-1; gpu2: GPU-2, GPU-3",
        "ATTEMPT: 1 of 2",
        "COMMAND: python3 train.py",
        "LINE: mpirun -np 3",
        "FOLDER: /state/jobs/dist",
        "CONDITION  STATUS  SINCE                      REASON         MESSAGE",
        f"Running    True    {shown_time(NOW - 50)}  MPIJobRunning  runs",
    ):
        assert line in shown.splitlines(), line
    assert shown.splitlines()[-1].endswith("  running  a; b")


def test_wide_get_shows_the_gpus_of_hosts_that_are_alike_once() -> None:
    mine = GpuChoice((4, 5, 6, 7), (4, 7, 6, 5), 25, 175, "why these")
    shares = (*(HostRanks(f"gpu{number}", 4, choice=mine) for number in (1, 2)), HostRanks("gpu3", 1))
    shown = text(job_tables.one_job(job("dist", 9, JobState.RUNNING, 60, shares=shares), NOW, wide=True))
    table = shown.partition("GPUS of gpu[1-2]:\n")[2].splitlines()
    assert table[1].split() == ["chosen", "4,5,6,7", "4-7-6-5", "25", "175", "why", "these"]
    assert shown.count("GPUS of") == 1


def test_get_shows_a_hang_and_the_first_rank_to_fail() -> None:
    looks = (
        RankLook(1, 31, "python3", "T", "in do_signal_stop", 700.0, "step\t7", "gpu2"),
        RankLook(0, silent=650.0, host="gpu1"),
    )
    failed = RankEnd(2, "gpu2", 3, "why", False, "gpu2:/state/rank-2.0.log", ("one", "\x1b[2J"))
    found = job(
        "a", 3, JobState.RUNNING, 900, shares=GPUS, stalled=Stall(NOW - 660, looks, seen=NOW - 60), first_failure=failed
    )
    blocks = text(job_tables.one_job(found, NOW, wide=False)).split("\n\n")
    first, *rows = blocks[-2].splitlines()
    assert first.startswith("STALLED: no rank has made progress for 11m, since 1970-01-12 ")
    does = "is stopped (T, in do_signal_stop)"
    # 700 s and 650 s when they were looked at, a minute before
    assert re.split("  +", rows[1].strip()) == ["1", "gpu2", "31", "python3", does, "12m", "step\\t7"]
    assert rows[2].split() == ["0", "gpu1", "has", "no", "process", "that", "can", "be", "seen", "11m"]
    assert blocks[-1] == "LAST LINES OF RANK 2 on gpu2 (gpu2:/state/rank-2.0.log):\n  one\n  \\x1b[2J"
