#!/usr/bin/env python3
"""Measures the judge of a nightly run by simulation: how often it calls a change where there is none, and finds one.

The numbers of a cell are simulated as the level, times the luck of the nightly run (normal, 0.5 %), times the luck of the run
(2 % standard deviation, Student's t with few degrees of freedom: heavy tails). What is called is the product's own
`suspects` and `verdicts`, with its own rules: every suspect is measured again in its night.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap

import numpy as np
import numpy.typing as npt
import pairing
import verdicts
from scipy.special import betaincinv

from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.stats import judge
from taco_launch.bench.stats.verdicts import JudgeRules, Series, VerdictKind

_CELLS, _REPEATS = 30, 5
_RUN, _NIGHT, _DROP = 0.02, 0.005, 0.05
# The least that is judged: what it finds is told, without a bar.
_LEAST = 3
_BASELINES = (_LEAST, 10, 20)
# The table of one cell, which has no other to learn from: noise of runs, that of nightly runs as a part of it, and drops.
_NOISES, _DROPS, _TABLE_BASELINES = (0.02, 0.1, 0.3), (0.05, 0.1, 0.5, 0.95), (_LEAST, 8, 20)
_SHARES = (0.25, 1.0)
_CALLED = (VerdictKind.REGRESSION, VerdictKind.IMPROVEMENT, VerdictKind.DRIFT)
_MOST_FALSE, _LEAST_FOUND = 1.0, 90.0
# One stream of random numbers for so many nightly runs, whoever simulates them: the result depends on the seed alone.
_CHUNK = 50


@dataclass(frozen=True)
class _Noise:
    """How noisy runs and nightly runs are, as fractions; `tails` are degrees of freedom of a run's luck, 0: normal."""

    tails: int
    run: float
    night: float
    cells: int = _CELLS


@dataclass(frozen=True)
class _Chunk:
    """Nights to simulate: after a baseline of so many, with a drop of one cell or without."""

    baseline: int
    drop: float
    nights: int
    seed: tuple[int, ...]


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    parser = verdicts.plain_parser(
        f"The judge of a nightly run of {_CELLS} cells with {_REPEATS} repeats, by simulation: false alarms per night, and the "
        f"probability that a drop of {_DROP:.0%} in one cell is found the first night.",
        "example:\n  .venv/bin/python scripts/benchmarks/judge_power.py --nights 1000 --tails 4",
    )
    parser.add_argument(
        "--nights", type=verdicts.count, default=10_000, metavar="N", help="of each kind (default: 10000)"
    )
    parser.add_argument(
        "--tails", type=int, default=3, metavar="DF", help="Student's t of DF >= 3 (default: 3); 0: normal"
    )
    parser.add_argument(
        "--run", type=float, default=100 * _RUN, metavar="%", help="noise of a run (default: %(default)g)"
    )
    parser.add_argument(
        "--night", type=float, default=100 * _NIGHT, metavar="%", help="of a nightly run (default: %(default)g)"
    )
    parser.add_argument(
        "--table", action="store_true", help="measure one cell at noises of 2, 10 and 30 %% and drops of 5 to 95 %%"
    )
    parser.add_argument("--seed", type=int, default=9, metavar="N", help="of the random numbers (default: 9)")
    parser.add_argument(
        "--jobs",
        type=verdicts.count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (default: one per core)",
    )
    asked = parser.parse_args(arguments)
    if asked.tails != 0 and asked.tails < 3:
        parser.error(f"--tails {asked.tails}: 3 or more have a standard deviation; 0 is normal")
    if asked.table:
        return _table(asked)
    noise = _Noise(asked.tails, asked.run / 100, asked.night / 100)
    table: list[tuple[str, ...]] = [
        (
            "baseline",
            "false alarms",
            "95 % below",
            "regr./impr./drift",
            "suspects a nightly run",
            "found",
            "95 % above",
            "s",
        )
    ]
    found, data = [], {}
    for baseline in _BASELINES:
        begin = time.perf_counter()
        quiet = _simulated(asked, noise, baseline, 0.0)
        dropped = _simulated(asked, noise, baseline, _DROP)
        false, hits = quiet["false"], dropped["found"]
        most, least = 100 * _below(false, asked.nights), 100 * (1 - _below(asked.nights - hits, asked.nights))
        table.append(
            (
                f"{baseline} nightly runs",
                f"{100 * false / asked.nights:.2f} %",
                f"{most:.2f} %",
                "/".join(str(quiet[kind.value]) for kind in _CALLED),
                f"{quiet['suspects'] / asked.nights:.2f}",
                f"{100 * hits / asked.nights:.2f} %",
                f"{least:.2f} %",
                f"{time.perf_counter() - begin:.0f}",
            )
        )
        name = f"baseline of {baseline} nightly runs"
        alarms, power = pairing.spread([most]), pairing.spread([least])
        found.append(verdicts.Verdict(f"{name}: false alarms a nightly run, 95 % bound", alarms, _MOST_FALSE, "%"))
        if baseline > _LEAST:
            bound = f"{name}: drop found, 95 % bound"
            found.append(verdicts.Verdict(bound, power, _LEAST_FOUND, "%", at_least=True))
        data[str(baseline)] = {"quiet": dict(quiet), "dropped": dict(dropped)}
    shape = f"t with {noise.tails} degrees of freedom" if noise.tails else "normal"
    how = f"{asked.nights} nightly runs of each kind, runs {noise.run:.1%} ({shape}), nightly runs {noise.night:.1%}, seed {asked.seed}"
    report = verdicts.Report("judge_power", 1, (table,), found, {"nights": asked.nights, "counts": data}, how)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _table(asked: argparse.Namespace) -> int:
    """Measure how often a single cell is called falsely, and how often a drop of it is found the same night."""
    rows: list[tuple[str, ...]] = [
        (
            "noise of runs",
            "of nights",
            "baseline",
            "false alarms",
            *(f"{drop:.0%} found" for drop in _DROPS),
            *(f"{unsure} unsure" for unsure in ("no change", "10%", "95%")),
        )
    ]
    found, data = [], {}
    for share, run, baseline in itertools.product(_SHARES, _NOISES, _TABLE_BASELINES):
        noise = _Noise(asked.tails, run, share * run, 1)
        quiet = _simulated(asked, noise, baseline, 0.0)
        dropped = [_simulated(asked, noise, baseline, drop) for drop in _DROPS]
        false = 100 * quiet["false"] / asked.nights
        power = [100 * each["found"] / asked.nights for each in dropped]
        unsure = [100 * each["unsure"] / asked.nights for each in (quiet, dropped[1], dropped[-1])]
        cells = (f"{each:.1f} %" for each in (false, *power, *unsure))
        rows.append((f"{run:.0%}", f"{noise.night:.1%}", f"{baseline} nightly runs", *cells))
        name = f"noise {run:.0%}, of nights {noise.night:.1%}, baseline of {baseline} nightly runs"
        data[name] = {"false": false, **{f"{drop:.0%}": each for drop, each in zip(_DROPS, power, strict=True)}}
        if share == 1:  # for information: nightly runs that differ so much are not what the judge is made for
            continue
        found.append(verdicts.Verdict(f"{name}: false alarms of a cell", pairing.spread([false]), _MOST_FALSE, "%"))
        for drop, each in zip(_DROPS, power, strict=True):
            if drop == 0.95 or (drop == 0.5 and run <= 0.1):
                bound = f"{name}: drop of {drop:.0%} found"
                found.append(verdicts.Verdict(bound, pairing.spread([each]), _LEAST_FOUND, "%", at_least=True))
    how = f"one cell, {asked.nights} nightly runs of each kind, seed {asked.seed}"
    report = verdicts.Report("judge_power", 1, (rows,), found, {"nights": asked.nights, "cells": data}, how)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _simulated(asked: argparse.Namespace, noise: _Noise, baseline: int, drop: float) -> Counter[str]:
    """Simulate and judge `asked.nights` nightly runs; give how many had what."""
    sizes = [min(_CHUNK, asked.nights - start) for start in range(0, asked.nights, _CHUNK)]
    chunks = [_Chunk(baseline, drop, size, (asked.seed, baseline, drop > 0, at)) for at, size in enumerate(sizes)]
    verdicts.tell(
        f"{asked.nights} nightly runs after {baseline}, {f'a drop of {drop:.0%}' if drop else 'nothing changed'}"
    )
    if asked.jobs == 1:
        return _sum(map(partial(_chunk, noise), chunks))
    with ProcessPoolExecutor(asked.jobs) as pool:
        return _sum(pool.map(partial(_chunk, noise), chunks))


