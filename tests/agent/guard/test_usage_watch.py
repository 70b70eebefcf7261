"""When a guard samples how much its job uses: not while the ranks start, then every ten seconds of the test's own time."""

import sys
from collections.abc import Mapping

import pytest

from taco_launch.agent.counters import process_trees
from taco_launch.agent.guard.usage_watch import SECONDS, UsageWatcher
from taco_launch.core.protocol.guard_messages import UsageSample
from taco_launch.core.protocol.message import Message
from tests.agent.conftest import Family
from tests.support.smi import GPUS, Smi


class Watch:
    """A watcher and what it has told."""

    def __init__(self) -> None:
        self.watcher, self.told = UsageWatcher(), list[Message]()

    def at(self, now: float, *roots: tuple[int, int], slots: tuple[str, ...] = ()) -> int:
        """Check at a time; give how many samples there are since then."""
        self.watcher.check(now, dict(enumerate(roots)), slots, self.told.append)
        return len(self.told)


def test_samples(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    root = family.root(family.start((sys.executable, "-S", "-c", "input()")))
    walks = []
    trees = process_trees.trees

    def counted(roots: Mapping[int, tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        walks.append(1)
        return trees(roots)

    monkeypatch.setattr(process_trees, "trees", counted)
    watch = Watch()
    assert watch.at(0.0) == 0
    assert [watch.at(now, root) for now in (1.0, 10.9, 11.0, 20.9)] == [0, 0, 0, 0]
    assert watch.at(21.0, root) == 1
    assert watch.at(21.0 + SECONDS - 0.1, root) == 1
    assert watch.at(1000.0) == 1, "no rank runs"
    assert [watch.at(1000.0 + SECONDS * number, root) for number in range(5)] == [2, 3, 4, 5, 6]
    assert len(walks) == 2
    (sample, *_more) = watch.told
    assert isinstance(sample, UsageSample)
    assert UsageSample.from_wire(sample.to_wire()) == sample
    assert (sample.usage.job_cpus, sample.usage.gpus) == (0, 0)
    watch.watcher.close()


def test_no_gpu_of_the_job_and_no_nvidia_smi_is_started(smi: Smi, family: Family) -> None:
    assert smi.folder.exists()
    root = family.root(family.start((sys.executable, "-S", "-c", "input()")))
    watch = Watch()
    for now in (0.0, 10.0, 20.0):
        watch.at(now, root, slots=("slot-0",))
    assert watch.watcher._gpus is not None
    assert watch.watcher._gpus._process is None
    for other in (Watch(),):
        for now in (0.0, 10.0, 20.0):
            other.at(now, root, slots=GPUS[:1])
        assert other.watcher._gpus is not None
        assert other.watcher._gpus._process is not None
        other.watcher.close()
        assert other.watcher._gpus._process is None
