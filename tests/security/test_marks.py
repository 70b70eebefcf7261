"""Processes are a job's by their mark and their user: what a stranger runs is neither taken for a job's nor costs memory."""

import os
import resource
import subprocess

import pytest

from taco_launch.agent.host import processes
from tests.agent.conftest import Family
from tests.security.attacker import ATTACKER, attacker

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root can be attacked by a second user"),
    pytest.mark.timeout(60),
]

# A process may say that its environment is any range of its memory: of nothing but zeros, which costs nothing (prctl(2)).
_ENDLESS = """
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
size = int(sys.argv[1]) << 20
at = libc.mmap(None, size, 3, 0x4022, -1, 0)
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
code, data, brk, stack = (int(stat[n]) for n in (23, 42, 44, 25))
words = [code, int(stat[24]), data, int(stat[43]), brk, libc.sbrk(0), stack, at, at, at, at + size, 0]
told = (ctypes.c_uint64 * 13)(*words, 0xFFFFFFFF << 32)
assert libc.prctl(35, 14, ctypes.byref(told), ctypes.sizeof(told), 0) == 0, ctypes.get_errno()
print(flush=True)
time.sleep(60)
"""


def test_an_endless_environment_costs_nothing(family: Family) -> None:
    """A host's end of a job looks at the environment of every process."""
    ours = family.start(("sleep", "60"), marked=True)
    with subprocess.Popen(attacker(_ENDLESS, "4096"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == b"\n", stranger.stderr and stranger.stderr.read()
            with open(f"/proc/{stranger.pid}/environ", "rb") as file:
                assert len(file.read(1 << 24)) == 1 << 24
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert [entry.pid for entry in processes.scan(family.job_id).found] == [ours.pid]
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
        finally:
            stranger.kill()


def test_a_strangers_process_is_not_ours_by_its_mark(family: Family) -> None:
    """It would keep the job from being proven gone: the mark is in the public record of each slot."""
    ours = family.start(("sleep", "60"), marked=True)
    family.start(("sleep", "60"), marked=True, user=ATTACKER)
    assert [entry.pid for entry in processes.scan(family.job_id).found] == [ours.pid]
