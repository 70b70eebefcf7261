"""Situations of real programs, recorded by `record.py`, and the verdict of each: no false alarm, and who waits for whom."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import Event, JobState
from taco_launch.core.model.run.rank_samples import Frame, Life, OtherThread, RankSample, Stack
from taco_launch.core.model.stalls import (
    LOOK_SECONDS,
    RankLook,
    Stall,
    doing,
    look_every,
    reason,
    stall_report_delay,
    telling,
)
from taco_launch.core.stalls.quiet import QuietHost
from tests.support.recorded_stalls import FOLDER, Recorded, situation, verdict, without_stacks

SECONDS = 6.0  # of the stall time: the programs work for seven seconds first


class Row(NamedTuple):
    """A situation, its verdict with and without stacks, who waits for whom, and a part of the sentence."""

    name: str
    life: Life
    bare: Life
    waiting: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    told: str = ""


SITE = "/opt/venv/lib/python3.11/site-packages"
FIRST = "rank 0 on gpu1"
WORKING, HUNG, UNKNOWN = Life.WORKING, Life.HUNG, Life.UNKNOWN
TABLE = (
    Row("horovod_one_sleeps", HUNG, UNKNOWN, (0,), (1,), "rank 1 on gpu2 is in load_batch at situation.py:"),
    Row("gloo_one_sleeps", HUNG, HUNG, (0,), (1,), f"{FIRST} waits in torch.distributed.all_reduce at situation.py:"),
    Row("gloo_barrier", HUNG, HUNG, (0,), (1,), f"{FIRST} waits in torch.distributed.barrier at situation.py:"),
    Row("gloo_both_receive", HUNG, HUNG, (0, 1), (), "no rank sends"),
    Row("mpi_receives_nothing", HUNG, UNKNOWN, (0, 1), (), "rank 1 on gpu2 waits in MPI_Mprobe at situation.py:"),
    Row("mpi_one_is_stopped", HUNG, HUNG, (0,), (1,), "rank 1 on gpu2: process 7 (python3) is stopped"),
    Row("mpi_network_is_stuck", HUNG, UNKNOWN, (0, 1), (), "no rank is missing: look at the network"),
    Row("alone_loader_is_dead", HUNG, HUNG, (), (), f"{FIRST} is in wait_for_loader at situation.py:95 (in Queue.get)"),
    Row("horovod_trains", WORKING, WORKING, told="writes output"),
    Row("gloo_trains", WORKING, WORKING, told="writes output"),
    Row("horovod_one_computes", WORKING, UNKNOWN, told="rank 0 computes in compute at situation.py:"),
    Row("horovod_one_reads_slowly", WORKING, WORKING, told="reads or writes files"),
    Row("gloo_one_saves", WORKING, WORKING, told="reads or writes files"),
    Row("gloo_one_evaluates", WORKING, UNKNOWN, told="rank 0 runs its program"),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_table(row: Row) -> None:
    ranks = situation(row.name)
    found = verdict(ranks, SECONDS)
    assert (found.life, found.waiting, found.missing) == (row.life, row.waiting, row.missing), found.why
    assert row.told in found.why
    bare = verdict(without_stacks(ranks), SECONDS)
    assert bare.life is row.bare, bare.why


def test_every_situation_is_in_the_table() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {row.name for row in TABLE}
    assert len(TABLE) >= 12


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_no_false_alarm_at_any_time(row: Row) -> None:
    """While a program works, and where it never hangs, no look at it gives HUNG, with stacks or without."""
    ranks = situation(row.name)
    for count in range(1, len(ranks[0].looks) + 1):
        part = tuple(rank._replace(looks=rank.looks[:count], states=rank.states[:count]) for rank in ranks)
        hangs_since = 0.0 if row.name == "mpi_network_is_stuck" else 6.0
        if row.life is HUNG and part[0].looks[-1].time > hangs_since + SECONDS:
            continue
        for seen in (part, without_stacks(part)):
            found = verdict(seen, SECONDS)
            assert found.life is not HUNG, (count, found.why)


def test_a_longer_stall_time_is_not_over_yet() -> None:
    assert verdict(situation("gloo_one_sleeps"), 600.0).life is not HUNG


def test_one_look_at_the_stacks_is_not_enough() -> None:
    """Whether a stack stands still is seen in three looks."""
    last = tuple(
        rank._replace(looks=(*(replace(look, stack=None) for look in rank.looks[:-1]), rank.looks[-1]))
        for rank in situation("horovod_one_sleeps")
    )
    assert verdict(last, SECONDS).life is UNKNOWN


def test_the_last_stack_of_a_rank_that_stands_still_is_told() -> None:
    """On a busy machine fewer stacks are read than show whether one moves."""
    last = tuple(
        rank._replace(looks=(*(replace(look, stack=None) for look in rank.looks[:-1]), rank.looks[-1]))
        for rank in situation("gloo_one_sleeps")
    )
    found = verdict(last, SECONDS)
    assert (found.life, found.waiting) == (HUNG, (0,))
    assert "rank 0 on gpu1: process 7 (python3) waits in torch.distributed.all_reduce at situation.py:46" in found.why


def test_a_rank_that_has_ended_is_missing() -> None:
    found = verdict(situation("gloo_one_sleeps")[:1], SECONDS, ended=(1,))
    assert (found.life, found.waiting, found.missing) == (HUNG, (0,), (1,))
    assert "ended: rank 1" in found.why


WAITS = Stack((Frame("ncclAllReduce", "/opt/libnccl.so.2"), Frame("<module>", "/train/train.py", 57)))
ITEM = Stack((Frame("cudaStreamSynchronize", "/opt/libcudart.so.12"), Frame("<module>", "/train/train.py", 60)))
LOADS = Stack((Frame("load_batch", "/train/data.py", 19), Frame("<module>", "/train/train.py", 55)))


def looks(stack: Stack | None, **changes: float) -> tuple[RankSample, ...]:
    """Return looks of 20 s, of which `changes` are what each counter gains a second; the first ten at 10 MB/s of traffic."""
    found = []
    sockets = 0.0
    for second in range(21):
        sockets += 10e6 if second <= 10 else changes.get("sockets", 0.0)
        found.append(
            RankSample(
                time=float(second),
                output=min(second, 10),
                sockets=int(sockets),
                read=int(sockets / 2 + second * changes.get("files", 0.0)),
                written=int(sockets / 2),
                cpu=second * changes.get("cpu", 0.0),
                main_cpu=second * changes.get("cpu", 0.0),
                changes=int(second * changes.get("processes", 0.0)),
                stack=stack,
            )
        )
    return tuple(found)


def job(*each: tuple[RankSample, ...]) -> tuple[Recorded, ...]:
    return tuple(Recorded(rank, f"gpu{rank + 1}", of, ("S",) * len(of)) for rank, of in enumerate(each))


@pytest.mark.parametrize(
    ("ranks", "life", "told"),
    [
        # Keep-alives of a coordinator are far below what the job exchanged, and files are not what sockets carried.
        (job(looks(WAITS, cpu=1.0, sockets=60e3), looks(LOADS, sockets=60e3)), HUNG, "rank 1 on gpu2 is in load_batch"),
        (
            job(looks(WAITS, cpu=1.0, sockets=1e6), looks(LOADS)),
            WORKING,
            "exchanges 1000000 bytes/s, 10 % of its earlier rate",
        ),
        (job(looks(WAITS, cpu=1.0), looks(LOADS, files=5000.0)), WORKING, "rank 1 reads or writes files"),
        (job(looks(WAITS, cpu=1.0), looks(LOADS, files=50.0)), HUNG, "load_batch"),
        (job(looks(WAITS, cpu=1.0), looks(LOADS, processes=0.5)), WORKING, "rank 1 starts or ends processes"),
        # NCCL's kernels use the GPU while they wait, the host's thread uses CPU.
        (job(looks(WAITS, cpu=1.0), looks(WAITS, cpu=1.0)), HUNG, "no rank is missing"),
        (job(looks(ITEM, cpu=1.0), looks(ITEM, cpu=1.0)), UNKNOWN, "for its GPU, which may be computing"),
        # A thread of the data loader works while the main thread waits for it.
        (
            job(
                looks(WAITS),
                looks(replace(LOADS, others=(OtherThread((Frame("decode", "/train/data.py", 80),), active=True),))),
            ),
            WORKING,
            "a thread in decode",
        ),
        (job(looks(None), looks(None)), HUNG, "rank 0 on gpu1: process 7 (python3) sleeps"),
        (job(looks(None, cpu=1.0), looks(None)), UNKNOWN, "may poll or compute"),
    ],
)
def test_signs(ranks: tuple[Recorded, ...], life: Life, told: str) -> None:
    """Made-up numbers for what cannot be here (GPUs, NCCL), and for the limits."""
    found = verdict(ranks, 8.0)
    assert found.life is life, found.why
    assert told in found.why


def test_a_collective_in_a_hook_of_backward() -> None:
    """As huggingface/accelerate 3104: the main thread is in backward, and a thread of autograd's in a collective, active."""
    main: tuple[Frame, ...] = (Frame("backward", f"{SITE}/torch/autograd/__init__.py", 266),)
    main += (Frame("training_loop", "/train/fine_tune.py", 410), Frame("<module>", "/train/fine_tune.py", 587))
    gathers = Frame("all_gather_into_tensor", f"{SITE}/torch/distributed/distributed_c10d.py", 2709)
    hooks = OtherThread((gathers, Frame("allgather_fn", f"{SITE}/deepspeed/comm/comm.py", 10)), active=True)
    monitor = OtherThread(
        (Frame("wait", "/usr/lib/python3.11/threading.py", 324), Frame("run", f"{SITE}/tqdm/_monitor.py", 60))
    )
    stack = Stack(main, others=(monitor, hooks))
    found = verdict(job(looks(stack, cpu=1.0), looks(LOADS)), 8.0)
    assert (found.life, found.waiting, found.missing) == (HUNG, (0,), (1,))
    assert f"{FIRST} waits in torch.distributed.all_gather_into_tensor at fine_tune.py:410" in found.why
    # While it computes, a thread of a checkpoint that waits for other ranks tells nothing of it.
    computes = Stack((Frame("mm", "/x/libmkl.so"), Frame("step", "/train/train.py", 9)), others=(hooks,))
    assert verdict(job(looks(computes, cpu=1.0), looks(WAITS)), 8.0).life is WORKING


