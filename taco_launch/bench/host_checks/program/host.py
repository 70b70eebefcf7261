"""One host: rates of its CPUs, its memory and its disk in bytes/s, and the programs that test GPUs."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict

PROGRAM_SECONDS = 240.0
_CHUNK = 1 << 20
_COPY_BYTES = 32 << 20
_DISK_BYTES = 256 << 20
_OUTPUT = 1000


def hash_rate(seconds: float) -> float:
    """Return the bytes/s that one core hashes."""
    data, count, start = bytes(_CHUNK), 0, time.monotonic()
    while time.monotonic() - start < seconds:
        hashlib.sha256(data).digest()
        count += len(data)
    return count / (time.monotonic() - start)


def copy_rate(seconds: float) -> float:
    """Return the bytes/s that one core copies, from and to memory beyond its caches."""
    source, target = bytearray(_COPY_BYTES), bytearray(_COPY_BYTES)
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        target[:] = source
        count += len(source)
    return count / (time.monotonic() - start)


WORK: Dict[str, Callable[[float], float]] = {"hash": hash_rate, "copy": copy_rate}


def on_cores(kind: str, cores: int, seconds: float) -> float:
    """Return the sum of a rate over processes, which start together."""
    argv = [sys.executable, str(Path(__file__).resolve()), kind, str(seconds)]
    started = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    for each in started:
        assert each.stdout is not None
        each.stdout.readline()
    for each in started:
        assert each.stdin is not None
        each.stdin.close()
    return sum(float(each.stdout.read()) for each in started if each.stdout is not None and each.wait() == 0)


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
    work, count, name = {
        "CPU": ("hash", cores, "CPU rate"),
        "core": ("hash", 1, "CPU rate, one core"),
        "memory": ("copy", cores, "memory copy"),
    }[kind]
    return {name: on_cores(work, count, seconds)}


def readings(text: str) -> Dict[str, float]:
    """Return the bytes/s that nvbandwidth or all_reduce_perf printed, by what they are of."""
    rates = {
        f"nvbandwidth {name}": float(rate) * 1e9
        for name, rate in re.findall(r"^SUM (\w+) ([\d.]+)", text, re.MULTILINE)
    }
    bus = re.findall(r"Avg bus bandwidth\s*:\s*([\d.]+)", text)
    return {**rates, **({"all_reduce_perf": float(bus[-1]) * 1e9} if bus else {})}


def programs() -> Dict[str, Any]:
    """Run the programs that test GPUs; return [exit code, last output, readings] of each, None of one that is not installed."""
    gpus = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(gpus) if visible is None else len([word for word in visible.split(",") if word])
    if not count:
        return {}
    size = ["-b", "256M", "-e", "256M", "-g", str(count)]
    results: Dict[str, Any] = {}
    for argv in (["dcgmi", "diag", "-r", "1"], ["nvbandwidth"], ["all_reduce_perf", *size]):
        results[argv[0]] = None
        if shutil.which(argv[0]) is not None:
            try:
                done = subprocess.run(argv, capture_output=True, timeout=PROGRAM_SECONDS, check=False)
                text = (done.stdout + done.stderr).decode("utf-8", "replace")
                results[argv[0]] = [done.returncode, text[-_OUTPUT:], readings(text)]
            except subprocess.TimeoutExpired:
                results[argv[0]] = [124, f"it had not ended after {PROGRAM_SECONDS:g} s", {}]
    return results


if __name__ == "__main__":  # a process of on_cores: it is ready, and starts when its input ends
    print(flush=True)
    sys.stdin.read()
    print(WORK[sys.argv[1]](float(sys.argv[2])))
