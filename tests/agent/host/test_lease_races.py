"""Slots are taken side by side thousands of times, by gangs on several hosts: none is ever had by two.

The witness is a lock of its own for each slot, which each taker takes itself; our table of leases is not asked.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from taco_launch.agent.host import leases

TAKERS = 6
# Each host is a folder. As a gang does, a taker takes its hosts in one order, and lets all go where one refuses.
TAKER = """
import fcntl, os, random, sys, time
from pathlib import Path
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.host.leases import Leases

root, number, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(number)
names = tuple(f"slot-{slot}" for slot in range(4))
taken = refused = 0
while not (root / "go").exists():
    time.sleep(0.001)
for turn in range(rounds):
    wanted = sorted(chance.sample(range(3), chance.randint(1, 3)))
    holder = Holder(f"job-{number}", f"{number}-{turn}", time.time(), "c", "ann", os.geteuid(), os.getpid())
    held, witnesses = [], []
    for host in wanted:
        lease = Leases(root / f"host-{host}", root / "jobs")
        held.append(lease)
        got = lease.take(names, chance.randint(1, 4), holder, None)
        if not got:
            refused += 1
            break
        for name in got:
            file = os.open(root / "witness" / f"{host}-{name}", os.O_RDWR | os.O_CREAT, 0o600)
            witnesses.append(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.exit(f"host {host}: {name} is had by two")
            taken += 1
    for file in witnesses:
        os.close(file)
    for lease in held:
        lease.release(gone=chance.random() > 0.002)  # now and then a guard is killed
print(taken, refused)
"""


@pytest.mark.parametrize("rounds", [300, pytest.param(1700, marks=pytest.mark.nightly)])
def test_no_slot_is_ever_had_by_two(tmp_path: Path, rounds: int) -> None:
    (tmp_path / "witness").mkdir()
    env = {"PYTHONPATH": str(Path(leases.__file__).parents[3])}
    takers = [
        subprocess.Popen(
            (sys.executable, "-c", TAKER, str(tmp_path), str(number), str(rounds)),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(TAKERS)
    ]
    time.sleep(0.2)
    (tmp_path / "go").touch()
    said = [taker.communicate(timeout=100) for taker in takers]
    assert [complaint for _told, complaint in said if complaint] == []
    taken = sum(int(told.split()[0]) for told, _complaint in said)
    refused = sum(int(told.split()[1]) for told, _complaint in said)
    assert taken > rounds
    assert refused > rounds // 2  # they did get into each other's way
