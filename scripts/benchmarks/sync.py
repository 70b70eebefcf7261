#!/usr/bin/env python3
"""Measures what `--sync` costs: an unchanged tree until rank 0's first line, a fresh one on its way to several hosts, and both beside rsync.

The first is `taco-launch run` on this machine, with and without a tree that was copied before. The second is one job on
hosts made of namespaces whose links are limited (tc-tbf): what each of them sends. The tree is on the head when the clock
starts, as the job's event tells it: from the slots taken to the code checked and written on every host. The third is what a
tree adds to a job on this machine, as a multiple of what `rsync -a` takes for the same tree a moment later.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pairing
import verdicts

_ROOT = Path(__file__).resolve().parents[2]
_PLAIN, _SYNC = "run", "run --sync TREE"
_JOB = "first-line"
# Seconds that an unchanged tree adds to the first line, and the part of one link's speed at which hosts get a fresh one.
_BAR_SECONDS, _BAR_SPEED = 0.3, 0.5
# Trees by files and the bytes of each, and the multiples of rsync's time at which a tree is to be there.
_TREES = {"200 MB in 400 files": (400, 500_000), "20,000 files of 2 kB": (20_000, 2000)}
_BAR_RSYNC = {"fresh": 1.2, "unchanged": 1.2, "one file edited": 1.5}
# A file that was just written is hashed again the next time.
_SETTLE_SECONDS = 2.5
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        environ = pairing.environment(
            TACO_LAUNCH_STATE=f"{scratch}/state",
            TACO_LAUNCH_LEASES=f"{scratch}/leases",
            XDG_CACHE_HOME=f"{scratch}/cache",
        )
        verdicts.need("taco-launch", environ)
        (folder / "leases").mkdir()
        found = _unchanged(folder, environ, asked)
        beside = list(_beside_rsync(folder, environ, asked.runs))
        speeds, missing = ([], "--no-hosts") if asked.no_hosts else _fresh(folder, asked)
    extra = pairing.paired(found[_SYNC], found[_PLAIN], lambda one, other: one.silent - other.silent)
    why = found[_SYNC].missing or found[_PLAIN].missing
    tree = f"unchanged tree of {asked.tree} MiB, {asked.files} files"
    hosts = f"{asked.size} MiB fresh to {asked.hosts} hosts at {asked.rate}"
    speed = pairing.spread(speeds) if speeds else None
    bars = [
        verdicts.Verdict(f"{tree}: first line", extra, _BAR_SECONDS, "s more", missing=why),
        verdicts.Verdict(hosts, speed, _BAR_SPEED, "of one link's speed", at_least=True, missing=missing),
        *beside,
    ]
    data = {"commands": verdicts.commands(found), "speeds": speeds}
    report = verdicts.Report("sync", asked.runs, [_rows(found)], bars, data)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        "--sync: an unchanged tree until the first line of a job, and a fresh tree to several hosts against one link.",
        "examples:\n  .venv/bin/python scripts/benchmarks/sync.py --runs 3 --no-hosts\n"
        "  .venv/bin/python scripts/benchmarks/sync.py --size 256 --rate 200mbit",
        timeout=600.0,
    )
    parser.add_argument("--tree", type=verdicts.count, default=200, metavar="MIB", help="of the tree (default: 200)")
    parser.add_argument("--files", type=verdicts.count, default=2000, metavar="N", help="in it (default: 2000)")
    parser.add_argument("--hosts", type=verdicts.count, default=4, metavar="N", help="beside the head (default: 4)")
    parser.add_argument(
        "--size", type=verdicts.count, default=1024, metavar="MIB", help="of the fresh tree (default: 1024)"
    )
    parser.add_argument("--rate", default="400mbit", help="of every link, as tc takes it (default: 400mbit)")
    parser.add_argument("--repeats", type=verdicts.count, default=1, metavar="N", help="of the fresh tree (default: 1)")
    parser.add_argument(
        "--no-hosts", action="store_true", help="only the unchanged tree: the other takes root and minutes"
    )
    asked = parser.parse_args(arguments)
    if _bytes_of(asked.rate) is None:
        parser.error(f"--rate {asked.rate}: a number of kbit, mbit or gbit is needed")
    return asked


def _bytes_of(rate: str) -> float | None:
    """Return the bytes a second of a rate as tc writes it."""
    number, unit = rate[:-4], rate[-4:]
    return float(number) * _UNITS[unit] / 8 if unit in _UNITS and number.isdigit() else None


def _unchanged(folder: Path, environ: Mapping[str, str], asked: argparse.Namespace) -> dict[str, pairing.Measured]:
    """Time the same job with and without a tree; the round that warms up brings it to the head."""
    tree = folder / "tree"
    _write(tree, asked.tree << 20, asked.files)
    (tree / ".gitignore").write_text("__pycache__/\n*.py[co]\n/build/\n*.egg-info/\n.venv/\n")
    job = ("--name", _JOB, "--np", "1", "-H", "localhost:1")
    cleared = ("taco-launch", "delete", "--yes", _JOB)
    behind = ("--", "echo", "first")
    contenders = (
        pairing.Contender(_PLAIN, ("taco-launch", "run", *job, *behind), cleared),
        pairing.Contender(_SYNC, ("taco-launch", "run", "--sync", str(tree), *job, *behind), cleared),
    )
    return pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)


def _write(root: Path, size: int, files: int) -> None:
    """Write a tree: nine tenths of the files are small, as code is, and the others have the rest."""
    drawn = random.Random(1)  # noqa: S311 - no secret
    small = max(files * 9 // 10, 1)
    each = min(8 << 10, size // (2 * files) or 1)
    large = max((size - small * each) // max(files - small, 1), 1)
    for number in range(files):
        path = root / f"part{number % 40}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn.randbytes(each if number < small else large))
    past = time.time() - 3600
    for path in root.rglob("*"):
        os.utime(path, (past, past))


def _beside_rsync(folder: Path, environ: Mapping[str, str], runs: int) -> Iterator[verdicts.Verdict]:
    """Yield a verdict for each tree and each state of it."""
    rsync = shutil.which("rsync")
    for name, (files, each) in _TREES.items():
        ratios: dict[str, list[float]] = {step: [] for step in _BAR_RSYNC}
        for number in range(runs if rsync else 0):
            tree, peer = folder / f"{files}-{number}", folder / f"{files}-{number}-rsync"
            for file in range(files):
                path = tree / f"part{file % 40}" / f"file{file}.py"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(os.urandom(each))
            time.sleep(_SETTLE_SECONDS)
            for step, found in ratios.items():
                if step == "one file edited":
                    path.write_bytes(os.urandom(each))
                plain, sync = (_job_seconds(environ, *words) for words in ((), ("--sync", str(tree))))
                beside = _seconds((rsync or "", "-a", f"{tree}/", f"{peer}/"), environ)
                found.append(max(sync - plain, 0.0) / beside)
        for step, found in ratios.items():
            spread = pairing.spread(found) if found else None
            missing = "" if rsync else "rsync is not installed"
            yield verdicts.Verdict(f"{name}, {step}", spread, _BAR_RSYNC[step], "of rsync's time", missing=missing)


def _job_seconds(environ: Mapping[str, str], *words: str) -> float:
    return _seconds(("taco-launch", "run", "-q", "--np", "1", "-H", "localhost:1", *words, "--", "true"), environ)


def _seconds(argv: tuple[str, ...], environ: Mapping[str, str]) -> float:
    begun = time.monotonic()
    subprocess.run(argv, env=dict(environ), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def _rows(found: Mapping[str, pairing.Measured]) -> list[tuple[str, ...]]:
    def first(name: str) -> tuple[str, ...]:
        return verdicts.seconds(pairing.spread([sample.silent for sample in found[name].samples]))

    return verdicts.rows(found, ("first line s", "min..max"), first)


def _fresh(folder: Path, asked: argparse.Namespace) -> tuple[list[float], str]:
    """Return the parts of one link's speed at which the hosts got a fresh tree, or why they could not be made here."""
    sys.path.insert(0, str(_ROOT))
    from tests.e2e.hosts import hosts, why_not  # noqa: PLC0415 - the tests' own hosts; without them nothing is imported

    reason = why_not()
    if reason:
        return [], reason
    names = tuple(f"n{number}" for number in range(1, asked.hosts + 2))
    shared = folder / "hosts"
    shared.mkdir()
    speeds = []
    with hosts(names, shared) as made:
        site = _Site(made, folder)
        site.limit(asked.rate)
        for number in range(asked.repeats):
            tree = folder / f"fresh{number}"
            _write(tree, asked.size << 20, 256)
            verdicts.tell(f"{asked.size} MiB to {asked.hosts} hosts")
            seconds = site.copied(tree, f"fresh{number}", asked.timeout)
            speeds.append((asked.size << 20) / seconds / (_bytes_of(asked.rate) or 1.0))
    return speeds, ""


