"""The notes that `run` prints while ranks print nothing."""

import time

from taco_launch.cli.output.waiting import SilenceNotes
from tests.conftest import eventually


def test_a_silence_is_noted_once_and_the_next_one_after_twice_the_time() -> None:
    notes: list[tuple[bool, float]] = []
    silence = SilenceNotes(lambda printed, seconds: notes.append((printed, seconds)), 0.05)
    silence.state("STARTING")
    time.sleep(0.15)
    assert not notes  # nobody runs who could print
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
