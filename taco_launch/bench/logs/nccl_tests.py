r"""Reads the log of a program of nccl-tests (all_reduce_perf, ...): the bus bandwidth of each size, and their average.

What the lines look like is set by src/common.cu and, since 2.17, src/util.cu of github.com/NVIDIA/nccl-tests:

- `# nThread 1 nGpus 1 minBytes ...` and `#  Rank  0 Group  0 Pid  1 on HOST device  0 [0x07] MODEL` for each GPU (the
  oldest without Group and Pid);
- a line that names the columns: `size count type redop root` (older and by program: without redop, or root), then for out-of-place and again for in-place `time algbw
  busbw` and `#wrong` (older: `error` or `res`, which count no wrong values; `redop` may be empty in a row, `root` came
  later, more columns with -I, and a time of day at the end);
- a row for each size, bandwidths in GB/s with two digits after the point, one from 1000 on, none from 10000 on;
- `# Out of bounds values : 0 OK` and `# Avg bus bandwidth    : 150.209`: the mean of all rows, both halves (the oldest
  without #).

Only rank 0 prints. A program that was built without MPI=1 knows nothing of the others: under mpirun each process
measures itself and prints all this.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from taco_launch.bench.logs.lines import RefusedError, shown, untagged, without_escapes
from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.model.runs import Measurement, Metric

_UNIT = "GB/s"
_AVERAGE = Metric("busbw average", _UNIT)
# With two digits after the point a smaller one is rounded by more than 5 %.
_LEAST = 0.10
_THREADS_DIFFER = 0.05  # with several threads the average is of each one's own clock
_BUILD = "rebuild nccl-tests with MPI: make clean && make MPI=1 MPI_HOME=FOLDER"

_NUMBER = r"(?:\d{1,15}(?:\.\d{1,2})?|\d\.?\d?e[+-]\d\d)"
_SETTINGS = re.compile(r"(?:# )?nThread:? (\d{1,4}) nGpus:? (\d{1,4}) minBytes:? \d+ maxBytes:? \d+ .*", re.ASCII)
_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?(?:Pid\s+\d+\s+)?on\s+\S+\s+device\s+\d+\s+\[[\w:.]+\]\s.*", re.ASCII
)
_COLUMNS = re.compile(r"#\s+(?:size|bytes)\s+(?:count|N)\s+type\s.*", re.ASCII)
_ROW = re.compile(r"(\d{1,18})\s+\d{1,18}\s+[a-z].*", re.ASCII)
_BOUNDS = re.compile(r"(?:# ?)?Out of bounds values\s*: (\d+) (OK|FAILED)", re.ASCII)
_MEAN = re.compile(
    r"(?:# ?)?Avg bus bandwidth\s*: (\d{1,9}(?:\.\d{1,12})?|\d(?:\.\d{1,6})?e[+-]\d\d)(?: (OK|FAILED))?", re.ASCII
)
_WORDS = re.compile(r"nThread:? |Rank +\d|\bbusbw\b|Out of bounds|Avg bus bandwidth|\d\s+\d+\s+[a-z]")
_COLUMNS_OF = re.compile(r"# *(?:size +count|bytes +N) +type\b.*\balgbw +busbw\b")
# What is none of the above and speaks of a result all the same is cut, or mixed with another line.
_OF_RESULTS = re.compile(r"Out of bounds val|Avg bus band|^#.*\bbusbw\b|^#? ?nThread:? \d|^#\s*Rank +\d")


@dataclass
class _Table:
    """One run of the program, as far as the log shows it.

    `per_process` is its threads times its GPUs, `parts` how many times the elements that a row counts its data are.
    """

    threads: int
    per_process: int
    ranks: set[int] = field(default_factory=set)
    names: tuple[str, ...] = ()
    parts: int = 0
    rows: list[tuple[int, tuple[str, str]]] = field(default_factory=list)
    average: str = ""


# Bytes of each type: test_typenames of common.cu, by what ncclDataType_t says of them.
_WIDTHS = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
_TYPED_ROW = re.compile(
    rf"\d[ \t]+\d+[ \t]+(?:{'|'.join(_WIDTHS)})[ \t]+(?:[a-z]+[ \t]+)?(?:-?\d+[ \t]+)?(?:[\d.]+[ \t]+){{3}}", re.ASCII
)


def speaks(text: str) -> bool:
    """Return whether a log holds a line that these programs alone print: the settings, the columns, a row, the average."""
    return _TYPED_ROW.search(text) is not None or any(
        _SETTINGS.search(rest) or _COLUMNS_OF.match(rest) or _MEAN.fullmatch(rest)
        for line in text.split("\n")
        if "nThread" in line or "busbw" in line or "Avg bus" in line
        for rest in (untagged(line.strip())[0],)
    )


def read(text: str, ranks: int | None = None) -> tuple[Measurement, ...] | NoSample:
    """Read a whole log, in time linear to its length; never raises, whatever stands in it.

    Gives the average first, then `busbw SIZE B` for each size: out-of-place, in GB/s; sizes with less than 0.10 GB/s have
    none. The average is what the program prints, of both halves. `ranks` is the number of processes that the job had,
    None where nobody knows.
    """
    try:
        return _readings(_one(tuple(_lines(text)), ranks))
    except RefusedError as refusal:
        return NoSample(str(refusal))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line without tags) of the lines that may belong to a table.

    Raises:
        RefusedError: the log ends in the middle of a line.
    """
    every = without_escapes(text).split("\n")
    for number, line in enumerate(every, 1):
        if not _WORDS.search(line):
            continue
        rest = untagged(line.strip())[0]
        if number == len(every):
            raise RefusedError(f"the log ends in the middle of line {number}: {shown(rest)}")
        yield number, rest


