"""The tables of list, get and top: the very text, as Arena's guide has it."""

import re
import time
from dataclasses import replace
from typing import Any

import click
import pytest

from taco_launch.backend import Node
from taco_launch.cli.output import job_tables
from taco_launch.model.choices import GpuChoice
from taco_launch.model.host.hosts import Host
from taco_launch.model.job_view import JobView
from taco_launch.model.jobs import (
    Event,
    Finding,
    HostRanks,
    JobRecord,
    JobSpec,
    JobState,
    Policy,
    RankEnd,
    Restart,
    Transition,
)
from taco_launch.model.rows import JobRow, row_of
from taco_launch.model.slots import Occupancy, SlotHolder, SlotState
from taco_launch.model.stalls import RankLook, Stall

NOW = 1_000_000.0
HOSTS = tuple(Host(f"gpu{number}", f"192.168.0.3{number}", slots=2) for number in (1, 2, 3))
GPUS = (HostRanks("gpu1", 1, ("GPU-1",)), HostRanks("gpu2", 2, ("GPU-2", "GPU-3")))


def text(drawn: str) -> str:
    """Leave out the type of the header."""
    return click.unstyle(drawn)


def job(name: str, np: int, state: JobState, ago: float, **record: Any) -> JobView:
    spec = JobSpec(name, ("python3", "train.py"), HOSTS, np=np, head="gpu1", cluster="hcc", owner="alice")
    hosts = tuple(share.host for share in record.get("shares", ()))
    told = {"np": np if hosts else 0, "hosts": hosts, "submitted": NOW - ago, **record}
    return JobView(spec, JobRecord("id", state, **told), f"/state/jobs/{name}")


def row(name: str, np: int, state: JobState, ago: float, **record: Any) -> JobRow:
    found = job(name, np, state, ago, **record)
    return row_of(found.spec, found.record)


ROWS = (
    row("dist", 3, JobState.RUNNING, 29, shares=GPUS, transitions=(Transition(NOW - 20, JobState.STARTING),)),
    row("small", 1, JobState.SUCCEEDED, 46 * 60, shares=GPUS[:1], exit_code=0),
    row("night", 2, JobState.FAILED, 14 * 3600, shares=GPUS[1:], exit_code=3, reason="a\nb", hint="c"),
    row("next", 1, JobState.QUEUED, 3),
)


def test_list() -> None:
    assert (
        text(job_tables.job_list(ROWS, NOW, wide=False))
        == """\
NAME   STATUS     TRAINER  RANKS  AGE  DURATION  NODE
dist   RUNNING    MPIJOB       3  29s  20s       gpu[1-2]
next   QUEUED     MPIJOB       1  3s             N/A
small  SUCCEEDED  MPIJOB       1  46m            gpu1
night  FAILED     MPIJOB       2  14h            gpu2"""
    )


def test_wide_list() -> None:
    rows = (ROWS[2], replace(ROWS[3], priority=-5, queue="night"))
    assert (
        text(job_tables.job_list(rows, NOW, wide=True))
        == """\
NAME   STATUS  TRAINER  RANKS  AGE  DURATION  NODE  EXIT  QUEUE    PRIORITY  OWNER  REASON
next   QUEUED  MPIJOB       1  3s             N/A         night          -5  alice
night  FAILED  MPIJOB       2  14h            gpu2     3  default         0  alice  a; b"""
    )


def test_nothing_to_list() -> None:
    assert text(job_tables.job_list((), NOW, wide=False)) == "NAME  STATUS  TRAINER  RANKS  AGE  DURATION  NODE"


def test_a_wide_character_takes_two_columns() -> None:
    rows = (replace(ROWS[0], name="数据"), replace(ROWS[0], name="abcde"))
    lines = text(job_tables.job_list(rows, NOW, wide=False)).splitlines()
    assert lines[1:] == [
        "数据   RUNNING  MPIJOB       3  29s  20s       gpu[1-2]",
        "abcde  RUNNING  MPIJOB       3  29s  20s       gpu[1-2]",
    ]


def test_no_data_moves_the_cursor() -> None:
    assert "\\x1b[2J" in job_tables.job_list((replace(ROWS[0], owner="\x1b[2J"),), NOW, wide=True)


