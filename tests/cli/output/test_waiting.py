"""The notes that `run` prints while ranks print nothing, and the last line of a job."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import job_output
from taco_launch.cli.output.job_output import BannerFilter
from taco_launch.cli.output.waiting import SilenceNotes
from taco_launch.core.lifecycle import state
from taco_launch.core.model.job_view import Progress
from taco_launch.core.model.jobs import JobState, RankEnd
from taco_launch.core.model.stalls import HANGS, RankLook, Stall, reason
from tests.conftest import eventually
from tests.support.job_rows import GPUS, NOW, job


def test_a_silence_is_noted_once_and_the_next_one_after_twice_the_time() -> None:
    notes: list[tuple[bool, float]] = []
    silence = SilenceNotes(lambda printed, seconds: notes.append((printed, seconds)), 0.05)
    silence.state("STARTING")
    time.sleep(0.15)
    assert not notes  # no rank runs yet
    silence.state("RUNNING")
    eventually(lambda: notes == [(False, 0.05)])
    time.sleep(0.25)
    assert len(notes) == 1
    silence.output()
    eventually(lambda: notes[1:] == [(True, 0.1)])
    silence.output()
    silence.state("STOPPING")
    time.sleep(0.4)
    assert len(notes) == 2


def test_the_last_line_tells_of_a_loss_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    found = job("a", 1, JobState.SUCCEEDED, 60, reason="every rank exited with 0")
    job_output.ending(Settings(), replace(found, progress=Progress("", 0, 0.0, step=3, diverged=True)))
    assert capsys.readouterr().err == "job a: SUCCEEDED: every rank exited with 0; the loss is not a number\n"


# --- The rank that failed first, or that hung where the others waited for it, at the end of `run`


def test_processes_that_share_a_slot_are_told_by_the_numbers_that_they_have(capsys: pytest.CaptureFixture[str]) -> None:
    failure = RankEnd(3, "gpu1", 1, log="gpu1:/logs/rank-3.0.log", lines=("bad lr",))
    why = state.verdict(4, 4, failure, 1, None, 2)[2]
    found = job("a", 2, JobState.FAILED, 60, shares=GPUS, attempt=1, first_failure=failure, reason=why)
    job_output.ending(Settings(), replace(found, spec=replace(found.spec, launcher="env", procs_per_gpu=2)))
    assert capsys.readouterr().err.splitlines() == [
        "job a: FAILED: rank 1, process 1 on gpu1 exited with code 1",
        "the last lines of rank 1, process 1 on gpu1 (gpu1:/logs/rank-3.0.log):",
        "  bad lr",
        "its log: taco-launch logs a (that rank alone: --rank 3)",
    ]


def test_the_end_of_a_job_that_hung_leads_to_what_each_rank_did(capsys: pytest.CaptureFixture[str]) -> None:
    looks = (RankLook(3, 13, "python3", "S", "in hrtimer_nanosleep", 60.0, "step 2", "gpu2"),)
    stalled = Stall(NOW - 60, looks)
    found = job(
        "a",
        3,
        JobState.FAILED,
        99,
        shares=GPUS,
        attempt=1,
        stalled=stalled,
        reason=f"{HANGS} for 60 s; {reason(3, looks)}",
    )
    job_output.ending(Settings(), found)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "its log: taco-launch logs a (that rank alone: --rank 3)",
        "what each rank did: taco-launch get a",
    ]


# --- What launchers print about a rank that failed: left out of what `run` and `logs` show, whatever else they print stays


RULE = b"localhost/mpirun | " + b"-" * 74 + b"\n"
# Open MPI 4.1.4, as `run` shows it.
BANNER = (
    RULE
    + b"localhost/mpirun | Primary job  terminated normally, but 1 process returned\n"
    + b"localhost/mpirun | a non-zero exit code. Per user-direction, the job has been aborted.\n"
    + RULE
)
SECOND = (
    RULE + b"localhost/mpirun | mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9.\n" + RULE
)
OTHER = RULE + b"localhost/mpirun | There are not enough slots available in the system\n" + RULE
RANK = b"localhost/0 | step 1\n"
# MPICH 4.0.
HYDRA = (
    b"h/hydra | \n",
    b"h/hydra | " + b"=" * 83 + b"\n"
    b"h/hydra | =   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    b"h/hydra | =   EXIT CODE: 9\n"
    b"h/hydra | " + b"=" * 83 + b"\n"
    b"h/hydra | YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
)
# torch 2.13; rank 1 failed, and torchrun saw another end first.
OMP = b"a/torchrun | W1126 05:40:04.6 7 torch/distributed/run.py:774] Setting OMP_NUM_THREADS to be 1\n"
TORCHRUN = (
    b"a/torchrun | E1126 05:40:04.6 7 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -15) local_rank: 0\n"
    b"a/torchrun | Traceback (most recent call last):\n"
    b"a/torchrun | Root Cause (first observed failure):\n"
)
STOPPED = b"a/torchrun | W1126 05:40:04.6 7 torch/distributed/elastic/agent/server/api.py:751] Received Signals.SIGTERM death signal\n"
UNMET = b"a/torchrun | Traceback (most recent call last):\na/torchrun | torch.distributed.DistNetworkError: no host\n"
SECOND_ATTEMPT = b"[taco-launch: attempt 2]\n"


def shown(*chunks: bytes) -> bytes:
    banners = BannerFilter()
    return b"".join((*map(banners.feed, chunks), banners.end()))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (RANK + BANNER + RANK, RANK + RANK),
        (BANNER + SECOND, b""),
        (OTHER, OTHER),
        (b"localhost/mpirun | no license\n" + RANK, b"localhost/mpirun | no license\n" + RANK),
        (RULE + RANK + BANNER.removeprefix(RULE), RANK),  # a rank writes in between
        (RULE + b"localhost/mpirun | cut", RULE + b"localhost/mpirun | cut"),  # the job ended within
        (b"2026-11-25T02:00:00.000Z " + RULE + BANNER.removeprefix(RULE), b""),
        (RULE + b"localhost/mpirun | x\n" * 30 + RULE, RULE + b"localhost/mpirun | x\n" * 30 + RULE),
        (b"".join(HYDRA), HYDRA[0]),
        (b"h/hydra | " + b"=" * 83 + b"\nh/hydra | x\n", b"h/hydra | " + b"=" * 83 + b"\nh/hydra | x\n"),
        (OMP + RANK + TORCHRUN + RANK + TORCHRUN.replace(b"a/", b"b/"), OMP + RANK + RANK),
        (b"2026-11-25T02:00:00.000Z " + TORCHRUN, b""),
        (STOPPED + UNMET, b""),
        (UNMET + RANK, UNMET + RANK),  # no rank failed: that is all that there is
        (TORCHRUN + SECOND_ATTEMPT + OMP + TORCHRUN, SECOND_ATTEMPT + OMP),
        (TORCHRUN.replace(b"a/torchrun", b"a/0"), TORCHRUN.replace(b"a/torchrun", b"a/0")),
        (
            b"localhost/0 | Primary job  terminated normally, but\n",
            b"localhost/0 | Primary job  terminated normally, but\n",
        ),
    ],
)
def test_only_banners_are_left_out(text: bytes, left: bytes) -> None:
    assert shown(text) == left
    assert shown(*text.splitlines(keepends=True)) == left


@given(st.lists(st.sampled_from([RULE, RANK, b"gpu1/mpirun | words\n", b"\n", b"gpu1/mpirun |\n"]), max_size=60))
def test_nothing_else_is_lost(lines: list[bytes]) -> None:
    assert sorted(shown(*lines).splitlines()) == sorted(b"".join(lines).splitlines())