def test_keep_alives_of_a_job_that_never_worked() -> None:
    """Before its first step nobody knows what it exchanges; the coordinator's rank has the keep-alives of all."""

    def at(rate: float) -> tuple[RankSample, ...]:
        return tuple(replace(look, output=1, sockets=int(look.time * rate), read=0, written=0) for look in looks(WAITS))

    assert verdict(job(at(5e6), at(40e3), at(40e3)), 8.0).life is HUNG
    assert verdict(job(at(5e6), at(5e6), at(5e6)), 8.0).life is WORKING


def test_sixteen_ranks_and_one_that_is_elsewhere() -> None:
    waits = Stack(
        (
            Frame("synchronize", "/opt/venv/lib/python3.8/site-packages/horovod/torch/mpi_ops.py", 1),
            Frame("allreduce", "/opt/venv/lib/python3.8/site-packages/horovod/torch/mpi_ops.py", 2),
            Frame("<module>", "/train/train.py", 57),
        )
    )
    each = job(*(looks(LOADS if rank == 5 else waits) for rank in range(16)))
    ranks = tuple(rank._replace(host=f"gpu{rank.rank // 4}") for rank in each)
    found = verdict(ranks, 8.0)
    assert found.why.endswith(
        "rank 5 on gpu1 is in load_batch at data.py:19; 15 ranks wait in hvd.allreduce at train.py:57"
    )
    assert (found.missing, len(found.waiting)) == ((5,), 15)


