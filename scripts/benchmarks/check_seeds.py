#!/usr/bin/env python3
"""Counts how often `check --level pairs` and `full` name the one host of a lab that has a fault, and no other.

A seed chooses the host and how bad the fault is. After the faults of a seed, both levels look at hosts without a fault.
It takes root, for the link that receives slowly, and about four minutes for each seed.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import one_lab
import pairing
import verdicts

_HOSTS, _SLOTS = 4, 2
_TIMEOUT = 300


@dataclass(frozen=True)
class _Fault:
    """A fault: the level that looks for it, the check that names it, and a function that puts it on a host."""

    level: str
    check: str
    put: Callable[[_Lab, str, random.Random], Callable[[], None]]


@dataclass
class _Count:
    """The number of right checks of a fault, the number of all, and the findings of the wrong ones."""

    right: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


class _Lab:
    """A lab that is set up."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self.name, self._environ = name, environ

    def fault(self, host: str, *words: str) -> None:
        pairing.prepare(("taco-launch", "lab", "fault", "--name", self.name, host, *words), self._environ)

    def check(self, level: str) -> dict[str, set[str]]:
        """Return the names of the faults of each host that has one."""
        program = pairing.find("taco-launch", self._environ) or "taco-launch"
        done = subprocess.run(
            (program, "-i", f"lab:{self.name}", "check", "--level", level, "--json"),
            env=dict(self._environ),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode not in (0, 3):
            raise SystemExit(f"check --level {level}: exit code {done.returncode}: {done.stderr[-600:]}")
        found = {
            host["host"]: {each["name"] for each in host["checks"] if each["level"] == "fault"}
            for host in json.loads(done.stdout)["hosts"]
        }
        return {host: names for host, names in found.items() if names}

    def device(self, host: str) -> str:
        """Return this machine's end of the link of a host."""
        container = f"taco-lab-{self.name}-{host}"
        number = pairing.prepare(
            ("docker", "exec", container, "cat", "/sys/class/net/eth0/iflink"), self._environ
        ).strip()
        links = json.loads(pairing.prepare(("ip", "-j", "link"), self._environ))
        return str(next(link["ifname"] for link in links if link["ifindex"] == int(number)))


def _lab_fault(name: str, undo: str, low: int, high: int, unit: str) -> Callable[..., Callable[[], None]]:
    def put(lab: _Lab, host: str, chance: random.Random) -> Callable[[], None]:
        lab.fault(host, name, f"{chance.randint(low, high)}{unit}")
        return partial(lab.fault, host, undo)

    return put


def _receives_slowly(lab: _Lab, host: str, chance: random.Random) -> Callable[[], None]:
    device, environ = lab.device(host), pairing.environment()
    limit = ("rate", f"{chance.randint(100, 400)}mbit", "burst", "256k", "latency", "100ms")
    pairing.prepare(("tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit), environ)

    def undo() -> None:
        pairing.prepare(("tc", "qdisc", "del", "dev", device, "root"), environ)

    return undo


_FAULTS = {
    "sends slowly": _Fault("pairs", "network rate", _lab_fault("slow-link", "heal", 100, 400, "mbit")),
    "receives slowly": _Fault("pairs", "network rate", _receives_slowly),
    "loses packets": _Fault("pairs", "packet loss", _lab_fault("loss", "heal", 2, 6, "")),
    "slow CPU": _Fault("full", "CPU rate", _lab_fault("slow-cpu", "fast-cpu", 5, 12, "")),
}


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    parser = verdicts.plain_parser(
        "How often check names the one host with a fault, and no other.",
        "examples:\n  .venv/bin/python scripts/benchmarks/check_seeds.py --seeds 20",
    )
    parser.add_argument("--seeds", type=verdicts.count, default=1, metavar="N", help="how many (default: 1)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: 0)")
    asked = parser.parse_args(arguments)
    counts = {name: _Count() for name in (*_FAULTS, "nothing, pairs", "nothing, full")}
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch)
        with one_lab.made("", environ, hosts=_HOSTS, slots=_SLOTS) as name:
            for seed in range(asked.first, asked.first + asked.seeds):
                _one_seed(_Lab(name, environ), seed, counts)
    rows = [("fault", "right", "of"), *((name, str(one.right), str(one.runs)) for name, one in counts.items())]
    bars = [
        verdicts.Verdict(name, pairing.spread([one.right / one.runs]), 1, "of all seeds right", at_least=True)
        for name, one in counts.items()
    ]
    data = {"counts": {name: vars(one) for name, one in counts.items()}}
    report = verdicts.Report("check_seeds", asked.seeds, [rows], bars, data, how=f"{asked.seeds} seeds, once each")
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _one_seed(lab: _Lab, seed: int, counts: dict[str, _Count]) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    for name, fault in _FAULTS.items():
        host = f"gpu{chance.randint(1, _HOSTS)}"
        undo = fault.put(lab, host, chance)
        try:
            found = lab.check(fault.level)
        finally:
            undo()
        _judge(counts[name], seed, found, set(found) == {host} and fault.check in found[host], f"{name} on {host}")
    for level in ("pairs", "full"):
        found = lab.check(level)
        _judge(counts[f"nothing, {level}"], seed, found, not found, "nothing")


def _judge(count: _Count, seed: int, found: dict[str, set[str]], is_right: bool, wanted: str) -> None:
    count.runs += 1
    count.right += is_right
    seen = "; ".join(f"{host}: {', '.join(sorted(names))}" for host, names in sorted(found.items())) or "no fault"
    if not is_right:
        count.wrong.append(f"seed {seed}: {seen}")
    verdicts.tell(f"seed {seed}: {wanted}: {'right' if is_right else 'WRONG'}: {seen}")


if __name__ == "__main__":
    verdicts.start(main)
