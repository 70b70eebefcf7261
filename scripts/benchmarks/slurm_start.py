#!/usr/bin/env python3
"""Measures how long the first line of a job on Slurm takes: by `taco-launch -i slurm: run`, and by sbatch of the bare mpirun line.

Both start four ranks on the two nodes of a Slurm that this script starts on this machine, and ends: as root, with slurm-wlm
and munge installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pairing
import verdicts

_ROOT = Path(__file__).resolve().parents[2]
_NP = 4
_COMMAND = ("sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || echo first')
_OURS = f"taco-launch run --np {_NP}"
_SBATCH = f"sbatch, mpirun -np {_NP}"
_JOB = "first-line"
# The first line of ours, times that of sbatch.
_BAR = 1.5
# $1 is the job's output, $2 the line. A person looks into the file that sbatch names until something is there.
_SUBMIT = """rm -f "$1"
job=$(sbatch --parsable --ntasks={ranks} --gpus-per-task=1 --output="$1" --wrap "$2") || exit
until grep -s first "$1"; do sleep 0.02; done
while squeue --noheader --jobs="$job" 2>/dev/null | grep -q .; do sleep 0.1; done
"""


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    sys.path.insert(0, str(_ROOT))
    from tests.e2e.slurm import slurm, why_not  # noqa: PLC0415 - the Slurm of the tests

    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        (Path(scratch) / "slurm").mkdir()
        with slurm(Path(scratch) / "slurm") as variables:
            measuring = os.fork()  # which waits for all its children: the daemons of Slurm must be none of them
            if measuring == 0:
                try:
                    code = _measure(asked, Path(scratch), variables["SLURM_CONF"])
                    sys.stdout.flush()
                    os._exit(code)
                finally:
                    os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(measuring, 0)[1])


def _measure(asked: argparse.Namespace, scratch: Path, conf: str) -> int:
    """Measure with the Slurm of that slurm.conf, print, give the exit code."""
    environ = pairing.environment(TACO_LAUNCH_STATE=f"{scratch}/state") | {
        "SLURM_CONF": conf,
        "TACO_LAUNCH_INVENTORY": "slurm:",
    }
    contenders = _contenders(scratch)
    found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    report = verdicts.Report(
        "slurm_start", asked.runs, (_rows(found),), _bars(found), {"commands": verdicts.commands(found)}
    )
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        f"Seconds to the first line of {_NP} ranks on two nodes of Slurm: `taco-launch run`, against sbatch of the bare "
        "mpirun line.",
        "example:\n  .venv/bin/python scripts/benchmarks/slurm_start.py --runs 5",
        timeout=90.0,
    )
    return parser.parse_args(arguments)


def _contenders(scratch: Path) -> tuple[pairing.Contender, ...]:
    line = shlex.join(("mpirun", "-np", str(_NP), "--allow-run-as-root", "--bind-to", "none", *_COMMAND))
    settle = ("sh", "-c", "while squeue --noheader | grep -q .; do sleep 0.1; done")
    delete = ("sh", "-c", f"taco-launch delete --yes {_JOB}; {settle[2]}")
    return (
        pairing.Contender(
            _SBATCH, ("sh", "-c", _SUBMIT.format(ranks=_NP), "sh", str(scratch / "output"), line), settle
        ),
        pairing.Contender(_OURS, ("taco-launch", "run", "--name", _JOB, "--np", str(_NP), "--", *_COMMAND), delete),
    )


def _bars(found: Mapping[str, pairing.Measured]) -> list[verdicts.Verdict]:
    ratio = pairing.paired(found[_OURS], found[_SBATCH], lambda one, other: one.silent / other.silent)
    missing = found[_OURS].missing or found[_SBATCH].missing
    return [verdicts.Verdict(f"{_OURS}, first line", ratio, _BAR, "x sbatch", missing=missing)]


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    def first(name: str) -> tuple[str, ...]:
        return verdicts.seconds(pairing.spread([sample.silent for sample in found[name].samples]))

    return verdicts.rows(found, ("first line s", "min..max"), first)


if __name__ == "__main__":
    verdicts.start(main)
