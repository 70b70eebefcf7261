"""Estimates pi: each rank throws points at a square, and Horovod averages how many fall into the circle."""

import argparse

import horovod.torch as hvd
import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1_000_000, help="points of each rank")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(hvd.rank())
    x, y = torch.rand(2, options.points)
    inside = (x * x + y * y < 1).float().mean()
    pi = 4 * hvd.allreduce(inside, op=hvd.Average).item()
    if hvd.rank() == 0:
        print(f"pi is about {pi:.3f}, from {hvd.size()} ranks with {options.points} points each")


if __name__ == "__main__":
    main()
