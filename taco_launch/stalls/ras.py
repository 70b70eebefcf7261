"""Answers of NCCL's RAS (2.24 and newer) to `verbose status`: which communicator lags or lacks a rank, and which.

Text, as all versions give it, or JSON (2.28.7).
"""

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

MOST_CHARACTERS = 16 << 20
_MOST_RANKS, _MOST_FAULTS = 4096, 1000
_NO_ERROR = (0, 7)  # ncclSuccess, ncclInProgress
_VERSION = re.compile(r"NCCL version (\S{1,40}) compiled with")
_HEAD = re.compile(r"(?:#(\d{1,7}-\d{1,7}) \(([0-9a-f]{1,16})\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\s*$")
_RANK = re.compile(
    r"Rank (\d{1,10})(?: has \w[\w ]{0,60}?)?(?: reported [\w ]{1,60})? -- (?:GPU \S+ managed by process (\d{1,10}) on node (\S{1,255})|\[)"
)
_PROCESS = re.compile(r"Process (\d{1,10}) on node (\S{1,255}) managing GPUs? (\S{1,200})")
_MISSING = re.compile(r"The missing ranks?: ([\d, ]{1,2000})")
_COUNTS = re.compile(r"(\d{1,10}) ranks? have launched up to operation (\d{1,20})")
_ONE_COUNT = re.compile(r"Rank (\d{1,10}) has launched up to operation (\d{1,20})")
_OPERATION = re.compile(r"Communicator ranks have different (\w{1,40}) operation counts")
_ROW = re.compile(r"\s*\d+\s+\d+\s+\d+\s+[\d-]+\s+\d+\s+\d+\s+\w+\s+(?:OK|[A-Z]+(?:,[A-Z]+)*)\s*$")


class RasRank(NamedTuple):
    """A rank that RAS names, with the process and the node that it is; None and "" where RAS does not know."""

    rank: int
    pid: Optional[int] = None
    node: str = ""


class RasFault(NamedTuple):
    """What is wrong with a communicator (`0-0`, "" for the whole job): INCOMPLETE, DEAD, ERROR, MISMATCH or TIMEOUT.

    `ranks` are those that RAS names: who is missing or, with MISMATCH, the smaller group. `operation` is the collective
    whose counts differ, `counts` (ranks, operations launched), most ranks first.
    """

    kind: str
    communicator: str
    ranks: Tuple[RasRank, ...] = ()
    operation: str = ""
    counts: Tuple[Tuple[int, int], ...] = ()


class RasAnswer(NamedTuple):
    """An answer: the version, how many rows of communicators, and what is wrong; `is_whole` when nothing of it lacks."""

    version: str
    communicators: int
    faults: Tuple[RasFault, ...]
    is_whole: bool


