"""A training script that knows nothing of LIGHT_*: which share of the gradient's values is not zero in its third step."""

import os
import sys
from typing import Any

import torch
from torch import nn


def shares(model: Any, rank: int, step: Any) -> list[float]:
    row = []
    for number in range(3):
        images = torch.randn(16, 64, generator=torch.Generator().manual_seed(10 * number + rank))
        model.zero_grad()
        model(images).square().mean().backward()
        step()
        gradient = torch.cat([one.grad.flatten() for one in model.parameters()])
        row.append(round((gradient != 0).float().mean().item(), 2))
    return row


def ddp() -> tuple[int, list[float]]:
    import torch.distributed as dist  # noqa: PLC0415 - one or the other
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    dist.init_process_group("gloo")
    return dist.get_rank(), shares(DistributedDataParallel(nn.Linear(64, 64)), dist.get_rank(), lambda: None)


def horovod() -> tuple[int, list[float]]:
    import horovod.torch as hvd  # noqa: PLC0415

    hvd.init()
    model = nn.Linear(64, 64)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    place = hvd.rank(), shares(model, hvd.rank(), optimizer.step)
    hvd.shutdown()
    return place


if __name__ == "__main__":
    # a rank alone on its host, whatever runs beside it
    os.environ["LOCAL_RANK"] = "0"
    torch.manual_seed(0)
    rank, row = {"ddp": ddp, "horovod": horovod}[sys.argv[1]]()
    if rank == 0:
        print(f"shares {row} {sys.argv[1:]}", flush=True)
    os._exit(0)