def _one(found: tuple[tuple[int, str], ...], ranks: int | None) -> _Table:
    """Put the lines together to the one table that a log may have.

    Raises:
        RefusedError: there is no table, or more than one run.
    """
    begins = [settings for _, line in found if (settings := _SETTINGS.fullmatch(line))]
    if len(begins) <= 1 and _are_alone([line for _, line in found]):
        raise RefusedError(f"the runs had one rank each: busbw is 0 in every row, and sizes are listed twice: {_BUILD}")
    if not begins:
        first = "no line '# nThread ...', the first line of every nccl-tests program"
        within = next((f"line {number}: {shown(line)}" for number, line in found if _SETTINGS.search(line)), "")
        others = {_COLUMNS: "the column header", _MEAN: "the line '# Avg bus bandwidth ...'"}
        missing = [name for form, name in others.items() if not any(form.fullmatch(line) for _, line in found)]
        first += f"; {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing, too" if missing else ""
        raise RefusedError(f"{within}: the text before '# nThread' is not a known line prefix" if within else first)
    threads, gpus = int(begins[0][1]), int(begins[0][2])
    table = _Table(threads, threads * gpus)
    if len(begins) > 1:
        named = {int(rank[1]) for _, line in found if (rank := _RANK.fullmatch(line))}
        if max(named, default=0) < table.per_process and ranks != 1:
            each = "one rank" if table.per_process == 1 else f"{table.per_process} GPUs"
            raise RefusedError(f"{len(begins)} separate runs with {each} each, but no run across all ranks: {_BUILD}")
        raise RefusedError(f"the log holds {len(begins)} runs of nccl-tests: run each as a separate job")
    for number, line in found:
        if not _SETTINGS.fullmatch(line):
            _put(table, line, f"line {number}: {shown(line)}")
    return _whole(table, ranks)


