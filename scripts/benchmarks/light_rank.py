"""One rank of `light.py`: trains by one method of reducing gradients; rank 0 prints what a step took, as JSON.

It is not a benchmark of its own: mpirun starts it. The first steps, which fill buckets and start compression, run before the
link is limited, and are not timed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_LIGHT = {
    "2d": {"LIGHT_2D_ALLREDUCE": "1"},
    "topk": {"LIGHT_TOPK_ALLREDUCE": "1"},
    "topk, no feedback": {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_ERROR_FEEDBACK": "0"},
    "2d+topk": {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_TOPK_ALLREDUCE": "1"},
    "2d+topk fp16": {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_FP16": "1"},
}
# Of torch's own: compression starts after so many steps, the fewest that PowerSGD accepts; parameters are averaged so often.
_START, _PERIOD = 2, 4
_UNTIMED = 3


class Gradients(nn.Module):
    """The parameters of ResNet50, and a loss whose gradient is noise that costs next to nothing."""

    def __init__(self, rank: int) -> None:
        """Make noise of this rank's own."""
        super().__init__()
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from benchmark_models import build  # noqa: PLC0415 - beside pytorch_synthetic_benchmark.py

        self.parts = nn.ParameterList([torch.zeros_like(each) for each in build("resnet50").parameters()])
        total = sum(part.numel() for part in self.parts)
        self.noise = torch.randn(total + 1000, generator=torch.Generator().manual_seed(rank))

    def forward(self, step: int) -> Tensor:
        """Return a loss whose gradient is another one in each step."""
        start, loss = step * 37 % 1000, torch.zeros(())
        for part in self.parts:
            loss = loss + (part.flatten() * self.noise[start : start + part.numel()]).sum()
            start += part.numel()
        return loss


class Digits:
    """Handwritten digits of scikit-learn, and a network of 283,786 parameters."""

    batch, steps, rate = 64, 240, 0.02

    def __init__(self, rank: int, size: int, seed: int) -> None:
        """Split the images, always alike, and make a network by the seed."""
        known = importlib.import_module("sklearn.datasets").load_digits()
        order = torch.randperm(len(known.images), generator=torch.Generator().manual_seed(0))
        images = torch.tensor(known.images, dtype=torch.float32)[order, None] / 16
        labels = torch.tensor(known.target)[order]
        self.tested, self.trained = (images[:500], labels[:500]), (images[500:], labels[500:])
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10)),
        )
        self._rank, self._size, self._seed = rank, size, seed

    def loss(self, model: Callable[[Tensor], Tensor], step: int) -> Tensor:
        """Return the loss of this rank's part of a step's batch."""
        chance = torch.Generator().manual_seed(1000 * self._seed + step)
        chosen = torch.randperm(len(self.trained[0]), generator=chance)[: self.batch][self._rank :: self._size]
        return nn.functional.cross_entropy(model(self.trained[0][chosen]), self.trained[1][chosen])

    def accuracy(self) -> float:
        """Return the share of the test images that the model classifies rightly."""
        with torch.no_grad():
            return float((self.model(self.tested[0]).argmax(1) == self.tested[1]).float().mean())


