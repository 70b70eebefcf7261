"""Reads RDMA: the HCAs of /sys/class/infiniband with ports and GIDs, OFED, the devices programs open."""

import re
from typing import Callable, List, Mapping, Sequence, Tuple

from taco_launch.core.facts.rdma.hcas import HcaStatement, build, gid_text, gid_type, in_use
from taco_launch.core.facts.rdma.peermem import parse_peer_memory, read_modules
from taco_launch.core.facts.system.pci import parse_pci
from taco_launch.core.facts.text.sections import Sections, failure, unasked
from taco_launch.core.facts.text.strip_terminal import lines, plain, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.hardware import Adapters, Hca, PciDevice, Rdma

# ofed_info -s: MLNX_OFED_LINUX-5.4-1.0.3.0: ; the first line of ofed_info: MLNX_OFED_LINUX-4.4-1.0.0.0 (OFED-4.4-1.0.0):
OFED = re.compile(
    r"^([A-Za-z][\w.-]{0,60}-[0-9][\w.-]{0,40})(?: \(OFED-[0-9][\w.-]{0,40}\))?:$", re.ASCII | re.MULTILINE
)
SYSFS = "/sys/class/infiniband"
_OWN = {"node_guid": "guid", "hca_type": "type", "fw_ver": "firmware"}
_PORT = {"state": "state", "phys_state": "physical", "link_layer": "link_layer", "rate": "rate"}
_SLOT = {"gids": "gid", "gid_attrs/types": "type", "gid_attrs/ndevs": "netdev"}
_FILE = re.compile(
    rf"(?:.*/)?([^/]+)/(?:({'|'.join(_OWN)})|ports/([0-9]+)/(?:({'|'.join(_PORT)})|({'|'.join(_SLOT)})/([0-9]+)))"
)
_STATES = ("ACTIVE", "DOWN", "INIT", "ARMED")


def parse_rdma(sections: Sections) -> Found[Rdma]:
    """Read the probe's sections rdma.*; each that failed is Unknown by itself.

    `hcas` is Absent where the kernel has no RDMA device.
    """
    missing = unasked(sections, "rdma")
    if missing is not None:
        return missing
    modules: Found[Tuple[str, ...]] = failure(sections, "rdma.modules") or read_modules(sections["rdma.modules"].stdout)
    devices: Found[Tuple[str, ...]] = failure(sections, "rdma.devices") or tuple(
        line.strip() for line in lines(sections["rdma.devices"].stdout) if line.strip()
    )
    return Rdma(
        hcas=_hcas(sections),
        ofed=failure(sections, "rdma.ofed") or ofed(sections["rdma.ofed"].stdout),
        peer_memory=parse_peer_memory(sections, modules),
        modules=modules,
        devices=devices,
        adapters=_adapters(sections),
    )


def _adapters(sections: Sections) -> Found[Adapters]:
    """Read the probe's sections rdma.adapters and rdma.mlx5_core."""
    missing = failure(sections, "rdma.adapters")
    if missing is not None:
        return missing
    told = [line.partition(" ")[::2] for line in lines(sections["rdma.adapters"].stdout) if line.strip()]
    found = tuple(value for word, value in told if word == "adapter")
    if not found:
        return Absent("there is no PCI device that uses the mlx5 driver")
    loaded = next((value.strip() or "untold" for word, value in told if word == "loaded"), None)
    installed = failure(sections, "rdma.mlx5_core")
    if isinstance(installed, Unknown) and re.search(
        r"(?i)module (?:alias |name )?'?mlx5_core'? not found", installed.reason
    ):
        installed = Absent(installed.reason)
    return Adapters(
        found,
        Absent("mlx5_core is not loaded") if loaded is None else loaded,
        installed or sections["rdma.mlx5_core"].stdout.strip() or "untold",
    )


def _hcas(sections: Sections) -> Found[Tuple[Hca, ...]]:
    missing = failure(sections, "rdma.sysfs")
    if missing is not None:
        return missing
    files: List[Tuple[str, str]] = []
    for number, line in enumerate(lines(sections["rdma.sysfs"].stdout), 1):
        path, colon, content = line.partition(":")
        if line.strip() and not (colon and read_file(path, content)):
            return Unknown(f"{SYSFS}, line {number}: {shown(line)} is not understood")
        if line.strip():
            files.append((path, content))
    seen = [one for path, content in files for one in read_file(path, content)]
    seen += [HcaStatement(hca, port, None, "gids", True, "sysfs") for hca, port in _ports(seen)]
    for line in lines(sections["rdma.sysfs"].stderr):
        refused = re.search(rf"({SYSFS}/[^\s*]+): ", line)
        seen += read_file(refused[1], Unknown(line)) if refused else []
    seen += _netdevs(sections, _names(seen)) + located(parse_pci(sections), _names(seen))
    return build(seen) or Absent(f"{SYSFS} holds no device")


