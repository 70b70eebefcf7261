"""What a check finds beside mismatches: what is not known yet; and how ranks are named."""

from typing import Iterable, List, NamedTuple

_MOST_RANGES = 4


class Missing(NamedTuple):
    """A planned value that could not be compared yet, in words."""

    why: str


def matching(ranks: Iterable[int]) -> str:
    """Return ranks as `0-3, 8`, a bounded number of ranges."""
    ranges: List[List[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_MOST_RANGES]]
    return ", ".join(words + (["..."] if len(ranges) > _MOST_RANGES else []))