class Text:
    """Sentences of a small made-up language, and a transformer of 2 layers that predicts the next letter."""

    # So long that training has ended: plain all-reduce is at its best after 300 steps, top-k after 700.
    batch, steps, rate = 32, 1000, 0.2
    _LETTERS, _CONTEXT = 27, 32

    def __init__(self, rank: int, size: int, seed: int) -> None:
        """Write the text, always alike, and make a network by the seed."""
        chance = torch.Generator().manual_seed(0)
        words = [torch.randint(1, self._LETTERS, (4,), generator=chance) for _ in range(24)]
        follows = torch.randint(0, len(words), (len(words), 3), generator=chance)
        word, text = 0, []
        for choice in torch.randint(0, 3, (12_000,), generator=chance).tolist():
            word = int(follows[word, choice])
            text += [*words[word].tolist(), 0]
        letters = torch.tensor(text)
        self.tested, self.trained = letters[:8_000], letters[8_000:]
        torch.manual_seed(seed)
        self.model = _Transformer(self._LETTERS, self._CONTEXT)
        self._rank, self._size, self._seed = rank, size, seed

    def loss(self, model: Callable[[Tensor], Tensor], step: int) -> Tensor:
        """Return the loss of this rank's part of a step's batch."""
        chance = torch.Generator().manual_seed(1000 * self._seed + step)
        starts = torch.randint(0, len(self.trained) - self._CONTEXT - 1, (self.batch,), generator=chance)
        rows = self._windows(self.trained, starts[self._rank :: self._size])
        return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    def accuracy(self) -> float:
        """Return the share of the test text's letters that the model predicts."""
        rows = self._windows(self.tested, torch.arange(0, len(self.tested) - self._CONTEXT - 1, self._CONTEXT))
        with torch.no_grad():
            return float((self.model(rows[:, :-1]).argmax(2) == rows[:, 1:]).float().mean())

    def _windows(self, text: Tensor, starts: Tensor) -> Tensor:
        return text[starts[:, None] + torch.arange(self._CONTEXT + 1)]


