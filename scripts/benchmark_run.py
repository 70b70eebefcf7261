"""Runs the synthetic benchmark in one rank: the ways to communicate, the training step, the clock, the lines printed.

Runs in training images: Python 3.8, torch 1.11, Horovod 0.19 and later.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed
from benchmark_models import CLASSES, build
from torch import nn


@dataclass(frozen=True)
class Options:
    """What to measure; `threads` is None for torch's own choice."""

    model: str
    batch_size: int
    image_size: int
    warmup_batches: int
    batches_per_iter: int
    iters: int
    fp16_allreduce: bool
    use_adasum: bool
    gradients_only: bool
    no_cuda: bool
    threads: int | None


class Comm(Protocol):
    """A way for the ranks to work together."""

    rank: int
    size: int
    local_rank: int

    def join(self, cuda: bool) -> None:
        """Meet the other ranks; the GPU is already chosen."""

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return all ranks the state of rank 0, and a model and optimizer that average the gradients."""

    def leave(self) -> None:
        """Part from the other ranks, after the last line is printed."""


class Alone:
    """One rank that has nobody to talk to."""

    rank, size, local_rank = 0, 1, 0

    def join(self, cuda: bool) -> None:
        """Nobody to meet."""

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return both back as they are."""
        return model, optimizer

    def leave(self) -> None:
        """Nobody to part from."""


class Horovod:
    """Horovod over whatever it was built with (MPI, Gloo, NCCL)."""

    def __init__(self, *, fp16: bool, adasum: bool) -> None:
        """Start Horovod, which finds the other ranks by the launcher's environment."""
        self._hvd: Any = importlib.import_module("horovod.torch")
        self._hvd.init()
        self._compression = self._hvd.Compression.fp16 if fp16 else self._hvd.Compression.none
        self._op = self._hvd.Adasum if adasum else self._hvd.Average
        self.rank: int = self._hvd.rank()
        self.size: int = self._hvd.size()
        self.local_rank: int = self._hvd.local_rank()

    def join(self, cuda: bool) -> None:
        """Nothing left to do."""

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Broadcast from rank 0 and wrap the optimizer."""
        self._hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self._hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        wrapped = self._hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), compression=self._compression, op=self._op
        )
        return model, wrapped

    def leave(self) -> None:
        """Shut Horovod down while all ranks are still there."""
        self._hvd.shutdown()


class TorchDistributed:
    """torch.distributed: NCCL between GPUs, Gloo between CPUs; MASTER_ADDR and MASTER_PORT say where to meet."""

    def __init__(self, rank: int, size: int, local_rank: int, *, fp16: bool) -> None:
        """Keep who we are, as the launcher's environment says."""
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self._fp16 = fp16

    def join(self, cuda: bool) -> None:
        """Make the process group."""
        torch.distributed.init_process_group(
            "nccl" if cuda else "gloo", init_method="env://", rank=self.rank, world_size=self.size
        )

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Wrap the model, which also broadcasts it from rank 0; a fresh SGD has no state to broadcast."""
        wrapped = nn.parallel.DistributedDataParallel(model)
        if self._fp16:
            hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
            wrapped.register_comm_hook(None, hooks.fp16_compress_hook)
        return wrapped, optimizer

    def leave(self) -> None:
        """Take the process group down."""
        torch.distributed.destroy_process_group()


def run(options: Options, comm: Comm) -> None:
    """Measure, and print the lines on rank 0.

    Raises:
        UnknownModelError: There is no such model.
        RuntimeError: No GPU for this rank, not enough memory, or what torch and Horovod raise.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    cuda = torch.cuda.is_available() and not options.no_cuda
    device = torch.device("cuda", _gpu(comm.local_rank)) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    model = build(options.model)
    comm.join(cuda)
    say = _say if comm.rank == 0 else _say_nothing
    say(f"Model: {options.model}")
    say(f"Batch size: {options.batch_size}")
    say(f"Number of GPUs: {comm.size}")
    if not cuda:
        say("No GPU is used: the ranks are CPU ranks")
    if options.gradients_only:
        sizes = [each.numel() * each.element_size() for each in model.parameters() if each.requires_grad]
        say(f"Gradients only: {len(sizes)} tensors, {sum(sizes) / 1e6:.1f} MB per step, no forward or backward pass")
        step = _gradients_step(comm, Gradients(model.to(device)))
    else:
        step = _training_step(options, comm, model.to(device), device)
    _measure(options, comm.size, step, say, torch.cuda.synchronize if cuda else _nothing)
    comm.leave()


