"""Whether ranks do anything, seen on real processes; the time is the test's."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from taco_launch.agent.guard.stall_monitor import StallMonitor, where
from taco_launch.agent.host import processes
from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from tests.conftest import eventually

AFTER = 20.0  # so it looks every 5 s
SPIN = "while True: pass"
CALM = "import time; time.sleep(1000)"
# New processes all the time, none of which uses CPU time that a clock tick would show.
FORKS = "import os, time\nwhile True:\n if not os.fork(): time.sleep(1000)\n time.sleep(0.05)"

Start = Callable[[str], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a rank: a wrapper and below it Python with a script; gives the wrapper's number."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(script: str) -> int:
        wrapper = subprocess.Popen(
            ["/bin/sh", "-c", '"$@"; exit', "sh", sys.executable, "-S", "-c", script], start_new_session=True
        )
        started.append(wrapper)
        eventually(lambda: [entry for entry in processes.children(wrapper.pid) if is_python(entry.pid)])
        time.sleep(0.2)  # Python itself has to start
        return wrapper.pid

    yield begin
    for wrapper in started:
        os.killpg(wrapper.pid, signal.SIGKILL)
        wrapper.wait()


def is_python(pid: int) -> bool:
    with open(f"/proc/{pid}/comm", encoding="ascii") as name:
        return name.read().startswith("python")


class Watch:
    """A pulse that is looked at every five seconds of its own time."""

    def __init__(self, folder: JobFolder, *wrappers: int) -> None:
        self.wrappers, self.now = wrappers, 0.0
        self.running = list(range(len(wrappers)))
        self.pulse = StallMonitor()
        self.pulse.begin(folder, AFTER)
        self.logs = [segments.Writer(folder.rank(rank), 1 << 20) for rank in self.running]
        for rank, pid in enumerate(wrappers):
            entry = processes.identify(pid)
            assert entry is not None
            self.pulse.add(rank, [[entry.pid, entry.start], [1, 1]])

    def look(self, seconds: float = 5.0) -> Any:
        self.now += seconds
        told: list[Any] = []
        self.pulse.check(self.now, self.running, lambda message: told.append(json.loads(message.encode())))
        return told[0] if told else None

    def looks(self, count: int) -> list[Any]:
        return [self.look() for _look in range(count)]

    def silent(self) -> None:
        """The first two looks have nothing to compare with; the four after that are 20 s of silence."""
        assert self.looks(5) == [None] * 5


def test_ranks_that_do_nothing_are_told_with_what_they_do(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM), start("import os; os.kill(os.getpid(), 19)"))
    watch.logs[1].write(b"one\n 1%\r 2%\rlast\xff words \r\n\n")
    watch.silent()
    told = watch.look()
    assert (told["op"], told["silent"]) == ("pulse", 20.0)
    calm, stopped = told["ranks"]
    assert (calm["rank"], calm["state"], calm["silent"], calm["last_line"]) == (0, "S", 25.0, "")
    assert (stopped["rank"], stopped["state"], stopped["last_line"]) == (1, "T", "last\ufffd words")
    assert calm["program"].startswith("python")
    assert [entry.pid for entry in processes.children(watch.wrappers[0])] == [calm["pid"]]
    assert calm["where"] == where(calm["pid"])


def test_of_a_ranks_processes_the_stopped_one_is_shown(folder: JobFolder, start: Start) -> None:
    """Not the one that has used more CPU time and waits, nor the zombie."""
    script = "import os, time\nif not os.fork(): os.kill(os.getpid(), 19)\nif not os.fork(): os._exit(0)\n"
    wrapper = start(script + "sum(range(10**6)); time.sleep(1000)")

    def settled() -> bool:
        (rank,) = processes.children(wrapper)
        return (rank.state, {entry.state for entry in processes.children(rank.pid)}) == ("S", {"T", "Z"})

    eventually(settled)
    watch = Watch(folder, wrapper)
    watch.silent()
    assert watch.look()["ranks"][0]["state"] == "T"


@pytest.mark.parametrize("script", [SPIN, FORKS])
def test_ranks_that_work_are_not_told(folder: JobFolder, start: Start, script: str) -> None:
    watch = Watch(folder, start(CALM), start(script))
    for _look in range(4):
        assert watch.look() is None
        time.sleep(0.5)  # where others work too it may be a while until it has a core


def test_cpu_time_of_processes_that_have_ended_counts(folder: JobFolder, start: Start) -> None:
    """A process that comes and goes between two looks is seen by the CPU time that its parent is given for it."""
    burn = "subprocess.run([sys.executable, '-S', '-c', 'sum(range(2*10**7))'])"
    script = f"import signal, subprocess, sys, time\nsignal.signal(10, lambda *_: {burn})\nwhile True: time.sleep(1000)"
    watch = Watch(folder, start(script))
    watch.silent()
    (python,) = processes.children(watch.wrappers[0])
    os.kill(python.pid, signal.SIGUSR1)
    eventually(lambda: processes.children(python.pid))
    eventually(lambda: not processes.children(python.pid))
    assert watch.look() is None
    assert watch.looks(3) == [None] * 3
    assert watch.look()["silent"] == 20.0


def test_output_clears_it_once_and_costs_no_look_at_processes(
    folder: JobFolder, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(folder, start(CALM), start(CALM))
    watch.silent()
    assert watch.look()["silent"] == 20.0
    monkeypatch.setattr(
        "taco_launch.agent.guard.stall_monitor.trees", lambda _roots: pytest.fail("looked at all processes")
    )
    watch.logs[1].write(b"x")
    assert watch.look() == {"op": "pulse", "silent": 0.0, "ranks": []}
    for _look in range(6):
        watch.logs[1].write(b"x")
        assert watch.look() is None


def test_it_is_told_again_over_a_new_connection(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM))
    watch.pulse.repeat_report()
    assert watch.look() is None  # nothing was ever told
    watch.looks(5)
    watch.logs[0].write(b"x")
    assert watch.look()["silent"] == 0.0
    watch.pulse.repeat_report()
    assert watch.look()["silent"] == 0.0
    assert watch.look() is None


def test_a_rank_that_ends_is_something_and_hosts_without_ranks_stay_silent(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM), start(CALM))
    watch.silent()
    assert len(watch.look()["ranks"]) == 2
    watch.running.remove(0)
    assert watch.look()["silent"] == 0.0
    watch.running.remove(1)
    assert watch.looks(4) == [None] * 4
    assert watch.look() == {"op": "pulse", "silent": 20.0, "ranks": []}


def test_a_suspended_machine_is_no_hang(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM))
    assert watch.look() is None
    assert watch.look() is None
    assert watch.look(3600.0) is None


def test_it_looks_no_oftener_than_it_has_to(folder: JobFolder, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(folder, start(CALM))
    watch.look()
    monkeypatch.setattr("taco_launch.agent.logs.segments.size", lambda _stem: pytest.fail("looked"))
    assert [watch.look(0.5) for _look in range(9)] == [None] * 9


def test_nothing_is_looked_at_before_there_are_ranks(folder: JobFolder) -> None:
    watch = Watch(folder)
    assert watch.looks(20) == [None] * 20
    watch.pulse = StallMonitor()
    assert watch.look() is None
