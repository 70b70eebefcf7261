"""What the kernel counts of a process: bytes that it read and wrote, and its CPU time. Reading, and its pure parts."""

import os
import re
from typing import Dict, Iterable, NamedTuple, Optional

_MOST_BYTES = 1 << 16
_IO = re.compile(r"^(rchar|wchar): (\d{1,20})$", re.MULTILINE)


class ProcessCounters(NamedTuple):
    """Bytes read and written through system calls, sockets and pipes too (proc(5), rchar and wchar); CPU time in seconds.

    `main_cpu_seconds` is that of the main thread alone: others may poll for it. `state` is the letter of /proc/PID/stat.
    """

    read: Optional[int]
    written: Optional[int]
    cpu_seconds: float
    main_cpu_seconds: float
    state: str


def io_bytes(text: str) -> Dict[str, int]:
    """Read /proc/PID/io: `rchar` and `wchar`, as far as whole lines of them are there."""
    return {name: int(number) for name, number in _IO.findall(text)}


def cpu_and_state(text: str, ticks_per_second: float) -> Optional[ProcessCounters]:
    """Read /proc/PID/stat or that of a thread: CPU time, of children that ended too; None where it is cut."""
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or not all(field.isdigit() for field in fields[11:15]):
        return None
    ticks = sum(int(field) for field in fields[11:15])
    return ProcessCounters(None, None, ticks / ticks_per_second, 0.0, fields[0])


def counters(pid: int) -> Optional[ProcessCounters]:
    """Return the counters of a process, None where it is gone; bytes are None where this user may not read them."""
    ticks = float(os.sysconf("SC_CLK_TCK"))
    found = cpu_and_state(_text(pid, "stat"), ticks)
    main = cpu_and_state(_text(pid, f"task/{pid}/stat"), ticks)
    if found is None or main is None:
        return None
    told = io_bytes(_text(pid, "io"))
    return found._replace(
        read=told.get("rchar"), written=told.get("wchar"), main_cpu_seconds=main.cpu_seconds, state=main.state
    )


def of_processes(pids: Iterable[int]) -> Optional[ProcessCounters]:
    """Return the sums over processes; None where all are gone. The state is that which tells most: stopped before all."""
    found = [one for one in map(counters, pids) if one is not None]
    if not found:
        return None
    states = {one.state for one in found}
    state = next((letter for letter in "TtDRS" if letter in states), found[0].state)
    return ProcessCounters(
        _sum(one.read for one in found),
        _sum(one.written for one in found),
        sum(one.cpu_seconds for one in found),
        sum(one.main_cpu_seconds for one in found),
        state,
    )


def _sum(numbers: Iterable[Optional[int]]) -> Optional[int]:
    told = list(numbers)
    return None if None in told else sum(number for number in told if number is not None)


def _text(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:  # gone, or not for our eyes
        return ""
