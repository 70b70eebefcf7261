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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
# The bar: at most 1.3 times mpirun's time, or half a second more than that.
_TIMES, _SECONDS = 1.3, 0.5


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        state = {} if asked.lab else {"TACO_LAUNCH_STATE": scratch}
        environ = pairing.environment(**state)
        verdicts.need("taco-launch", environ)
        with _lab(asked.lab, environ) as lab:
            contenders = _contenders(lab, environ)
            found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    report = verdicts.Report(
        "submit", asked.runs, (_rows(found),), _bars(found), {"commands": verdicts.commands(found)}
    )
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        f"Seconds to rank 0's first line of {_NP} ranks on {_HOSTS} lab hosts: `taco-launch run`, against the same mpirun "
        "typed over ssh on the head, and against horovodrun there.",
        "examples:\n  .venv/bin/python scripts/benchmarks/submit.py --runs 15\n"
        "  .venv/bin/python scripts/benchmarks/submit.py --lab lab     (one that is set up: nothing is made or removed)",
        timeout=60.0,
    )
    parser.add_argument("--lab", metavar="NAME", default="", help="a lab that is set up, instead of one of its own")
    parser.set_defaults(runs=15)
    return parser.parse_args(arguments)


@contextmanager
def _lab(given: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Give a lab's name: of the given one, or of one that is made, set up, and removed in the end."""
    if given:
        yield given
        return
    name = f"submit-{os.getpid()}"
    verdicts.tell(f"making a lab of {_HOSTS} hosts and setting it up (a minute, with the images another two)")
    try:
        size = ("--hosts", str(_HOSTS), "--slots", str(_SLOTS))
        pairing.prepare(("taco-launch", "lab", "up", "--name", name, *size), environ)
        pairing.prepare(("taco-launch", "-i", f"lab:{name}", "setup", "--yes"), environ)
        yield name
    finally:
        pairing.prepare(("taco-launch", "lab", "down", "--name", name), environ)


def _contenders(lab: str, environ: Mapping[str, str]) -> tuple[pairing.Contender, ...]:
    """Give the three commands; `OMPI_COMM_WORLD_RANK` is what every one of them tells its ranks."""
    ours = ("taco-launch", "-i", f"lab:{lab}")
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
    """Give this user's state folder, in which `lab up` has left the keys."""
    from taco_launch.lab import access  # noqa: PLC0415 - the package beside which this script lies

    return access.access(environ, os.geteuid(), "lab").folder.parent.parent


def _bars(found: Mapping[str, pairing.Measured]) -> list[verdicts.Verdict]:
    ours, mpirun, horovodrun = found[_OURS], found[_MPIRUN], found[_HOROVODRUN]
    over = pairing.paired(ours, mpirun, lambda one, other: one.silent - other.silent)
    ratio = pairing.paired(ours, horovodrun, lambda one, other: one.silent / other.silent)
    most = _SECONDS
    if mpirun.samples:
        most = max(most, (_TIMES - 1) * pairing.spread([sample.silent for sample in mpirun.samples]).median)
    missing = ours.missing or mpirun.missing
    return [
        verdicts.Verdict(f"{_OURS}, over mpirun", over, round(most, 3), "s", missing=missing),
        verdicts.Verdict(f"{_OURS}, to horovodrun", ratio, 1.0, "x", missing=ours.missing or horovodrun.missing),
    ]


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    def first(name: str) -> tuple[str, ...]:
        return verdicts.seconds(pairing.spread([sample.silent for sample in found[name].samples]))

    return verdicts.rows(found, ("first line s", "min..max"), first)


if __name__ == "__main__":
    verdicts.start(main)
