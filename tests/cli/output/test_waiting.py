"""The notes that `run` prints while ranks print nothing, and the last line of a job."""

import time
from dataclasses import replace

import pytest

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import job_output
from taco_launch.cli.output.waiting import SilenceNotes
from taco_launch.core.model.job_view import Progress
from taco_launch.core.model.jobs import JobState
from tests.conftest import eventually
from tests.support.job_rows import job


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
