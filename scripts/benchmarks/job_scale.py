#!/usr/bin/env python3
"""Measures how long one job over many hosts takes until its last rank prints, beside bare mpirun over the same hosts.

The hosts are namespaces of this machine with one slot each: a name, an address and an sshd of its own, and all share the
machine's cores. Both start on the head: the agent as a controller calls it there, and mpirun.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pairing
import verdicts

_ROOT = Path(__file__).resolve().parents[2]
_OURS, _MPIRUN = "taco-launch", "mpirun"
# Each rank prints when it began, and lives until all others have.
_RANK = "echo began $(date +%s.%N); sleep {seconds}"
_BEGAN = re.compile(rb"began ([0-9.]+)")
_BAR = 1.2
# The events of a job whose times are shown.
_STEPS = ("submitted", "placed", "launched", "running", "ended")


@dataclass(frozen=True)
class _Started:
    """A job: seconds from the command to the first and the last rank's line, and of its events since the command."""

    first: float
    last: float
    steps: dict[str, float]


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    verdicts.need("taco-launch", pairing.environment())
    sys.path.insert(0, str(_ROOT))
    from tests.e2e.hosts import why_not  # noqa: PLC0415 - the tests' own hosts

    found: dict[str, list[_Started]] = {_OURS: [], _MPIRUN: []}
    missing = why_not()
    if not missing:
        with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
            missing = _measured(Path(scratch), asked, found)
    ratios = [ours.last / peer.last for ours, peer in zip(found[_OURS], found[_MPIRUN], strict=False)]
    bar = verdicts.Verdict(
        f"{asked.hosts} hosts: last rank's first line",
        pairing.spread(ratios) if ratios else None,
        _BAR,
        "of mpirun's time",
        missing=missing,
    )
    data = {"hosts": asked.hosts, "started": {name: [vars(each) for each in runs] for name, runs in found.items()}}
    report = verdicts.Report("job_scale", asked.runs, [_rows(found)], [bar], data)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        "One job over many hosts of this machine, until its last rank prints, beside mpirun.",
        "examples:\n  .venv/bin/python scripts/benchmarks/job_scale.py --runs 3\n"
        "  .venv/bin/python scripts/benchmarks/job_scale.py --hosts 256 --runs 1",
        timeout=300.0,
    )
    parser.set_defaults(runs=3)
    parser.add_argument("--hosts", type=verdicts.count, default=64, metavar="N", help="one rank each (default: 64)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="that each rank lives (default: 5)")
    return parser.parse_args(arguments)


def _measured(folder: Path, asked: argparse.Namespace, found: dict[str, list[_Started]]) -> str:
    """Add the runs of both to `found`; return why there are no more, "" where there are all."""
    from tests.e2e.hosts import hosts  # noqa: PLC0415 - see above

    shared = folder / "hosts"
    shared.mkdir()
    names = [f"n{number}" for number in range(1, asked.hosts + 1)]
    verdicts.tell(f"making {asked.hosts} hosts")
    with hosts(names, shared) as made:
        site = _Site(made, folder)
        for number in range(asked.runs + 1):  # the first brings the agent to all hosts
            verdicts.tell(f"round {number} of {asked.runs}" if number else "warming up")
            for name, run in ((_OURS, site.ours), (_MPIRUN, site.mpirun)):
                try:
                    started = run(f"job{number}", _RANK.format(seconds=asked.seconds), asked.timeout)
                except pairing.FailedError as error:
                    return f"{name} failed: {error}"
                if number:
                    found[name].append(started)
    return ""


class _Site:
    """Hosts, the first of which is the head."""

    def __init__(self, made: Any, folder: Path) -> None:
        from tests.e2e.cluster import SYSTEM_PATH, Cluster  # noqa: PLC0415 - see above
        from tests.support.agents import build  # noqa: PLC0415

        agent = build(folder / "agent")
        self._made = made
        self._cluster = Cluster(made, agent, pairing.find("python3", {"PATH": SYSTEM_PATH}) or "python3")
        for on in range(len(made.names)):
            self._cluster.sh(f"mkdir -p ~/.ssh && cp {made.ssh_config} ~/.ssh/config", on=on)

    def ours(self, name: str, script: str, timeout: float) -> _Started:
        """Run a job of the agent on all hosts, as a controller has it do that."""
        from taco_launch.core.model.codec import to_json  # noqa: PLC0415 - only where hosts are made
        from taco_launch.core.model.host.hosts import Host, Network  # noqa: PLC0415
        from taco_launch.core.model.jobs import JobSpec  # noqa: PLC0415
        from taco_launch.hosts.inventory import profile  # noqa: PLC0415

        numbered = enumerate(self._made.names, 1)
        hosts = tuple(Host(host, f"10.77.{number // 256}.{number % 256}", slots=1) for number, host in numbered)
        spec = JobSpec(name, ("sh", "-c", script), hosts, head=hosts[0].name, network=Network(), np=len(hosts))
        spec = replace(spec, profile=profile.load("auto", "", {}))
        caller = {"environment": {}, "umask": 0o022, "inherit": True}
        request = {"follow": True, "spec": to_json(spec), "caller": caller}
        stdin = f"{json.dumps({'protocol': 1})}\n{json.dumps(request)}\n"
        argv = [*self._made.inside(0), self._cluster.python, "-I", "-S", self._cluster.agent, "submit"]
        begin, lines = self._timed(argv, timeout, stdin)
        events = self._cluster.events(name).read_text().splitlines()
        steps: dict[str, float] = {}
        for event in map(json.loads, events):
            steps.setdefault(event["kind"], event["time"] - begin)
        return _Started(lines[0], lines[-1], steps)

    def mpirun(self, _name: str, script: str, timeout: float) -> _Started:
        """Run the same on all hosts by mpirun."""
        listed = ",".join(f"{name}:1" for name in self._made.names)
        network = [word for each in ("btl", "oob") for word in ("--mca", f"{each}_tcp_if_include", "eth0")]
        line = ["mpirun", "--allow-run-as-root", "-np", str(len(self._made.names)), "-H", listed, *network]
        _begin, lines = self._timed([*self._made.inside(0), *line, "sh", "-c", script], timeout)
        return _Started(lines[0], lines[-1], {})

    def _timed(self, argv: list[str], timeout: float, stdin: str = "") -> tuple[float, list[float]]:
        """Return when a command began, and after how many seconds each rank did, sorted.

        Raises:
            FailedError: it failed, or not every rank printed its line.
        """
        environ = {**pairing.environment(), **self._cluster.env}
        begin = time.time()
        try:
            done = subprocess.run(
                argv, input=stdin.encode(), env=environ, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise pairing.FailedError(f"it had not ended after {timeout:g} s") from None
        lines = sorted(float(each) - begin for each in _BEGAN.findall(done.stdout))
        if done.returncode or len(lines) != len(self._made.names):
            said = done.stderr.decode(errors="replace")[-600:]
            raise pairing.FailedError(f"exit code {done.returncode}, {len(lines)} ranks began: {said}")
        return begin, lines


def _rows(found: dict[str, list[_Started]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("command", "first rank s", "last rank s", "min..max", *(f"{step} s" for step in _STEPS))
    ]
    for name, runs in found.items():
        if runs:
            times = verdicts.seconds(pairing.spread([each.last for each in runs]))
            steps = [[each.steps[step] for each in runs if step in each.steps] for step in _STEPS]
            marks = [f"{pairing.spread(values).median:.2f}" if values else "-" for values in steps]
            rows.append((name, f"{pairing.spread([each.first for each in runs]).median:.2f}", *times, *marks))
    return rows


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        verdicts.start(main)
