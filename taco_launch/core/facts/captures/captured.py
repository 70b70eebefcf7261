"""Reads captured outputs into facts of hosts: which files belong to which host, and what they say together."""

import posixpath
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.facts.captures.recognise import Capture, no_text, recognise
from taco_launch.core.facts.gpus import gpu
from taco_launch.core.facts.parse import parse
from taco_launch.core.facts.rdma import hcas, peermem, rdma
from taco_launch.core.facts.rdma.hcas import HcaStatement
from taco_launch.core.facts.rdma.verbs import conflict
from taco_launch.core.facts.text import sections
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown, not_told
from taco_launch.core.model.host.facts import HostFacts, System
from taco_launch.core.model.host.hardware import Driver, GpuProcess, Gpus, Hca, PeerMemory, Rdma, Topology

_NOT_SAID = not_told("no captured output shows it")
# a device's folder in a copy of /sys/class/infiniband, and the file by which it is known
_DEVICE = re.compile(
    r"((?:.*/)?[^/]+)/(?:ports/[0-9]+/[a-z_]+|ports/[0-9]+/(?:gids|gid_attrs)/.*|node_guid|hca_type|fw_ver)"
)
_INTERFACE = re.compile(r".*/device/net/([^/]+)/.*")
_SYSFS_FOLDERS = re.compile(r"sys|class|.*infiniband.*")


def read(files: Sequence[Tuple[str, bytes]]) -> Tuple[HostFacts, ...]:
    """Read captured outputs, given as (path, content), into the facts of hosts.

    The files of one folder are one host, called like the folder (`captured` where there is none); what two of them say
    differently is Unknown. A saved answer of the probe is a host by itself. A copy of /sys/class/infiniband belongs to
    the host in whose folder it lies, and is one where nothing else lies there. `recognise` tells which outputs are
    known. Nothing raises: a file that nothing can be made of stands in `unread`, with a reason.
    """
    devices = {match[1] for match in (_DEVICE.fullmatch(path) for path, _ in files) if match}
    hosts: Dict[str, List[Tuple[str, bytes]]] = {}
    copies: Dict[str, List[HcaStatement]] = {}
    for path, content in files:
        device = next((above for above in _above(path) if above in devices), None)
        if device is None:
            hosts.setdefault(posixpath.dirname(path), []).append((path, content))
        else:
            copies.setdefault(_owner(device), []).extend(_sysfs(path, device, content))
    found: List[HostFacts] = []
    for folder in sorted({*hosts, *copies}, key=hcas.natural):
        name = posixpath.basename(folder) or "captured"
        found += _hosts(name, hosts.get(folder, []), copies.get(folder, []))
    return tuple(found)


def understood(facts: HostFacts) -> bool:
    """Return whether anything at all is known of the host."""
    return any(_known(getattr(facts, subject)) for subject in SUBJECTS)


def _known(value: Any) -> bool:
    if isinstance(value, (Absent, Unknown)) or value is None:
        return False
    if isinstance(value, tuple):
        return not value or any(map(_known, value))
    if is_dataclass(value):
        return any(_known(getattr(value, entry.name)) for entry in fields(value) if entry.name != "lost")
    return value not in ("", 0, False)


