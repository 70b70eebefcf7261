#!/usr/bin/env python3
"""Measures how long a plan for many hosts takes: placement and mpirun line, beside Horovod's own assignment of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pairing
import verdicts

from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import FreeSlots, wanted_of
from taco_launch.core.placement.hosts import place
from taco_launch.hosts.inventory import profile

_BAR_MS = 200
_OURS = "taco-launch plan"
_PEER = "horovodrun hosts"


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    parser = verdicts.parser(
        "How long a plan takes: from hosts and slots to the line with its hostfile.",
        "example:\n  .venv/bin/python scripts/benchmarks/plan_speed.py --hosts 1000 --slots 8",
        timeout=60.0,
    )
    parser.add_argument("--hosts", type=verdicts.count, default=1000, metavar="N", help="hosts (default: 1000)")
    parser.add_argument("--slots", type=verdicts.count, default=8, metavar="N", help="slots of each (default: 8)")
    asked = parser.parse_args(arguments)
    names = [f"gpu{number:04}" for number in range(asked.hosts)]
    ours = _rounds(lambda: _plan(names, asked.slots), asked.runs)
    theirs, missing = _horovod(names, asked.slots, asked.runs)
    table = [("plan", "wall s", "min..max"), (_OURS, *verdicts.seconds(pairing.spread(ours)))]
    table.append((_PEER, *(verdicts.seconds(pairing.spread(theirs)) if theirs else (missing,))))
    found = [
        verdicts.Verdict(
            f"{asked.hosts} hosts x {asked.slots} slots",
            pairing.spread([1000 * second for second in ours]),
            _BAR_MS,
            "ms",
        )
    ]
    if theirs:
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        found.append(verdicts.Verdict("against horovodrun", pairing.spread(ratios), 1.0, "times its seconds"))
    report = verdicts.Report("plan_speed", asked.runs, (table,), found, {"seconds": ours, "peer_seconds": theirs})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _plan(names: Sequence[str], slots: int) -> None:
    hosts = tuple(Host(name, name, slots=slots) for name in names)
    spec = JobSpec(
        "j", ("true",), hosts, head=names[0], profile=profile.load("auto", "", {}), network=Network(interface="eth0")
    )
    placement = place(wanted_of(spec), [FreeSlots(host.name, slots) for host in hosts])
    plan = mpirun.plan(spec, "", placement, JobFacts(root=True, openmpi="4.1.4"), ("agent", "rank", "j", "--"), "/job")
    mpirun.line(plan.tokens)


def _horovod(names: Sequence[str], slots: int, runs: int) -> tuple[list[float], str]:
    """Time what horovodrun does with its hosts before it makes a line; none where Horovod is not here."""
    try:
        from horovod.runner.common.util.hosts import (  # noqa: PLC0415
            get_host_assignments,
            parse_hosts,
        )
    except ImportError as error:
        return [], f"not here: {error}"
    text = ",".join(f"{name}:{slots}" for name in names)
    return _rounds(lambda: get_host_assignments(parse_hosts(text), len(names) * slots), runs), ""


def _rounds(act: Callable[[], object], runs: int) -> list[float]:
    """Return the seconds of each of `runs` calls after one to warm up."""
    samples = []
    for _number in range(runs + 1):
        begin = time.perf_counter()
        act()
        samples.append(time.perf_counter() - begin)
    return samples[1:]


if __name__ == "__main__":
    verdicts.start(main)
