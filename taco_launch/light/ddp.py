"""Reduce the gradients of DistributedDataParallel: a communication hook."""

import os
from functools import partial
from typing import Any, Callable, Dict, Hashable, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from taco_launch.light import config, grid, process
from taco_launch.light.engine import ALL_GATHER, ALL_REDUCE, INNER, OUTER, WORLD, Engine, Round, Rounds, pieces

# torch 2.13 renamed them
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Light:
    """What `attach` has put into a model; save its `state_dict` on each rank with the checkpoint."""

    def __init__(self, model: DistributedDataParallel, engine: Engine) -> None:
        """Make the groups of ranks: all ranks do so at the same time."""
        self.engine = engine
        self._numbers: Dict[Tensor, int] = {parameter: number for number, parameter in enumerate(model.parameters())}
        self._groups = {
            WORLD: model.process_group,
            INNER: _own_group(engine.grid.inner),
            OUTER: _own_group(engine.grid.outer),
        }
        # Pieces go one after the other: each has several collectives, and all ranks must start those of a group in the
        # same order, whichever ends first on which rank.
        self._last: Optional[Future[Tensor]] = None
        self._stream: Optional[torch.cuda.Stream] = None
        self._scaler: Any = None

    def hook(self, _state: object, bucket: GradBucket) -> Future[Tensor]:
        """Average a bucket over all ranks: the communication hook.

        Raises:
            LightError: its gradient is sparse, or there are several GradScalers.

        """
        flat = bucket.buffer()
        if flat.is_sparse:
            raise process.refused("a sparse gradient", "make its embedding with sparse=False")
        if bucket.index() == 0:
            self.engine.begin_step()
            if self.engine.step == self.engine.started_after + 1:
                self._scaler = process.grad_scaler()
        parts = _parts(bucket, self._numbers, self.engine.config.bucket_bytes)
        scale = process.scale_of(self._scaler)
        # what is sent, and how, is decided here: by sizes and the step
        rounds = [(part, self.engine.reduce(name, part, scale)) for name, part in parts]
        return self._on_stream(flat, rounds) if flat.is_cuda else self._chained(flat, rounds)

    def _on_stream(self, flat: Tensor, rounds: List[Tuple[Tensor, Rounds]]) -> Future[Tensor]:
        """Enqueue all collectives on a stream; NCCL's `wait` makes the stream wait, not the host."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(flat.device)  # type: ignore[no-untyped-call]
        finished: Future[Tensor] = Future(devices=[flat.device])
        self._stream.wait_stream(torch.cuda.current_stream(flat.device))
        with torch.cuda.stream(self._stream):
            for part, generator in rounds:
                received: Optional[Tensor] = None
                try:
                    while True:
                        work, result = self._start(generator.send(received))  # type: ignore[arg-type]
                        work.wait()
                        received = result()
                except StopIteration as end:
                    part.copy_(end.value)
            finished.set_result(flat)
        return finished

    def _chained(self, flat: Tensor, rounds: List[Tuple[Tensor, Rounds]]) -> Future[Tensor]:
        """Start each collective when the one before it has ended; the backward pass goes on meanwhile."""
        finished: Future[Any] = Future()

        def proceed(number: int, received: Optional[Tensor]) -> None:
            """Send a result into a generator, and start what it yields, or the next generator."""
            try:
                while number < len(rounds):
                    part, generator = rounds[number]
                    try:
                        work, result = self._start(generator.send(received))  # type: ignore[arg-type]
                    except StopIteration as end:
                        part.copy_(end.value)
                        number, received = number + 1, None
                    else:
                        work.get_future().then(partial(after, number, result))
                        return
            except Exception as error:  # noqa: BLE001 - nobody else would complete the future: the rank would wait for ever
                finished.set_exception(error)
                return
            finished.set_result(flat)

        def after(number: int, result: Callable[[], Tensor], ended: Any) -> None:
            try:
                ended.value()
                received = result()
            except Exception as error:  # noqa: BLE001 - as above
                finished.set_exception(error)
            else:
                proceed(number, received)

        before, self._last = self._last, finished
        if before is None or before.done():
            proceed(0, None)
        else:
            before.then(lambda _ended: proceed(0, None))
        return finished

    def _start(self, one: Round) -> Tuple[Any, Callable[[], Tensor]]:
        """Start a collective; return it with a function that returns its result when it has ended."""
        group = self._groups[one.group]
        tensor = one.tensor.contiguous()
        if one.kind == ALL_REDUCE:
            return dist.all_reduce(tensor, group=group, async_op=True), lambda: tensor
        if one.kind == ALL_GATHER:
            gathered = tensor.new_empty(len(tensor) * group.size())
            return _ALL_GATHER(gathered, tensor, group=group, async_op=True), lambda: gathered
        if tensor.is_cuda:
            shard = tensor.new_empty(len(tensor) // group.size())
            return _REDUCE_SCATTER(shard, tensor, group=group, async_op=True), lambda: shard
        # gloo's reduce-scatter has no future; this sends as many bytes
        shares = torch.empty_like(tensor)
        work = dist.all_to_all_single(shares, tensor, group=group, async_op=True)
        return work, lambda: shares.view(group.size(), -1).sum(0)

    def state_dict(self) -> Dict[str, Any]:
        """Return this rank's residuals, for a checkpoint of this rank."""
        return self.engine.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continue with the residuals of a checkpoint of this rank; of another number of ranks they are dropped."""
        self.engine.load_state_dict(state)


def attach(model: DistributedDataParallel) -> Light:
    """Make LIGHT_* variables effective for a model's gradients. All ranks must call it, before the first step.

    Raises:
        LightError: the variables or the model are not ones that it can work with, or ranks have different variables.

    """
    _check(model)
    rows: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(rows, (config.read_or_error(os.environ), process.place(0)))
    chosen = config.agreed([row[0] for row in rows])
    engine = Engine(chosen, grid.arrange([row[1] for row in rows], chosen.intra_size, chosen.two_d), dist.get_rank())
    light = Light(model, engine)
    if chosen.is_on:
        model.register_comm_hook(None, light.hook)
    process.announce(engine, [one for one in model.parameters() if one.requires_grad], dist.get_backend())
    return light


def _parts(bucket: GradBucket, numbers: Dict[Tensor, int], limit: int) -> List[Tuple[Hashable, Tensor]]:
    """Return the pieces of a bucket's buffer, each with the numbers of its parameters as its name."""
    flat, parameters = bucket.buffer(), bucket.parameters()
    parts: List[Tuple[Hashable, Tensor]] = []
    first = start = 0
    for count in pieces([one.numel() * flat.element_size() for one in parameters], limit):
        of_piece = parameters[first : first + count]
        length = sum(one.numel() for one in of_piece)
        parts.append((tuple(numbers[one] for one in of_piece), flat[start : start + length]))
        first, start = first + count, start + length
    return parts


def _own_group(groups: Tuple[Tuple[int, ...], ...]) -> Any:
    """Make all groups, in the same order on all ranks, and return this rank's; None where the engine uses none."""
    if len(groups) == 1 or len(groups[0]) == 1:
        return None
    by_ranks = {ranks: dist.new_group(list(ranks)) for ranks in groups}
    return next(group for ranks, group in by_ranks.items() if dist.get_rank() in ranks)


def _check(model: object) -> None:
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    if not isinstance(model, DistributedDataParallel):
        fix = "wrap the model in torch.nn.parallel.DistributedDataParallel"
        reason = "shards parameters" if "fsdp" in name.lower() or "deepspeed" in name.lower() else "is something else"
        raise process.refused(f"{name}, which {reason}", f"{fix}, or unset LIGHT_*")
    if model.process_group.size() != dist.get_world_size():
        raise process.refused("a model of some of the ranks", "give DistributedDataParallel no process_group")
    for part, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise process.refused(f"{part}: sparse gradients", "make it with sparse=False")
