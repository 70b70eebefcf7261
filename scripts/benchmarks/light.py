#!/usr/bin/env python3
"""Measures `taco_launch.light` beside Horovod, DistributedDataParallel and torch's own communication hooks, on slow links.

Two hosts with two ranks each are namespaces of this machine, which share its cores; what each sends is limited by tc. The
gradients are those of ResNet50, without the time to compute them. Then a small network and a small transformer are trained.
It takes root, scikit-learn, and about 50 minutes: steps 14, digits 5, text 20, time 11. The accuracy of digits and text does not
depend on what runs beside it.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pairing
import verdicts

_ROOT = Path(__file__).resolve().parents[2]
_RANK = Path(__file__).with_name("light_rank.py")
_HOROVOD = ("plain", "fp16", "topk", "2d+topk", "2d+topk fp16")
_DDP = ("plain", "fp16", "2d", "topk", "2d+topk", "2d+topk fp16", "PowerSGD 1", "PowerSGD 4", "post-local SGD")
_METHODS = (*(("Horovod", method) for method in _HOROVOD), *(("DDP", method) for method in _DDP))
_TRAINED = (*(("DDP", method) for method in _DDP), ("DDP", "topk, no feedback"))
# Link -> steps that are timed: where a plain step takes 14 s, two are enough.
_LINKS = {"": 4, "1gbit": 6, "100mbit": 2}
# Steps of methods that send little: a multiple of the period of post-local SGD.
_QUICK = 8
_SLOW = ("plain", "fp16", "2d")
_ACCURACY = 0.95
# The accuracy whose first step is printed: about that of the end, less 2 points.
_NEAR = {"digits": _ACCURACY, "text": 0.84}
_PARTS = ("steps", "digits", "text", "time")
_TIMED = "digits at 100mbit"
_BYTES = 25_557_032 * 4

Key = tuple[str, str, str]


@dataclass(frozen=True)
class _Bar:
    """A ratio of two methods: `of` divided by `beside`, in seconds or bytes of a step, at least `least`."""

    link: str
    library: str
    method: str
    beside: str
    least: float
    unit: str = "seconds"


_BARS = (
    *(_Bar("100mbit", "Horovod", method, "plain", 6) for method in ("topk", "2d+topk", "2d+topk fp16")),
    *(_Bar("100mbit", "Horovod", method, "fp16", 3) for method in ("topk", "2d+topk", "2d+topk fp16")),
    *(_Bar("1gbit", "Horovod", method, "plain", 2) for method in ("topk", "2d+topk", "2d+topk fp16")),
    _Bar("100mbit", "DDP", "2d", "plain", 1.25),
    _Bar("100mbit", "DDP", "topk", "plain", 9),
    _Bar("100mbit", "DDP", "2d+topk", "plain", 12),
    *(_Bar("100mbit", library, "topk", "plain", 11, "bytes") for library in ("Horovod", "DDP")),
    *(_Bar("100mbit", library, "2d+topk", "plain", 40, "bytes") for library in ("Horovod", "DDP")),
)


class _Site:
    """Two hosts that are up."""

    def __init__(self, made: Any, timeout: float) -> None:
        self._made, self._timeout = made, timeout

    def run(self, library: str, method: str, *words: str) -> dict[str, Any]:
        """Run a method on all ranks; return what rank 0 printed.

        Raises:
            SystemExit: it failed, or took too long.
        """
        config = f"-F {self._made.ssh_config}"
        # Ranks of both hosts share the cores, which mpirun does not know: those that wait leave them to the others.
        parameters = ("btl_tcp_if_include=eth0", "oob_tcp_if_include=eth0", "mpi_yield_when_idle=1")
        network = [word for each in parameters for word in ("--mca", *each.split("="))]
        line = ("mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "4", "-H", "n1:2,n2:2", *network)
        ssh = ("--mca", "plm_rsh_args", config)
        names = {"GLOO_SOCKET_IFNAME": "eth0", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29400", "PYTHONPATH": _ROOT}
        exported = [word for name, value in names.items() for word in ("-x", f"{name}={value}")]
        ranks = (sys.executable, str(_RANK), library, method, *words)
        title = f"{library} {method} {' '.join(words)}"
        for device in range(2):  # the link is fast until a rank limits it again
            self._made.run("tc", "qdisc", "del", "dev", "eth0", "root", on=device)
        try:
            done = subprocess.run(
                [*self._made.inside(0), *line, *ssh, *exported, *ranks],
                env=pairing.environment(),
                capture_output=True,
                text=True,
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{title}: it had not ended after {self._timeout:g} s") from None
        if done.returncode:
            raise SystemExit(f"{title}: exit code {done.returncode}: {done.stderr[-1500:]}")
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        accuracy = (
            "" if measured["accuracy"] is None else f", {measured['accuracy']:.1%} after {measured['steps']} steps"
        )
        verdicts.tell(f"{title}: {measured['seconds']:.3f} s and {measured['bytes'] / 1e6:.2f} MB a step{accuracy}")
        return measured


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    parser = verdicts.parser(
        "Steps on slow links, and accuracy, with LIGHT_* and with what torch and Horovod have themselves.",
        "examples:\n  .venv/bin/python scripts/benchmarks/light.py --parts steps",
        timeout=600.0,
    )
    parser.set_defaults(runs=1)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS, help="these alone")
    parser.add_argument("--seeds", type=verdicts.count, default=3, metavar="N", help="trainings of each (default: 3)")
    asked = parser.parse_args(arguments)
    verdicts.need("mpirun", pairing.environment())
    if asked.parts != ["steps"] and importlib.util.find_spec("sklearn") is None:
        verdicts.tell("the digits are scikit-learn's: .venv/bin/pip install scikit-learn, or --parts steps")
        return 1
    sys.path.insert(0, str(_ROOT))
    from tests.e2e.hosts import hosts, why_not  # noqa: PLC0415 - the tests' own hosts

    if missing := why_not():
        verdicts.tell(missing)
        return 1
    steps: dict[Key, list[dict[str, Any]]] = {}
    trained: dict[Key, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        shared = Path(scratch) / "hosts"
        shared.mkdir()
        with hosts(["n1", "n2"], shared, keep=[Path(sys.base_prefix), _ROOT]) as made:
            site = _Site(made, asked.timeout)
            if "steps" in asked.parts:
                _measure_steps(site, asked.runs, steps)
            _train(site, asked.seeds, [part for part in ("digits", "text") if part in asked.parts], trained)
            if "time" in asked.parts:
                _train(site, asked.seeds, (_TIMED,), trained)
    tables = [rows for rows in (_step_rows(steps), _trained_rows(trained)) if len(rows) > 1]
    bars = [*(_step_bars(steps) if steps else ()), *(_trained_bars(trained) if trained else ())]
    data = {"steps": _as_rows(steps), "trained": _as_rows(trained)}
    how = f"{asked.runs} interleaved rounds, {asked.seeds} seeds"
    return verdicts.finish(
        verdicts.Report("light", asked.runs, tables, bars, data, how=how), as_json=asked.json, strict=asked.strict
    )


def _measure_steps(site: _Site, runs: int, found: dict[Key, list[dict[str, Any]]]) -> None:
    for _number in range(runs):
        for link, slow in _LINKS.items():
            for library, method in _METHODS:
                steps = slow if method in _SLOW else _QUICK
                limit = ("--rate", link) if link else ()
                measured = site.run(library, method, "gradients", "--steps", str(steps), *limit)
                found.setdefault((link, library, method), []).append(measured)


def _train(site: _Site, seeds: int, workloads: Sequence[str], found: dict[Key, list[dict[str, Any]]]) -> None:
    """Train to the end without a limit of the link, or on the slow link until the accuracy is reached."""
    for seed in range(seeds):
        for library, method in _TRAINED:
            for workload in workloads:
                until = ("--rate", "100mbit", "--until", str(_ACCURACY)) if workload == _TIMED else ()
                measured = site.run(library, method, workload.split()[0], "--seed", str(seed), *until)
                found.setdefault((workload, library, method), []).append(measured)


def _median(found: dict[Key, list[dict[str, Any]]], key: Key, name: str) -> float:
    return float(statistics.median(one[name] for one in found[key]))


def _step_rows(found: dict[Key, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("method", "link", "s a step", "times plain", "MB of a host")]
    for (link, library, method), measured in found.items():
        plain = _median(found, (link, library, "plain"), "seconds")
        seconds = _median(found, (link, library, method), "seconds")
        sent = statistics.median(one["bytes"] for one in measured) / 1e6
        cells = (f"{seconds:.3f}", f"{plain / seconds:.2f}", f"{sent:.2f}")
        rows.append((f"{library} {method}", link or "no limit", *cells))
    return rows


def _step_bars(found: dict[Key, list[dict[str, Any]]]) -> list[verdicts.Verdict]:
    bars = []
    for bar in _BARS:
        pairs = zip(found[bar.link, bar.library, bar.beside], found[bar.link, bar.library, bar.method], strict=True)
        ratios = [of[bar.unit] / light[bar.unit] for of, light in pairs]
        name = f"{bar.library}, {bar.link}: {bar.method} beside {bar.beside}, {bar.unit}"
        bars.append(verdicts.Verdict(name, pairing.spread(ratios), bar.least, "times", at_least=True))
    perfect = _BYTES * 8 / 100e6
    for library in ("Horovod", "DDP"):
        ratios = [perfect / one["seconds"] for one in found["100mbit", library, "2d+topk"]]
        name = f"{library}, 100mbit: 2d+topk beside a perfect dense all-reduce"
        bars.append(verdicts.Verdict(name, pairing.spread(ratios), 5, "times", at_least=True))
    return bars


def _trained_rows(found: dict[Key, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("method", "workload", "accuracy %", "least..most", f"s to {_ACCURACY:.0%}", "steps to")
    ]
    for (workload, library, method), measured in found.items():
        shares = pairing.spread([100 * one["accuracy"] for one in measured])
        reached = [one["total"] for one in measured if one["reached"]]
        time = f"{statistics.median(reached):.1f} ({len(reached)} of {len(measured)})" if reached else "-"
        cells = (f"{shares.median:.1f}", f"{shares.least:.1f}..{shares.most:.1f}", time, _steps_to(workload, measured))
        rows.append((f"{library} {method}", workload, *cells))
    return rows


def _steps_to(workload: str, measured: list[dict[str, Any]]) -> str:
    """Return after how many steps each training was first as accurate as _NEAR, as `95%: 140, 160, -`."""
    near = _NEAR[workload.split(maxsplit=1)[0]]
    first = [next((str(number) for number, _s, share in one["curve"] if share >= near), "-") for one in measured]
    return f"{near:.0%}: {', '.join(first)}"


def _trained_bars(found: dict[Key, list[dict[str, Any]]]) -> list[verdicts.Verdict]:
    bars = []

    def lost(workload: str, better: str, worse: str) -> pairing.Spread:
        pairs = zip(found[workload, "DDP", better], found[workload, "DDP", worse], strict=True)
        return pairing.spread([100 * (of["accuracy"] - light["accuracy"]) for of, light in pairs])

    for workload in ("digits", "text"):
        if (workload, "DDP", "plain") not in found:
            continue
        for method, most in (("topk", 1.0), ("2d+topk", 2.0)):
            value = lost(workload, "plain", method)
            bars.append(verdicts.Verdict(f"{workload}: {method} loses beside plain", value, most, "points"))
        if workload == "digits":  # the text is learnt without feedback, too, in more steps
            value = lost(workload, "topk", "topk, no feedback")
            name = f"{workload}: topk without error feedback loses beside topk"
            bars.append(verdicts.Verdict(name, value, 2.0, "points", at_least=True))
    for method in ("topk", "2d+topk"):
        pairs = zip(found.get((_TIMED, "DDP", "plain"), ()), found.get((_TIMED, "DDP", method), ()), strict=True)
        ratios = [of["total"] / light["total"] for of, light in pairs if of["reached"] and light["reached"]]
        if ratios:
            name = f"{_TIMED}: {method} is at {_ACCURACY:.0%} sooner than plain"
            bars.append(verdicts.Verdict(name, pairing.spread(ratios), 4, "times", at_least=True))
    return bars


def _as_rows(found: dict[Key, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"what": what, "library": library, "method": method, "runs": runs}
        for (what, library, method), runs in found.items()
    ]


if __name__ == "__main__":
    verdicts.start(main)
