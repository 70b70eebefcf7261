"""Prometheus' text format, version 0.0.4: families of samples as text.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format).
"""

import math
from collections.abc import Iterable, Sequence

from taco_launch.frozen import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """One number; `suffix` is what stands behind the name of its family (`_bucket`, `_sum`, `_count`)."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """All samples of one name; `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def histogram(labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float) -> tuple[Sample, ...]:
    """Return the samples of a histogram: `counts` by bucket, one more than `bounds`; `total` is the sum of what was seen."""
    samples = []
    below = 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        below += count
        samples.append(Sample(below, (*labels, ("le", _number(bound))), "_bucket"))
    return (*samples, Sample(total, labels, "_sum"), Sample(below, labels, "_count"))


def text(families: Iterable[Family]) -> bytes:
    """Write families as Prometheus reads them; characters that UTF-8 cannot have become question marks."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples
        ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_quoted(value)}"' for name, value in labels)
    return "{" + ",".join(pairs) + "}"


def _escaped(words: str) -> str:
    return words.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', r"\"")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
