"""GPU use of a host, from one nvidia-smi that keeps running: each start costs more than all of its answers."""

import contextlib
import os
import subprocess
from dataclasses import replace
from typing import Collection, Dict, List, NamedTuple, Optional, Sequence

from taco_launch.agent.host import gpus
from taco_launch.core.model.job_view import Usage

# Of NVML's nvmlClocksEventReasons: HwSlowdown, SwThermalSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown.
_FAULTS = 0x8 | 0x20 | 0x40 | 0x80
_MOST_BYTES, _MOST_GPUS = 1 << 16, 1 << 10


class GpuNumbers(NamedTuple):
    """One GPU: the share of time with a kernel, the share of memory in use, watts, °C, and 1 if a fault slows it down."""

    gpu: Optional[float]
    gpu_memory: Optional[float]
    power: Optional[float]
    temperature: Optional[float]
    throttled: Optional[float]


def parse(text: str) -> Dict[str, GpuNumbers]:
    """Read lines of `gpus.COUNTERS`, by UUID; the last one of a GPU counts, and what is no number is not known."""
    rows: Dict[str, GpuNumbers] = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 7 and len(rows) < _MOST_GPUS:
            use, used, total, power, temperature = map(_number, words[1:6])
            memory = used / total if used is not None and total else None
            rows[words[0]] = GpuNumbers(
                _share(None if use is None else use / 100), _share(memory), power, temperature, _throttled(words[6])
            )
    return rows


def added(usage: Usage, numbers: Sequence[GpuNumbers]) -> Usage:
    """Add GPUs to a host: the mean of each value, and the highest temperature."""
    values = {
        name: [one for one in column if one is not None] for name, column in zip(GpuNumbers._fields, zip(*numbers))
    }
    hottest = max(values.pop("temperature", ()), default=None)
    means = {name: sum(column) / len(column) for name, column in values.items() if column}
    return replace(usage, gpus=len(numbers), temperature=hottest, **means)


class GpuSampler:
    """An nvidia-smi that tells every `seconds` how the job's GPUs are used; nothing where it cannot be run."""

    def __init__(self, uuids: Collection[str], seconds: int) -> None:
        """Start it. It ends by SIGPIPE at its next answer should this process be killed."""
        self._uuids = frozenset(uuids)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._rest = b""
        if not self._uuids:
            return
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["nvidia-smi", *gpus.COUNTERS, f"--loop={seconds}"],  # noqa: S607 - it lies elsewhere on some hosts
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdout is not None
            os.set_blocking(self._process.stdout.fileno(), False)

    def read(self) -> List[GpuNumbers]:
        """Return the job's GPUs as of its last answer since the last call; none where it has not answered."""
        if self._process is None or self._process.stdout is None:
            return []
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._process.stdout.fileno(), _MOST_BYTES)
        lines, _line_end, self._rest = self._rest.rpartition(b"\n")
        self._rest = self._rest[-_MOST_BYTES:]
        return [one for uuid, one in parse(lines.decode("ascii", "replace")).items() if uuid in self._uuids]

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None


def _number(word: str) -> Optional[float]:
    try:
        value = float(word)
    except ValueError:  # [N/A]
        return None
    return value if 0 <= value < 1e9 else None


def _share(value: Optional[float]) -> Optional[float]:
    return None if value is None else min(1.0, value)


def _throttled(word: str) -> Optional[float]:
    try:
        return float(int(word, 16) & _FAULTS != 0)
    except ValueError:
        return None
