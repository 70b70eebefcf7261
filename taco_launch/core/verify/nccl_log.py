"""NCCL's log, line by line, as facts of each process that wrote it; limited in all that a log could make grow."""

import re
from dataclasses import replace
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from taco_launch.core.model.run.observed import NcclCommunicator, NcclConnection, NcclHca, NcclLog, NcclProcess
from taco_launch.core.verify.nccl_lines import NcclLine, devices, read

MOST_CHARACTERS = 32 << 20
MOST_PROCESSES = 16384
_MOST_CONNECTIONS, _MOST_COMMUNICATORS, _MOST_WARNINGS, _MOST_ENV = 4096, 1024, 20, 200
_HCA = re.compile(r"([\w.-]{1,64}):(\d{1,3})/(\w{1,16})(?:[/:][\w:/-]*)?")


class _Process:
    """One process while its lines come."""

    def __init__(self, host: str, pid: int) -> None:
        self.told = NcclProcess(host, pid)
        self.communicators: Dict[Tuple[int, int, int, str, str], bool] = {}
        self.connections: Dict[NcclConnection, None] = {}
        self.gdr: Dict[str, bool] = {}
        self.env: Dict[str, str] = {}
        self.warnings: List[str] = []
        self.gids: Set[int] = set()

    def facts(self) -> NcclProcess:
        communicators = tuple(
            NcclCommunicator(ranks, rank, device, bus_id, comm_id, complete)
            for (ranks, rank, device, bus_id, comm_id), complete in self.communicators.items()
        )
        return replace(
            self.told,
            communicators=communicators,
            connections=tuple(self.connections),
            gdr_of_hca=tuple(self.gdr.items()),
            gid_indices=tuple(sorted(self.gids)),
            env=tuple(self.env.items()),
            warnings=tuple(self.warnings),
        )


class NcclReader:
    """Reads a log piece by piece; what it knows so far is `log()`."""

    def __init__(self, host: str = "") -> None:
        """Know nothing yet; `host` is the name of the host that the log was written on, where that is known better than to NCCL."""
        self._host = host
        self._processes: Dict[Tuple[str, int], _Process] = {}
        self._rest = ""
        self._torn = 0
        self._cut = False
        self._characters = 0
        self._version = ""

    def feed(self, text: str) -> None:
        """Read more; the end of it may lie within a line."""
        left = MOST_CHARACTERS - self._characters
        if len(text) > left:
            text, self._cut = text[: max(0, left)], True
        self._characters += len(text)
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._line(line.rstrip("\r"))
        if len(self._rest) > 1 << 20:  # no line is as long
            self._rest, self._torn = "", self._torn + 1

    def log(self) -> NcclLog:
        """Return what is known; a last line without an end is not read before `finish`."""
        processes = tuple(process.facts() for process in self._processes.values())
        # Before 2.18 the version stands without a prefix, printed by one process of each communicator.
        if self._version:
            processes = tuple(replace(one, version=one.version or self._version) for one in processes)
        return NcclLog(processes, self._torn, self._cut)

    def finish(self) -> None:
        """Read what is left, a last line without an end, as far as it cannot lack something."""
        rest, self._rest = self._rest, ""
        self._line(rest, ends=False)

    def _line(self, text: str, ends: bool = True) -> None:
        for line in read(text, ends):
            self._torn += line.torn
            if line.kind == "version" and not line.host:
                self._version = self._version or line.values[0]
            elif line.host:
                process = self._process(line)
                if process is not None and line.kind:
                    _take(process, line)

    def _process(self, line: NcclLine) -> Optional[_Process]:
        host = self._host or line.host
        key = (host, line.pid)
        found = self._processes.get(key)
        if found is None:
            if len(self._processes) >= MOST_PROCESSES:
                self._cut = True
                return None
            found = self._processes[key] = _Process(host, line.pid)
        return found


def parse(text: str) -> NcclLog:
    """Read a whole log."""
    reader = NcclReader()
    reader.feed(text)
    reader.finish()
    return reader.log()


def together(logs: Iterable[NcclLog]) -> NcclLog:
    """Return several logs as one: those of all ranks."""
    found = list(logs)
    processes = tuple(process for log in found for process in log.processes)
    return NcclLog(processes, sum(log.torn for log in found), any(log.cut for log in found))


def _take(process: _Process, line: NcclLine) -> None:
    _TAKEN[line.kind](process, line.values)


def _network(process: _Process, values: Tuple[str, ...]) -> None:
    source, target, direction, name, device, gdr = values
    _connect(
        process,
        NcclConnection(int(source), int(target), transport_name(name), direction, int(device), bool(gdr)),
    )


def _local(process: _Process, values: Tuple[str, ...]) -> None:
    source, target, name, detail = values
    _connect(process, NcclConnection(int(source), int(target), name, detail=detail))