def _are_alone(lines: list[str]) -> bool:
    """Return whether the rows are those of several processes that exchanged no data, their lines mixed."""
    columns = next((line.lstrip("# ").split() for line in lines if _COLUMNS.fullmatch(line)), [])
    rows = [line.split() for line in lines if _ROW.fullmatch(line)]
    places = [at - len(columns) for at, name in enumerate(columns) if name == "busbw"]
    rates = [row[place] for row in rows for place in places if len(row) >= -place]
    return bool(rates) and not any(rate.strip("0.") for rate in rates) and len({row[0] for row in rows}) < len(rows)


def _put(table: _Table, line: str, where: str) -> None:
    if rank := _RANK.fullmatch(line):
        table.ranks.add(int(rank[1]))
    elif _COLUMNS.fullmatch(line):
        table.names = _names(line, where)
    elif row := _ROW.fullmatch(line):
        if table.names:
            _put_row(table, line, int(row[1]), where)
    elif bounds := _BOUNDS.fullmatch(line):
        if bounds[2] != "OK" or int(bounds[1]):
            raise RefusedError(f"{where}: the results are wrong, so the times are not valid")
    elif mean := _MEAN.fullmatch(line):
        if mean[2] == "FAILED":
            raise RefusedError(f"{where}: below the minimum that NCCL_TESTS_MIN_BW sets, so the program failed")
        if table.average:
            raise RefusedError(f"{where}: the table has a second average")
        table.average = mean[1]
    elif _OF_RESULTS.search(line):
        raise RefusedError(f"{where} is truncated, mixed with another line, or in an unknown format")


def _put_row(table: _Table, line: str, size: int, where: str) -> None:
    before = table.rows[-1][0] if table.rows else 0
    if size == before and size:
        raise RefusedError(
            f"{where}: this size is listed twice: use one type (-d), one operation (-o), one cycle (-N 1)"
        )
    if size < before or not _is_size(table, line, size):
        raise RefusedError(f"{where} is truncated: its size does not match its element count or the rows before it")
    table.rows.append((size, _row(line, table.names, where)))


def _is_size(table: _Table, line: str, size: int) -> bool:
    """Return whether a row's size is that of its elements, as far as these are known: a digit that is lost changes it.

    Where the data are shared out (all_gather, reduce_scatter, alltoall, gather, scatter) the count is that of one rank,
    whose group is smaller than all ranks with NCCL_TESTS_SPLIT; a size that is too small for that is printed as 0.
    """
    words = line.split()
    width = _WIDTHS.get(words[2]) if len(words) > 2 else None
    if width is None:
        return True
    counted = int(words[1]) * width if words[1].isdigit() else 0
    if not counted:
        return size == 0
    parts, rest = divmod(size, counted)
    table.parts = table.parts or parts
    return not rest and parts == table.parts > 0 and (parts == 1 or len(table.ranks) % parts == 0)


