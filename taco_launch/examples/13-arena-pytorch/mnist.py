"""Trains on made-up digits with DistributedDataParallel, with the options of the program in Arena's guide."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIDE, DIGITS = 28, 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    options = parser.parse_args()

    gpu = options.backend == "nccl"
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    else:
        torch.set_num_threads(1)  # ranks of one host share its cores
    device = "cuda" if gpu else "cpu"
    dist.init_process_group(options.backend)
    rank = dist.get_rank()
    print(f"WORLD_SIZE: {dist.get_world_size()}, CURRENT_RANK: {rank}", flush=True)

    torch.manual_seed(0)
    prototypes = torch.randn(DIGITS, SIDE * SIDE, device=device)
    model = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, DIGITS)).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    torch.manual_seed(1 + rank)  # each rank has digits of its own
    for epoch in range(1, options.epochs + 1):
        for _ in range(5):
            labels = torch.randint(DIGITS, (64,), device=device)
            images = prototypes[labels] + 10 * torch.randn(64, SIDE * SIDE, device=device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(images), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} of {options.epochs}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that frees its tensors while Python ends (torch 2.13)
