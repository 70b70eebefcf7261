"""Run the generators of all ranks in one process: the collectives as they are defined, without a network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from taco_launch.light.config import read
from taco_launch.light.engine import ALL_GATHER, ALL_REDUCE, INNER, OUTER, Engine, Round
from taco_launch.light.grid import Place, arrange


def engines(hosts: int, ranks: int, environ: dict[str, str]) -> list[Engine]:
    """Return the engine of each rank, hosts with `ranks` ranks each; each past its first step, which sends all."""
    config = read(environ)
    places = [Place(f"host{host}", rank) for host in range(hosts) for rank in range(ranks)]
    row = [Engine(config, arrange(places, config.intra_size, config.two_d)) for _place in places]
    for engine in row:
        engine.begin_step()
    return row


def step(row: Sequence[Engine], gradients: Sequence[Tensor], scale: Tensor | None = None) -> list[Tensor]:
    """Average the gradients of the ranks in one step; return the result of each rank."""
    for engine in row:
        engine.begin_step()
    generators = [engine.reduce("all", gradient, scale) for engine, gradient in zip(row, gradients, strict=True)]
    received: list[Tensor | None] = [None] * len(row)
    results: list[Tensor] = []
    while not results:
        rounds: list[Round] = []
        for generator, sent in zip(generators, received, strict=True):
            try:
                rounds.append(generator.send(sent))  # type: ignore[arg-type]
            except StopIteration as end:
                results.append(end.value)
        if rounds:
            received = [_result(row[0], rank, rounds) for rank in range(len(row))]
    assert len(results) == len(row), "all ranks have the same number of collectives"
    return results


def _result(engine: Engine, rank: int, rounds: Sequence[Round]) -> Tensor:
    kind, group, _tensor = rounds[rank]
    groups = {INNER: engine.grid.inner, OUTER: engine.grid.outer}.get(group, (tuple(range(len(rounds))),))
    ranks = next(one for one in groups if rank in one)
    assert all(rounds[other][:2] == (kind, group) for other in ranks), "all ranks of a group run the same collective"
    tensors = [rounds[other].tensor for other in sorted(ranks)]
    if kind == ALL_GATHER:
        return torch.cat(tensors)
    total = torch.stack(tensors).sum(0)
    return total if kind == ALL_REDUCE else total.view(len(ranks), -1)[sorted(ranks).index(rank)].clone()


def residual(row: Sequence[Engine], length: int) -> Tensor:
    """Return the sum of all ranks' residuals, each where its share of the gradient is."""
    total = torch.zeros(length + len(row))
    for rank, engine in enumerate(row):
        held = engine.residuals.get("all")
        if held is not None:
            group = next(ranks for ranks in engine.grid.inner if rank in ranks)
            start = group.index(rank) * len(held) if len(held) < length else 0  # or it covers all: flat
            total[start : start + len(held)] += held
    return total[:length]
