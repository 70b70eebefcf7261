#!/usr/bin/env python3
"""Measures how long two ranks compute under `taco-launch run` and under the bare launcher: binding to CPUs and threads decide."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pairing
import verdicts

# A convolution and the mean of its gradients over the ranks, as a data-parallel program does it on CPUs.
_PROGRAM = """
import os, sys, torch
import torch.distributed as dist
os.environ.setdefault("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
os.environ.setdefault("WORLD_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3), torch.nn.Flatten(), torch.nn.LazyLinear(64)
model = torch.nn.Sequential(*layers)
images = torch.ones(16, 3, 32, 32)
model(images)
model = torch.nn.parallel.DistributedDataParallel(model)
for _step in range(int(sys.argv[1])):
    model(images).sum().backward()
dist.barrier()
dist.destroy_process_group()
"""
_MPIRUN, _TORCHRUN = "mpirun", "torchrun"
_OURS = {
    "taco-launch run": (_MPIRUN, ()),
    "taco-launch run --launcher torchrun": (_TORCHRUN, ("--launcher", "torchrun")),
    "taco-launch run --launcher env": (_TORCHRUN, ("--launcher", "env")),
}
# Open MPI refuses to run as root unless these are set.
_AS_ROOT = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
# Ours takes at most so many times what the bare launcher takes, its own start included.
_BAR = 1.05
_PORT = "29531"


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    made = verdicts.parser(
        "Seconds of a data-parallel program of two ranks that computes, against bare mpirun and torchrun.",
        "example:\n  .venv/bin/python scripts/benchmarks/cpu_binding.py --runs 5 --steps 400",
        timeout=600.0,
    )
    made.add_argument("--steps", type=verdicts.count, default=400, metavar="N", help="steps of training (default: 400)")
    asked = made.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        program = Path(scratch) / "program.py"
        program.write_text(_PROGRAM)
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch)
        for needed in ("taco-launch", _MPIRUN, _TORCHRUN):
            verdicts.need(needed, environ)
        contenders = _contenders((str(program), str(asked.steps)))
        found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    bars = tuple(_verdict(found, ours, bare) for ours, (bare, _options) in _OURS.items())
    data = {"steps": asked.steps, "commands": verdicts.commands(found)}
    report = verdicts.Report("cpu_binding", asked.runs, (_rows(found),), bars, data)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _contenders(program: tuple[str, ...]) -> tuple[pairing.Contender, ...]:
    meet = ("-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={_PORT}")
    python = (sys.executable, *program)
    bare = {
        _MPIRUN: ("mpirun", *_AS_ROOT, "-np", "2", "-H", "localhost:2", *meet, *python),
        _TORCHRUN: ("torchrun", "--nproc-per-node", "2", "--master-port", _PORT, *program),
    }
    ours = {name: ("taco-launch", "run", "--np", "2", *options, "--", *python) for name, (_, options) in _OURS.items()}
    return tuple(pairing.Contender(name, argv) for name, argv in (*bare.items(), *ours.items()))


def _ratio(found: Mapping[str, pairing.Measured], ours: str, bare: str) -> pairing.Spread | None:
    return pairing.paired(found[ours], found[bare], lambda one, other: one.wall / other.wall)


def _verdict(found: Mapping[str, pairing.Measured], ours: str, bare: str) -> verdicts.Verdict:
    missing = found[ours].missing or found[bare].missing
    return verdicts.Verdict(ours, _ratio(found, ours, bare), _BAR, f"x {bare}", missing=missing)


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    def times(name: str) -> tuple[str, ...]:
        ratio = _ratio(found, name, _OURS[name][0]) if name in _OURS else None
        return ("",) if ratio is None else (f"{ratio.median:.3f}",)

    return verdicts.rows(found, ("x bare",), times)


if __name__ == "__main__":
    verdicts.start(main)
