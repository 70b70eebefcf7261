"""What the agent has to know of its own host before a job is placed and its line is made."""

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Mapping, Optional, Sequence, Set

from taco_launch.agent.host import containers, gpus
from taco_launch.core.errors import HostError
from taco_launch.core.placement.default_slots import slots_of
from taco_launch.core.protocol.job_host_facts import JobHostFacts

_VERSION_SECONDS = 10.0
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, -1  # prctl(2): Yama; Open MPI's ranks allow it each other as well


def host(*, count_slots: bool) -> JobHostFacts:
    """Return slots, GPUs, `single_copy` and CPUs.

    Raises:
        HostError: nobody knows how many GPUs there are, and the slots are to be counted.
    """
    return host_with(gpus.listed(needed=count_slots))


def host_with(uuids: Optional[Sequence[str]]) -> JobHostFacts:
    """Return the same of a host whose GPUs are known, None where they are not."""
    found = None if uuids is None else len(uuids)
    return cpus().replace(slots=slots(found), gpus=found, single_copy=single_copy())


def cpus() -> JobHostFacts:
    """Return how many CPUs this process may run on, how many cores these are, and the container's image.

    Neither of the first two where the kernel does not say.
    """
    image = containers.image()
    usable = sorted(os.sched_getaffinity(0))
    try:
        siblings = Path(f"/sys/devices/system/cpu/cpu{usable[0]}/topology/thread_siblings_list").read_text("ascii")
    except OSError:
        return JobHostFacts(image=image)
    threads = len(cpu_list(siblings).intersection(usable))
    return JobHostFacts(cpus=len(usable), cores=max(1, len(usable) // max(1, threads)), image=image)


def cpu_list(text: str) -> Set[int]:
    """Read a list of CPUs as the kernel writes it (cpuset(7)): 0-3,8."""
    parts = (part.partition("-") for part in text.strip().split(",") if part)
    return {number for first, _dash, last in parts for number in range(int(first), int(last or first) + 1)}


def slots(found: Optional[int]) -> Optional[int]:
    """Return how many ranks this host takes that has so many GPUs; CPUs are those that this process may run on."""
    return slots_of(found, len(os.sched_getaffinity(0)))


def openmpi(program: str, environment: Mapping[str, str]) -> Optional[str]:
    """Return the version of the Open MPI that `program` on the environment's PATH is of, None where it does not say.

    Raises:
        HostError: it does not exist, or is another MPI's.
    """
    hint = "install Open MPI (apt-get install openmpi-bin), or set the path of another mpirun in the inventory: mpirun: /PATH/bin/mpirun"
    where = shutil.which(program, path=environment.get("PATH", os.defpath))
    if where is None:
        raise HostError(f"{program}: not found on {socket.gethostname()}", hint)
    try:
        told = subprocess.run(
            [where, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"^\S+ \(Open MPI\) (\d+(?:\.\d+)+)", told, re.MULTILINE)
    if found is None and re.search("HYDRA|MPICH|Intel\\(R\\) MPI|MVAPICH", told):
        raise HostError(f"{where} is not Open MPI: it prints {told.splitlines()[0]!r}", hint)
    return found[1] if found else None


def single_copy() -> bool:
    """Try whether a process may read the memory of a sibling, as ranks of one host do (process_vm_readv(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    shown = ctypes.create_string_buffer(b"x")
    ready, hold = os.pipe(), os.pipe()
    owner = os.fork()
    if owner == 0:  # the sibling: it lives until its pipe is closed
        try:
            os.close(hold[1])
            libc.prctl(_PR_SET_PTRACER, ctypes.c_long(_PR_SET_PTRACER_ANY), 0, 0, 0)
            os.write(ready[1], b"1")
            os.read(hold[0], 1)
        finally:
            os._exit(0)
    os.close(ready[1])
    os.read(ready[0], 1)
    reader = os.fork()
    if reader == 0:
        can = False
        try:
            can = _can_read(libc, owner, shown)
        finally:
            os._exit(0 if can else 1)
    _pid, status = os.waitpid(reader, 0)
    for descriptor in (ready[0], *hold):
        os.close(descriptor)
    os.waitpid(owner, 0)
    return status == 0


def _can_read(libc: ctypes.CDLL, owner: int, there: "ctypes.Array[ctypes.c_char]") -> bool:
    class IoVec(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    here = ctypes.create_string_buffer(1)
    local = IoVec(ctypes.cast(here, ctypes.c_void_p), 1)
    remote = IoVec(ctypes.cast(there, ctypes.c_void_p), 1)
    count = libc.process_vm_readv(owner, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return bool(count == 1 and here.raw == b"x")


def is_this_boot(recorded: object) -> bool:
    """Return whether a record is of this boot; one without the start of process 1 is of an older agent, or of a user who sees none."""
    if not isinstance(recorded, str):
        return False
    now = boot_id()
    dotted = "." in recorded and "." in now
    return recorded == now if dotted else recorded.partition(".")[0] == now.partition(".")[0]


def boot_id() -> str:
    """Name this boot of the host, or this start of the container that this runs in: process numbers mean nothing beyond it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    with contextlib.suppress(OSError), open("/proc/1/stat", "rb") as file:  # hidden from users by hidepid of proc(5)
        boot += f".{int(file.read().rpartition(b')')[2].split()[19])}"
    return boot
