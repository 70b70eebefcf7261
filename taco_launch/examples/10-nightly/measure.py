"""Measures how fast all ranks sum up a tensor with Horovod, which is mostly the speed of the network between them."""

import argparse
import time

import horovod.torch as hvd
import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=32, help="size of the tensor in MB")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()

    hvd.init()
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(hvd.local_rank())
    tensor = torch.ones(options.megabytes * 250_000, device="cuda" if gpu else "cpu")

    def exchange(rounds: int) -> None:
        for _ in range(rounds):
            hvd.allreduce_(tensor, op=hvd.Average, name="tensor")
        if gpu:
            torch.cuda.synchronize()

    exchange(3)  # the first rounds are slower than the rest
    start = time.perf_counter()
    exchange(options.rounds)
    rate = options.megabytes * options.rounds / (time.perf_counter() - start)
    if hvd.rank() == 0:
        print(f"algorithm bandwidth: {rate:.1f} MB/s", flush=True)


if __name__ == "__main__":
    main()