def read_file(path: str, content: Found[str]) -> List[HcaStatement]:
    """Return what one file of /sys/class/infiniband says; nothing where it is not one of those that are read.

    `content` is Unknown where it could not be read.
    """
    match = _FILE.fullmatch(path)
    if match is None:
        return []
    hca, own, port, about, table, slot = match.groups()
    what = _OWN.get(own) or _PORT.get(about) or _SLOT[table]
    value: Found[object] = content
    if isinstance(content, str):
        read = gid_type if slot and what == "type" else _READERS[what]
        value = read(content.strip())
    number = int(port) if port else None
    if not slot:
        return [HcaStatement(hca, number, None, what, value, "sysfs")]
    if what == "gid" and isinstance(value, str) and not in_use(value):
        return [HcaStatement(hca, number, None, "gids", True, "sysfs")]
    return [HcaStatement(hca, number, int(slot), what, value, "sysfs")]


def located(devices: Found[Tuple[PciDevice, ...]], names: Sequence[str]) -> List[HcaStatement]:
    """Return PCI address and NUMA node of the named HCAs."""
    if not isinstance(devices, tuple):
        return [HcaStatement(name, None, None, what, devices, "sysfs") for name in names for what in ("pci", "numa")]
    found: List[HcaStatement] = []
    for device in devices:
        if device.kind == "hca" and device.name in names:
            numa: Found[int] = Absent("the platform names no node") if device.numa is None else device.numa
            found.append(HcaStatement(device.name, None, None, "pci", device.address, "sysfs"))
            found.append(HcaStatement(device.name, None, None, "numa", numa, "sysfs"))
    return found


def ofed(text: str) -> Found[str]:
    """Read `ofed_info -s` (`MLNX_OFED_LINUX-5.4-1.0.3.0:`), or the first line of `ofed_info`."""
    found = OFED.search(plain(text))
    return found[1] if found else Unknown(f"ofed_info -s: {shown(text.strip())}")


def _state(text: str) -> Found[str]:
    match = re.fullmatch(r"[0-9]+: ([A-Z_]+)", text)
    return match[1] if match and match[1] in _STATES else Unknown(f"state {shown(text)}")


def _physical(text: str) -> Found[str]:
    match = re.fullmatch(r"[0-9]+: ([A-Za-z ]+)", text)
    return match[1] if match else Unknown(f"phys_state {shown(text)}")


def _rate(text: str) -> Found[float]:
    match = re.fullmatch(r"([0-9]{1,5}(?:\.[0-9])?) Gb/sec(?: \([0-9]+X [A-Z0-9]+\)| \([0-9]+X\))?", text)
    return float(match[1]) if match else Unknown(f"rate {shown(text)}")


def _link_layer(text: str) -> Found[str]:
    return text if text in ("InfiniBand", "Ethernet") else Unknown(f"link_layer {shown(text)}")


def _gid(text: str) -> Found[str]:
    whole = re.fullmatch("[0-9a-f]{4}(?::[0-9a-f]{4}){7}", text)
    return (gid_text(text) if whole else None) or Unknown(f"{shown(text)} is no GID")


def _word(text: str) -> Found[str]:
    return text if re.fullmatch(r"[\w.:@+-]+", text, re.ASCII) else Unknown(f"{shown(text)} is not understood")


_READERS: Mapping[str, Callable[[str], Found[object]]] = {
    "guid": _word,
    "type": _word,
    "firmware": _word,
    "netdev": _word,
    "state": _state,
    "physical": _physical,
    "link_layer": _link_layer,
    "rate": _rate,
    "gid": _gid,
}


def _names(seen: Sequence[HcaStatement]) -> List[str]:
    return list(dict.fromkeys(one.hca for one in seen))


def _ports(seen: Sequence[HcaStatement]) -> List[Tuple[str, int]]:
    return list(dict.fromkeys((one.hca, one.port) for one in seen if one.port is not None))


def _netdevs(sections: Sections, names: Sequence[str]) -> List[HcaStatement]:
    """Return the interfaces of the named HCAs: those of their PCI devices; an HCA that is not listed has none."""
    missing = failure(sections, "rdma.netdevs")
    found = [HcaStatement(name, None, None, "interfaces", missing or (), "sysfs") for name in names]
    if missing is not None:
        return found
    for line in lines(sections["rdma.netdevs"].stdout):
        words = line.split()
        if len(words) == 2 and words[0] in names:
            found.append(HcaStatement(words[0], None, None, "interface", words[1], "sysfs"))
    return found