def _collnet(process: _Process, values: Tuple[str, ...]) -> None:
    rank, direction, _name, device, gdr = values
    _connect(process, NcclConnection(int(rank), int(rank), "COLLNET", direction, int(device), bool(gdr)))


def _connect(process: _Process, connection: NcclConnection) -> None:
    if len(process.connections) < _MOST_CONNECTIONS:
        process.connections[connection] = None


def _communicator(process: _Process, values: Tuple[str, ...]) -> None:
    rank, ranks, device, bus_id, comm_id, stage = values
    key = (int(ranks), int(rank), int(device), bus_id, comm_id)
    if key in process.communicators or len(process.communicators) < _MOST_COMMUNICATORS:
        process.communicators[key] = process.communicators.get(key, False) or stage.endswith("COMPLETE")


def _member(process: _Process, values: Tuple[str, ...]) -> None:
    rank, ranks = int(values[0]), int(values[1])
    if not any(key[:2] == (ranks, rank) for key in process.communicators):
        process.communicators[(ranks, rank, -1, "", "")] = False


def _too_far(process: _Process, values: Tuple[str, ...]) -> None:
    process.told = replace(process.told, too_far=process.told.too_far or values[0].strip("()"))


def _hcas(process: _Process, values: Tuple[str, ...]) -> None:
    listed, oob = values
    found = []
    for index, item in devices(listed).items():
        # Merged ports of 2.20 to 2.26 are one device of several: mlx5_0:1+mlx5_1:1/RoCE.
        name, _, layer = item.partition("/")
        for part in name.split("+"):
            match = _HCA.fullmatch(f"{part}/{layer}")
            if match is not None:
                found.append(NcclHca(index, match[1], int(match[2]), match[3]))
    process.told = replace(process.told, hcas=tuple(found), oob=oob.partition(":")[0], no_ib="")


def _sockets(process: _Process, values: Tuple[str, ...]) -> None:
    names = tuple(item.partition(":")[0] for item in devices(values[0]).values())
    process.told = replace(process.told, interfaces=names)


def _bootstrap(process: _Process, values: Tuple[str, ...]) -> None:
    first = values[0].split()[0].rpartition("]")[2]
    process.told = replace(process.told, bootstrap=first.partition(":")[0])


def _gdr(process: _Process, values: Tuple[str, ...]) -> None:
    state, _index, name = values
    if name in process.gdr or len(process.gdr) < _MOST_ENV:
        process.gdr[name] = state == "Enabled"


def _gdr_old(process: _Process, values: Tuple[str, ...]) -> None:
    _gdr(process, ("Disabled", *values))


def _gid(process: _Process, values: Tuple[str, ...]) -> None:
    if len(process.gids) < _MOST_ENV:
        process.gids.add(int(values[0]))


def _env(process: _Process, values: Tuple[str, ...]) -> None:
    name, value = values
    if name in process.env or len(process.env) < _MOST_ENV:
        process.env[name] = value


def _warning(process: _Process, values: Tuple[str, ...]) -> None:
    if len(process.warnings) < _MOST_WARNINGS and values[0] not in process.warnings:
        process.warnings.append(values[0])


def _told(**fields: object) -> Callable[[_Process, Tuple[str, ...]], None]:
    def take(process: _Process, _values: Tuple[str, ...]) -> None:
        process.told = replace(process.told, **fields)  # type: ignore[arg-type]

    return take


def _named(field: str, values_too: bool = False) -> Callable[[_Process, Tuple[str, ...]], None]:
    def take(process: _Process, values: Tuple[str, ...]) -> None:
        value = transport_name(values[0]) if values_too else values[0]
        process.told = replace(process.told, **{field: value})  # type: ignore[arg-type]

    return take


def transport_name(name: str) -> str:
    """Return the name of a network as the plan has it.

    What libfabric carries is OFI, IBext (of HPC-X) is InfiniBand and FastSocket (of Google's) TCP.
    """
    if "Libfabric" in name or name == "OFI":
        return "OFI"
    if name == "FastSocket":
        return "Socket"
    return "IB" if name.startswith("IB") else name


_TAKEN: Mapping[str, Callable[[_Process, Tuple[str, ...]], None]] = {
    "network": _network,
    "local": _local,
    "collnet": _collnet,
    "communicator": _communicator,
    "chosen": _named("network", values_too=True),
    "chosen_old": _named("network", values_too=True),
    "plugin": _named("plugin"),
    "plugin_none": _told(plugin=""),
    "member": _member,
    "too_far": _too_far,
    "hcas": _hcas,
    "no_ib": _told(no_ib="No device found"),
    "sockets": _sockets,
    "bootstrap": _bootstrap,
    "gdr": _gdr,
    "gdr_old": _gdr_old,
    "gid": _gid,
    "env": _env,
    "nvls": _told(nvls=True),
    "nvls_not": _told(nvls=False),
    "rings": _told(rings=True),
    "version": _named("version"),
    "warning": _warning,
}