def test_one_rank_that_makes_progress_is_enough_for_its_host() -> None:
    """The time counts from the last progress of any of a host's ranks, and from when a rank begins or ends."""
    host = QuietHost(8.0)
    for one, other in zip(looks(WAITS), looks(LOADS, files=5000.0), strict=True):
        host.add(one.time, {0: one, 1: other})
    assert (host.silent, host.sign) == (0.0, "rank 1 reads or writes files (5000 bytes/s)")
    host.add(30.0, {0: replace(looks(WAITS)[-1], time=30.0)})
    assert (host.silent, host.sign) == (0.0, "the set of running ranks changed")


# --- How a hang is described, and when guards look for one and report it


SLEEPS = RankLook(0, 11, "python3", "S", "in hrtimer_nanosleep", 601.0, "step 7", "gpu1")
STOPPED = RankLook(2, 31, "python3", "T", "", 600.0, "", "gpu2")
STUCK = RankLook(3, 41, "cp", "D", "in nfs_wait_bit_killable", 640.0, "saving", "gpu2")
GONE = RankLook(1, silent=700.0, host="gpu1")


@pytest.mark.parametrize(("limit", "after", "every"), [(None, 600, 5), (7200, 600, 5), (60, 60, 5), (2, 2, 0.5)])
def test_when_it_is_told_and_looked_for(limit: float | None, after: float, every: float) -> None:
    assert stall_report_delay(limit) == after
    assert look_every(stall_report_delay(limit)) == every <= LOOK_SECONDS


