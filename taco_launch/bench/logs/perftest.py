r"""Reads what the programs of perftest print (ib_write_bw, ib_read_lat, ...): the bandwidth or latency of each size.

What the lines look like is set by src/perftest_parameters.h and .c of github.com/linux-rdma/perftest:

- a title: `RDMA_Write BW Test`, `Send Bidirectional BW Test`, `RDMA_Read Latency Test`;
- a line that names the columns: `#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]` (newer: MiB/sec;
  with --report_gbits: Gb/sec), or of a latency test `t_min[usec] ... t_avg[usec] ...`;
- a row for each size. Where it says MB, 2^20 bytes are meant.

The JSON of --out_json has the same values under MsgSize, BW_average, MsgRate and t_avg, and no unit.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator

from taco_launch.bench.logs.lines import RefusedError, shown, untagged, without_escapes
from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.model.runs import Measurement, Metric, is_reading

_VERBS = r"(?:Send|RDMA_Write|RDMA_Read|Atomic)\w*"
_TITLE = re.compile(rf"({_VERBS} (?:[A-Z]\w* ){{0,3}}?(?:BW|Latency)) (?:[A-Za-z]+ ){{0,2}}Test\b.*", re.ASCII)
_HEADER = re.compile(r"#bytes\s+(?:#sl\s+)?#iterations\s+(?:BW peak\[|t_\w+\[).*", re.ASCII)
_RULE = re.compile(r"-{40,}")
_COLUMN = re.compile(r"#\w+|tps average|[^\s\[#][^\[\]]*\[[^\]]*\]")
_ROW = re.compile(r"\d{1,18}(?:\s+\d{1,18}(?:\.\d{1,9})?)+", re.ASCII)
_BROKEN = re.compile(r"\d{1,18}\s+\d{1,18}\b.*", re.ASCII)
_VALUE = re.compile(r"(BW average|t_avg)\[(\w+)(?:/sec)?\]")
_JSON = re.compile(r'"?\b(test|MsgSize|BW_average|MsgRate|t_avg)"?:\s*"?([\w.]+)', re.ASCII)
_UNITS = {"MB": "MiB/s", "MiB": "MiB/s", "Gb": "Gb/s", "usec": "us"}
_PER_SECOND = {"MiB/s": 2.0**20, "Gb/s": 1e9 / 8}  # bytes
_RATE_DIFFERS, _ROUNDED = 0.01, 0.0051  # of a message rate, and of a bandwidth with two digits after the point


def speaks(text: str) -> bool:
    """Return whether a log has the title of these programs, the header of their tables, or their JSON."""
    keys = {match[1] for match in _JSON.finditer(text)} if "MsgSize" in text else set()
    return bool(keys & {"BW_average", "t_avg"}) or any(
        _HEADER.fullmatch(rest) or _TITLE.fullmatch(rest)
        for line in text.split("\n")
        if "#iterations" in line or " Test" in line
        for rest in (untagged(line.strip())[0],)
    )


def read(text: str) -> tuple[Measurement, ...] | NoSample:
    """Read a whole log, in time linear to its length; never raises, whatever it contains.

    Gives one reading for each row, the largest size first of a bandwidth, the smallest of a latency (its mean).
    """
    text = without_escapes(text)
    try:
        readings = list(_of_json(text) if "MsgSize" in text else _of_tables(text.split("\n")))
    except RefusedError as refusal:
        return NoSample(str(refusal))
    (metric, times), *_ = Counter(reading.metric for reading in readings).most_common(1)
    if times > 1:
        return NoSample(f"perftest printed {metric.name} {times} times: keep the output of one run, and of one side")
    return tuple(readings[::-1] if readings[0].metric.higher_is_better else readings)


def _of_tables(lines: list[str]) -> Iterator[Measurement]:
    """Yield the readings of every table.

    Raises:
        RefusedError: a row is cut or not above 0, or a table has no header, no row or no end.
    """
    title, columns, rows, rule = "", [""], 0, -1
    for number, line in enumerate(lines, 1):
        rest = untagged(line.strip(), loose=False)[0]
        where = f"line {number}: {shown(rest)}"
        if match := _TITLE.fullmatch(rest):
            title = match[1]
        elif _HEADER.fullmatch(rest):
            columns = _COLUMN.findall(rest)
        elif _RULE.fullmatch(rest):
            rule = rows
        elif len(columns) > 1 and _BROKEN.fullmatch(rest):
            words = rest.split()
            if number == len(lines) or not _ROW.fullmatch(rest) or len(words) != len(columns):
                raise RefusedError(f"{where} does not match the column header of perftest: the row is cut, or mixed")
            place, value = next((at, match) for at, name in enumerate(columns) if (match := _VALUE.fullmatch(name)))
            rows += 1
            yield _reading(title, int(words[0]), float(words[place]), _UNITS.get(value[2], value[2]), where)
    output = f"this output of perftest ({title or 'ib_*'})"
    if len(columns) == 1:
        raise RefusedError(f"{output} has no line '#bytes #iterations ...', its column header")
    if not rows:
        raise RefusedError(f"{output} has no row below its column header")
    if -1 < rule < rows:
        raise RefusedError(f"{output} is cut: the line of dashes that ends its table is missing")


def _of_json(text: str) -> Iterator[Measurement]:
    """Yield the readings of --out_json; the unit of a bandwidth is the one that agrees with its message rate.

    Raises:
        RefusedError: a value is missing, or none of the units agrees.
    """
    keys = dict(_JSON.findall(text))
    title = keys.get("test", "").removesuffix("_Test").replace("_BW", " BW").replace("_Latency", " Latency")
    try:
        size = int(keys["MsgSize"])
        if "t_avg" in keys:
            yield _reading(title, size, float(keys["t_avg"]), "us", "t_avg")
            return
        average, bytes_per_second = float(keys["BW_average"]), float(keys["MsgRate"]) * 1e6 * size
    except (KeyError, ValueError):
        raise RefusedError(
            "this JSON of perftest is cut: it has neither t_avg nor BW_average with its MsgRate"
        ) from None
    for unit, factor in _PER_SECOND.items():
        if math.isclose(average * factor, bytes_per_second, rel_tol=_RATE_DIFFERS, abs_tol=_ROUNDED * factor):
            yield _reading(title, size, average, unit, "BW_average")
            return
    raise RefusedError(f"this JSON of perftest has BW_average {average:g}, which its MsgRate and MsgSize contradict")


def _reading(title: str, size: int, value: float, unit: str, where: str) -> Measurement:
    if not is_reading(value):
        raise RefusedError(f"{where}: {value:g} is not a number above 0: the test of perftest failed")
    lower = unit == "us"
    return Measurement(Metric(f"{title or ('Latency' if lower else 'BW')} {size} B", unit, not lower), value)
