#!/usr/bin/env python3
"""Measures how good the choice of GPUs is, beside the lowest indices and go-gpuallocator's rule, and how long it takes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, cycle
from pathlib import Path
from typing import Any

import pairing
import verdicts
from best_effort import BestEffort

from taco_launch.core.facts.gpus.topology import read
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.model.plans import FreeSlots, SlotRequest
from taco_launch.core.placement.bandwidth import Bandwidths, figures_of
from taco_launch.core.placement.gpus import choose
from taco_launch.core.placement.hosts import place
from taco_launch.core.placement.mesh import GpuMesh, mesh_of
from taco_launch.core.placement.rings import Matrix, rings

_MACHINES = Path(__file__).resolve().parents[2] / "tests" / "core" / "placement" / "cases" / "machines"
_BAR_PLACED_MS, _BAR_8_S, _BAR_16_S = 10, 1, 20
# Up to so many GPUs every set of free ones is tried with every number; of larger hosts so many cases are drawn.
_ALL, _DRAWN, _SEED = 8, 300, 16
_LOWEST, _PEER = "lowest indices", "go-gpuallocator"


@dataclass
class _Compared:
    """Against one rule: how often the bottleneck is above, equal, below; the largest ratio, and of what."""

    above: int = 0
    equal: int = 0
    below: list[str] = field(default_factory=list)
    ratio: float = 1.0
    largest: str = ""

    def note(self, ours: float, theirs: float, case: str) -> None:
        """Count a case."""
        if ours < theirs:
            self.below.append(case)
            return
        self.above += ours > theirs
        self.equal += ours == theirs
        if ours / theirs > self.ratio:
            self.ratio, self.largest = ours / theirs, case

    def add(self, other: _Compared) -> None:
        """Count all that another counted."""
        self.above += other.above
        self.equal += other.equal
        self.below += other.below
        if other.ratio > self.ratio:
            self.ratio, self.largest = other.ratio, other.largest

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table."""
        return str(self.above), str(self.equal), str(len(self.below)), f"{self.ratio:.2f}", self.largest or "-"


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    parser = verdicts.parser(
        "How good the choice of GPUs is: the bottleneck of the best ring, over every set of free GPUs of every machine "
        f"in a folder and every number of GPUs, from {_ALL + 1} GPUs on over cases drawn at random; and how long it takes.",
        "example:\n  .venv/bin/python scripts/benchmarks/place.py --drawn 1000",
        timeout=600.0,
    )
    parser.add_argument("--machines", type=Path, default=_MACHINES, metavar="DIR", help="matrices, and machines.json")
    parser.add_argument("--hosts", type=verdicts.count, default=1000, metavar="N", help="hosts to place on (1000)")
    parser.add_argument(
        "--drawn", type=verdicts.count, default=_DRAWN, metavar="N", help=f"cases of a 16-GPU machine ({_DRAWN})"
    )
    asked = parser.parse_args(arguments)
    known = _read(asked.machines)
    total = {_LOWEST: _Compared(), _PEER: _Compared()}
    table: list[tuple[str, ...]] = [("machine against", "above", "equal", "below", "most", "where it is most")]
    for name, (topology, figures) in known.items():
        for rule, compared in _compare(name, topology, figures, asked.drawn).items():
            table.append((f"{name}, {rule}", *compared.cells()))
            total[rule].add(compared)
    for rule, compared in total.items():
        table.append((f"all, {rule}", *compared.cells()))
    found = [
        verdicts.Verdict(f"below {rule}", pairing.spread([len(compared.below)]), 0, "cases")
        for rule, compared in total.items()
    ]
    for compared in total.values():
        for case in compared.below:
            verdicts.tell(f"counter-example: {case}")
    speed, seconds = _speed(known, asked.hosts, asked.runs)
    report = verdicts.Report(
        "place",
        asked.runs,
        (table,),
        [*found, *speed],
        {"seconds": seconds, "compared": {rule: _data(compared) for rule, compared in total.items()}},
    )
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _data(compared: _Compared) -> dict[str, object]:
    return {
        "above": compared.above,
        "equal": compared.equal,
        "below": compared.below,
        "ratio": compared.ratio,
        "largest": compared.largest,
    }


def _read(folder: Path) -> dict[str, tuple[Topology, Bandwidths]]:
    found = {}
    for name, about in json.loads((folder / "machines.json").read_text("utf-8")).items():
        topology, figures = read((folder / f"{name}.txt").read_text("utf-8")), figures_of(about["model"])
        if not isinstance(topology, Topology) or figures is None:
            raise SystemExit(f"{folder / name}.txt: {topology}")
        found[name] = (topology, figures)
    return found


