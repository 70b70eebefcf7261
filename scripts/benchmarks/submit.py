#!/usr/bin/env python3
"""Measures in a lab how long rank 0's first line takes: by `taco-launch run`, by mpirun typed on the head, by horovodrun.

All start the same four ranks on two hosts that are set up, from the controller: the others over ssh, in the head's
container, where a person would type them. The mpirun is the very line that `taco-launch run --dry-run` prints.
"""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import one_lab
import pairing
import verdicts

_HOSTS, _SLOTS = 2, 2
_NP = _HOSTS * _SLOTS
# Rank 0 alone says something: the first byte is its first line.
_COMMAND = ("sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || echo first')
_OURS = f"taco-launch run --np {_NP}"
_MPIRUN = f"ssh HEAD mpirun -np {_NP}"
_HOROVODRUN = f"ssh HEAD horovodrun -np {_NP}"
_JOB = "first-line"
# What ours adds to mpirun, times what horovodrun adds.
_BAR = 0.40


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        state = {} if asked.lab else {"TACO_LAUNCH_STATE": scratch}
        environ = pairing.environment(**state)
        verdicts.need("taco-launch", environ)
        with one_lab.made(asked.lab, environ, hosts=_HOSTS, slots=_SLOTS) as lab:
            contenders = _contenders(lab, environ, Path(scratch))
            found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    report = verdicts.Report(
        "submit", asked.runs, (_rows(found),), _bars(found), {"commands": verdicts.commands(found)}
    )
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        f"Seconds to rank 0's first line of {_NP} ranks on {_HOSTS} lab hosts: `taco-launch run`, against the same mpirun "
        "typed over ssh on the head, and against horovodrun there.",
        "examples:\n  .venv/bin/python scripts/benchmarks/submit.py --runs 3\n"
        "  .venv/bin/python scripts/benchmarks/submit.py --lab lab     (one that is set up: nothing is made or removed)",
        timeout=60.0,
    )
    parser.add_argument("--lab", metavar="NAME", default="", help="a lab that is set up, instead of one of its own")
    return parser.parse_args(arguments)


def _contenders(lab: str, environ: Mapping[str, str], scratch: Path) -> tuple[pairing.Contender, ...]:
    """Return the three commands; `OMPI_COMM_WORLD_RANK` is what every one of them tells its ranks.

    The lab's inventory is written to a file, as a cluster has one: `-i lab` asks the engine each time.
    """
    inventory = scratch / "hosts.yaml"
    inventory.write_text(pairing.prepare(("taco-launch", "-i", f"lab:{lab}", "inventory", "-o", "yaml"), environ))
    ours = ("taco-launch", "-i", str(inventory))
    hosts = ",".join(f"gpu{number}:{_SLOTS}" for number in range(1, _HOSTS + 1))
    job = ("-H", hosts, "--np", str(_NP))
    line = pairing.prepare((*ours, "run", *job, "--dry-run", "--", *_COMMAND), environ).strip()
    config = _folder(environ) / "lab" / lab / "ssh_config"
    typed = ("ssh", "-F", str(config), "-o", "BatchMode=yes", "gpu1")
    horovodrun = shlex.join(("horovodrun", "-np", str(_NP), "-H", hosts, *_COMMAND))

    def on_head(text: str) -> tuple[str, ...]:
        return (*typed, shlex.join(("docker", "exec", f"taco-launch-{lab}", "sh", "-c", text)))

    return (
        pairing.Contender(_MPIRUN, on_head(line)),
        pairing.Contender(
            _OURS, (*ours, "run", "--name", _JOB, *job, "--", *_COMMAND), (*ours, "delete", "--yes", _JOB)
        ),
        pairing.Contender(_HOROVODRUN, on_head(horovodrun)),
    )


def _folder(environ: Mapping[str, str]) -> Path:
    """Return this user's state folder, in which `lab up` has left the keys."""
    from taco_launch.lab import access  # noqa: PLC0415 - the package beside which this script lies

    return access.access(environ, os.geteuid(), "lab").folder.parent.parent


def _bars(found: Mapping[str, pairing.Measured]) -> list[verdicts.Verdict]:
    ratio = pairing.added(found[_OURS], found[_HOROVODRUN], found[_MPIRUN], lambda sample: sample.silent)
    missing = found[_OURS].missing or found[_MPIRUN].missing or found[_HOROVODRUN].missing
    return [verdicts.Verdict(f"{_OURS}, first line, over mpirun", ratio, _BAR, "x horovodrun", missing=missing)]


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    def first(name: str) -> tuple[str, ...]:
        over = pairing.paired(found[name], found[_MPIRUN], lambda one, other: one.silent - other.silent)
        told = verdicts.seconds(pairing.spread([sample.silent for sample in found[name].samples]))
        return (*told, "" if over is None else f"{over.median:.3f}")

    return verdicts.rows(found, ("first line s", "min..max", "s over mpirun"), first)


if __name__ == "__main__":
    verdicts.start(main)