def test_what_tells_most_comes_first() -> None:
    longer = RankLook(9, 99, "python3", "S", "", 602.0)
    assert telling((SLEEPS, GONE, longer, STUCK, STOPPED)) == (STOPPED, STUCK, longer, SLEEPS, GONE)
    assert len(telling([RankLook(rank) for rank in range(1000)])) == 64


def test_the_rank_that_does_what_no_other_does_comes_first() -> None:
    """The others wait for it, though they are silent for longer."""
    waits = [
        RankLook(rank, 10 + rank, "python3", "S", "in futex_do_wait", 601.0, "step 2", "gpu1") for rank in range(3)
    ]
    odd = RankLook(3, 13, "python3", "S", "in hrtimer_nanosleep", 600.0, "step 2", "gpu2")
    found = telling((*waits, odd))
    assert found == (odd, *waits)
    told = reason(4, found)
    assert (
        "rank 3 on gpu2: process 13 (python3) sleeps (S, in hrtimer_nanosleep), its last line: step 2; rank 0" in told
    )
    assert told.endswith("; 2 more ranks like rank 0")
    assert reason(5, found).endswith("; 3 more ranks")  # one was not seen


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (SLEEPS, "sleeps (S, in hrtimer_nanosleep)"),
        (STOPPED, "is stopped (T)"),
        (STUCK, "waits in the kernel and cannot be interrupted (D, in nfs_wait_bit_killable)"),
        (GONE, "has no process that can be seen"),
        (RankLook(0, 7, "a", "I"), "is in a state that is not known (I)"),
        (RankLook(0, 7, "a", "R", does="in load at a.py:3"), "is in load at a.py:3"),
        (RankLook(0, 7, "a", "R", does="in MPI_Recv at a.py:3", waits=True), "waits in MPI_Recv at a.py:3"),
        (RankLook(0, 7, "a", "T", does="in load at a.py:3"), "is stopped (T)"),
    ],
)
def test_what_a_process_does(look: RankLook, words: str) -> None:
    assert doing(look) == words


def test_the_reason_names_the_first_two() -> None:
    assert reason(4, (STOPPED, STUCK, SLEEPS, GONE)) == (
        "rank 2 on gpu2: process 31 (python3) is stopped (T), it wrote nothing; "
        "rank 3 on gpu2: process 41 (cp) waits in the kernel and cannot be interrupted (D, in nfs_wait_bit_killable), "
        "its last line: saving; 2 more ranks"
    )
    assert reason(1, (GONE,)) == "rank 1 on gpu1 has no process that can be seen, it wrote nothing"
    assert reason(0, ()) == ""


RUNS = (
    Event(1.0, state.SUBMITTED, "waiting", {"id": "abc"}),
    Event(2.0, state.PLACED, "fits", {"np": 2, "hosts": ["gpu1"], "line": ""}),
    Event(3.0, state.RUNNING, "runs", {"boot": "b", "roots": []}),
)
STALLED = Event(9.0, state.STALLED, "it hangs", {"since": 4.0, "ranks": to_json((STOPPED, SLEEPS))})
STIRRED = Event(10.0, state.STIRRED, "it continues")
STOPPING = Event(11.0, state.STOPPING, "stopped")


def test_a_job_hangs_and_goes_on() -> None:
    hangs = state.reduce((*RUNS, STALLED))
    assert (hangs.state, hangs.reason) == (JobState.RUNNING, "it hangs")
    assert hangs.stalled == Stall(4.0, (STOPPED, SLEEPS), seen=9.0)
    goes_on = state.reduce((*RUNS, STALLED, STIRRED))
    assert (goes_on.stalled, goes_on.reason) == (None, "it continues")
    assert state.reduce((*RUNS, STIRRED)).reason == "runs"
    assert state.reduce((*RUNS, STOPPING, STALLED)) == state.reduce((*RUNS, STOPPING))


def test_a_hang_stands_in_the_record_until_there_is_another_attempt() -> None:
    ended = Event(12.0, state.ENDED, "stopped", {"state": "CANCELLED", "exit_code": 143})
    assert state.reduce((*RUNS, STALLED, STOPPING, ended)).stalled is not None
    again = Event(12.0, state.RESTARTING, "hung", {"delay": 1.0})
    assert state.reduce((*RUNS, STALLED, again)).stalled is not None
    assert state.reduce((*RUNS, STALLED, again, RUNS[1])).stalled is None
