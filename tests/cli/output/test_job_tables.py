"""The tables of list, get and top: the very text."""

from dataclasses import replace

import pytest

from taco_launch.cli.output import job_tables, node_tables
from taco_launch.core.model.job_rows import row_of
from taco_launch.core.model.job_view import BoardView, LastRun, LiveJob, Progress, Usage
from taco_launch.core.model.jobs import Finding, HostRanks, JobState, RankEnd
from taco_launch.core.model.slots import Drain, Occupancy, SlotHolder, SlotState
from taco_launch.jobs.backend import HostOccupancy
from tests.support.job_rows import GPUS, HOSTS, NOW, ROWS, job, row, text


def test_list() -> None:
    assert (
        text(job_tables.job_list(ROWS, NOW, wide=False))
        == """\
NAME   STATUS     LAUNCHER  RANKS  HOSTS     AGE
dist   RUNNING    mpirun        3  gpu[1-2]  29s
next   QUEUED     mpirun        1  -         3s
small  SUCCEEDED  mpirun        1  gpu1      46m
night  FAILED     mpirun        2  gpu2      14h"""
    )


def test_wide_list() -> None:
    rows = (
        replace(ROWS[2], last_line="z" * 130, progress="step 5/10", verified="False"),
        replace(ROWS[3], priority=-5, queue="night"),
    )
    assert (
        text(job_tables.job_list(rows, NOW, wide=True))
        == f"""\
NAME   STATUS  LAUNCHER  RANKS  HOSTS  AGE  DURATION  EXIT  VERIFIED  QUEUE    PRIORITY  OWNER  REASON  COMMAND           PROGRESS   LAST LINE
next   QUEUED  mpirun        1  -      3s                             night          -5  alice          python3 train.py
night  FAILED  mpirun        2  gpu2   14h               3  False     default         0  alice  a; b    python3 train.py  step 5/10  {"z" * 120}..."""
    )


def test_nothing_to_list() -> None:
    assert text(job_tables.job_list((), NOW, wide=False)) == "NAME  STATUS  LAUNCHER  RANKS  HOSTS  AGE"


def test_a_wide_character_takes_two_columns() -> None:
    rows = (replace(ROWS[0], name="数据"), replace(ROWS[0], name="abcde"))
    lines = text(job_tables.job_list(rows, NOW, wide=False)).splitlines()
    assert lines[1:] == [
        "数据   RUNNING  mpirun        3  gpu[1-2]  29s",
        "abcde  RUNNING  mpirun        3  gpu[1-2]  29s",
    ]


def test_get_of_many_hosts_names_them_in_short() -> None:
    shares = tuple(HostRanks(f"gpu{number}", 2) for number in range(1, 10))
    shown = text(job_tables.one_job(job("a", 18, JobState.RUNNING, 60, shares=shares), NOW, wide=False))
    assert "\nHOSTS: gpu[1-9]\n" in shown


def test_no_data_moves_the_cursor() -> None:
    assert "\\x1b[2J" in job_tables.job_list((replace(ROWS[0], owner="\x1b[2J"),), NOW, wide=True)


def test_top_job() -> None:
    assert (
        text(node_tables.top_jobs(ROWS, NOW, wide=False))
        == """\
NAME  STATUS   REQUESTED  HELD  LAUNCHER  HOSTS     AGE
dist  RUNNING          3     3  mpirun    gpu[1-2]  29s
next  QUEUED           1     0  mpirun    -         3s

GPUs of jobs that have not ended: 4 requested, 3 held"""
    )


def test_top_job_without_gpus() -> None:
    shares = (HostRanks("gpu1", 2, ("slot-0", "slot-1")),)
    rows = (row("b", 4, JobState.QUEUED, 1), row("a", 2, JobState.RUNNING, 5, shares=shares))
    assert (
        text(node_tables.top_jobs(rows, NOW, wide=False))
        == """\
NAME  STATUS   REQUESTED  HELD  LAUNCHER  HOSTS  AGE
a     RUNNING          2     2  mpirun    gpu1   5s
b     QUEUED           4     0  mpirun    -      1s

slots of jobs that have not ended: 6 requested, 2 held"""
    )


