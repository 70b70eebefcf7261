"""Trains a perceptron with DistributedDataParallel, and prints how many samples per second all ranks train on."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 512


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256, help="samples per rank and step")
    parser.add_argument("--bucket-mb", type=float, default=25, help="MB of gradients that are exchanged together")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)  # ranks of one host share its cores
    device = "cuda" if gpu else "cpu"
    dist.init_process_group("nccl" if gpu else "gloo")

    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), bucket_cap_mb=options.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(options.batch_size, WIDTH, device=device)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(samples).square().mean().backward()
            optimizer.step()
        if gpu:
            torch.cuda.synchronize()

    train(5)  # the first steps are slower than the rest
    dist.barrier()
    start = time.perf_counter()
    train(options.steps)
    dist.barrier()
    rate = options.batch_size * dist.get_world_size() * options.steps / (time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(f"throughput: {rate:.1f} samples/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that frees its tensors while Python ends (torch 2.13)
