"""Estimates pi: each rank throws points at a square, and MPI adds how many fall into the circle."""

import argparse
import random

from mpi4py import MPI


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1_000_000, help="points of each rank")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    print(f"rank {rank} of {size}: {MPI.Get_library_version().splitlines()[0]}", flush=True)
    place = random.Random(rank)  # noqa: S311 # points, no secrets
    inside = sum(place.random() ** 2 + place.random() ** 2 < 1 for _ in range(options.points))
    total = world.allreduce(inside)
    if rank == 0:
        print(
            f"pi is about {4 * total / (size * options.points):.3f}, from {size} ranks with {options.points} points each"
        )


if __name__ == "__main__":
    main()
