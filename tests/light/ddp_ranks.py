"""What each of four ranks, two on each of two hosts, does: scenarios of DistributedDataParallel with `attach`."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from taco_launch.light import Light, LightError, attach

TOPK = {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_THRESHOLD": "0", "LIGHT_TOPK_RATIO": "0.05"}
TWO_D = {"LIGHT_2D_ALLREDUCE": "1"}
MODES = {
    "none": {},
    "2d": TWO_D,
    "topk": TOPK,
    "topk_fp16": {**TOPK, "LIGHT_TOPK_FP16": "1"},
    "2d_topk": {**TWO_D, **TOPK},
    "2d_topk_fp16": {**TWO_D, **TOPK, "LIGHT_TOPK_FP16": "1"},
    "2d_topk_tensors": {**TWO_D, **TOPK, "LIGHT_BUCKET_BYTES": "0"},
    "2d_topk_no_feedback": {**TWO_D, **TOPK, "LIGHT_ERROR_FEEDBACK": "0"},
}
BOTH = MODES["2d_topk"]
EVERYTHING = {**BOTH, "LIGHT_TOPK_RATIO": "1"}


class Branches(nn.Module):
    """A model that leaves out some of its parameters in some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.other, self.last = nn.Linear(16, 33), nn.Linear(33, 33), nn.Linear(33, 4)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.uses_other = True

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images).relu()
        result: Tensor = self.last(self.other(hidden).relu() if self.uses_other else hidden)
        return result


@contextlib.contextmanager
def variables(environ: dict[str, str]) -> Iterator[None]:
    os.environ.update(environ)
    try:
        yield
    finally:
        for name in environ:
            del os.environ[name]


def made(environ: dict[str, str], kind: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Light]:
    torch.manual_seed(1)
    model = DistributedDataParallel(Branches().to(kind), bucket_cap_mb=0.004, **options)
    with variables(environ):
        return model, attach(model)


def batch_of(step: int, rank: int) -> tuple[Tensor, Tensor]:
    images = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))
    return images, images[:, :4].argmax(1)


def loss_of(model: nn.Module, step: int, kind: torch.dtype = torch.float32) -> Tensor:
    images, labels = batch_of(step, dist.get_rank())
    return nn.functional.cross_entropy(model(images.to(kind)), labels)


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def gathered(tensor: Tensor) -> list[Tensor]:
    row = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(row, tensor)
    return row


def same_everywhere(model: nn.Module) -> None:
    mine = torch.cat([one.detach().float().flatten() for one in model.parameters()])
    assert mine.isfinite().all()
    for other in gathered(mine):
        assert torch.equal(mine, other), "ranks differ"


def trained(model: nn.Module, steps: int, kind: torch.dtype = torch.float32) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.zeros(())
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, kind)
        backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    same_everywhere(model)
    return loss.item()


def mode(name: str) -> None:
    model, light = made(MODES[name])
    assert trained(model, 50) < 1.3, "it does not learn"
    assert light.engine.step == (0 if name == "none" else 50)
    remembers = "topk" in name and "no_feedback" not in name
    assert bool(light.engine.residuals) == remembers
    if name == "2d_topk_tensors":
        assert len(light.engine.residuals) == 6


