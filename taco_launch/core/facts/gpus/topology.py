"""Reads `nvidia-smi topo -m`: how GPUs and HCAs of a host are linked.

The form, of drivers from 384 to 595: a header row with a column for each GPU and each HCA (by name, or NIC0.. with a
`NIC Legend` at the end), then `CPU Affinity`, `NUMA Affinity` and `GPU NUMA ID` as far as the driver knows them; a row
for each GPU and each HCA; a legend. Columns are parted by tabs (two before the last one), or by blanks where a person
has copied them. The cells of the matrix are never empty and hold no blanks, so they are counted, not measured.
"""

import re
from typing import Dict, List, Optional, Sequence, Tuple

from taco_launch.core.facts.text.sections import Sections, failure, unasked
from taco_launch.core.facts.text.strip_terminal import plain, shown
from taco_launch.core.model.host.fact_value import Found, Unknown
from taco_launch.core.model.host.hardware import UNSEEN, Topology

_GPU = re.compile(r"GPU[0-9]+")
_NIC = re.compile(r"(?!GPU|CPU|NUMA)[A-Za-z][A-Za-z0-9_.-]*")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?|SOC")
_P2P = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U")
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_AFFINITY_WORDS = re.compile(r"(CPU Affinity|NUMA Affinity|GPU NUMA ID)")
_RANGES = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_LEGEND = re.compile(r"\s*(NIC[0-9]+): ([A-Za-z][A-Za-z0-9_.-]*)\s*")


class _RefusedError(Exception):
    """Why a text is not read as a matrix; never leaves `read`."""


def parse_topology(sections: Sections) -> Found[Topology]:
    """Read the probe's section topology.matrix."""
    missing = unasked(sections, "topology") or failure(sections, "topology.matrix")
    return missing or read(sections["topology.matrix"].stdout)


def read(text: str) -> Found[Topology]:
    """Read the output of `nvidia-smi topo -m`; text before and after it is passed over.

    The matrix is given only where it has a row for each GPU and is symmetric, and each cell is a link that nvidia-smi
    knows; otherwise Unknown, with the row and column that are not. `SOC` of old drivers is given as `SYS`. Rows of HCAs
    may be missing: their links to GPUs are those of the GPUs' rows, and two HCAs without a row are linked by UNSEEN.
    """
    rows = plain(text).split("\n")
    heads = [place for place, row in enumerate(rows) if is_header(row)]
    if not heads:
        return Unknown("no header row of a topology matrix (GPU0 GPU1 ... CPU Affinity) is there")
    try:
        texts = [
            [*rows[begin:end], *([""] if end < len(rows) else [])]  # whatever follows, its last line is whole
            for begin, end in zip(heads, [*heads[1:], len(rows)])
        ]
        found = [_matrix(text) for text in [text for text in texts if not _is_p2p(text)] or texts]
    except _RefusedError as refusal:
        return Unknown(str(refusal))
    if any(one != found[0] for one in found):
        return Unknown(f"there are {len(found)} matrices, and they differ")
    return found[0]


def is_header(row: str) -> bool:
    """Return whether a line can be the header row of a matrix."""
    words = row.split()
    return bool(words) and words[0].startswith("GPU0") and (len(words) == 1 or not _cell(words[1]))


def _cell(word: str) -> bool:
    return bool(_LINK.fullmatch(word) or _P2P.fullmatch(word))


def _is_p2p(rows: Sequence[str]) -> bool:
    """Return whether a matrix is one of `topo -p2p`, which people paste behind that of `topo -m`."""
    cells = [word for row in rows[1:] if _GPU.match(row.strip()) for word in row.split()[1:]]
    return any(map(_P2P.fullmatch, cells)) and not any(_LINK.fullmatch(cell) for cell in cells if cell != "X")


def _matrix(rows: Sequence[str]) -> Topology:
    columns, affinities = _header(rows[0])
    gpus = tuple(name for name in columns if name.startswith("GPU"))
    cells: Dict[str, Tuple[str, ...]] = {}
    rests: Dict[str, Tuple[Optional[str], ...]] = {}
    ends = False
    for number, row in enumerate(rows[1:], 1):
        words = row.split()
        if not words:
            ends = ends or bool(cells)
            continue
        name = words[0]
        if name not in columns:
            if not ends and (len(cells) < len(columns) if _cell(name) else any(gpu not in cells for gpu in gpus)):
                raise _RefusedError(
                    f"{shown(row.strip(), 30)} is not a complete row of the matrix: are the lines wrapped? Capture it "
                    "into a file, or in a wider terminal"
                )
            continue
        if name in cells:
            raise _RefusedError(f"row {name} is there twice")
        cells[name] = _links(name, words[1:], columns)
        if name.startswith("GPU"):
            whole = number < len(rows) - 1
            rests[name] = _affinity(name, row, len(columns), affinities, rows[0] if whole else "")
    missing = [name for name in gpus if name not in cells]
    if missing:
        raise _RefusedError(
            f"row {missing[0]} is missing, or is not readable: the matrix is cut off or its rows have run together"
        )
    links = tuple(cells.get(name) or _by_columns(name, columns, cells) for name in columns)
    for one, name in enumerate(columns):
        for other in range(one):
            if links[one][other] != links[other][one]:
                raise _RefusedError(
                    f"row {name}, column {columns[other]} shows {links[one][other]}, and row {columns[other]}, column "
                    f"{name} shows {links[other][one]}: one of them is wrong"
                )
    return Topology(
        gpus=gpus,
        nics=_named(columns[len(gpus) :], rows),
        links=links,
        cpus=tuple(rests[name][0] for name in gpus),
        numa=tuple(rests[name][1] for name in gpus),
    )


