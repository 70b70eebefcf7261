"""Select the largest values of a tensor, and pack them into one message."""

from typing import Tuple

import torch
from torch import Tensor

# Below this many values a sample costs more than it saves.
_SMALL = 1 << 16
_SAMPLE = 1 << 14
_FP16_MAX = 65504.0


def count(total: int, ratio: float) -> int:
    """Return how many of `total` values are sent: the same on all ranks, at least one."""
    return max(1, min(total, int(total * ratio)))


def largest(values: Tensor, number: int) -> Tensor:
    """Return the indices of the values with the largest magnitude, NaN first: the set that torch.topk selects.

    On the CPU a threshold from a sample leaves few candidates for torch.topk, which is 6 times faster. How many there
    are is data that CUDA would have to hand to the host, so there torch.topk sees all values.
    """
    if values.is_cuda or number * 4 > len(values) or len(values) < _SMALL:
        return torch.topk(values.abs(), number, sorted=False).indices
    sample = values[:: len(values) // _SAMPLE].abs()
    expected = number * len(sample) / len(values)
    rank = min(len(sample), int(expected + 4 * expected**0.5) + 4)  # four standard deviations: rarely too few
    threshold = torch.topk(sample, rank, sorted=True).values[-1]
    # The others are the small ones: NaN is neither above a threshold nor below it.
    small = (values < threshold).logical_and_(values > -threshold)
    candidates = small.logical_not_().nonzero().squeeze(1)
    if len(candidates) < number:
        return torch.topk(values.abs(), number, sorted=False).indices
    return candidates[torch.topk(values[candidates].abs(), number, sorted=False).indices]


def pack(index: Tensor, values: Tensor, fp16: bool) -> Tuple[Tensor, Tensor]:
    """Return (message, the values as the receivers read them) for 32-bit values; the message has 32-bit words.

    A finite value too large for 16 bits is sent as their largest. Infinity stays infinite: all ranks must see it.
    """
    if not fp16:
        return torch.cat((index.int(), values.view(torch.int32))), values
    limited = torch.where(values.isfinite(), values.clamp(-_FP16_MAX, _FP16_MAX), values).half()
    padded = torch.nn.functional.pad(limited, (0, len(limited) % 2))
    return torch.cat((index.int(), padded.view(torch.int32))), limited.float()


def words(number: int, fp16: bool) -> int:
    """Return how many 32-bit words a message of so many values has."""
    return number + ((number + 1) // 2 if fp16 else number)


def unpack(message: Tensor, number: int, fp16: bool) -> Tuple[Tensor, Tensor]:
    """Return the (indices, 32-bit values) of a message of `number` values."""
    index, packed = message[:number].to(torch.int64), message[number:]
    if not fp16:
        return index, packed.view(torch.float32)
    return index, packed.view(torch.float16)[:number].float()