def test_wide_top_job() -> None:
    rows = (replace(ROWS[0], verified="False", progress="step 5/10"),)
    header, line = text(node_tables.top_jobs(rows, NOW, wide=True)).splitlines()[:2]
    assert header.endswith("AGE  QUEUE    PRIORITY  OWNER  VERIFIED  PROGRESS")
    assert line.endswith("29s  default         0  alice  False     step 5/10")


LOADS = Usage(NOW, 60, cpus=64, cpu=0.2, full_cpus=8, job_cpus=9.5, gpus=4, gpu=0.38, gpu_memory=0.7, sent=2e6)


def test_top_job_shows_what_is_used_and_why_gpus_idle() -> None:
    rows = (replace(ROWS[0], progress="step 5/10"), ROWS[3])
    live = (LiveJob(ROWS[0].name, 0.61, (("gpu1", LOADS), ("gpu2", replace(LOADS, gpu=0.42)))),)
    header, train, waits, _empty, total, _empty, title, hint = text(
        node_tables.top_jobs(rows, NOW, wide=False, live=live)
    ).splitlines()
    assert header.endswith("AGE  GPU USE  GPU MEM  POWER  TEMP        CPU  IO WAIT  RECEIVE    SEND  GOODPUT  PROGRESS")
    assert train.endswith("29s     40 %     70 %      -     -  9.5 of 64        -        -  2 MB/s     61 %  step 5/10")
    assert waits.split()[7:] == ["-"] * 9
    assert total.startswith("GPUs of jobs")
    assert title == f"HINTS for {ROWS[0].name}:"
    assert hint.startswith(
        "  gpu1 (as on 1 more): GPUs idle 62 % of the time while 8 of 64 CPUs are at 100 %: use more"
    )
    ended = replace(rows[0], name="ended", state=JobState.SUCCEEDED)  # the table has none of these either
    data = node_tables.live_data([ended, *rows], live)
    assert [(job["goodput"], list(job["usage"]), len(job["hints"])) for job in data] == [
        (0.61, ["gpu1", "gpu2"], 1),
        (None, [], 0),
    ]


def test_get_shows_what_a_job_uses() -> None:
    view = replace(job("a", 2, JobState.RUNNING, 60, shares=(HostRanks("gpu1", 2),)), usage=(("gpu1", LOADS),))
    shown = text(job_tables.one_job(view, NOW, wide=False))
    assert "\nUSES: GPU USE 38 %, GPU MEM 70 %, CPU 9.5 of 64, SEND 2 MB/s\n" in shown
    assert "\n\nHINTS:\n  gpu1: GPUs idle 62 % of the time" in shown
    data = job_tables.job_data(view)
    assert data["usage"]["gpu1"]["gpu"] == 0.38
    assert len(data["hints"]) == 1


def test_top_node_shows_what_is_in_use() -> None:
    nodes = (replace(NODES[0], usage=replace(LOADS, job_cpus=None)), *NODES[1:])
    header, first, second = text(node_tables.top_nodes(nodes, wide=False)).splitlines()[:3]
    assert header.endswith("HELD  GPU USE  GPU MEM  POWER  TEMP   CPU  IO WAIT  RECEIVE    SEND")
    assert first.endswith("38 %     70 %      -     -  20 %        -        -  2 MB/s")
    assert second.split()[-8:] == ["-"] * 8
    assert node_tables.node_data(nodes[0])["usage"]["cpu"] == 0.2


def test_top_job_that_asks_for_what_nobody_knows_yet() -> None:
    shown = text(node_tables.top_jobs((replace(ROWS[3], requested=None),), NOW, wide=False)).splitlines()
    assert shown[1].split() == ["next", "QUEUED", "-", "0", "mpirun", "-", "3s"]
    assert shown[-1].endswith(": 0 requested, 0 held")


HELD = SlotHolder("vgg16", "id", 0.0, "hcc", "alice")


def gpus(host: str, *slots: SlotState) -> Occupancy:
    return Occupancy(host, slots, sum(not slot.name.startswith("slot-") for slot in slots))