def _by_columns(name: str, columns: Sequence[str], cells: Dict[str, Tuple[str, ...]]) -> Tuple[str, ...]:
    """Return the row of an HCA that has none, by what the others' rows have in its column."""
    place = columns.index(name)
    return tuple("X" if column == name else cells[column][place] if column in cells else UNSEEN for column in columns)


def _header(row: str) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """Return the columns of the matrix, and those of the affinities that stand behind them.

    Raises:
        _RefusedError: the row names a column twice, or what is neither a GPU nor an HCA.
    """
    parts = _AFFINITY_WORDS.split(row)
    columns, affinities = tuple(parts[0].split()), tuple(parts[1::2])
    if any(part.strip() for part in parts[2::2]) or affinities != _AFFINITIES[: len(affinities)]:
        raise _RefusedError(f"the header row is not understood from {shown(' '.join(''.join(parts[1:]).split()))} on")
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    for place, name in enumerate(columns):
        if name != f"GPU{place}" if place < len(gpus) else not _NIC.fullmatch(name):
            raise _RefusedError(f"header row, column {place + 1}: {shown(name)} is not the GPU or HCA expected there")
    if len(set(columns)) < len(columns):
        raise _RefusedError("the header row names a column twice")
    return columns, affinities


def _links(name: str, words: Sequence[str], columns: Sequence[str]) -> Tuple[str, ...]:
    if any(_P2P.fullmatch(word) for word in words[: len(columns)]):
        raise _RefusedError(
            "it is a matrix of nvidia-smi topo -p2p (what may be copied), not of topo -m (how it is linked)"
        )
    for place, (column, word) in enumerate(zip(columns, words)):
        if not _LINK.fullmatch(word) or (word == "X") != (column == name):
            raise _RefusedError(f"row {name}, column {column}: {shown(word)} is not a valid link there")
        if place + 1 == len(columns) and words[len(columns) :] and _LINK.fullmatch(words[len(columns)]):
            raise _RefusedError(f"row {name}: more cells than the header has columns")
    if len(words) < len(columns):
        cut = columns[len(words)]
        raise _RefusedError(f"row {name} ends before column {cut}: the row is cut off or columns have run together")
    return tuple("SYS" if word == "SOC" else word for word in words[: len(columns)])


def _affinity(
    name: str, row: str, count: int, affinities: Sequence[str], header: str
) -> Tuple[Optional[str], Optional[str]]:
    """Return CPU and NUMA affinity of a row, None where it has none; `header` is empty where the row may be cut off.

    Raises:
        _RefusedError: a field is not a list of numbers.
    """
    fields = _fields(row, count, affinities, header)
    if not header:
        # no line end behind it: 0-2 may have been 0-23
        last = max((place for place, field in enumerate(fields) if field), default=0)
        fields = [*fields[:last], *[""] * (len(fields) - last)]
    found: List[Optional[str]] = []
    for affinity, field in zip(affinities[:2], fields):
        if field not in ("", "N/A") and not _RANGES.fullmatch(field):
            raise _RefusedError(f"row {name}, column {affinity}: {shown(field)} is not a list of numbers")
        found.append(None if field in ("", "N/A") else field)
    cpus, numa = (*found, None, None)[:2]
    return cpus, numa


def _fields(row: str, count: int, affinities: Sequence[str], header: str) -> List[str]:
    """Return what stands below each affinity's column; all empty where it cannot be told which is whose."""
    none = [""] * len(affinities)
    if "\t" in row.strip():
        fields = [field.strip() for field in row.lstrip().split("\t")][count + 1 :]
        if len(fields) == len(affinities) + 1 and not fields[-2]:
            del fields[-2]  # nvidia-smi puts two tabs before its last column
        if len(fields) == len(affinities):
            return fields  # else somebody has put them in line by hand: their words are counted
    matches = list(re.finditer(r"\S+", row))[count + 1 :]
    if len(matches) == len(affinities):
        return [match[0] for match in matches]
    at = {header.find(affinity): place for place, affinity in enumerate(affinities)}
    if len(matches) > len(affinities) or any(match.start() not in at for match in matches):
        return none
    for match in matches:
        none[at[match.start()]] = match[0]
    return none


def _named(nics: Tuple[str, ...], rows: Sequence[str]) -> Tuple[str, ...]:
    """Return the HCAs by the names of the legend; by the header's where the legend does not exist as a whole."""
    entries = [(match[1], match[2]) for match in map(_LEGEND.fullmatch, rows[:-1]) if match]
    names = dict(entries)
    whole = sorted(nic for nic, _ in entries) == sorted(nics) and len(set(names.values())) == len(names)
    return tuple(names[nic] for nic in nics) if whole else nics