class _Transformer(nn.Module):
    def __init__(self, letters: int, context: int) -> None:
        super().__init__()
        width = 64
        self.letters, self.places = nn.Embedding(letters, width), nn.Parameter(torch.randn(context, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, rows: Tensor) -> Tensor:
        hidden: Tensor = self.letters(rows) + self.places
        result: Tensor = self.out(self.layers(hidden, mask=self.mask, is_causal=True))
        return result


def main() -> None:
    """Train, and print what rank 0 measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=("DDP", "Horovod"))
    parser.add_argument("method")
    parser.add_argument("workload", choices=("gradients", "digits", "text"))
    parser.add_argument("--rate", default="", help="of tc: limits what this host sends")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until", type=float, default=2.0, help="end at this accuracy")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("RANK", "SIZE", "LOCAL_RANK"):
        os.environ["WORLD_SIZE" if name == "SIZE" else name] = os.environ[f"OMPI_COMM_WORLD_{name}"]
    os.environ.update(_LIGHT.get(asked.method, {}))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    work: Any = {"digits": Digits, "text": Text}.get(asked.workload)
    work = work(rank, size, asked.seed) if work else None
    if work:
        os.environ["LIGHT_TOPK_THRESHOLD"] = "0"
    model = work.model if work else Gradients(rank)
    reduced, step = {"DDP": _ddp, "Horovod": _horovod}[asked.library](model, asked.method, work.rate if work else 1e-9)
    loss = (lambda number: work.loss(reduced, number)) if work else reduced
    measured = _train(loss, step, asked, work)
    if rank == 0:
        print(json.dumps(measured), flush=True)
    step.leave()
    os._exit(0)  # gloo's threads would complain of ranks that end before them


def _train(loss: Callable[[int], Tensor], step: Any, asked: argparse.Namespace, work: Any) -> dict[str, Any]:
    """Take the steps that start compression, limit the link, and measure the others; seconds and bytes are of one step."""

    def take(number: int) -> None:
        step.zero_grad()
        loss(number).backward()  # type: ignore[no-untyped-call]
        step.step()

    for number in range(_UNTIMED):
        take(number)
    if asked.rate and os.environ["LOCAL_RANK"] == "0":
        limit = ("tbf", "rate", asked.rate, "burst", "256kb", "latency", "200ms")
        subprocess.run(("/sbin/tc", "qdisc", "replace", "dev", "eth0", "root", *limit), check=True)
    step.barrier()
    sent, begin, seconds, curve, best = _sent(), time.perf_counter(), 0.0, [], 0.0
    steps = asked.steps or work.steps
    for number in range(_UNTIMED, _UNTIMED + steps):
        take(number)
        if work and number % 20 == 0:
            seconds += time.perf_counter() - begin
            best = step.of_first(work.accuracy())  # under post-local SGD ranks differ
            curve.append((number, round(seconds, 3), best))
            begin = time.perf_counter()
            if best >= asked.until:
                steps = number - _UNTIMED + 1
                break
    step.barrier()
    seconds += time.perf_counter() - begin
    accuracy = work.accuracy() if work else None
    own = {"seconds": seconds / steps, "bytes": (_sent() - sent) / steps, "steps": steps}
    return {**own, "total": seconds, "accuracy": accuracy, "curve": curve, "reached": best >= asked.until}


def _sent() -> int:
    """Return how many bytes the host has sent; /sys has the devices of the machine, not of this namespace."""
    for line in Path("/proc/net/dev").read_text("ascii").splitlines():
        name, _colon, counts = line.strip().partition(":")
        if name == "eth0":
            return int(counts.split()[8])
    raise SystemExit("no eth0")


class _Step:
    """An optimizer, and what ranks do together: `library` has `broadcast(tensor, rank)` and `barrier()`."""

    def __init__(self, optimizer: Any, library: Any, leave: Callable[[], None]) -> None:
        self.zero_grad, self.step, self.barrier, self.leave = (
            optimizer.zero_grad,
            optimizer.step,
            library.barrier,
            leave,
        )
        self._library = library

    def of_first(self, value: float) -> float:
        """Return the value that rank 0 has."""
        tensor = torch.tensor([value])
        received = self._library.broadcast(tensor, 0)  # torch's has no result: it changes the tensor
        return (tensor if received is None else received).item()


def _sgd(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9 if rate > 1e-6 else 0.0)


def _ddp(model: nn.Module, method: str, rate: float) -> tuple[Any, _Step]:
    import torch.distributed as dist  # noqa: PLC0415 - one or the other
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    import taco_launch.light  # noqa: PLC0415

    dist.init_process_group("gloo")
    # PowerSGD starts collectives when others end: with several buckets, in another order on each rank, which gloo cannot.
    reduced = DistributedDataParallel(model, bucket_cap_mb=1 << 12 if method.startswith("PowerSGD") else None)
    optimizer: Any = _sgd(model, rate)
    if method in _LIGHT:
        taco_launch.light.attach(reduced)
    elif method == "fp16":
        reduced.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif method.startswith("PowerSGD"):
        state = powerSGD_hook.PowerSGDState(None, int(method[-1]), start_powerSGD_iter=_START)
        reduced.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif method == "post-local SGD":
        optimizer = _local_sgd(reduced, optimizer)
    elif method != "plain":
        raise SystemExit(f"no such method: {method}")
    return reduced, _Step(optimizer, dist, lambda: None)


def _local_sgd(reduced: Any, optimizer: Any) -> Any:
    import torch.distributed as dist  # noqa: PLC0415 - see above
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager  # noqa: PLC0415
    from torch.distributed.optim import PostLocalSGDOptimizer  # noqa: PLC0415

    local = int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
    groups = [dist.new_group(list(range(first, first + local))) for first in range(0, dist.get_world_size(), local)]
    hook = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook")
    state = hook.PostLocalSGDState(dist.group.WORLD, groups[dist.get_rank() // local], _START)
    reduced.register_comm_hook(state, hook.post_localSGD_hook)
    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=_PERIOD, warmup_steps=_START))


def _horovod(model: nn.Module, method: str, rate: float) -> tuple[Any, _Step]:
    hvd: Any = importlib.import_module("taco_launch.light.horovod" if method in _LIGHT else "horovod.torch")
    hvd.init()
    compression = {"compression": hvd.Compression.fp16} if method == "fp16" else {}
    optimizer = hvd.DistributedOptimizer(_sgd(model, rate), named_parameters=model.named_parameters(), **compression)
    return model, _Step(optimizer, hvd, hvd.shutdown)


if __name__ == "__main__":
    main()
