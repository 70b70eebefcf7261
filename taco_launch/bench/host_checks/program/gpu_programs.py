"""One host: the programs that test its GPUs, where the image has them."""

import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, Tuple

from . import dcgm

PROGRAM_SECONDS = 300.0
# What dcgmi needs to stop the test that it has started in another process.
_STOP_SECONDS = 10.0
_OUTPUT = 1000


def readings(text: str) -> Dict[str, float]:
    """Return the bytes/s that nvbandwidth or all_reduce_perf printed, by what they are of."""
    rates = {
        f"nvbandwidth {name}": float(rate) * 1e9
        for name, rate in re.findall(r"^SUM (\w+) ([\d.]+)", text, re.MULTILINE)
    }
    bus = re.findall(r"Avg bus bandwidth\s*:\s*([\d.]+)", text)
    return {**rates, **({"all_reduce_perf": float(bus[-1]) * 1e9} if bus else {})}


def programs() -> Dict[str, Any]:
    """Run the programs that test GPUs; return [exit code, last output, readings, tests of DCGM] of each, None if it is not installed."""
    gpus = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(gpus) if visible is None else len([word for word in visible.split(",") if word])
    if not count:
        return {}
    size = ["-b", "256M", "-e", "256M", "-g", str(count)]
    results: Dict[str, Any] = {}
    for argv in (dcgm.ARGV, ["nvbandwidth"], ["all_reduce_perf", *size]):
        results[argv[0]] = None
        if shutil.which(argv[0]) is not None:
            code, text = _run(argv)
            tests = dcgm.rows(text) if argv is dcgm.ARGV else []
            results[argv[0]] = [code, text[-_OUTPUT:], readings(text), tests]
    return results


def _run(argv: List[str]) -> Tuple[int, str]:
    """Run a program and return its exit code and its output; 124 if it took too long, 126 if it cannot be started."""
    try:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return 126, str(error)
    with process:
        try:
            output, _ = process.communicate(timeout=PROGRAM_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            return 124, f"it had not ended after {PROGRAM_SECONDS:g} s"
    return process.returncode, output.decode("utf-8", "replace")
