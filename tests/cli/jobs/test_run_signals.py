"""Signals to a `run` that follows its job, however long its main thread is not woken by them; the timeout of `wait`."""

import itertools
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.jobs import own_terminal
from taco_launch.cli.jobs.own_terminal import Escapes
from tests.conftest import Taco
from tests.support.patience import patience

# As where a signal arrives just before a read: it is there, and the main thread is not interrupted by it.
FOLLOWS = """
import signal, sys
from types import SimpleNamespace
from taco_launch.cli.jobs.start_job import _Signals

def stop(names, by, *_more):
    print("stop", *names, by, flush=True)
    return SimpleNamespace(job=lambda _name: None)

signals = _Signals(SimpleNamespace(typed="taco-launch", stop=stop), "j", 10.0)
signals.job_started()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
print("follows", flush=True)
sys.stdin.read()
"""

WAITS = """
import sys, time
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.cli.main import main
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState

def follow(*given):
    time.sleep({seconds})
    return JobView(JobSpec("x", ("true",), ()), JobRecord("x", JobState.SUCCEEDED), "")

AgentBackend.follow = follow
sys.argv = ["taco-launch", "wait", "x", "--timeout", "1s"]
main()
"""

QUEUED = """
import os, signal, sys, time
from types import SimpleNamespace
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.cli.main import main
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobState

def stop(_backend, *given):
    return SimpleNamespace(job=lambda _name: None)

def run(_backend, spec, _environment, _show, watch):
    watch.accepted()
    watch.state("QUEUED")
    watch.waits((("", "number 3 in the queue"),))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
    watch.waits((("", "number 2 in the queue"),))
    return JobView(spec, JobRecord("x", JobState.CANCELLED, exit_code=143), "")

AgentBackend.run, AgentBackend.stop = run, stop
sys.argv = ["taco-launch", "run", "--name", "h", "--", "true"]
main()
"""


@pytest.mark.parametrize("before", [(), (signal.SIGINT,), (signal.SIGINT, signal.SIGTERM)])
def test_a_signal_is_obeyed_while_the_main_thread_reads(before: tuple[signal.Signals, ...]) -> None:
    argv = (sys.executable, "-c", FOLLOWS)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == b"follows\n"
        for number in before:
            follower.send_signal(number)
            by = "Ctrl-C" if number == signal.SIGINT else number.name
            assert follower.stdout.readline() == f"stop j {by}\n".encode()
        last = before[-1] if len(before) == 2 else signal.SIGHUP
        follower.send_signal(last)
        try:
            follower.wait(patience(10))  # its stdin stays open
        finally:
            follower.kill()
        err = follower.stderr.read()
    assert follower.returncode == 128 + last
    assert (b"leaving job j" if last != signal.SIGHUP else b"job j keeps running: taco-launch logs -f j") in err


@pytest.mark.parametrize(("seconds", "code"), [(0, 0), (60, 124)])
def test_wait_ends_after_its_timeout(taco: Taco, seconds: int, code: int) -> None:
    argv = (sys.executable, "-c", WAITS.format(seconds=seconds))
    done = subprocess.run(argv, env=taco.env, capture_output=True, text=True, timeout=patience(30), check=False)
    assert done.returncode == code, done.stderr
    told = "error: job x has not ended after 1s; it was not stopped\nhint: taco-launch get x\n"
    assert done.stderr.endswith(told if code else "job x: SUCCEEDED: \n")


def test_a_job_that_leaves_the_queue_does_not_wait(taco: Taco) -> None:
    argv = (sys.executable, "-c", QUEUED)
    err = subprocess.run(argv, env=taco.env, capture_output=True, text=True, timeout=patience(30), check=False).stderr
    assert "number 3 in the queue" in err
    assert "removing job h from the queue" in err
    assert "number 2 in the queue" not in err


# --- What is typed on its way to a command elsewhere: nothing is lost or added but for the escape


def passed(*pieces: bytes) -> tuple[bytes, bool]:
    found = Escapes()
    return b"".join(found.passed(piece) for piece in pieces), found.left


@pytest.mark.parametrize(
    ("typed", "goes", "left"),
    [
        (b"~.", b"", True),
        (b"ls\r~.", b"ls\r", True),
        (b"ls\n~.more", b"ls\n", True),
        (b"~~.", b"~.", False),
        (b"~/bin\r", b"~/bin\r", False),
        (b"a~.", b"a~.", False),
        (b"\r~\r~.", b"\r~\r", True),
        (b"~", b"", False),
    ],
)
def test_the_escape(typed: bytes, goes: bytes, left: bool) -> None:
    assert passed(typed) == (goes, left)
    assert passed(*(bytes([byte]) for byte in typed)) == (goes, left)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_whatever_the_pieces_it_comes_in(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert passed(*pieces) == passed(data)
    if b"~" not in data:
        assert passed(data) == (data, False)


@pytest.mark.parametrize(("kind", "known"), [("xterm-256color", "xterm-256color"), ("", "dumb"), ("x y", "dumb")])
def test_the_kind_of_a_terminal(monkeypatch: pytest.MonkeyPatch, kind: str, known: str) -> None:
    monkeypatch.setenv("TERM", kind)
    assert own_terminal.terminal().kind == known
