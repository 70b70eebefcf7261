"""One host: rates of its CPUs, its memory and its disk in bytes/s."""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict

_CHUNK = 1 << 20
# A copy has two of these; fewer bytes would fit into caches.
_COPY_BYTES, _LEAST_COPY_BYTES = 32 << 20, 8 << 20
# Memory that a container may have, of version 2 and 1 of control groups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_DISK_BYTES = 256 << 20


def hash_rate(seconds: float, size: int) -> float:
    """Return the bytes/s that one core hashes, so many bytes at once."""
    data, count, start = bytes(size), 0, time.monotonic()
    while time.monotonic() - start < seconds:
        hashlib.sha256(data).digest()
        count += len(data)
    return count / (time.monotonic() - start)


def copy_rate(seconds: float, size: int) -> float:
    """Return the bytes/s that one core copies, so many bytes at once."""
    source, target = bytearray(size), bytearray(size)
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        target[:] = source
        count += len(source)
    return count / (time.monotonic() - start)


WORK: Dict[str, Callable[[float, int], float]] = {"hash": hash_rate, "copy": copy_rate}


def copy_bytes(cores: int) -> int:
    """Return how many bytes each core copies at once; all copies take at most half of the free memory.

    Raises:
        OSError: there is too little for a measurement beyond caches.
    """
    free = [1024 * int(each) for each in re.findall(r"^MemAvailable:\s*(\d+)", _text("/proc/meminfo"), re.MULTILINE)]
    free += [int(text) for text in map(_text, _LIMITS) if text.strip().isdigit()]
    size = min([_COPY_BYTES, *(each // (4 * cores) for each in free)])
    if size < _LEAST_COPY_BYTES:
        raise OSError(f"memory copy: {min(free) >> 20} MiB of memory are too little for copies by {cores} cores")
    return size


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8")
    return ""


def on_cores(kind: str, cores: int, seconds: float, size: int) -> float:
    """Return the sum of a rate over processes, which start together.

    Raises:
        OSError: one of them failed; with the end of its output.
    """
    argv = [sys.executable, str(Path(__file__).resolve()), kind, str(seconds), str(size)]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(cores)]
    for each in started:
        assert each.stdout is not None
        each.stdout.readline()
    for each in started:
        assert each.stdin is not None
        each.stdin.close()
        each.stdin = None  # as communicate() requires of one that is closed
    ends = [(each.communicate(), each.returncode) for each in started]
    for (_, errors), code in ends:
        if code:
            why = (
                f"signal {-code}: out of memory?" if code < 0 else (errors.strip().splitlines() or [f"exit {code}"])[-1]
            )
            raise OSError(f"{kind} on {cores} cores: a process failed: {why}")
    return sum(float(output) for (output, _), _ in ends)


def disk() -> Dict[str, float]:
    """Write a file in the job's folder to the disk and read it again; return both rates.

    Raises:
        OSError: it cannot be written, or the disk is full.
    """
    free = os.statvfs(".")
    size = min(_DISK_BYTES, free.f_bavail * free.f_frsize // 10) // _CHUNK * _CHUNK
    if not size:
        raise OSError("too little space is free in the job's folder")
    data = os.urandom(_CHUNK)
    with tempfile.TemporaryFile(dir=".") as file:
        start = time.monotonic()
        for _ in range(size // _CHUNK):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
        written = time.monotonic() - start
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        start = time.monotonic()
        while file.read(_CHUNK):
            pass
        return {"disk write": size / written, "disk read": size / (time.monotonic() - start)}


def local(kind: str, seconds: float) -> Dict[str, Any]:
    """Measure one thing of this host once; return rates by their names."""
    cores = len(os.sched_getaffinity(0))
    if kind == "disk":
        return dict(disk())
    if kind == "memory":
        return {"memory copy": on_cores("copy", cores, seconds, copy_bytes(cores))}
    count, name = {"CPU": (cores, "CPU rate"), "core": (1, "CPU rate, one core")}[kind]
    return {name: on_cores("hash", count, seconds, _CHUNK)}


if __name__ == "__main__":  # a process of on_cores: it is ready, and starts when its input ends
    print(flush=True)
    sys.stdin.read()
    print(WORK[sys.argv[1]](float(sys.argv[2]), int(sys.argv[3])))