def _above(path: str) -> List[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _owner(device: str) -> str:
    """Return the folder of the host that a copy of sysfs belongs to."""
    folder = posixpath.dirname(device)
    while folder and _SYSFS_FOLDERS.fullmatch(posixpath.basename(folder)):
        folder = posixpath.dirname(folder)
    return folder


def _sysfs(path: str, device: str, content: bytes) -> List[HcaStatement]:
    name = posixpath.basename(device)
    interface = _INTERFACE.fullmatch(path)
    text = content.decode("utf-8", "backslashreplace").strip()
    if interface:
        return [HcaStatement(name, None, None, "interface", interface[1], "sysfs")]
    if path == f"{device}/device/numa_node" and re.fullmatch("[0-9]{1,4}", text):
        return [HcaStatement(name, None, None, "numa", int(text), "sysfs")]
    return rdma.read_file(path, text)


def _hosts(name: str, files: Sequence[Tuple[str, bytes]], copy: Sequence[HcaStatement]) -> List[HostFacts]:
    """Return the host of a folder, and one for each answer of the probe in it."""
    found: List[HostFacts] = []
    captures: List[Tuple[str, Capture]] = []
    for path, content in files:
        foreign = no_text(content)
        if sections.read(content):
            found.append(_probed(path, content))
        elif foreign:
            captures.append((path, Capture("", Unknown(foreign))))
        else:
            captures += [(path, capture) for capture in recognise(content.decode("utf-8", "backslashreplace"))]
    if captures or copy or not found:
        found.insert(0, _host(name, captures, copy))
    return found


def _probed(path: str, content: bytes) -> HostFacts:
    stem = posixpath.basename(path).partition(".")[0] or "captured"
    facts = parse(stem, content, 0.0, 0.0)
    if not isinstance(facts.system, System):
        return facts
    when = not_told("the capture does not show when it was made")
    system = replace(facts.system, clock_offset=when, clock_error=when)
    name = facts.system.hostname
    return replace(facts, host=name if isinstance(name, str) and name else stem, system=system)


class _Collected:
    """The captures of one host by kind: what is known, and why the others are not."""

    def __init__(self, captures: Sequence[Tuple[str, Capture]]) -> None:
        self.captures = captures
        self.unread: List[Tuple[str, str]] = [
            (path, str(capture.value.reason))
            for path, capture in captures
            if capture.kind == "" and isinstance(capture.value, Unknown)
        ]

    def all(self, kind: str) -> List[Any]:
        """Return all values of a kind; where there are any, those that are not understood become unread files."""
        mine = [(path, capture.value) for path, capture in self.captures if capture.kind == kind]
        known = [value for _, value in mine if not isinstance(value, (Absent, Unknown))]
        if known:
            self.unread += [(path, value.reason) for path, value in mine if isinstance(value, (Absent, Unknown))]
        return known or [value for _, value in mine]

    def one(self, kind: str) -> Any:
        """Return the value of a kind: Unknown where captures differ, or where there is none."""
        found = self.all(kind)
        if any(value != found[0] for value in found[1:]):
            return Unknown(f"there are {len(found)} captures of {kind}, and they differ")
        return found[0] if found else NOT_ASKED


def _host(name: str, captures: Sequence[Tuple[str, Capture]], copy: Sequence[HcaStatement]) -> HostFacts:
    collected = _Collected(captures)
    topology: Found[Topology] = collected.one("topo -m")
    facts = HostFacts(
        host=name,
        system=NOT_ASKED,
        network=NOT_ASKED,
        docker=NOT_ASKED,
        gpu=_gpu(collected),
        topology=topology,
        rdma=_rdma(collected, copy),
        image=NOT_ASKED,
    )
    return replace(facts, unread=tuple(dict.fromkeys(collected.unread)))


def _gpu(collected: _Collected) -> Found[Gpus]:
    kinds = ("--query-gpu", "-q -x", "-L", "--query-compute-apps", "driver", "cuda", "refusal")
    query, xml, listed, processes, driver, cuda, refusal = (collected.one(kind) for kind in kinds)
    if all(part == NOT_ASKED for part in (query, xml, listed, processes, driver, cuda, refusal)):
        return NOT_ASKED
    found: Found[gpu.QueriedGpus] = query
    if isinstance(xml, Gpus):
        told = gpu.QueriedGpus(xml.gpus, xml.lost, xml.driver.loaded)
        found = told if not isinstance(query, gpu.QueriedGpus) else _same(query, told)
        cuda = xml.driver.cuda if cuda == NOT_ASKED else cuda
        processes = xml.processes if processes == NOT_ASKED else processes
    elif found == NOT_ASKED and not isinstance(listed, gpu.ListedGpus):
        found = xml if xml != NOT_ASKED else refusal
    for kind, value in (("--query-gpu", query), ("-q -x", xml), ("-L", listed), ("--query-compute-apps", processes)):
        if (
            isinstance(value, Unknown)
            and value != NOT_ASKED
            and (isinstance(found, gpu.QueriedGpus) or isinstance(listed, gpu.ListedGpus))
        ):
            collected.unread.append((f"nvidia-smi {kind}", value.reason))
    if driver == NOT_ASKED and isinstance(found, gpu.QueriedGpus):
        driver = found.driver
    whole = Driver(driver, _NOT_SAID, cuda, _NOT_SAID, _NOT_SAID)
    apps: Found[Tuple[GpuProcess, ...]] = processes
    return gpu.assemble(whole, found, listed, apps)


def _same(one: gpu.QueriedGpus, other: gpu.QueriedGpus) -> Found[gpu.QueriedGpus]:
    """Return the first of two where they tell of the same GPUs."""
    if not isinstance(one.gpus, tuple) or not isinstance(other.gpus, tuple):
        return one if isinstance(one.gpus, tuple) else other
    mine, theirs = (
        [(gpu.index, gpu.pci) for gpu in gpus if isinstance(gpu.pci, str)] for gpus in (one.gpus, other.gpus)
    )
    return Unknown("--query-gpu and -q -x describe different GPUs") if mine and theirs and mine != theirs else one


def _of_one_host(collected: _Collected, kind: str) -> List[Any]:
    """Return what a tool said of HCAs; Unknown in its place where two captures cannot be of one host.

    show_gids and ibdev2netdev name every device; ibv_devinfo -d one of them.
    """
    found = collected.all(kind)
    known = [value for value in found if isinstance(value, tuple)]
    differ = any(value != known[0] for value in known[1:])
    if differ and (
        kind not in ("ibv_devinfo", "ibstat") or conflict([one for value in known for one in value]) is not None
    ):
        return [Unknown(f"there are {len(known)} captures of {kind}, and they differ")]
    return found


def _rdma(collected: _Collected, copy: Sequence[HcaStatement]) -> Found[Rdma]:
    told = [
        (kind, value)
        for kind in ("show_gids", "ibdev2netdev", "ibv_devinfo", "ibstat")
        for value in _of_one_host(collected, kind)
    ]
    tools = [value for _kind, value in told]
    modules: Found[Tuple[str, ...]] = collected.one("lsmod")
    ofed = collected.one("ofed_info")
    why_not = Unknown("; ".join(value.reason for value in collected.all("modprobe")))
    seen = [*copy, *(one for value in tools if isinstance(value, tuple) for one in value)]
    refused: Optional[Unknown] = next((value for value in tools if isinstance(value, Unknown)), None)
    if not seen and refused is None and all(part == NOT_ASKED for part in (modules, ofed)) and not why_not.reason:
        return NOT_ASKED
    found: Found[Tuple[Hca, ...]] = hcas.build(seen) or refused or NOT_ASKED
    if seen and refused is not None:  # another tool told of the HCAs
        collected.unread += [(kind, value.reason) for kind, value in told if isinstance(value, Unknown)]
    loaded = peermem.loaded(modules)
    if why_not.reason and not isinstance(loaded, str):
        loaded = why_not
    peer_memory = PeerMemory(_NOT_SAID, loaded, _NOT_SAID, _NOT_SAID, _NOT_SAID)
    return Rdma(found, ofed, peer_memory, modules, _NOT_SAID)