def _names(line: str, where: str) -> tuple[str, ...]:
    """Return the names of the columns; those of the values start with the first time.

    Raises:
        RefusedError: there are not two halves with one busbw column each.
    """
    names = tuple(line.lstrip("# ").split())
    values = _values(names)
    if values.count("busbw") != 2 or not values[: len(values) // 2] == values[len(values) // 2 :]:
        raise RefusedError(
            f"{where}: expected two halves with one busbw column each: the line is truncated or in an unknown format"
        )
    return names


def _values(names: tuple[str, ...]) -> tuple[str, ...]:
    first = next((index for index, name in enumerate(names) if name in ("time", "cputime")), len(names))
    return names[first:-1] if names[-1] == "timestamp" else names[first:]


def _row(line: str, names: tuple[str, ...], where: str) -> tuple[str, str]:
    """Return the bus bandwidths of a row, out-of-place and in-place, as they are written.

    Raises:
        RefusedError: the row does not match the columns, or counts wrong values.
    """
    words = line.split()
    if names[-1] == "timestamp":
        words = words[:-2]
    values = _values(names)
    before, own = words[: -len(values)], words[-len(values) :]
    wanted = r"\d+ \d+ [a-z]\w*(?: [a-z]\w*)?" + (r" -?\d+" if "root" in names else "")
    wrong = [own[index] for index, name in enumerate(values) if name == "#wrong" and len(own) == len(values)]
    rates = [own[index] for index, name in enumerate(values) if name == "busbw" and len(own) == len(values)]
    if not re.fullmatch(wanted, " ".join(before), re.ASCII) or not all(re.fullmatch(_NUMBER, rate) for rate in rates):
        raise RefusedError(f"{where} does not match the column header: it is truncated, or mixed with another line")
    for count in wrong:
        if count not in ("0", "N/A"):
            raise RefusedError(f"{where}: {count} wrong values, so the time is not valid")
    return rates[0], rates[1]


def _whole(table: _Table, ranks: int | None) -> _Table:
    """Return the table where it is that of all ranks.

    Raises:
        RefusedError: lines of ranks are missing, or there is only one GPU.
    """
    count = len(table.ranks)
    if table.ranks != set(range(count)) or count % table.per_process or not count:
        raise RefusedError(f"the log lists the ranks {_rank_list(table.ranks)}: some lines '#  Rank ...' are missing")
    processes = count // table.per_process
    if ranks is not None and processes != ranks:
        raise RefusedError(f"{ranks} ranks ran, but the log shows {processes}{_one_process(table, ranks)}")
    if count == 1:
        raise RefusedError(
            f"the log has only one GPU, and nccl-tests measures bus bandwidth between two or more; if more ranks ran, {_BUILD}"
        )
    return table


def _one_process(table: _Table, ranks: int) -> str:
    """Return why a log of several ranks is that of one process."""
    count = len(table.ranks)
    if count != table.per_process:
        return ""
    if count == 1:
        return f": each process ran alone: {_BUILD}"
    asked = f"-t {table.threads} -g {count // table.threads}" if table.threads > 1 else f"-g {count}"
    alone = f": one process drove {count} GPUs ({asked})"
    if count == ranks:
        return f"{alone}, which is one rank: use --np 1"
    return f"{alone}: if that was one rank, use --np 1; if {ranks} ranks ran, each ran alone: {_BUILD}"


def _rank_list(ranks: set[int]) -> str:
    return ", ".join(map(str, sorted(ranks)[:8])) + (", ..." if len(ranks) > 8 else "") or "(none)"


def _readings(table: _Table) -> tuple[Measurement, ...]:
    if not table.rows:
        raise RefusedError("the log has no table row with a size")
    if not table.average:
        size = table.rows[-1][0]
        raise RefusedError(
            f"no line '# Avg bus bandwidth : ...': the log ends after {size} B, or the program failed there"
        )
    written = [rate for _size, pair in table.rows for rate in pair]
    mean, average = math.fsum(map(float, written)) / len(written), float(table.average)
    off = max(_rounded(rate) for rate in written) + _rounded_mean(average)
    if table.threads > 1:
        off += _THREADS_DIFFER * average
    if abs(mean - average) > off + 1e-9:
        raise RefusedError(
            f"the average {table.average} differs from the mean of the {len(table.rows)} sizes shown, {mean:.6g}: lines are missing"
        )
    if average <= 0:
        raise RefusedError("the bus bandwidth is 0: the GPUs exchanged no data; " + _BUILD)
    sizes = [(size, float(out_of_place)) for size, (out_of_place, _) in table.rows]
    return (
        Measurement(_AVERAGE, average),
        *(Measurement(Metric(f"busbw {size} B", _UNIT), value) for size, value in sizes if value >= _LEAST),
    )


def _rounded(written: str) -> float:
    """Return by how much a number may be off that was rounded to what is written."""
    digits, _, exponent = written.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def _rounded_mean(average: float) -> float:
    """Return by how much a number may be off that printf's %g wrote: six digits."""
    return 0.5 * 10.0 ** (math.floor(math.log10(average)) - 5) if average > 0 else 0.0