NODES = (
    HostOccupancy(HOSTS[0], is_head=True, occupancy=gpus("a", SlotState("GPU-1", HELD), SlotState("GPU-2", HELD))),
    HostOccupancy(HOSTS[1], is_head=False, occupancy=gpus("b", SlotState("GPU-3"), SlotState("slot-1", HELD))),
    HostOccupancy(
        HOSTS[2],
        is_head=False,
        occupancy=gpus("c", SlotState("GPU-4", foreign="used by process 4711 (python3 of bob)")),
    ),
)


def test_hosts_that_are_drained() -> None:
    drain = Drain("ann@desk", NOW - 7200, "new cable")
    drained = [replace(node, occupancy=replace(node.occupancy, drain=drain)) for node in NODES if node.occupancy]
    shown = text(node_tables.drains((NODES[0], drained[1], drained[2]), NOW)).splitlines()
    assert [line.split() for line in shown[2:]] == [
        [
            "gpu2",
            "192.168.0.32",
            "draining",
            "node",
            "2h",
            "ann@desk",
            "new",
            "cable",
            "job",
            "vgg16",
            "(alice):",
            "1",
            "slot",
        ],
        ["gpu3", "192.168.0.33", "drained", "node", "2h", "ann@desk", "new", "cable", "-"],
    ]
    assert shown[1].split()[:4] == ["gpu1", "192.168.0.31", "ready", "-"]
    by_policy = replace(NODES[2], occupancy=replace(gpus("c"), drain=replace(drain, kind="user", policy=True)))
    (line,) = text(node_tables.drains((by_policy,), NOW)).splitlines()[1:]
    assert line.split()[2:8] == ["drained", "user", "2h", "policy", "of", "ann@desk"]
    assert "drained" in text(node_tables.top_nodes(drained, wide=False))


@pytest.mark.parametrize("wide", [True, False])
def test_top_node_names_a_drain_while_a_job_still_runs(wide: bool) -> None:
    drain = Drain("ann@desk", NOW, "new cable")
    node = replace(NODES[0], occupancy=replace(gpus("a", SlotState("GPU-1", HELD)), drain=drain))
    shown = text(node_tables.top_nodes((node,), wide=wide))
    assert ("job vgg16 (alice): GPU 0; " if wide else "gpu1: ") + "drained by ann@desk (new cable)" in shown


def test_top_node() -> None:
    assert (
        text(node_tables.top_nodes(NODES, wide=False))
        == """\
NAME  ADDRESS       ROLE  STATUS  GPU SLOTS  HELD
gpu1  192.168.0.31  head  ready           2     2
gpu2  192.168.0.32        ready           1     0
gpu3  192.168.0.33        ready           1     0

jobs hold 2 of 4 GPU slots (50 %)

GPU slots that no job can have:
gpu3: used by process 4711 (python3 of bob): GPU 0"""
    )


def test_top_node_counts_gpus_where_jobs_may_use_all() -> None:
    nodes = tuple(replace(node, host=replace(node.host, slots=None)) for node in NODES)
    lines = text(node_tables.top_nodes(nodes, wide=False)).splitlines()
    assert lines[0].split()[-2:] == ["GPUS", "HELD"]
    assert "jobs hold 2 of 4 GPUs (50 %)" in lines


def test_top_node_says_who_holds_what() -> None:
    lines = text(node_tables.top_nodes(NODES, wide=True)).splitlines()
    assert lines[0].endswith("HELD  HELD BY")
    assert [line.split("  ")[-1].strip() for line in lines[1:4]] == [
        "job vgg16 (alice): GPU 0,1",
        "job vgg16 (alice): 1 slot",
        "used by process 4711 (python3 of bob): GPU 0",
    ]
    both = (SlotState("GPU-1", HELD), SlotState("GPU-2", replace(HELD, job="b")), SlotState("GPU-3", HELD))
    shown = text(node_tables.top_nodes((replace(NODES[0], occupancy=gpus("a", *both)),), wide=True))
    assert "  job vgg16 (alice): GPU 0,2; job b (alice): GPU 1\n" in shown