class _Site:
    """Hosts with the agent, the first of them the head alone."""

    def __init__(self, made: Any, folder: Path) -> None:
        from tests.e2e.cluster import SYSTEM_PATH, Cluster  # noqa: PLC0415 - only where hosts are made
        from tests.support.agents import build  # noqa: PLC0415

        agent = build(folder / "agent")
        self._made, self._folder = made, folder
        self._cluster = Cluster(made, agent, pairing.find("python3", {"PATH": SYSTEM_PATH}) or "python3")
        for on in range(len(made.names)):
            self._cluster.sh(f"mkdir -p ~/.ssh && cp {made.ssh_config} ~/.ssh/config", on=on)

    def limit(self, rate: str) -> None:
        """Limit what each host sends."""
        for on in range(len(self._made.names)):
            self._cluster.sh(f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256kb latency 100ms", on=on)

    def copied(self, tree: Path, name: str, timeout: float) -> float:
        """Run a job with a tree on all hosts but the head; return the seconds until its code was on all of them."""
        from taco_launch.core.model.host.hosts import Host, Network  # noqa: PLC0415
        from taco_launch.core.model.jobs import CodeSnapshot, JobSpec  # noqa: PLC0415
        from taco_launch.hosts.inventory import profile  # noqa: PLC0415 - see above
        from taco_launch.jobs.code import snapshot  # noqa: PLC0415
        from taco_launch.jobs.code.tree_walk import walk  # noqa: PLC0415
        from tests.e2e.cluster import STATE  # noqa: PLC0415

        taken = snapshot.take(walk(str(tree), verdicts.tell), (), self._folder / "cache", 1 << 40)
        _bring(self._cluster.path(STATE), taken)
        hosts = [Host(host, f"10.77.0.{number}", slots=1) for number, host in enumerate(self._made.names, 1)]
        spec = JobSpec(name, ("true",), tuple(hosts[1:]), head=hosts[0].name, launcher="env", network=Network())
        spec = replace(spec, profile=profile.load("auto", "", {}), code=CodeSnapshot(taken.id, str(tree)))
        self._cluster.submit(spec)
        deadline = time.monotonic() + timeout
        while True:
            (job,) = [frame["job"] for frame in self._cluster.call("get", name=name) if "job" in frame]
            done = [event for event in job["events"] if event["kind"] == "copied"]
            if done:
                return float(done[0]["data"]["seconds"])
            if job["record"]["ended"] or time.monotonic() > deadline:
                raise SystemExit(f"the job ended without its code: {job['record']['reason']}")
            time.sleep(0.2)


def _bring(state: Path, taken: Any) -> None:
    """Have the head keep a snapshot."""
    from taco_launch.agent.snapshots.store import SnapshotStore  # noqa: PLC0415 - only where hosts are made
    from tests.support import packs  # noqa: PLC0415 - see above

    packs.keep_taken(SnapshotStore(state), taken)


if __name__ == "__main__":
    verdicts.start(main)