def _gpu(local_rank: int) -> int:
    count = torch.cuda.device_count()
    if local_rank < count:
        return local_rank
    if count == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):  # the launcher shows each rank its own
        return 0
    raise RuntimeError(f"no GPU for local rank {local_rank}: this host has {count}; start fewer ranks on it")


def _training_step(options: Options, comm: Comm, model: nn.Module, device: torch.device) -> Callable[[], None]:
    model, optimizer = comm.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device)
    labels = torch.randint(CLASSES, (options.batch_size,), device=device)
    loss = nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        scores = model(images)
        # torchvision's inception_v3 and googlenet give their auxiliary scores too
        loss(scores if isinstance(scores, torch.Tensor) else scores[0], labels).backward()
        optimizer.step()

    return step


class Gradients(nn.Module):
    """The parameters of a model, and a loss whose gradients cost next to nothing.

    They are noise, the same in each step: compression by size has as much to choose from as in training.
    """

    def __init__(self, model: nn.Module) -> None:
        """Keep the model for its parameters, and make noise for those that are trained."""
        super().__init__()
        self.model = model
        self.noise = [torch.randn_like(each) for each in model.parameters() if each.requires_grad]

    def forward(self) -> torch.Tensor:
        """Return a loss whose gradients are the noise."""
        trained = (each for each in self.model.parameters() if each.requires_grad)
        return torch.stack([(each * noise).sum() for each, noise in zip(trained, self.noise)]).sum()  # noqa: B905 - Python 3.8


def _gradients_step(comm: Comm, model: nn.Module) -> Callable[[], None]:
    """Return a step that averages gradients as training does: by the optimizer of Horovod, or the hooks of torch."""
    model, optimizer = comm.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return step


def _measure(
    options: Options, size: int, step: Callable[[], None], say: Callable[[str], None], settle: Callable[[], None]
) -> None:
    """Time `step`; `settle` waits until the device has done what it was asked.

    Rates are rank 0's, in images per second; the total is theirs times the ranks; +- is 1.96 population standard
    deviations (the interval that holds 95 % of normally distributed rates).
    """
    say("Running warmup...")
    _repeat(step, options.warmup_batches, settle)
    say("Running benchmark...")
    rates = []
    for index in range(options.iters):
        seconds = _repeat(step, options.batches_per_iter, settle)
        rates.append(options.batch_size * options.batches_per_iter / seconds)
        say(f"Iter #{index}: {rates[-1]:.1f} img/sec per GPU")
    mean, half_width = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    say(f"Img/sec per GPU: {mean:.1f} +-{half_width:.1f}")
    say(f"Total img/sec on {size} GPU(s): {size * mean:.1f} +-{size * half_width:.1f}")


def _repeat(step: Callable[[], None], times: int, settle: Callable[[], None]) -> float:
    """Return the seconds that so many steps take."""
    begin = time.perf_counter()
    for _ in range(times):
        step()
    settle()
    return time.perf_counter() - begin


def _say(line: str) -> None:
    print(line, flush=True)


def _say_nothing(line: str) -> None:
    """Only rank 0 prints."""


def _nothing() -> None:
    """A CPU has done what it was asked when a call returns, and one rank has nobody to wait for."""
