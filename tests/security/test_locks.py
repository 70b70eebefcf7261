"""Any user may have any number of file locks, and the agent of each host reads the list of all of them."""

import os
import select
import time
import tracemalloc
from pathlib import Path

import pytest

from taco_launch.agent.host import file_locks, occupancy
from taco_launch.core.model.slots import Occupancy


def test_very_many_locks_cost_a_share_of_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Slow:
        def read(self) -> Occupancy:
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass
            return Occupancy("h", ())

        read_thoroughly = read

        def is_stale(self) -> bool:
            return False

    def waited(*words: object) -> tuple[list[int], list[int], list[int]]:
        waits.append(float(str(words[3])))
        return ([0] if len(waits) > 2 else []), [], []

    monkeypatch.setattr(select, "select", waited)
    monkeypatch.setattr(os, "read", lambda *_: b"")
    occupancy._watch(Slow(), Occupancy("h", ()))  # type: ignore[arg-type]
    assert waits[0] == 1.0
    assert min(waits[1:]) >= 4.0


def test_very_many_locks_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = tmp_path / "locks"
    with locks.open("w") as file:
        for number in range(300_000):
            file.write(f"{number}: POSIX  ADVISORY  WRITE 708 08:01:12345 {2 * number} {2 * number}\n")
        file.write("300000: FLOCK  ADVISORY  WRITE 709 08:01:77 0 EOF\n")
    monkeypatch.setattr(file_locks, "open", lambda _path, **how: locks.open(**how), raising=False)
    tracemalloc.start()
    held = file_locks.read()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 << 20 < locks.stat().st_size
    about = os.stat_result((0o100644, 77, os.makedev(8, 1), 1, 0, 0, 0, 0, 0, 0))
    assert held.takers(about) == (709,)
