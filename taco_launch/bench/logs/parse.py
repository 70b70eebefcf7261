"""Reads the log of a benchmark: the one rate it ends in, or why there is none (`lines` says which logs are known)."""

import math
from collections.abc import Iterable, Sequence

from taco_launch.bench.logs.lines import LogLine, RefusedError, lines
from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Sample:
    """What one run measured; rates are in images per second.

    `ranks` is the number of ranks, `img_per_sec` the rate of all of them together, `per_rank` that of one.
    `half_width` is what stands after `+-` beside the total (Horovod's: 1.96 population standard deviations), None in a
    form without it. `model` and `batch_size` (images per rank and step) are None where the log does not say.
    `iterations` counts the timed iterations (tf_cnn_benchmarks: steps), 0 where the log shows none.
    """

    ranks: int
    img_per_sec: float
    half_width: float | None
    per_rank: float
    model: str | None
    batch_size: int | None
    iterations: int


@dataclass(frozen=True)
class NoSample:
    """The log gives no number; `why` names the line and what stands there."""

    why: str


_HOROVOD_RATES = ("iteration", "rate", "total")
_TF_RATES = ("step", "tf_total")
_TF_TOTALS_DIFFER = 0.001  # each rank divides the same images by its own clock
_TF_STEPS_DIFFER = 0.05  # the time behind a total holds more than the steps
# The end of why a log is no sample, where no line of it has a form that is read.
UNKNOWN_FORM = "and no other line in a known format"


def parse(text: str) -> Sample | NoSample:
    """Read a whole log, in time linear to its length; never raises, whatever stands in it.

    A number is given only where every line that speaks of a rate is whole and all of them agree: a total with the
    number of ranks, with the rate per rank and with the iterations. Several runs in one log give a number only where
    their totals are the same; a run that broke off is passed over where a whole one of the same rank follows it.
    """
    try:
        return _sample(tuple(lines(text)))
    except RefusedError as refusal:
        return NoSample(str(refusal))


def _sample(found: tuple[LogLine, ...]) -> Sample:
    rates = [line for line in found if line.kind in (*_HOROVOD_RATES, *_TF_RATES)]
    totals = [line for line in rates if line.kind in ("total", "tf_total")]
    if not totals:
        end = f"the last line of the benchmark is {rates[-1]}" if rates else UNKNOWN_FORM
        raise RefusedError(f"no line 'Total img/sec on N GPU(s): ...' or 'total images/sec: ...', {end}")
    one, other = (_HOROVOD_RATES, _TF_RATES) if totals[-1].kind == "total" else (_TF_RATES, _HOROVOD_RATES)
    foreign = next((line for line in rates if line.kind in other), None)
    if foreign is not None:
        raise RefusedError(f"the log holds two benchmarks: {foreign}; {totals[-1]}")
    return _horovod_sample(found) if one is _HOROVOD_RATES else _tf_sample(found)


def _horovod_sample(found: tuple[LogLine, ...]) -> Sample:
    printed: dict[tuple[str, ...], list[LogLine]] = {}
    for line in found:
        printed.setdefault(line.printed_by, []).append(line)
    ended: list[tuple[LogLine, Sample]] = []
    for mine in printed.values():
        runs = _runs(mine)
        begun = [line for line in runs[-1] if line.kind in _HOROVOD_RATES]
        if begun and begun[-1].kind != "total":
            raise RefusedError(f"{begun[-1]}: its run has no final line 'Total img/sec on N GPU(s): ...'")
        ended += [(run[-1], _run_sample(run)) for run in runs if run[-1].kind == "total"]
    for line, _ in ended:
        if line.values != ended[0][0].values:
            raise RefusedError(f"the log holds several totals that differ: {ended[0][0]}; {line}")
    return max((sample for _, sample in ended), key=lambda sample: sample.iterations)


def _runs(mine: Iterable[LogLine]) -> list[list[LogLine]]:
    """Split what one rank printed: a run ends with its total or, broken off, where the next one names its model."""
    runs: list[list[LogLine]] = [[]]
    iterated = False
    for line in mine:
        if iterated and line.kind == "model":
            runs.append([])
            iterated = False
        runs[-1].append(line)
        iterated = iterated or line.kind == "iteration"
        if line.kind == "total":
            runs.append([])
            iterated = False
    return [run for run in runs if run]


def _run_sample(run: list[LogLine]) -> Sample:
    total = run[-1]
    ranks = int(total.values[0])
    if ranks == 0:
        raise RefusedError(f"{total}: a rate for 0 ranks")
    named = _agreed(run, "ranks")
    if named is not None and int(named) != ranks:
        raise RefusedError(f"{total} does not agree with 'Number of GPUs: {named}'")
    img_per_sec, half_width = _positive(total, total.values[1]), _finite(total, total.values[2])
    iterations = [line for line in run if line.kind == "iteration"]
    per_rank = _per_rank(run, total, iterations)
    batch_size = _agreed(run, "batch")
    return Sample(
        ranks=ranks,
        img_per_sec=img_per_sec,
        half_width=half_width,
        per_rank=img_per_sec / ranks if per_rank is None else per_rank,
        model=_agreed(run, "model"),
        batch_size=None if batch_size is None else int(batch_size),
        iterations=len(iterations),
    )


