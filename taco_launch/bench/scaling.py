"""How the rate grows with the number of ranks: the table that `bench run` prints."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from taco_launch.bench.parse import Sample


@dataclass(frozen=True)
class Row:
    """One size of the table; rates are in images per second.

    `linear_speedup` is total / (n x single) as a fraction, 1.0 where n ranks do n times the work of one; None where
    there is no run of one rank to compare with.
    """

    np: int
    img_per_sec: float
    img_per_sec_per_rank: float
    linear_speedup: float | None


def rows(samples: Iterable[Sample]) -> tuple[Row, ...]:
    """Give a row per sample, the fewest ranks first.

    `single` is the mean of the runs with one rank, the same model and the same batch size.
    """
    known = tuple(samples)
    return tuple(
        Row(
            np=sample.ranks,
            img_per_sec=sample.img_per_sec,
            img_per_sec_per_rank=sample.img_per_sec / sample.ranks,
            linear_speedup=_linear_speedup(sample, known),
        )
        for sample in sorted(known, key=lambda sample: sample.ranks)
    )


def to_json(table: Iterable[Row]) -> dict[str, Any]:
    """Give `{"rows": [{"np", "img_per_sec", "img_per_sec_per_rank", "linear_speedup"}]}`."""
    return {"rows": [asdict(row) for row in table]}


def _linear_speedup(sample: Sample, samples: tuple[Sample, ...]) -> float | None:
    singles = [
        other.img_per_sec
        for other in samples
        if other.ranks == 1 and (other.model, other.batch_size) == (sample.model, sample.batch_size)
    ]
    return sample.img_per_sec / (sample.ranks * fmean(singles)) if singles else None
