"""Work on what untrusted programs wrote, in a child of this process with a limit of time: what hangs it, hangs nobody else."""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, Callable

# A child that neither answers nor uses its CPU, because others do, has so many times as long.
_WALL = 6


def bounded(act: Callable[[], Any], cpu_seconds: int) -> Any:
    """Return what `act` returns, which JSON can hold; None where it failed, or used more CPU time than it may."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            _write(writing, json.dumps(act()).encode())
        except Exception as error:  # noqa: BLE001 - the parent continues without it, and its log says why
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(0)
    os.close(writing)
    try:
        data = _read(reading, time.monotonic() + _WALL * cpu_seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    try:
        return json.loads(data)
    except ValueError:
        return None


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _read(descriptor: int, until: float) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    found = b""
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        data = os.read(descriptor, 1 << 16)
        if not data:
            return found
        found += data
    return b""