def unused_parameters() -> None:
    model, _light = made(BOTH, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
        model.module.uses_other = (step + dist.get_rank()) % 3 > 0
        optimizer.zero_grad()
        backward(loss_of(model, step))
        optimizer.step()
    same_everywhere(model)


def gradients(model: Any, accumulate: int, step: int) -> Tensor:
    model.zero_grad()
    for part in range(accumulate):
        with model.no_sync() if part < accumulate - 1 else contextlib.nullcontext():
            backward(loss_of(model, step * accumulate + part))
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def accumulation() -> None:
    model, light = made(EVERYTHING)
    plain = DistributedDataParallel(Branches())
    plain.module.load_state_dict(model.module.state_dict())
    for step in range(4):
        torch.testing.assert_close(gradients(model, 3, step), gradients(plain, 3, step), rtol=1e-5, atol=1e-6)
    assert light.engine.step == 4


def sent_and_kept() -> None:
    """All buckets together, over steps that DistributedDataParallel filled differently: nothing is lost."""
    model, light = made({**TOPK, "LIGHT_TOPK_RATIO": "0.1"})
    plain = DistributedDataParallel(Branches())
    plain.module.load_state_dict(model.module.state_dict())
    sent, total = torch.zeros(()), torch.zeros(())
    for step in range(6):
        sent, total = sent + gradients(model, 1, step).sum(), total + gradients(plain, 1, step).sum()
    kept = sum(torch.stack([held.sum() for held in light.engine.residuals.values()]))
    dist.all_reduce(kept)
    torch.testing.assert_close(sent + kept / 4, total, rtol=1e-4, atol=1e-5)


def half(kind: torch.dtype) -> None:
    for environ in (TWO_D, BOTH):
        model, _light = made(environ, kind)
        trained(model, 10, kind)


def infinity() -> None:
    model, light = made(BOTH)
    trained(model, 5)
    before = {name: held.clone() for name, held in light.engine.residuals.items()}
    model.zero_grad()
    loss = loss_of(model, 9) * (float("inf") if dist.get_rank() == 2 else 1.0)
    backward(loss)
    assert not all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)
    # A bucket that is finite on all ranks goes on; here all have infinity.
    assert before.keys() == light.engine.residuals.keys()
    assert all(torch.equal(held, before[name]) for name, held in light.engine.residuals.items())
    trained(model, 3)


def scaler() -> None:
    model, light = made(EVERYTHING)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        backward(scaler.scale(loss_of(model, step)))
        scaler.step(optimizer)
        scaler.update()
    assert light._scaler is scaler
    assert scaler.get_scale() == 8192.0
    same_everywhere(model)


def checkpoint() -> None:
    model, light = made(BOTH)
    trained(model, 5)
    again, other = made(BOTH)
    again.module.load_state_dict(model.module.state_dict())
    other.load_state_dict(light.state_dict())
    trained(again, 4)
    assert (other.engine.step, other.engine.residuals.keys()) == (9, light.engine.residuals.keys())
    assert other.engine.load_state_dict({**light.state_dict(), "ranks": 8}) is False


def refused(text: str, act: Callable[[], object]) -> None:
    with pytest.raises(LightError, match=re.escape(text)):
        act()
    dist.barrier()


def refusals() -> None:
    with variables(BOTH):
        refused("wrap the model in torch.nn.parallel.DistributedDataParallel", lambda: attach(Branches()))  # type: ignore[arg-type]
        sparse = DistributedDataParallel(nn.Sequential(nn.Embedding(4, 2, sparse=True)))
        refused("sparse=False", lambda: attach(sparse))
    rank = dist.get_rank()
    with variables({**BOTH, "LIGHT_TOPK_RATIO": f"0.0{1 + rank // 3}"}):
        refused(
            "rank 3 and rank 0 have different LIGHT_* variables", lambda: attach(DistributedDataParallel(Branches()))
        )
    with variables({"LIGHT_TOPK": "1"} if rank == 1 else {}):
        refused("rank 1: unknown: LIGHT_TOPK", lambda: attach(DistributedDataParallel(Branches())))


def announced() -> None:
    made(BOTH)


def metrics() -> None:
    """An all-reduce that is not of gradients is left as it is."""
    made(BOTH)
    ones = torch.arange(100_000.0)
    dist.all_reduce(ones)
    assert torch.equal(ones, torch.arange(100_000.0) * 4)


SCENARIOS: dict[str, Callable[[], None]] = {
    **{f"mode_{name}": (lambda name=name: mode(name)) for name in MODES},  # type: ignore[misc]
    "unused_parameters": unused_parameters,
    "accumulation": accumulation,
    "nothing_is_lost": sent_and_kept,
    "float16": lambda: half(torch.float16),
    "bfloat16": lambda: half(torch.bfloat16),
    "infinity": infinity,
    "scaler": scaler,
    "checkpoint": checkpoint,
    "refusals": refusals,
    "metrics": metrics,
    "announced": announced,
}


def main() -> None:
    os.environ["LOCAL_RANK"] = str(int(os.environ["RANK"]) % 2)  # torchrun's four ranks of one host, as two hosts
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name, scenario in SCENARIOS.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            try:
                scenario()
            except Exception as error:
                raise AssertionError(f"{name} failed") from error
            dist.barrier()
            if dist.get_rank() == 0:
                print(f"passed {name}", flush=True)
    os._exit(0)  # gloo's threads may abort while Python ends


if __name__ == "__main__":
    main()