def _per_rank(run: list[LogLine], total: LogLine, iterations: list[LogLine]) -> float | None:
    """Return the rate per rank that a run prints, after holding it against the total and the iterations.

    Each number stands for one within 0.05 of it, so n times one is within n * 0.05. None where only a total is there.

    Raises:
        RefusedError: rates, iterations and total contradict each other, or lines are missing.
    """
    for due, line in enumerate(iterations):
        if int(line.values[0]) != due:
            raise RefusedError(f"{line} instead of 'Iter #{due}: ...': lines are missing or out of order")
    rates = [line for line in run if line.kind == "rate"]
    if not rates:
        if iterations:
            raise RefusedError(f"{total}: the line 'Img/sec per GPU: ...' before it is missing")
        return None
    if len(rates) > 1:
        raise RefusedError(f"the log holds several rates for one total: {rates[0]}; {rates[1]}")
    rate, ranks = rates[0], int(total.values[0])
    for one, all_ranks in zip(rate.values, total.values[1:], strict=True):
        if abs(_finite(rate, one) * ranks - _finite(total, all_ranks)) > 0.05 * ranks + 0.05 + 1e-6:
            raise RefusedError(f"{total} is not {ranks} times {rate}")
    mean = _positive(rate, rate.values[0])
    seen = [_finite(line, line.values[1]) for line in iterations]
    if seen and abs(math.fsum(seen) / len(seen) - mean) > 0.1 + 1e-6:
        raise RefusedError(f"{rate} is not the mean of the {len(seen)} iterations before it")
    return mean


def _tf_sample(found: tuple[LogLine, ...]) -> Sample:
    totals = [line for line in found if line.kind == "tf_total"]
    slowest = min(totals, key=lambda line: _positive(line, line.values[0]))
    img_per_sec = float(slowest.values[0])
    for line in totals:
        if float(line.values[0]) > img_per_sec * (1 + _TF_TOTALS_DIFFER):
            raise RefusedError(f"the log holds several totals that differ: {slowest}; {line}")
    steps = [line for line in found if line.kind == "step"]
    last = [line for line in steps if line.values[0] == steps[-1].values[0]]
    beyond = next((line for line in steps if int(line.values[0]) > int(steps[-1].values[0])), None)
    if beyond is not None:
        raise RefusedError(f"{steps[-1]}: its run started after {beyond} and has no final line 'total images/sec: ...'")
    ranks = _tf_ranks(found, last, totals)
    if len(totals) > ranks:
        raise RefusedError(f"{totals[ranks]}: one run has {ranks} rank(s), but the log has more totals")
    if last:
        mean = math.fsum(float(line.values[1]) for line in last) / len(last)
        if not math.isclose(img_per_sec, ranks * mean, rel_tol=_TF_STEPS_DIFFER):
            raise RefusedError(f"{slowest} is not {ranks} time(s) {last[-1]}")
    batch_size = _agreed(found, "tf_batch")
    return Sample(
        ranks=ranks,
        img_per_sec=img_per_sec,
        half_width=None,
        per_rank=img_per_sec / ranks,
        model=_agreed(found, "model"),
        batch_size=None if batch_size is None else int(batch_size),
        iterations=int(last[-1].values[0]) if last else 0,
    )


def _tf_ranks(found: tuple[LogLine, ...], last_steps: list[LogLine], totals: list[LogLine]) -> int:
    """Return the number of ranks: that of the devices the log names, else how often it shows the last step.

    Raises:
        RefusedError: one process has several devices, or the log does not show the ranks.
    """
    devices = _agreed(found, "tf_devices")
    if devices is None:
        if not last_steps:
            raise RefusedError(f"{totals[-1]}: the log does not show how many ranks ran (no 'Devices:' line, no steps)")
        return len(last_steps)
    names = devices.split(", ")
    if len(names) > 1 and not all(name.startswith("'horovod/") for name in names):
        raise RefusedError(
            f"{totals[-1]}: several devices in one process, instead of one rank for each device: {devices[:120]}"
        )
    return len(names)


def _agreed(found: Sequence[LogLine], kind: str) -> str | None:
    """Return the one value that all lines of a kind name, None without such a line.

    Raises:
        RefusedError: the lines contradict each other.
    """
    named = [line for line in found if line.kind == kind]
    for line in named:
        if line.values != named[0].values:
            raise RefusedError(f"the log names different values: {named[0]}; {line}")
    return named[0].values[0] if named else None


def _finite(line: LogLine, text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise RefusedError(f"{line}: {text} is not a rate")
    return number


def _positive(line: LogLine, text: str) -> float:
    number = _finite(line, text)
    if number <= 0:
        raise RefusedError(f"{line}: {text} is not a rate")
    return number