def test_top_job() -> None:
    assert (
        text(job_tables.top_jobs(ROWS, NOW, wide=False))
        == """\
NAME   GPU(Requests)  GPU(Allocated)  STATUS     TRAINER  AGE  NODE
dist   3              3               RUNNING    mpijob   29s  gpu[1-2]
night  2              0               FAILED     mpijob   14h  N/A
next   1              0               QUEUED     mpijob   3s   N/A
small  1              0               SUCCEEDED  mpijob   46m  N/A

Total Allocated GPUs of Training Job:
3

Total Requested GPUs of Training Job:
4"""
    )


def test_top_job_without_gpus() -> None:
    shares = (HostRanks("gpu1", 2, ("slot-0", "slot-1")),)
    rows = (row("b", 4, JobState.QUEUED, 1), row("a", 2, JobState.RUNNING, 5, shares=shares))
    assert (
        text(job_tables.top_jobs(rows, NOW, wide=False))
        == """\
NAME  SLOT(Requests)  SLOT(Allocated)  STATUS   TRAINER  AGE  NODE
a     2               2                RUNNING  mpijob   5s   gpu1
b     4               0                QUEUED   mpijob   1s   N/A

Total Allocated Slots of Training Job:
2

Total Requested Slots of Training Job:
6"""
    )


def test_top_job_that_asks_for_what_nobody_knows_yet() -> None:
    shown = text(job_tables.top_jobs((replace(ROWS[3], requested=None),), NOW, wide=False)).splitlines()
    assert shown[1].split() == ["next", "N/A", "0", "QUEUED", "mpijob", "3s", "N/A"]
    assert shown[-1] == "0"


HELD = SlotHolder("vgg16", "id", 0.0, "hcc", "alice")


def gpus(host: str, *slots: SlotState) -> Occupancy:
    return Occupancy(host, slots, sum(not slot.name.startswith("slot-") for slot in slots))


NODES = (
    Node(HOSTS[0], is_head=True, occupancy=gpus("a", SlotState("GPU-1", HELD), SlotState("GPU-2", HELD))),
    Node(HOSTS[1], is_head=False, occupancy=gpus("b", SlotState("GPU-3"), SlotState("slot-1", HELD))),
    Node(
        HOSTS[2],
        is_head=False,
        occupancy=gpus("c", SlotState("GPU-4", foreign="used by process 4711 (python3 of bob)")),
    ),
)


def test_top_node() -> None:
    assert (
        text(job_tables.top_nodes(NODES, wide=False))
        == """\
NAME  IPADDRESS     ROLE    STATUS  GPU(Total)  GPU(Allocated)
gpu1  192.168.0.31  head    ready   2           2
gpu2  192.168.0.32  <none>  ready   1           0
gpu3  192.168.0.33  <none>  ready   1           0
-----------------------------------------------------------------------------------------
Allocated/Total GPUs In Cluster:
2/4 (50%)

GPUs In Use Outside of Jobs:
gpu3: 1 used by process 4711 (python3 of bob): GPU 0"""
    )


def test_top_node_says_who_holds_what() -> None:
    lines = text(job_tables.top_nodes(NODES, wide=True)).splitlines()
    assert lines[0].endswith("GPU(Allocated)  HELD BY")
    assert [line.split("  ")[-1].strip() for line in lines[1:4]] == [
        "2 job vgg16 (alice): GPU 0,1",
        "1 job vgg16 (alice)",
        "1 used by process 4711 (python3 of bob): GPU 0",
    ]
    both = (SlotState("GPU-1", HELD), SlotState("GPU-2", replace(HELD, job="b")), SlotState("GPU-3", HELD))
    shown = text(job_tables.top_nodes((replace(NODES[0], occupancy=gpus("a", *both)),), wide=True))
    assert "  2 job vgg16 (alice): GPU 0,2; 1 job b (alice): GPU 1\n" in shown


