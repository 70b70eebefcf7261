"""Looks at what of a rank can be compared with the plan: its environment, its connections to other hosts, and NCCL's file."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Collection, Dict, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.counters import process_trees, sockets
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.host import processes
from taco_launch.agent.logs import nccl_file
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.model.run.observed import NcclConnection, NcclLog, NcclProcess, SeenRank
from taco_launch.core.protocol.verify_messages import RanksSeen
from taco_launch.core.verify import nccl_log

_MOST_VALUE = 1 << 10
# Of each file of NCCL's: what a rank with eight HCAs and hundreds of peers writes at its start is less.
_NCCL_BYTES = 1 << 20
# Of one rank: few processes of a rank use NCCL.
_MOST_NCCL_FILES = 8
# Of one process: some programs make groups of all sorts, and the largest ones are compared.
_MOST_COMMUNICATORS = 256
# Horovod learns its world from one of these; without any, each process is a world of its own (horovod/common/operations.cc).
_OF_WORLD = frozenset(("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"))
_HOROVOD, _MOST_MAPS = b"/horovod/", 1 << 22
# Those whose versions have to be the same on all hosts, by their files: libmpi.so.40.30.4, or libnccl.so.2 in a Python package.
_LIBRARY = re.compile(rb" (/\S*/(lib(?:mpi|nccl|cuda|cudart|ucp|fabric|torch_cpu))\.so((?:\.\d+)*))$", re.MULTILINE)
_ALONE = "Horovod, which mpirun did not start"


def seen(folder: JobFolder, roots: Mapping[int, Key], variables: Collection[str]) -> RanksSeen:
    """Look at the ranks with these wrappers, whose logs are in the folder of an attempt."""
    found = sorted(process_trees.trees(roots).items())
    logs = [_nccl(path) for rank, _members in found for path in nccl_file.files(folder.rank(rank))[:_MOST_NCCL_FILES]]
    return RanksSeen(
        ranks=[_seen(rank, members, variables) for rank, members in found],
        nccl=nccl_log.together(logs),
    )


def _nccl(path: Path) -> NcclLog:
    """Return what a file of NCCL's tells, as far as it is compared."""
    text = nccl_file.beginning(path, _NCCL_BYTES)
    told = nccl_log.parse(text.decode("utf-8", "replace"))
    cut = told.cut or len(text) == _NCCL_BYTES
    return replace(told, processes=tuple(_short(one) for one in told.processes), cut=cut)


def _short(process: NcclProcess) -> NcclProcess:
    """Return one connection of each kind, and the largest communicators."""
    largest = sorted(process.communicators, key=lambda one: -one.ranks)[:_MOST_COMMUNICATORS]
    kinds: Dict[Tuple[object, ...], NcclConnection] = {}
    for one in process.connections:
        kinds.setdefault((one.transport, one.direction, one.device, one.gdr, one.detail), one)
    return replace(process, communicators=tuple(largest), connections=tuple(kinds.values()))


def _seen(rank: int, members: Sequence[Key], variables: Collection[str]) -> SeenRank:
    present = process_trees.of_rank(members)
    shown = process_trees.of_python(present) or process_trees.most_telling(present)
    told = sockets.of_processes([pid for pid, _start in members[1:]])
    env = None if shown is None else _environment(shown.pid)
    maps = b"" if shown is None else _maps(shown.pid)
    is_alone = env is not None and not _OF_WORLD & dict(env).keys() and _HOROVOD in maps
    return SeenRank(
        rank,
        "",
        world_size=1 if is_alone else None,
        world_source=_ALONE if is_alone else "",
        env=None if env is None else tuple(pair for pair in env if pair[0] in variables),
        sockets=None if told.unknown else told.between,
        libraries=() if shown is None else _libraries(shown.pid, maps),
    )


def _maps(pid: int) -> bytes:
    """Return the files that a process has mapped, among all that its memory consists of."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # it gives a page at a time
            return file.read(_MOST_MAPS)
    except OSError:  # it is gone
        return b""


def _libraries(pid: int, maps: bytes) -> Tuple[Tuple[str, str], ...]:
    """Return the libraries of `_LIBRARY` with their versions, or their sizes where a version of one number is no version."""
    found: Dict[str, str] = {}
    for path, name, version in set(_LIBRARY.findall(maps)):
        text = version.decode("ascii").lstrip(".")
        if "." not in text:
            try:
                text = f"{os.stat(f'/proc/{pid}/root'.encode() + path).st_size} bytes"  # noqa: PTH116 - a path of bytes
            except OSError:
                continue
        found[name.decode("ascii")] = text
    return tuple(sorted(found.items()))


def _environment(pid: int) -> Optional[Tuple[Tuple[str, str], ...]]:
    """Return the variables that a process was started with; None where that cannot be read."""
    try:
        entries = processes.environment(pid, os.geteuid())
    except OSError:  # it is gone
        return None
    if not entries or not any(entries):  # another user's, or overwritten with a title
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    told = ((name, value[:_MOST_VALUE]) for name, _equals, value in pairs)
    return tuple(sorted(told))
