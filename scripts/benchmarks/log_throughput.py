#!/usr/bin/env python3
"""Measures how fast the output of two ranks comes through the rank wrappers and the merged log, and in what memory."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Mapping

import pairing
import peaks
import verdicts

_RANKS = 2
_MEGA = 1_000_000
_MEBI = 1 << 20
_LINE = 100
_BLOCK = 1000  # lines; each block is written at once, since making every line anew would measure Python
_WRITER = f"""
import os, sys
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
block = b"".join(b"rank %d line %04d %s\\n" % (rank, number, b"x" * {_LINE - 18}) for number in range({_BLOCK}))
for _ in range(int(sys.argv[1])):
    sys.stdout.buffer.write(block)
"""
_OURS = "taco-launch run"
_MPIRUN = "mpirun --tag-output"
# Open MPI refuses to run as root unless it is told to.
_AS_ROOT = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
_JOB = "log-throughput"
# A job's output has to come through at so many times mpirun's rate, whole and in order.
_BAR = 2.0
# Every process works on pieces of at most 1 MiB, a few at a time, however much there is; the rest is the allocator's.
_BAR_GROWTH_MIB = 8.0


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    made = verdicts.parser(
        "MB/s of two ranks' output through `taco-launch run`, against `mpirun --tag-output`, both to a pipe;\n"
        "and the peak memory of every process at two sizes of output.",
        "example:\n  .venv/bin/python scripts/benchmarks/log_throughput.py --runs 3 --mb 50\n\n"
        "environment:\n  TMPDIR  where the logs lie while they are needed: five times --mb",
        timeout=300.0,
    )
    made.add_argument("--mb", type=verdicts.count, default=100, metavar="N", help="MB each rank writes (default: 100)")
    made.add_argument(
        "--small-mb", type=verdicts.count, metavar="N", help="other size, for the memory (default: a quarter of --mb)"
    )
    asked = made.parse_args(arguments)
    small = asked.small_mb or max(asked.mb // 4, 1)
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch)
        verdicts.need("taco-launch", environ)
        verdicts.need("mpirun", environ)
        found = {
            name: _whole(entry, asked.mb)
            for name, entry in pairing.interleave(
                _contenders(asked.mb), environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell
            ).items()
        }
        verdicts.tell(f"memory at {small} and {asked.mb} MB per rank")
        memory = {
            name: tuple(_peaks(_contenders(size)[index], environ, asked.timeout) for size in (small, asked.mb))
            for index, name in enumerate(found)
            if not found[name].missing
        }
    bars = (_speed(found), _growth(memory.get(_OURS), found[_OURS].missing))
    tables = [_speeds(found, asked.mb), _memory(memory, small, asked.mb)]
    data = {"mb_per_rank": [small, asked.mb], "commands": verdicts.commands(found), "peak_bytes": memory}
    report = verdicts.Report("log_throughput", asked.runs, tables, bars, data)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _contenders(megabytes: int) -> tuple[pairing.Contender, ...]:
    writer = (sys.executable, "-c", _WRITER, str(_blocks(megabytes)))
    # Room for all of it: this measures no rotation, which could only lose the slower side some work.
    room = str(4 * _RANKS * megabytes * _MEGA)
    ours = ("taco-launch", "run", "--name", _JOB, "--np", str(_RANKS), "--log-max-bytes", room, "--", *writer)
    bare = ("mpirun", *_AS_ROOT, "--tag-output", "-np", str(_RANKS), "-H", f"localhost:{_RANKS}", *writer)
    return (
        pairing.Contender(_OURS, ours, clear_up=("taco-launch", "delete", _JOB)),
        pairing.Contender(_MPIRUN, bare),
    )


def _blocks(megabytes: int) -> int:
    return megabytes * _MEGA // (_BLOCK * _LINE)


def _whole(entry: pairing.Measured, megabytes: int) -> pairing.Measured:
    """Return a measurement as it is when every run gave every line: what loses output has no speed."""
    expected = _RANKS * _blocks(megabytes) * _BLOCK
    wrong = [sample.lines for sample in entry.samples if sample.lines != expected]
    if not wrong:
        return entry
    return dataclasses.replace(entry, samples=(), missing=f"failed: {wrong[0]} lines came of {expected}")


def _peaks(contender: pairing.Contender, environ: Mapping[str, str], timeout: float) -> dict[str, int]:
    """Return the peak memory of each kind of process, in bytes; none when the run failed, which is told."""
    watch = peaks.Watch(f"TACO_LAUNCH_STATE={environ['TACO_LAUNCH_STATE']}")
    try:
        with watch as seen:
            pairing.once(contender, environ, timeout)
    except pairing.FailedError as error:
        verdicts.tell(f"{contender.name}: {error}")
        return {}
    finally:
        pairing.clear_up(contender, environ, timeout)
    return dict(seen)


def _rate(entry: pairing.Measured, megabytes: int) -> pairing.Spread:
    return pairing.spread([_RANKS * megabytes / sample.wall for sample in entry.samples])


def _ratio(found: Mapping[str, pairing.Measured], name: str) -> pairing.Spread | None:
    return pairing.paired(found[name], found[_MPIRUN], lambda one, other: other.wall / one.wall)


def _speed(found: Mapping[str, pairing.Measured]) -> verdicts.Verdict:
    missing = found[_OURS].missing or found[_MPIRUN].missing
    return verdicts.Verdict(
        f"{_OURS}, output", _ratio(found, _OURS), _BAR, f"x {_MPIRUN}", at_least=True, missing=missing
    )


def _growth(memory: tuple[dict[str, int], ...] | None, missing: str) -> verdicts.Verdict:
    """Hold the process of ours that grows most against the bar; the writer is not ours."""
    grown = {
        role: (memory[1][role] - memory[0][role]) / _MEBI
        for role in (memory[0] if memory else ())
        if memory and role in memory[1] and role != peaks.WRITER
    }
    most = max(grown, key=lambda role: grown[role], default="")
    name = f"{_OURS}, growth of memory" + (f" ({most})" if most else "")
    value = pairing.spread([grown[most]]) if most else None
    return verdicts.Verdict(name, value, _BAR_GROWTH_MIB, "MiB", missing=missing or "the run failed")


def _speeds(found: Mapping[str, pairing.Measured], megabytes: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("command", "MB/s", "min..max", "x mpirun", "wall s", "s to the first byte", "CPU s")
    ]
    for name, entry in found.items():
        if entry.missing:
            rows.append((name, entry.missing))
            continue
        rate = _rate(entry, megabytes)
        ratio = _ratio(found, name)
        cells = (
            f"{rate.median:.0f}",
            f"{rate.least:.0f}..{rate.most:.0f}",
            "" if ratio is None else f"{ratio.median:.2f}",
        )
        times = [
            pairing.spread([getattr(sample, name) for sample in entry.samples]) for name in ("wall", "silent", "cpu")
        ]
        rows.append((name, *cells, *(f"{value.median:.2f}" for value in times)))
    return rows


def _memory(memory: Mapping[str, tuple[dict[str, int], ...]], small: int, large: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("peak MiB", f"{small} MB per rank", f"{large} MB per rank", "growth")]
    for name, (before, after) in memory.items():
        for role in sorted({*before, *after}):
            values = [taken.get(role) for taken in (before, after)]
            known = [value / _MEBI for value in values if value is not None]
            cells = ["-" if value is None else f"{value / _MEBI:.1f}" for value in values]
            rows.append((f"{name}: {role}", *cells, f"{known[1] - known[0]:+.1f}" if len(known) == 2 else "-"))
    return rows


if __name__ == "__main__":
    verdicts.start(main)