def test_top_node_without_gpus() -> None:
    nodes = (
        Node(
            HOSTS[0],
            is_head=True,
            occupancy=gpus("a", SlotState("slot-0", HELD), SlotState("slot-1"), SlotState("slot-2")),
        ),
        Node(HOSTS[1], is_head=False, occupancy=None, problem="no route to host"),
    )
    assert (
        text(job_tables.top_nodes(nodes, wide=False))
        == """\
NAME  IPADDRESS     ROLE    STATUS    SLOT(Total)  SLOT(Allocated)
gpu1  192.168.0.31  head    ready     3            1
gpu2  192.168.0.32  <none>  notready  0            0
-----------------------------------------------------------------------------------------
Allocated/Total Slots In Cluster:
1/3 (33%)"""
    )
    data = [job_tables.node_data(node) for node in nodes]
    assert (data[0]["status"], data[0]["total"], data[0]["allocated"], data[0]["free"]) == ("ready", 3, 1, 2)
    assert (data[1]["status"], data[1]["problem"]) == ("notready", "no route to host")


def test_top_node_of_nothing() -> None:
    assert text(job_tables.top_nodes((), wide=False)).splitlines()[-1] == "0/0 (0%)"


def test_get_of_a_running_job() -> None:
    found = job("dist", 3, JobState.RUNNING, 60, shares=GPUS, started=NOW - 57, reason="every rank has started")
    assert (
        text(job_tables.one_job(found, NOW, wide=False))
        == f"""\
STATUS: RUNNING
NAMESPACE: hcc
PRIORITY: N/A
TRAINING DURATION: 57s

NAME  STATUS   TRAINER  AGE  INSTANCE       NODE
dist  RUNNING  MPIJOB   1m   dist-launcher  gpu1
dist  RUNNING  MPIJOB   1m   dist-worker-0  gpu1
dist  RUNNING  MPIJOB   1m   dist-worker-1  gpu2

COMMAND: python3 train.py
RANKS: 3
STARTED: {time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW - 57))}
REASON: every rank has started"""
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
NAMESPACE: hcc
PRIORITY: 7
TRAINING DURATION: N/A

NAME  STATUS  TRAINER  AGE  INSTANCE  NODE
next  QUEUED  MPIJOB   5s   N/A       N/A

COMMAND: python3 train.py
RANKS: 1
REASON: waiting for its slots

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
    assert shown.endswith(
        "\nREASON: rank 0 on gpu1 exited with code 1\nATTEMPT: 1 of 4 failed\n\n"
        f"WAITING:\n  attempt 2 starts in 20s, at {at}"
    )
    assert shown.splitlines()[6].split()[-2:] == ["N/A", "N/A"]  # not the hosts of the attempt before
    assert "gpu2" not in text(job_tables.one_job(found, NOW, wide=True))
    for late in (20, 21):
        assert job_tables.one_job(found, NOW + late, wide=False).endswith("WAITING:\n  attempt 2 starts now")
    queued = replace(found, record=replace(record, state=JobState.QUEUED, waiting=(("gpu1", "full"),)))
    assert text(job_tables.one_job(queued, NOW + 21, wide=False)).endswith(
        "ATTEMPT: 1 of 4 failed\nEARLIER FAILURE: attempt 1: rank 0 on gpu1 failed\n\nWAITING:\n  gpu1: full"
    )
    runs = replace(found, record=replace(record, state=JobState.RUNNING, attempt=2, not_before=None))
    assert text(job_tables.one_job(runs, NOW, wide=False)).endswith(
        "ATTEMPT: 2 of 4\nEARLIER FAILURE: attempt 1: rank 0 on gpu1 failed"
    )


SUSPENDED = (
    Transition(NOW - 60, JobState.QUEUED),
    Transition(NOW - 50, JobState.STARTING),
    Transition(NOW - 30, JobState.SUSPENDED, "suspended by ann"),
)


def test_get_of_a_job_that_was_suspended() -> None:
    """Its training lasts from its first start on, whatever came in between; an attempt is counted where one may fail."""
    found = job("a", 1, JobState.SUSPENDED, 60, attempt=1, transitions=SUSPENDED, reason="suspended by ann")
    assert text(job_tables.one_job(found, NOW, wide=False)).endswith(
        "REASON: suspended by ann\n\nWAITING:\n  suspended by ann; taco-launch resume a lets it continue"
    )
    again = replace(found.record, state=JobState.RUNNING, attempt=2, started=NOW - 5)
    shown = text(job_tables.one_job(replace(found, record=again), NOW, wide=False))
    assert "TRAINING DURATION: 50s" in shown
    assert "ATTEMPT" not in shown
    policy = Policy(restart=Restart.ON_FAILURE, backoff_limit=2)
    counted = replace(found, spec=replace(found.spec, policy=policy))
    assert "\nATTEMPT: 1 of 4 suspended\n" in job_tables.one_job(counted, NOW, wide=False)


def test_get_of_a_job_that_nobody_has_looked_at() -> None:
    shown = text(job_tables.one_job(job("a", 3, JobState.QUEUED, 1), NOW, wide=True))
    assert "\nRANKS: 3\n" in shown
    assert shown.endswith("WAITING:\n  waiting for slots")


def test_wide_list_names_one_host_of_those_that_had_no_place() -> None:
    reason = (
        "found no place within its --queue-timeout of 5 s; job b is before it\n  gpu1: full\n  gpu2: full\n  gpu3: gone"
    )
    late = replace(ROWS[2], exit_code=4, reason=reason)
    (line,) = job_tables.job_list((late,), NOW, wide=True).splitlines()[1:]
    assert line.endswith("5 s; job b is before it; gpu1: full; and 2 more hosts")


def test_the_events_have_the_number_of_their_attempt() -> None:
    kinds = ("submitted", "placed", "running", "restarting", "waiting", "placed", "ended")
    events = tuple(Event(NOW, kind, data={"attempt": 2 if at == 5 else 1}) for at, kind in enumerate(kinds))
    found = replace(job("a", 1, JobState.RUNNING, 1), events=events)
    lines = text(job_tables.one_job(found, NOW, wide=True)).splitlines()[-7:]
    assert [line.split()[2:-1] for line in lines] == [[], ["1"], ["1"], ["1"], [], ["2"], ["2"]]


def test_get_explains_a_failure() -> None:
    finding = Finding("oom", "A GPU ran out of memory.", "use a smaller batch", "gpu1", 3)
    found = job("bad", 1, JobState.FAILED, 60, exit_code=1, reason="rank 0 failed", findings=(finding,))
    lines = text(job_tables.one_job(found, NOW, wide=False)).splitlines()
    assert lines[-4:] == [
        "REASON: rank 0 failed",
        "CAUSE: A GPU ran out of memory.",
        "NEXT: use a smaller batch",
        "EXIT CODE: 1",
    ]


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
        "CONDITION  STATUS  SINCE                 REASON         MESSAGE",
        "Running    True    1970-01-12T13:45:50Z  MPIJobRunning  runs",
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
    found = job("a", 3, JobState.RUNNING, 900, shares=GPUS, stalled=Stall(NOW - 660, looks), first_failure=failed)
    blocks = text(job_tables.one_job(found, NOW, wide=False)).split("\n\n")
    first, *rows = blocks[-2].splitlines()
    assert first.startswith("STALLED: no output and no CPU use of any rank for 11m, since 1970-01-12 ")
    does = "is stopped (T, in do_signal_stop)"
    assert re.split("  +", rows[1].strip()) == ["1", "gpu2", "31", "python3", does, "11m", "step\\t7"]
    assert rows[2].split() == ["0", "gpu1", "has", "no", "process", "that", "can", "be", "seen", "10m"]
    assert blocks[-1] == "LAST LINES OF RANK 2 on gpu2 (gpu2:/state/rank-2.0.log):\n  one\n  \\x1b[2J"


@pytest.mark.parametrize("state", list(JobState), ids=lambda state: state.value)
def test_list_and_get_show_the_same_of_a_job(state: JobState) -> None:
    found = job("a", 2, state, 61, shares=GPUS[1:], first_failure=RankEnd(0, "gpu2", 1))
    rows = (row_of(found.spec, found.record),)
    (listed,) = text(job_tables.job_list(rows, NOW, wide=False)).splitlines()[1:]
    top = text(job_tables.top_jobs(rows, NOW, wide=False)).splitlines()
    (topped,) = [line for line in top if line.startswith("a ")]
    shown = text(job_tables.one_job(found, NOW, wide=False)).splitlines()
    assert (shown[0], shown[6].split()[:4]) == (
        f"STATUS: {listed.split()[1]}",
        [*listed.split()[:3], listed.split()[4]],
    )
    assert topped.split()[3] == listed.split()[1]


def test_a_long_reason_is_cut_in_a_table() -> None:
    shown = job_tables.job_list((replace(ROWS[2], reason="hung: " + "x" * 300),), NOW, wide=True)
    assert shown.endswith("  hung: " + "x" * 114 + "...")