def _compare(name: str, topology: Topology, figures: Bandwidths, drawn: int) -> dict[str, _Compared]:
    mesh = mesh_of(topology, figures)
    peer = BestEffort(mesh)
    found = {_LOWEST: _Compared(), _PEER: _Compared()}
    for free, count in _cases(len(topology.gpus), drawn):
        ours = choose(count, free, mesh).bottleneck_gbps or 0.0
        for rule, theirs in ((_LOWEST, free[:count]), (_PEER, peer.allocate(free, count))):
            case = f"{name}: {count} of {','.join(map(str, free))}"
            found[rule].note(ours, _bottleneck(mesh, theirs), case)
    return found


def _cases(gpus: int, drawn: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield sets of free GPUs, and how many of them are wanted."""
    every = range(gpus)
    if gpus <= _ALL:
        for size in range(2, gpus + 1):
            for free in combinations(every, size):
                yield from ((free, count) for count in range(2, size + 1))
        return
    chooser = random.Random(_SEED)  # noqa: S311 - the same cases each time
    for _number in range(drawn):
        free = tuple(sorted(chooser.sample(every, chooser.randint(2, gpus))))
        yield free, chooser.randint(2, len(free))


def _bottleneck(mesh: GpuMesh, gpus: Sequence[int]) -> float:
    return mesh.rings.bottleneck(sum(1 << gpu for gpu in gpus)) or 0.0


def _speed(
    known: dict[str, tuple[Topology, Bandwidths]], hosts: int, runs: int
) -> tuple[list[verdicts.Verdict], dict[str, list[float]]]:
    """Time cold tables of 8 and 16 GPUs, of these machines and with a bandwidth of its own for each pair, and placing."""
    seconds = {}
    for size in (8, 16):
        real = [mesh_of(*machine).matrix for machine in known.values() if len(machine[0].gpus) == size]
        for what, matrices in (("slowest machine", real), ("all pairs different", [_different(size)])):
            seconds[f"cold table of {size} GPUs, {what}"] = _rounds(partial(_slowest, matrices), runs)
    bars = (_BAR_8_S, _BAR_8_S, _BAR_16_S, _BAR_16_S)
    found = [_in_ms(name, seconds[name], 1000 * bar) for name, bar in zip(seconds, bars, strict=True)]
    eights = [machine for machine in known.values() if len(machine[0].gpus) == 8]
    some = list(combinations(range(8), 6))
    for what, each, free in (("8 of 8", 8, [tuple(range(8))]), ("4 of 6 free", 4, some)):
        names = [f"gpu{number:04}" for number in range(hosts)]
        on = {
            name: (mesh_of(*machine), its)
            for name, machine, its in zip(names, cycle(eights), cycle(free), strict=False)
        }
        slots = [FreeSlots(name, len(its), 8) for name, (_mesh, its) in on.items()]
        label = f"{hosts} hosts, {what} GPUs, warm"
        seconds[label] = _rounds(partial(_timed, _placed, on, slots, each), runs)
        found.append(_in_ms(label, seconds[label], _BAR_PLACED_MS))
    return found, seconds


def _in_ms(name: str, seconds: Sequence[float], bar: float) -> verdicts.Verdict:
    return verdicts.Verdict(name, pairing.spread([1000 * each for each in seconds]), bar, "ms")


def _different(size: int) -> Matrix:
    return tuple(
        tuple(0.0 if one == other else float(max(one, other) * size + min(one, other)) for other in range(size))
        for one in range(size)
    )


def _slowest(matrices: Sequence[Matrix]) -> float:
    """Return the seconds of the table that takes longest, each worked out anew."""
    return max(_timed(rings.__wrapped__, matrix) for matrix in matrices)


def _placed(on: Mapping[str, tuple[GpuMesh, tuple[int, ...]]], slots: Sequence[FreeSlots], each: int) -> None:
    for share in place(SlotRequest(hosts=len(slots), slots_per_host=each), slots).shares:
        mesh, free = on[share.host]
        choose(share.ranks, free, mesh)


def _timed(act: Callable[..., object], *arguments: Any) -> float:
    begin = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - begin


def _rounds(act: Callable[[], float], runs: int) -> list[float]:
    """Return the seconds of each of `runs` calls after one to warm up."""
    return [act() for _number in range(runs + 1)][1:]


if __name__ == "__main__":
    verdicts.start(main)
