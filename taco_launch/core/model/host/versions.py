"""Versions of software as numbers to compare, and those at which more than one decision turns."""

from typing import List, Tuple

# The first NCCL that finds the GID index by itself and knows NCCL_IB_ADDR_RANGE (its env.rst and release notes).
OWN_GID = (2, 21)


def version(text: str) -> Tuple[int, ...]:
    """Return a version such as `4.1.4` as numbers to compare; what is not a number ends it."""
    numbers: List[int] = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
