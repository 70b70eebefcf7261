"""Minimizes a function from several starts: each process of a GPU computes its share of them."""

import argparse
import os

STARTS = 9


def minimize(start: float, rate: float) -> float:
    """Return where gradient descent on (x - 3)^2 ends."""
    x = start
    for _ in range(100):
        x -= rate * 2 * (x - 3)
    return x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--process_index", type=int, required=True, help="number of this process on its GPU")
    parser.add_argument("--process_num", type=int, required=True, help="processes on each GPU")
    options = parser.parse_args()
    first = int(os.environ["RANK"]) * options.process_num + options.process_index
    step = int(os.environ["WORLD_SIZE"]) * options.process_num
    starts = range(first, STARTS, step)
    ends = [minimize(start, options.lr) for start in starts]
    worst = max(abs(end - 3) for end in ends)
    print(
        f"process {options.process_index} of {options.process_num}: starts {list(starts)}, error below {worst + 1e-6:.6f}"
    )


if __name__ == "__main__":
    main()