def test_top_node_without_gpus() -> None:
    nodes = (
        HostOccupancy(
            HOSTS[0],
            is_head=True,
            occupancy=gpus("a", SlotState("slot-0", HELD), SlotState("slot-1"), SlotState("slot-2")),
        ),
        HostOccupancy(HOSTS[1], is_head=False, occupancy=None, problem="no route to host"),
    )
    assert (
        text(node_tables.top_nodes(nodes, wide=False))
        == """\
NAME  ADDRESS       ROLE  STATUS    SLOTS  HELD
gpu1  192.168.0.31  head  ready         3     1
gpu2  192.168.0.32        notready      0     0

jobs hold 1 of 3 slots (33 %)"""
    )
    data = [node_tables.node_data(node) for node in nodes]
    assert (data[0]["status"], data[0]["total"], data[0]["allocated"], data[0]["free"]) == ("ready", 3, 1, 2)
    assert (data[1]["status"], data[1]["problem"]) == ("notready", "no route to host")


def test_top_node_of_nothing() -> None:
    assert text(node_tables.top_nodes((), wide=False)).splitlines()[-1] == "jobs hold 0 of 0 slots (0 %)"


@pytest.mark.parametrize("state", list(JobState), ids=lambda state: state.value)
def test_list_and_get_show_the_same_of_a_job(state: JobState) -> None:
    found = job("a", 2, state, 61, shares=GPUS[1:], first_failure=RankEnd(0, "gpu2", 1))
    rows = (row_of(found.spec, found.record),)
    (listed,) = text(job_tables.job_list(rows, NOW, wide=False)).splitlines()[1:]
    top = text(node_tables.top_jobs(rows, NOW, wide=False)).splitlines()
    topped = [line for line in top if line.startswith("a ")]
    shown = text(job_tables.one_job(found, NOW, wide=False)).splitlines()
    assert shown[0] == f"STATUS: {listed.split()[1]}"
    assert [line.split()[1] for line in topped] == ([] if state.is_terminal else [listed.split()[1]])
    placed = not state.waits
    assert ("HOSTS: gpu2 (ranks 0-1)" in shown, listed.split()[4]) == (placed, "gpu2" if placed else "-")


def test_a_long_reason_is_cut_in_a_table() -> None:
    shown = job_tables.job_list((replace(ROWS[2], reason="hung: " + "x" * 300),), NOW, wide=True)
    assert shown.endswith("  hung: " + "x" * 114 + "...  python3 train.py")


@pytest.mark.parametrize(
    ("rate", "told"),
    [(66.0, "34 % slower than"), (100.3, "as fast as"), (150.0, "50 % faster than")],
)
def test_the_rate_is_compared_with_that_of_the_last_run(rate: float, told: str) -> None:
    progress = Progress("a", 0, NOW, step=4, rate=rate, unit="img/s")
    shown = replace(job("a", 1, JobState.RUNNING, 30), progress=progress, last_run=LastRun("a-1", 100.0))
    line = f"PROGRESS: step 4, {rate:.4g} img/s; {told} its last run on the same hosts (a-1)"
    assert line in text(job_tables.one_job(shown, NOW, wide=False)).splitlines()


def test_the_next_step_names_the_log_that_is_not_shown() -> None:
    finding = Finding("torch-rank-failed", "It failed.", "Read that rank's own lines above this line.", "", 3)
    end = RankEnd(1, "gpu1", 3, "")
    failed = job("a", 2, JobState.FAILED, 30, findings=(finding,), first_failure=end)
    shown = text(job_tables.one_job(failed, NOW, wide=False)).splitlines()
    assert "NEXT: Read that rank's own lines in the log (taco-launch logs --rank 1 a)." in shown


def test_where_the_tensorboard_of_a_job_is() -> None:
    shown = text(
        job_tables.one_job(replace(job("a", 1, JobState.RUNNING, 30), tensorboard=BoardView(6006)), NOW, wide=False)
    )
    assert "TensorBoard: http://127.0.0.1:6006 on gpu1\nopen it here: taco-launch tensorboard a" in shown
