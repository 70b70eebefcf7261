"""Which GPUs of a host a job gets, and what speaks for them."""

from typing import Optional, Tuple

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class RejectedSet:
    """A set of GPUs that was not chosen; `why` says what it lost by."""

    gpus: Tuple[int, ...]  # by nvidia-smi's index
    ring: Tuple[int, ...]  # as in GpuChoice
    bottleneck_gbps: Optional[float]  # GB/s in one direction, None for one GPU
    sum_gbps: float  # GB/s of all pairs together
    why: str


@dataclass(frozen=True)
class GpuChoice:
    """The GPUs of a host that a job gets, by nvidia-smi's index.

    `ring` is an order in which each of them is linked to the next one, and the last to the first; of one GPU it is
    empty. `bottleneck_gbps` is the bandwidth of its slowest link in GB/s and one direction (of two GPUs their link's; None
    for one GPU), `sum_gbps` that of all pairs of `gpus` together. Both are None where nothing is known of the links.
    `why` is a sentence for people, `alternatives` the next best sets.
    """

    gpus: Tuple[int, ...]
    ring: Tuple[int, ...]
    bottleneck_gbps: Optional[float]
    sum_gbps: Optional[float]
    why: str
    alternatives: Tuple[RejectedSet, ...] = ()
