"""Reads the CSV of nvidia-smi (`--query-gpu`, `--query-compute-apps`): rows by the names of their columns.

nvidia-smi quotes nothing, so a comma within a name parts it; the columns whose form is known say where a name ends.
"""

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from taco_launch.core.facts.text.strip_terminal import PROMPT, plain, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, not_told

_NONE = r"\[?N/A\]?|\[[A-Z][A-Za-z ]+\]"
_NUMBER = re.compile(rf"[0-9]+|{_NONE}")
_SIZE = re.compile(rf"[0-9]+(?: [KMGT]iB)?|{_NONE}")
_MODE = re.compile(rf"Enabled|Disabled|{_NONE}")
_FLAG = re.compile(rf"Yes|No|0|1|{_NONE}")
# What a cell of these columns looks like; whatever else stands there says that the row is not understood.
_FORMS: Mapping[str, "re.Pattern[str]"] = {
    "index": _NUMBER,
    "pid": _NUMBER,
    "count": _NUMBER,
    "uuid": re.compile(rf"GPU-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}|MIG-[0-9A-Za-z/-]+|{_NONE}"),
    "pci.bus_id": re.compile(rf"[0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}}\.[0-7]|{_NONE}"),
    "memory.total": _SIZE,
    "memory.used": _SIZE,
    "used_gpu_memory": _SIZE,
    "mig.mode.current": _MODE,
    "ecc.mode.current": _MODE,
    "persistence_mode": _MODE,
    "ecc.errors.uncorrected.volatile.total": _NUMBER,
    "temperature.gpu": _NUMBER,
    "pcie.link.width.current": _NUMBER,
    "pcie.link.width.max": _NUMBER,
    "clocks_event_reasons.active": re.compile(rf"0x[0-9A-Fa-f]{{1,16}}|{_NONE}"),
    "remapped_rows.pending": _FLAG,
    "remapped_rows.failure": _FLAG,
    "retired_pages.double_bit.count": _NUMBER,
    "retired_pages.pending": re.compile(rf"Yes|No|{_NONE}"),
    "pcie.link.gen.current": _NUMBER,
    "pcie.link.gen.max": _NUMBER,
    "pstate": re.compile(rf"P[0-9]{{1,2}}|{_NONE}"),
    "driver_version": re.compile(rf"[0-9]+(?:\.[0-9]+)+|{_NONE}"),
}
# the same column by its other names in nvidia-smi --help-query-gpu and --help-query-compute-apps
_ALIASES = {
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_name": "name",
    "used_memory": "used_gpu_memory",
    "process_name": "process",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}
_FREE = ("name", "process")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# a cell that cannot be the start of a longer one
_WHOLE = re.compile(
    rf"GPU-[0-9a-f-]{{36}}|[0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f:]{{5}}\.[0-7]|[0-9]+ [KMGT]iB|Enabled|Disabled|{_NONE}"
)


class CsvRow(NamedTuple):
    """One row: its cells by column, the unit that the header gives a column, the columns whose cell may be cut off."""

    cells: Dict[str, str]
    units: Dict[str, str]
    cut: Tuple[str, ...]

    def text(self, column: str) -> Found[str]:
        """Return a cell; Absent for `[N/A]` and `[Not Supported]`, Unknown for other words in brackets and no column."""
        found = self.cells.get(column)
        if found is None:
            return not_told(f"the query does not include {column}")
        if column in self.cut:
            return Unknown(f"column {column}: {shown(found)} may be cut off: the last row has no line end")
        if found.strip("[]") in ("N/A", "Not Supported"):
            return Absent(found)
        return Unknown(f"nvidia-smi reports {found}") if re.fullmatch(_NONE, found) else found

    def number(self, column: str) -> Found[int]:
        """Return a cell as a number."""
        found = self.text(column)
        return int(found) if isinstance(found, str) else found

    def flag(self, column: str) -> Found[bool]:
        """Return a cell that says yes or no, on or off."""
        found = self.text(column)
        return found in ("Enabled", "Yes", "1") if isinstance(found, str) else found

    def size(self, column: str) -> Found[int]:
        """Return a cell as bytes; the unit stands in the cell or, with `nounits`, in the header."""
        found = self.text(column)
        if not isinstance(found, str):
            return found
        number, _, unit = found.partition(" ")
        unit = unit or self.units[column]
        return int(number) * _UNITS[unit] if unit else Unknown(f"column {column}: {found} has no unit")


