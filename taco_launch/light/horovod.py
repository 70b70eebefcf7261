"""Horovod with LIGHT_* in effect: `import taco_launch.light.horovod as hvd` in place of `horovod.torch`."""

import contextlib
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

import horovod.torch as stock
import torch
from torch import Tensor

from taco_launch.light import config, grid, process
from taco_launch.light.engine import ALL_GATHER, ALL_REDUCE, INNER, OUTER, WORLD, Engine, Round, Rounds, pieces

# Groups of ranks are made after `init`, which Horovod permits only if it is set before: imports come before `init`.
if os.environ.get("LIGHT_2D_ALLREDUCE") == "1":
    os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
_stock_optimizer = stock.DistributedOptimizer
# What changes how Horovod itself reduces, and the only value that is supported.
_FIXED = {"op": stock.Average, "compression": stock.Compression.none, "gradient_predivide_factor": 1.0}
_groups: Dict[Tuple[int, ...], Any] = {}


def __getattr__(name: str) -> Any:
    return getattr(stock, name)


class _Reduced:
    """What an optimizer becomes: it averages the gradients over all ranks before each step."""

    light: "Reducer"

    def synchronize(self) -> None:
        """Average the gradients now; `step` does not do it again."""
        self.light.reduce()
        self.light.is_reduced = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Have `step` leave the gradients as they are: after `synchronize`."""
        before, self.light.is_reduced = self.light.is_reduced, True
        try:
            yield
        finally:
            self.light.is_reduced = before

    def set_backward_passes_per_step(self, _passes: int) -> None:
        """Accept any number: gradients are averaged when `step` is called, after however many passes."""

    def step(self, closure: Any = None) -> Any:
        """Average the gradients, and take a step."""
        if not self.light.is_reduced:
            self.light.reduce()
        result = super().step(closure)  # type: ignore[misc]
        self.light.is_reduced = False
        return result


class Reducer:
    """Average the gradients of an optimizer's parameters by Horovod."""

    def __init__(self, parameters: List[Tensor], engine: Engine) -> None:
        """Divide the parameters into pieces: of one type and device each, in the order of the backward pass."""
        self.engine, self.is_reduced = engine, False
        self._scaler: Any = None
        self._pieces: List[Tuple[Tuple[int, ...], List[Tensor]]] = []
        by_kind: Dict[Any, List[int]] = {}
        for number, one in reversed(list(enumerate(parameters))):
            by_kind.setdefault((one.dtype, one.device), []).append(number)
        for numbers in by_kind.values():
            sizes = [parameters[number].numel() * parameters[number].element_size() for number in numbers]
            start = 0
            for count in pieces(sizes, engine.config.bucket_bytes):
                name = tuple(numbers[start : start + count])
                self._pieces.append((name, [parameters[number] for number in name]))
                start += count

    def reduce(self) -> None:
        """Average all gradients: those of unused parameters are zero."""
        self.engine.begin_step()
        if self.engine.step == self.engine.started_after + 1:
            self._scaler = process.grad_scaler()
        running = []
        for number, (name, parameters) in enumerate(self._pieces):
            flat = torch.cat([_gradient(one).flatten() for one in parameters])
            generator = self.engine.reduce(name, flat, process.scale_of(self._scaler))
            running.append((parameters, generator, self._start(generator.send(None), f"light.{number}.0")))  # type: ignore[arg-type]
        for number, (parameters, generator, handle) in enumerate(running):
            mean = self._finish(generator, handle, f"light.{number}")
            for one, part in zip(parameters, torch.split(mean, [one.numel() for one in parameters])):
                _gradient(one).copy_(part.view_as(one))

    def _finish(self, generator: Rounds, handle: int, name: str) -> Tensor:
        number = 0
        while True:
            number += 1
            try:
                handle = self._start(generator.send(stock.synchronize(handle)), f"{name}.{number}")
            except StopIteration as end:
                result: Tensor = end.value
                return result

    def _start(self, one: Round, name: str) -> int:
        ranks = {INNER: self.engine.grid.inner, OUTER: self.engine.grid.outer}.get(one.group, ())
        own: Optional[Tuple[int, ...]] = next((group for group in ranks if self.engine.rank in group), None)
        options = {
            "name": name,
            "process_set": _groups[own] if own and one.group != WORLD else stock.global_process_set,
        }
        if one.kind == ALL_GATHER:
            return int(stock.allgather_async(one.tensor, **options))
        start = stock.allreduce_async if one.kind == ALL_REDUCE else stock.reducescatter_async
        return int(start(one.tensor, op=stock.Sum, **options))


def DistributedOptimizer(optimizer: Any, named_parameters: Any = None, **options: Any) -> Any:  # noqa: N802 - Horovod's name
    """Make an optimizer average gradients as LIGHT_* configure it; all ranks must call it.

    The returned optimizer's `light.engine` has `state_dict` and `load_state_dict`, for a checkpoint of each rank.

    Raises:
        LightError: the variables or options are not ones that it can work with, or ranks have different variables.

    """
    mine = (config.read_or_error(os.environ), process.place(stock.local_rank()))
    rows = stock.allgather_object(mine, name="light.config")
    chosen = config.agreed([row[0] for row in rows])
    engine = Engine(chosen, grid.arrange([row[1] for row in rows], chosen.intra_size, chosen.two_d), stock.rank())
    parameters = [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    process.announce(engine, parameters, "Horovod")
    if not chosen.is_on:
        return _stock_optimizer(optimizer, named_parameters, **options)
    for name, only in _FIXED.items():
        if options.get(name, only) != only:
            raise process.refused(f"Horovod's {name}={options[name]}", f"remove {name}=, or unset LIGHT_*")
    if options.get("process_set", stock.global_process_set) is not stock.global_process_set:
        raise process.refused("a process set of Horovod", "remove process_set=, or unset LIGHT_*")
    for ranks in (*engine.grid.inner, *engine.grid.outer):
        if 1 < len(ranks) < engine.ranks and ranks not in _groups:
            _groups[ranks] = stock.add_process_set(stock.ProcessSet(ranks))
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Reduced, kind), {})
    optimizer.light = Reducer(parameters, engine)
    return optimizer


def _gradient(parameter: Tensor) -> Tensor:
    """Return a parameter's gradient, zero where it has none; see `DistributedOptimizer` for errors."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    if parameter.grad.is_sparse:
        raise process.refused("a sparse gradient", "make its embedding with sparse=False")
    return parameter.grad
