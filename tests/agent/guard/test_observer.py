"""Whether ranks make progress, seen on real processes; the time is the test's."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from taco_launch.agent.counters.process_trees import where
from taco_launch.agent.guard.observer import ProgressWatcher
from taco_launch.agent.host import processes
from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model.run.rank_samples import Frame, RankStack, Stack
from taco_launch.core.model.stalls import RankLook
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


class Reading:
    """A reading of stacks that is done at once."""

    def __init__(self, stacks: dict[int, RankStack]) -> None:
        self.runs, self._stacks, self._started = False, stacks, True

    def start(self) -> None:
        self._started = True

    def take(self) -> dict[int, RankStack] | None:
        started, self._started = self._started, False
        return self._stacks if started else None


class Watch:
    """An observer that looks every five seconds of its own time; stacks are those of `stacks`."""

    def __init__(self, folder: JobFolder, *wrappers: int) -> None:
        self.wrappers, self.now = wrappers, 0.0
        self.running = list(range(len(wrappers)))
        self.stacks: dict[int, RankStack] = {}
        self.pulse = ProgressWatcher(folder)
        self.pulse.begin(folder, AFTER)
        self.logs = [segments.Writer(folder.rank(rank), 1 << 20) for rank in self.running]
        for rank, pid in enumerate(wrappers):
            entry = processes.identify(pid)
            assert entry is not None
            self.pulse.add(rank, [[entry.pid, entry.start], [1, 1]])

    def look(self, seconds: float = 5.0) -> Any:
        self.now += seconds
        told: list[Any] = []
        if self.pulse._ranks is not None:
            self.pulse._ranks._reading = Reading(self.stacks)  # type: ignore[assignment]
        self.pulse.check(self.now, self.running, lambda message: told.append(json.loads(message.encode())))
        return told[0] if told else None

    def looks(self, count: int) -> list[Any]:
        return [self.look() for _look in range(count)]

    def silent(self) -> None:
        """The first look has nothing to compare with; with the next one that differs 20 s are over."""
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


def test_processes_that_come_and_go_are_progress(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM), start(FORKS))
    for _look in range(6):
        assert watch.look() is None
        time.sleep(0.5)  # where others work too it may be a while until it has a core


def test_files_that_are_read_are_progress(folder: JobFolder, start: Start) -> None:
    reads = "import time\nwhile True:\n open('/proc/cpuinfo').read(); open('/etc/passwd').read(); time.sleep(0.001)"
    watch = Watch(folder, start(CALM), start(reads))
    for _look in range(6):
        assert watch.look() is None
        time.sleep(0.5)


def test_a_rank_that_uses_cpu_is_not_idle_and_what_its_stack_shows_is_told(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM), start(SPIN))
    waits = Stack((Frame("ncclAllReduce", "/opt/libnccl.so.2"), Frame("<module>", "/train/train.py", 57)))
    watch.stacks = {1: RankStack(RankLook(1), waits)}
    assert watch.looks(5) == [None] * 5
    time.sleep(2)  # of the 25 s that the test says have gone by, it has to use more than a fiftieth
    calm, spins = watch.look()["ranks"]
    assert (calm["idle"], calm["does"]) == (True, "")
    assert (spins["idle"], spins["waits"], spins["does"]) == (False, True, "in ncclAllReduce at train.py:57")


def test_a_stack_that_moves_is_progress(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM))
    for line in range(12):
        watch.stacks = {0: RankStack(RankLook(0), Stack((Frame("train", "/train/train.py", 10 + line),)))}
        assert watch.look() is None


def test_what_only_tells_that_it_hangs_is_no_output(folder: JobFolder, start: Start) -> None:
    watch = Watch(folder, start(CALM))
    warning = b"[W stall_inspector.cc:105] One or more tensors were submitted to be reduced by subset of ranks\n"
    for _look in range(5):
        assert watch.look() is None
        watch.logs[0].write(warning)
    assert watch.look()["silent"] == 20.0
    watch.logs[0].write(warning + b"step 8\n")
    assert watch.look()["silent"] == 0.0


def test_output_clears_it_once_and_costs_no_look_at_processes(
    folder: JobFolder, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(folder, start(CALM), start(CALM))
    watch.silent()
    assert watch.look()["silent"] == 20.0
    watch.logs[1].write(b"x")
    assert watch.look() == {"op": "pulse", "silent": 0.0, "ranks": []}
    monkeypatch.setattr(
        "taco_launch.agent.counters.process_trees.trees", lambda _roots: pytest.fail("looked at all processes")
    )
    for _look in range(4):
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
    watch.pulse = ProgressWatcher(folder)
    assert watch.look() is None
