"""What each of four ranks, two on each of two hosts, does: scenarios of Horovod with LIGHT_* in effect."""

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

os.environ["LOCAL_RANK"] = str(int(os.environ["OMPI_COMM_WORLD_RANK"]) % 2)  # four ranks of one host, as two hosts
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"  # scenarios set LIGHT_2D_ALLREDUCE later

import taco_launch.light.horovod as hvd
from taco_launch.light import LightError
from tests.light.ddp_ranks import MODES, Branches, backward, batch_of, variables

BOTH = MODES["2d_topk"]
EVERYTHING = {**BOTH, "LIGHT_TOPK_RATIO": "1"}


def made(environ: dict[str, str], **options: Any) -> tuple[Branches, Any]:
    torch.manual_seed(1)
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    with variables(environ):
        reduced: Any = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
        return model, reduced


def loss_of(model: nn.Module, step: int) -> Tensor:
    images, labels = batch_of(step, hvd.rank())
    return nn.functional.cross_entropy(model(images), labels)


def same_everywhere(model: nn.Module) -> None:
    mine = torch.cat([one.detach().flatten() for one in model.parameters()])
    assert mine.isfinite().all()
    for other in hvd.allgather(mine[None]):
        assert torch.equal(mine, other), "ranks differ"


def trained(model: nn.Module, optimizer: Any, steps: int) -> float:
    loss = torch.zeros(())
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        backward(loss)
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(model)
    return loss.item()


def mode(name: str) -> None:
    model, optimizer = made(MODES[name])
    assert issubclass(type(optimizer), torch.optim.SGD)
    assert trained(model, optimizer, 50) < 1.3, "it does not learn"
    if name != "none":
        assert optimizer.light.engine.step == 50
        assert bool(optimizer.light.engine.residuals) == ("topk" in name and "no_feedback" not in name)


def like_stock() -> None:
    """Everything is sent: what Horovod itself does, with unused parameters and several passes for each step."""
    models = [made(EVERYTHING, backward_passes_per_step=2), made({}, backward_passes_per_step=2)]
    for step in range(4):
        for model, optimizer in models:
            model.uses_other = step % 2 == 0
            optimizer.zero_grad()
            for part in range(2):
                backward(loss_of(model, 2 * step + part))
            optimizer.step()
    for one, other in zip(models[0][0].parameters(), models[1][0].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    same_everywhere(models[0][0])


def refusals() -> None:
    for options in ({"op": hvd.Adasum}, {"op": hvd.Sum}, {"compression": hvd.Compression.fp16}):
        with pytest.raises(LightError, match=f"Horovod's {next(iter(options))}="):
            made(BOTH, **options)
    with pytest.raises(LightError, match=re.escape("rank 2 and rank 0 have different LIGHT_* variables")):
        made({**BOTH, "LIGHT_TOPK_RATIO": f"0.0{1 + hvd.rank() // 2}"})


def metrics() -> None:
    """An all-reduce that is not of gradients is left as it is."""
    made(BOTH)
    many = torch.arange(100_000.0)
    assert torch.equal(hvd.allreduce(many, op=hvd.Sum), many * 4)


SCENARIOS: dict[str, Callable[[], None]] = {
    **{f"mode_{name}": (lambda name=name: mode(name)) for name in MODES},  # type: ignore[misc]
    "like_stock": like_stock,
    "refusals": refusals,
    "metrics": metrics,
}


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    for name, scenario in SCENARIOS.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            try:
                scenario()
            except Exception as error:
                raise AssertionError(f"{name} failed") from error
            hvd.barrier()
            if hvd.rank() == 0:
                print(f"passed {name}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
