"""The rank that failed first, or that hung where the others waited for it, at the end of `run`."""

from dataclasses import replace

import pytest

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import job_output
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobState, RankEnd
from taco_launch.core.model.stalls import HANGS, RankLook, Stall, reason
from tests.support.job_rows import GPUS, NOW, job


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
