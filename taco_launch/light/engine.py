"""Average gradients over ranks by few bytes: which collectives run, in which order, and what stays for later steps.

A reduction is a generator of collectives. What runs them, torch.distributed or Horovod, sends each result back into it.
"""

import sys
from typing import Any, Dict, Generator, Hashable, List, NamedTuple, Optional, Sequence, Set

import torch
from torch import Tensor

from taco_launch.light import selection
from taco_launch.light.config import Config
from taco_launch.light.grid import Grid

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
WORLD, INNER, OUTER = "world", "inner", "outer"


class Round(NamedTuple):
    """A collective that sums or concatenates 1-dimensional tensors of a group, in the order of its ranks."""

    kind: str
    group: str
    tensor: Tensor


Rounds = Generator[Round, Tensor, Tensor]


def pieces(sizes: Sequence[int], bucket_bytes: int) -> List[int]:
    """Return how many of the tensors, given in bytes, each piece has: one is full when it reaches `bucket_bytes`."""
    counts, size, number = [], 0, 0
    for one in sizes:
        size, number = size + one, number + 1
        if size >= bucket_bytes:
            counts.append(number)
            size = number = 0
    return counts + [number] * (number > 0)


class Engine:
    """Average gradients; holds the residual of each piece, which belongs to this rank alone."""

    def __init__(self, config: Config, grid: Grid, rank: int = 0) -> None:
        """Start before the first step, without residuals."""
        self.config, self.grid, self.rank = config, grid, rank
        self.flat = Grid(
            tuple((rank,) for group in grid.inner for rank in group),
            (tuple(range(len(grid.inner) * grid.inner_size)),),
            grid.hosts,
        )
        self.ranks = len(self.flat.outer[0])
        self.step = 0
        # the steps before this process started, and before the warm-up did
        self.started_after = self.warm_after = 0
        self.residuals: Dict[Hashable, Tensor] = {}
        self._used: Set[Hashable] = set()

    def begin_step(self) -> None:
        """Count a step, and forget residuals that the last one had no use for: its pieces were other ones."""
        self.step += 1
        if self._used:
            self.residuals = {name: held for name, held in self.residuals.items() if name in self._used}
        self._used = set()

    def warms_up(self) -> bool:
        """Return whether this step sends everything.

        The first of a process always does: after it DistributedDataParallel fills its buckets in another order, and
        residuals of the former ones would be lost.
        """
        return self.step <= max(self.started_after + 1, self.warm_after + self.config.warmup_steps)

    def compresses(self, size: int) -> bool:
        """Return whether only the largest of so many bytes are ever sent: not where no link lies between groups."""
        return self.config.compresses(size) and self.route(size).outer_size > 1

    def route(self, size: int) -> Grid:
        """Return the groups by which so many bytes are reduced."""
        return self.grid if self.config.reduces_2d(size) else self.flat

    def reduce(self, name: Hashable, gradient: Tensor, scale: Optional[Tensor] = None) -> Rounds:
        """Average a 1-dimensional gradient over all ranks; the result has its type.

        Args:
            name: whose residual is used: the same at each step, and the same for the same parameters only.
            gradient: what this rank computed.
            scale: what a GradScaler multiplied the loss with. Residuals are without it, as it changes.

        """
        size = gradient.numel() * gradient.element_size()
        grid = self.route(size)
        if self.compresses(size) and not self.warms_up():
            self._used.add(name)
            return self._sparse(name, gradient, scale, grid)
        return self._dense(gradient, grid)

    def _dense(self, gradient: Tensor, grid: Grid) -> Rounds:
        share = gradient / self.ranks  # before the sum, which 16 bits might not hold
        if grid.inner_size == 1 or grid.outer_size == 1:
            return (yield Round(ALL_REDUCE, WORLD, share))
        shard = yield Round(REDUCE_SCATTER, INNER, _padded(share, grid.inner_size))
        total = yield Round(ALL_REDUCE, OUTER, shard)
        return (yield Round(ALL_GATHER, INNER, total))[: len(gradient)]

    def _sparse(self, name: Hashable, gradient: Tensor, scale: Optional[Tensor], grid: Grid) -> Rounds:
        shard = gradient.float() if scale is None else gradient.float() / scale
        if grid.inner_size > 1:
            shard = yield Round(REDUCE_SCATTER, INNER, _padded(shard, grid.inner_size))
        before = self._residual(name, shard)
        if self.config.error_feedback:
            shard = shard + before
        number = selection.count(len(shard), self.config.ratio)
        index = selection.largest(shard, number)
        message, sent = selection.pack(index, shard[index], self.config.fp16)
        received = yield Round(ALL_GATHER, WORLD if grid.outer_size == self.ranks else OUTER, message)
        mean = torch.zeros_like(shard)
        for part in received.view(grid.outer_size, -1):
            # One sender after the other: each index is there once, so that the sum is the same on all ranks.
            places, values = selection.unpack(part, number, self.config.fp16)
            mean.index_add_(0, places, values / self.ranks)
        if grid.inner_size > 1:
            mean = yield Round(ALL_GATHER, INNER, mean)
        if self.config.error_feedback:
            # No rank uses a step with infinity or NaN in it; all see it here, and none may remember it.
            after = shard.index_add_(0, index, sent, alpha=-1)
            self.residuals[name] = _after_a_finite(mean, after, before)
        mean = mean[: len(gradient)]
        return (mean if scale is None else mean * scale).to(gradient.dtype)

    def _residual(self, name: Hashable, shard: Tensor) -> Tensor:
        held = self.residuals.get(name)
        return held if held is not None and held.shape == shard.shape else torch.zeros_like(shard)

    def bytes_per_step(self, sizes: Sequence[int], element_size: int) -> Dict[str, int]:
        """Predict what a host sends to others at each step: `dense`, by a ring of all ranks, and `light`."""
        hosts, ranks = self.grid.hosts, self.ranks
        sent = {"dense": 0.0, "light": 0.0}
        for size in sizes if hosts > 1 else ():
            ring, grid = 2 * (ranks - 1) / ranks * size, self.route(size)
            sent["dense"] += ring
            if self.compresses(size):
                shard = -(-size // element_size // grid.inner_size)
                message = 4 * selection.words(selection.count(shard, self.config.ratio), self.config.fp16)
                sent["light"] += (grid.outer_size - 1) * message * grid.inner_size
            elif grid.inner_size > 1:
                sent["light"] += 2 * (grid.outer_size - 1) / grid.outer_size * size
            else:
                sent["light"] += ring
        return {name: int(value) for name, value in sent.items()}

    def state_dict(self) -> Dict[str, Any]:
        """Return this rank's residuals and step, for a checkpoint of this rank."""
        return {
            "ranks": self.ranks,
            "step": self.step,
            "warm_after": self.warm_after,
            "residuals": dict(self.residuals),
        }

    def load_state_dict(self, state: Dict[str, Any]) -> bool:
        """Continue from a checkpoint of this rank; return False where it is of another number of ranks.

        Its residuals are of no use then: they are dropped, and the warm-up starts again.
        """
        same = bool(state["ranks"] == self.ranks)
        self.step = self.started_after = state["step"]
        self.warm_after = state["warm_after"] if same else self.step
        self.residuals = dict(state["residuals"]) if same else {}
        if not same and self.rank == 0:
            say(
                f"the checkpoint is of {state['ranks']} ranks, here are {self.ranks}: its residuals are dropped, and the "
                "warm-up starts again"
            )
        return same


def say(*lines: str) -> None:
    """Write lines to standard error, in one write: other ranks may share it."""
    sys.stderr.write("".join(f"taco_launch.light: {line}\n" for line in lines))


def _after_a_finite(mean: Tensor, after: Tensor, before: Tensor) -> Tensor:
    """Return `after` if all of `mean` is finite, otherwise `before`. One pass over it, where isfinite makes five."""
    low, high = torch.aminmax(mean)  # NaN if any value is
    finite = low.isfinite() & high.isfinite()
    if finite.is_cuda:  # the host would have to wait for a bool
        return torch.where(finite, after, before)
    return after if finite else before


def _padded(tensor: Tensor, parts: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, -len(tensor) % parts))
