"""A script of torch.distributed as people write them: all that it knows of its place comes by the environment."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int)
local_rank = parser.parse_args().local_rank
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(2, 1))
model(torch.full((1, 2), float(dist.get_rank()))).sum().backward()
gradient = model.module.weight.grad
assert gradient is not None
mean = gradient[0][0].item()  # of all ranks' numbers
print(
    f"rank {dist.get_rank()} of {dist.get_world_size()}, here {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}"
    f"{'' if local_rank is None else f' ({local_rank})'}: {mean:g}\n",
    end="",  # one write: two processes of --per-host share a pipe
    flush=True,
)
dist.barrier()
dist.destroy_process_group()
# DistributedDataParallel keeps gloo's threads: one that drops a tensor while Python ends would abort (torch 2.13)
os._exit(0)
