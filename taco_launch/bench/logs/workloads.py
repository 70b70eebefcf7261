"""Reads what a workload measured out of its log: the readings of one run, or why there are none."""

import re
from collections.abc import Callable

from taco_launch.bench.logs import nccl_tests, patterns, perftest
from taco_launch.bench.logs.lines import shown, untagged, without_escapes
from taco_launch.bench.logs.parse import UNKNOWN_FORM, NoSample, parse
from taco_launch.bench.model.matrix import LogFormat, Matrix, Workload
from taco_launch.bench.model.runs import Cell, Measurement, Metric, is_reading

RATE = Metric("img/sec", "img/sec")
_OWN_PATTERN = "to read other lines, use a workload of kind regex with a pattern"
# Programs that people measure a cluster with, by the header that they print.
_NOT_READ = tuple(
    (name, re.compile(rf"(?:^|[\s>:])(?:{header})[^\n]*", re.MULTILINE))
    for name, header in (
        ("the OSU Micro-Benchmarks (osu_*)", r"# OSU [A-Z][^\n]* (?:Test|Benchmark)\b"),
        ("the Intel MPI Benchmarks", r"#\s+Intel\(R\) MPI Benchmarks"),
        ("iperf", r"\[ *ID\] +Interval +Transfer"),
        ("nvbandwidth", r"nvbandwidth Version"),
        ("p2pBandwidthLatencyTest", r"\[P2P \(Peer-to-Peer\) GPU Bandwidth"),
    )
)
_NUMBER = re.compile(r"\+?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)


def read(workload: Workload, text: str, ranks: int | None) -> tuple[Measurement, ...] | NoSample:
    """Read the whole log of a run that ended well, the first reading being the one that stands for it; never raises.

    `ranks` is the number of ranks of the job: a log of another number gives none. None where nobody knows it.
    A rate in images per second is that of all ranks together.
    """
    if workload.kind is LogFormat.NCCL_TESTS:
        return nccl_tests.read(text, ranks)
    if workload.kind is LogFormat.REGEX:
        return _matched(workload, text)
    return _rate(workload.kind, text, ranks)


def reader(matrix: Matrix) -> Callable[[Cell, str], tuple[Measurement, ...] | NoSample]:
    """Return what reads the logs of a matrix's runs."""
    return lambda cell, text: read(matrix.workload(cell.workload), text, cell.ranks)


def recognised(text: str) -> Workload | None:
    """Return the workload that a log is of by the lines in it, None where it may be one of images per second."""
    return Workload("nccl-tests", LogFormat.NCCL_TESTS, ()) if nccl_tests.speaks(without_escapes(text)) else None


def read_other(text: str) -> tuple[Measurement, ...] | NoSample | None:
    """Read the log of a program that is no workload, by its header; None where no other program's header is in it."""
    text = without_escapes(text)
    if perftest.speaks(text):
        return perftest.read(text)
    for name, form in _NOT_READ:
        if header := form.search(text):
            line = header[0].strip()
            return NoSample(
                f"this is the output of {name} ({shown(line)}), which is not read by itself; {_OWN_PATTERN}"
            )
    return None


def _rate(kind: LogFormat, text: str, ranks: int | None) -> tuple[Measurement, ...] | NoSample:
    sample = parse(text)
    if isinstance(sample, NoSample):
        own = f"; {_OWN_PATTERN}" if sample.why.endswith(UNKNOWN_FORM) else ""
        return NoSample(sample.why + own)
    printed = LogFormat.TF_CNN if sample.half_width is None else LogFormat.HOROVOD  # only the latter's totals have one
    if printed is not kind:
        return NoSample(f"the log has kind {printed.value}, but the workload has kind {kind.value}")
    if ranks not in (None, sample.ranks):
        return NoSample(f"{ranks} ranks ran, but the log shows {sample.ranks}")
    return (Measurement(RATE, sample.img_per_sec),)


def _matched(workload: Workload, text: str) -> tuple[Measurement, ...] | NoSample:
    """Return the number that the workload's pattern finds; a line that the log ends in the middle of counts for none."""
    pattern = workload.pattern if workload.pattern.isprintable() else shown(workload.pattern)
    lines = [untagged(line.rstrip("\r"), loose=False) for line in without_escapes(text).split("\n")]
    try:
        found = patterns.matches(workload.pattern, [line for line, _ in lines])
    except patterns.FailedError as error:
        return NoSample(f"pattern {pattern}: {error}")
    if not found:
        return NoSample(f"no line matches {pattern}")
    values = [_value(match.text) for match in found]
    for match, value in zip(found, values, strict=True):
        where = f"line {match.line + 1}: {shown(lines[match.line][0])}"
        if match.line == len(lines) - 1:
            return NoSample(f"the log ends in the middle of {where}")
        if value is None:
            what = "" if match.text is None else match.text
            return NoSample(f"{where}: the group of {pattern} matched {shown(what)}, which is not a number above 0")
        first = lines[found[0].line]
        if lines[match.line][1] != first[1] and (workload.last or value != values[0]):
            return NoSample(f"several ranks print this line; print it on rank 0 only ({where})")
        if not workload.last and value != values[0]:
            there = f"line {found[0].line + 1}: {shown(first[0])}"
            return NoSample(
                f"several lines match {pattern} with different values: {there}; {where} (set which: last to use the last one)"
            )
    assert values[-1] is not None
    return (Measurement(Metric(workload.unit, workload.unit, workload.higher_is_better), values[-1]),)


def _value(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if is_reading(value) else None