def rows(text: str) -> Tuple[Tuple[CsvRow, ...], Tuple[str, ...], Optional[Unknown]]:
    """Return the rows below the header, the lines that speak of a GPU which cannot be reached, and what went wrong.

    Lines before the header and behind the rows are passed over. The Unknown names the row and column that are not
    understood, or says that there is no header; then there are no rows.
    """
    found = plain(text).split("\n")
    lost = tuple(line.strip() for line in found if is_lost(line))
    begin = next((place for place, line in enumerate(found) if is_header(line)), None)
    if begin is None:
        return (), lost, Unknown("no header row is there: was it made with --format=csv,noheader?")
    columns, units = _header(found[begin])
    if len(set(columns)) < len(columns):
        return (), lost, Unknown("the header row names a column twice")
    read: List[CsvRow] = []
    for place, line in enumerate(found[begin + 1 :], begin + 1):
        if is_lost(line):
            continue
        if not line.strip() and not read:
            continue
        if not line.strip() or line.startswith("WARNING: ") or PROMPT.match(line):
            break
        if columns == _header(line)[0]:
            return (), lost, Unknown("the header row is there twice: more than one capture")
        cells = _cells(columns, line)
        if isinstance(cells, Unknown):
            return (), lost, Unknown(f"row {len(read) + 1}: {cells.reason}")
        cut = () if place < len(found) - 1 or _WHOLE.fullmatch(cells[columns[-1]]) else (columns[-1],)
        read.append(CsvRow(cells, units, cut))
    return tuple(read), lost, None


def is_header(line: str) -> bool:
    """Return whether a line is a header row: a known column at least, and nothing that is not a name of a column."""
    columns, _ = _header(line)
    known = [column for column in columns if column in _FORMS or column in _FREE]
    return (
        bool(known) and len(columns) > 1 and all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_.]*", column) for column in columns)
    )


def is_lost(line: str) -> bool:
    """Return whether nvidia-smi says in this line that it cannot reach a GPU."""
    return bool(re.search(r"Unable to determine the device handle for|GPU is lost", line))


def _header(line: str) -> Tuple[Tuple[str, ...], Dict[str, str]]:
    columns: List[str] = []
    units: Dict[str, str] = {}
    for word in line.split(","):
        match = re.fullmatch(r"\s*(\S+)(?: \[([^\]]*)\])?\s*", word)
        name = match[1] if match else word
        name = _ALIASES.get(name, name)
        columns.append(name)
        units[name] = match[2] if match and match[2] in _UNITS else ""
    return tuple(columns), units


def _cells(columns: Sequence[str], line: str) -> Union[Dict[str, str], Unknown]:
    """Return the cells of a row; where it has more than columns, the one column whose cells may hold a comma has them."""
    words = [word.strip() for word in line.split(",")]
    more = len(words) - len(columns)
    if more < 0:
        return Unknown(f"it ends before column {columns[len(words)]}: {shown(line)}")
    free = [column for column in columns if column in _FREE]
    if more and len(free) != 1:
        return Unknown(f"{len(words)} cells below {len(columns)} columns: {shown(line)}")
    cells: Dict[str, str] = {}
    for column in columns:
        count = 1 + more if column in free else 1
        cells[column] = ", ".join(words[:count])
        del words[:count]
    wrong = next((column for column in columns if not _fits(column, cells[column])), None)
    return cells if wrong is None else Unknown(f"column {wrong}: {shown(cells[wrong])} is not a valid value")


def _fits(column: str, cell: str) -> bool:
    form = _FORMS.get(column)
    return form is None or bool(form.fullmatch(cell))