def _sum(counts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _chunk(noise: _Noise, chunk: _Chunk) -> Counter[str]:
    """Simulate nightly runs; count those with a false alarm, by kind too, and those that found the drop."""
    rules = JudgeRules()
    chance = np.random.default_rng(chunk.seed)
    nights = chunk.baseline + 1
    luck = noise.night * chance.standard_normal((chunk.nights, noise.cells, nights, 1))
    luck[:, 0, -1] += np.log1p(-chunk.drop)
    runs = np.exp(
        luck + noise.run * _heavy(chance, noise.tails, (chunk.nights, noise.cells, nights, _REPEATS))
    ).tolist()
    again = noise.run * _heavy(chance, noise.tails, (chunk.nights, noise.cells, rules.fresh))
    fresh = np.exp(luck[:, :, -1] + again).tolist()
    return _sum(starmap(partial(_night, rules, dropped=chunk.drop > 0), zip(runs, fresh, strict=True)))


def _night(
    rules: JudgeRules, runs: Sequence[Sequence[Sequence[float]]], fresh: Sequence[Sequence[float]], *, dropped: bool
) -> Counter[str]:
    """Judge one nightly run, in both stages; `dropped`: the first cell is slower by the drop."""
    series = [
        Series(
            MetricKey((), "", "simulated", str(cell), 1, "rate"),
            True,
            tuple(map(tuple, nights[:-1])),
            tuple(nights[-1]),
        )
        for cell, nights in enumerate(runs)
    ]
    asked = set(judge.suspects(series, rules))
    series = [
        replace(each, fresh=tuple(values)) if each.key in asked else each
        for each, values in zip(series, fresh, strict=True)
    ]
    kinds = [verdict.kind for verdict in judge.verdicts(series, rules)]
    others = set(kinds[1:] if dropped else kinds)
    seen = Counter({kind.value: kind in others for kind in _CALLED})
    seen["false"] = any(kind in others for kind in _CALLED)
    seen["found"] = dropped and kinds[0] is VerdictKind.REGRESSION
    seen["unsure"] = kinds[0] is VerdictKind.UNSURE
    seen["suspects"] = len(asked)
    return seen


def _heavy(chance: np.random.Generator, tails: int, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return random numbers with a standard deviation of 1."""
    if not tails:
        return chance.standard_normal(shape)
    drawn: npt.NDArray[np.float64] = chance.standard_t(tails, shape)
    return drawn * float(np.sqrt((tails - 2) / tails))


def _below(count: int, of: int) -> float:
    """Return Clopper and Pearson's upper 95 % bound (one-sided) of a probability that was met `count` times of `of`."""
    return 1.0 if count == of else float(betaincinv(count + 1, of - count, 0.95))


if __name__ == "__main__":
    verdicts.start(main)