def read(text: str) -> RasAnswer:
    """Read an answer, whatever else stands around it.

    Raises:
        ValueError: it is too long, or none of RAS's.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"longer than {MOST_CHARACTERS} characters")
    begin = text.find("{")
    if begin >= 0 and '"communicators"' in text:
        return _of_json(text[begin:])
    if "Job summary" not in text and "Communicators..." not in text:
        raise ValueError("no answer of NCCL's RAS: it has neither 'Job summary' nor 'Communicators...'")
    return _of_text(text)


def verdict(answer: RasAnswer, later: Optional[RasAnswer] = None) -> Tuple[str, ...]:
    """Return what an answer says of a hang, a sentence each; counts that differ tell only where a `later` answer has the same."""
    found = []
    for fault in answer.faults:
        where = f"communicator {fault.communicator}" if fault.communicator else "the job"
        names = ", ".join(_name(rank) for rank in fault.ranks[:4])
        if fault.kind in ("INCOMPLETE", "DEAD"):
            word = "does not answer NCCL's RAS" if fault.kind == "INCOMPLETE" else "is considered dead by NCCL's RAS"
            found.append(f"{where}: {names or 'a process'} {word}")
        elif fault.kind == "ERROR":
            found.append(f"{where}: NCCL reports an error of {names or 'a rank'}")
        elif fault.kind == "MISMATCH" and fault.counts and later is not None and fault in later.faults:
            (most, ahead), *rest = fault.counts
            behind = min(rest, key=lambda one: one[1], default=(0, ahead))
            few = f" ({names})" if names else ""
            found.append(
                f"{where}: {most} ranks have launched {fault.operation or 'operation'} {ahead}, {behind[0]} ranks {behind[1]}{few}"
            )
    return tuple(dict.fromkeys(found))


def _of_text(text: str) -> RasAnswer:
    version = _VERSION.search(text)
    faults: List[RasFault] = []
    rows = 0
    for line in text.split("\n"):
        head = _HEAD.match(line.strip())
        if head is not None and not line.startswith(" " * 4) and len(faults) < _MOST_FAULTS:
            faults.append(RasFault(head[3], head[1] or ""))
            continue
        rows += _ROW.match(line) is not None
        if faults:
            faults[-1] = _with(faults[-1], line)
    whole = "Warnings" in text and text.rstrip("\n").count("\n") > 0
    return RasAnswer(version[1] if version else "", rows, tuple(faults), whole)


def _with(fault: RasFault, line: str) -> RasFault:
    if len(fault.ranks) >= _MOST_RANKS:
        return fault
    operation, counts, one = _OPERATION.search(line), _COUNTS.search(line), _ONE_COUNT.search(line)
    if operation is not None and not fault.operation:
        return fault._replace(operation=operation[1])
    if counts is not None:
        return fault._replace(counts=(*fault.counts, (int(counts[1]), int(counts[2]))))
    if one is not None:
        fault = fault._replace(counts=(*fault.counts, (1, int(one[2]))))
    rank, process, missing = _RANK.search(line), _PROCESS.search(line), _MISSING.search(line)
    if rank is not None:
        known = RasRank(int(rank[1]), int(rank[2]) if rank[2] else None, rank[3] or "")
        return fault._replace(ranks=(*fault.ranks, known))
    if process is not None and not fault.communicator:
        return fault._replace(ranks=(*fault.ranks, RasRank(-1, int(process[1]), process[2])))
    if missing is not None:
        numbers = tuple(RasRank(int(word)) for word in re.findall(r"\d{1,10}", missing[1]))
        return fault._replace(ranks=(*fault.ranks, *numbers))
    return fault


def _of_json(text: str) -> RasAnswer:
    try:
        told, _end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no whole JSON of NCCL's RAS: {error}") from None
    listed = told.get("communicators") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no answer of NCCL's RAS: its JSON has no list of communicators")  # noqa: TRY004 - a word on a text
    faults: List[RasFault] = []
    for index, one in enumerate(listed[:_MOST_FAULTS]):
        if isinstance(one, dict):
            faults += _faults_of(f"{index}", one)
    return RasAnswer(str(told.get("nccl_version", ""))[:40], len(listed), tuple(faults), is_whole=True)


def _faults_of(name: str, one: Dict[str, Any]) -> List[RasFault]:
    found: List[RasFault] = []
    missing = [_json_rank(rank) for rank in _list(one.get("missing_ranks"))]
    dead = [_flag(rank, "considered_dead") for rank in _list(one.get("missing_ranks"))]
    if missing:
        found.append(RasFault("DEAD" if all(dead) else "INCOMPLETE", name, tuple(missing)))
    ranks = [rank for rank in _list(one.get("ranks")) if isinstance(rank, dict)]
    failed = [
        _json_rank(rank)
        for rank in ranks
        if any(_status(rank, each) not in _NO_ERROR for each in ("async_error", "init_state"))
    ]
    if failed:
        found.append(RasFault("ERROR", name, tuple(failed)))
    for operation in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"):
        counts: Dict[int, List[RasRank]] = {}
        for rank in ranks:
            number = (
                (rank.get("collective_counts") or {}).get(operation)
                if isinstance(rank.get("collective_counts"), dict)
                else None
            )
            if isinstance(number, int):
                counts.setdefault(number, []).append(_json_rank(rank))
        if len(counts) > 1:
            order = sorted(counts.items(), key=lambda item: (-len(item[1]), -item[0]))
            few = order[-1][1]
            found.append(
                RasFault("MISMATCH", name, tuple(few), operation, tuple((len(of), number) for number, of in order))
            )
    return found


def _flag(rank: Any, name: str) -> bool:
    status = rank.get("status") if isinstance(rank, dict) else None
    return isinstance(status, dict) and status.get(name) is True


def _status(rank: Dict[str, Any], name: str) -> int:
    status = rank.get("status")
    value = status.get(name, 0) if isinstance(status, dict) else 0
    return value if isinstance(value, int) else 0


def _json_rank(rank: Any) -> RasRank:
    if not isinstance(rank, dict):
        return RasRank(-1)
    number, pid, host = rank.get("rank"), rank.get("pid"), rank.get("host")
    return RasRank(
        number if isinstance(number, int) else -1,
        pid if isinstance(pid, int) else None,
        str(host)[:255] if host else "",
    )


def _list(value: Any) -> List[Any]:
    return value[:_MOST_RANKS] if isinstance(value, list) else []


def _name(rank: RasRank) -> str:
    who = f"rank {rank.rank}" if rank.rank >= 0 else f"process {rank.pid}"
    return f"{who} on {rank.node}" if rank.node else who
