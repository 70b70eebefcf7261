"""Reads the RDMA tools' text: show_gids, ibdev2netdev (also -v), ibv_devinfo (also -v)."""

import ipaddress
import re
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

from taco_launch.core.facts.rdma.hcas import HcaStatement, gid_text, gid_type, in_use
from taco_launch.core.facts.text.strip_terminal import PROMPT, plain, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown

_NAME = r"[A-Za-z][\w.-]*"
_SHOW_GIDS = re.compile(
    rf"({_NAME})\s+([0-9]+)\s+([0-9]+)\s+([0-9a-f:]{{39}})(?:\s+([0-9.]+))?\s+(v1|v2)(?:\s+(\S+))?\s*", re.ASCII
)
_SHOW_GIDS_HEADER = re.compile(r"DEV\s+PORT\s+INDEX\s+GID\s+IPv4\s+VER\s+DEV\s*")
# Blanks in a row are more than one after `| column -t`.
_NETDEV = re.compile(rf"({_NAME}) +port +([0-9]+) +==> +(\S*) *\((Up|Down)\)\s*(?:#.*)?", re.ASCII)
_NETDEV_V = re.compile(
    rf"([0-9a-f]{{4,8}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]) ({_NAME}) \((MT[0-9]+) - .*\) .*fw ([0-9.]+) +"
    r"port ([0-9]+) \((ACTIVE|DOWN|INIT|ARMED) *\) +==> (\S*) ?\((Up|Down)\)\s*",
    re.ASCII,
)
_DEVINFO = re.compile(r"\s*([a-z_]+|GID\[ *[0-9]+\]):\s+(\S.*?)\s*")
# The vendor of EFA, whose ports older drivers say to be InfiniBand's (rdma-core, pyverbs; linux, drivers/infiniband/hw/efa).
_AMAZON = "0x1d0f"
EFA = Absent("EFA, which NCCL uses through libfabric (aws-ofi-nccl) and not by NCCL_IB_*")
_STATES = ("ACTIVE", "DOWN", "INIT", "ARMED")
_PHYSICAL = {
    "SLEEP": "Sleep",
    "POLLING": "Polling",
    "DISABLED": "Disabled",
    "PORT_CONFIGURATION_TRAINNING": "PortConfigurationTraining",  # libibverbs spells it so
    "LINK_UP": "LinkUp",
    "LINK_ERROR_RECOVERY": "LinkErrorRecovery",
    "PHY_TEST": "Phy Test",
}


def show_gids(text: str) -> Union[Tuple[HcaStatement, ...], Unknown]:
    """Read show_gids: every GID in use with its type and interface."""
    seen: List[HcaStatement] = []
    rows = plain(text).split("\n")
    among = False
    for number, row in enumerate(rows, 1):
        match = _SHOW_GIDS.fullmatch(row)
        if _SHOW_GIDS_HEADER.fullmatch(row) or (among and re.fullmatch(r"[-\s]+", row) and "-" in row):
            among = True
        elif match:
            among = True
            slot = _slot(match, cut=number == len(rows))
            if slot is None:
                return Unknown(f"line {number}: {shown(row)}: the address does not match the GID")
            seen += slot
        elif not row.strip() or row.startswith("n_gids_found=") or PROMPT.match(row):
            among = False
        elif among or re.search(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}", row):
            return Unknown(f"line {number}: {shown(row)} is not a row of show_gids")
    if not seen and any(row.strip() == "n_gids_found=0" for row in rows):
        return Unknown("show_gids found no GID (n_gids_found=0): it saw no RDMA interface where it ran")
    return _agreeing(seen, "show_gids") or Unknown("no row of show_gids (DEV PORT INDEX GID IPv4 VER DEV) is there")


def _agreeing(seen: Sequence[HcaStatement], source: str) -> Union[Tuple[HcaStatement, ...], Unknown]:
    """Return what was seen; Unknown where one port is said to be two different things, as by two hosts."""
    other = conflict(seen)
    if other is None:
        return tuple(seen)
    where = other.hca if other.port is None else f"{other.hca} port {other.port}"
    return Unknown(
        f"{source} shows two different values for {where}: is it from several hosts? Use one file for each host"
    )


def conflict(seen: Sequence[HcaStatement]) -> Optional[HcaStatement]:
    """Return the first statement that another one contradicts; an HCA of two ports may have two interfaces."""
    known: Dict[Tuple[str, Optional[int], Optional[int], str], HcaStatement] = {}
    for one in seen:
        if one.what == "interface":
            continue
        before = known.setdefault((one.hca, one.port, one.slot, one.what), one)
        if before.value != one.value and not isinstance(one.value, Unknown):
            return one
    return None


def _slot(match: "re.Match[str]", *, cut: bool) -> Optional[List[HcaStatement]]:
    hca, port, slot, gid, address, version, netdev = match.groups()
    full = gid_text(gid) or ""
    mapped = ipaddress.IPv6Address(full).ipv4_mapped if full else None
    if not full or (address is not None and str(mapped) != address):
        return None
    if not in_use(full):
        return [HcaStatement(hca, int(port), None, "gids", True, "show_gids")]
    interface: Found[str] = netdev or Absent("show_gids shows no interface")
    if cut:
        interface = Unknown("the last row has no line end: it may be cut off")
    told: Dict[str, Found[str]] = {"netdev": interface, "type": gid_type(version), "gid": full}
    return [HcaStatement(hca, int(port), int(slot), what, value, "show_gids") for what, value in told.items()]


def ibdev2netdev(text: str) -> Union[Tuple[HcaStatement, ...], Unknown]:
    """Read ibdev2netdev: the interface of each port; with -v also PCI address, firmware and state."""
    return _rows(text, "ibdev2netdev", _netdev)


def _netdev(row: str) -> Optional[List[HcaStatement]]:
    seen: List[HcaStatement] = []
    match, long = _NETDEV.fullmatch(row), _NETDEV_V.fullmatch(row)
    if match:
        hca, port, interface = match[1], int(match[2]), match[3]
        # of the interface, not of the port: an interface that is set down leaves its port ACTIVE
        state = Unknown(f"ibdev2netdev shows only that the interface is {match[4]}")
        seen.append(HcaStatement(hca, port, None, "state", state, "ibdev2netdev"))
    elif long:
        hca, port, interface = long[2], int(long[5]), long[7]
        own = {"pci": long[1].zfill(12)[-12:] if len(long[1]) <= 12 else long[1], "type": long[3], "firmware": long[4]}
        seen += [HcaStatement(hca, None, None, what, value, "ibdev2netdev") for what, value in own.items()]
        seen.append(HcaStatement(hca, port, None, "state", long[6], "ibdev2netdev"))
    else:
        return None
    if interface:
        seen.append(HcaStatement(hca, None, None, "interface", interface, "ibdev2netdev"))
    return seen


def _rows(
    text: str, source: str, read: Callable[[str], Optional[List[HcaStatement]]]
) -> Union[Tuple[HcaStatement, ...], Unknown]:
    """Read row after row; a line that follows a row has to be one, a blank line or a prompt."""
    seen: List[HcaStatement] = []
    among = False
    known: Dict[Tuple[str, Optional[int]], List[HcaStatement]] = {}
    for number, row in enumerate(plain(text).split("\n"), 1):
        found = read(row)
        if found is not None:
            port = next((one.hca, one.port) for one in found if one.port is not None)
            if known.setdefault(port, found) != found:
                return Unknown(f"line {number}: {shown(row)}: {source} shows two different values for that port")
            seen += found
        elif row.strip() and (among or "==>" in row) and not PROMPT.match(row):
            return Unknown(f"line {number}: {shown(row)} is not a row of {source}")
        among = found is not None
    return _agreeing(seen, source) or Unknown(f"no row of {source} is there")


def ibv_devinfo(text: str) -> Union[Tuple[HcaStatement, ...], Unknown]:
    """Read ibv_devinfo: devices and ports, with -v also the GID tables.

    A part of the output that does not name the device has its GIDs under the name "" and port 0. Where others are named,
    or are whole, a device that is not is cut off, and the output is not read.
    """
    return _cut(plain(text)) or _devices(text)


def _devices(text: str) -> Union[Tuple[HcaStatement, ...], Unknown]:
    seen: List[HcaStatement] = []
    hca, port, verbose = "", 0, "GID[" in text
    efa = set()
    width = ""
    rows = plain(text).split("\n")
    for number, row in enumerate(rows, 1):
        match = _DEVINFO.fullmatch(row)
        if number == len(rows) and row.strip():
            # the rest of this value, and what comes after it, may be missing
            seen.append(
                HcaStatement(hca, port, None, "gids", Unknown("the last line has no line end: cut off"), "ibv_devinfo")
            )
            break
        if match is None:
            if "GID[" in row:
                return Unknown(f"line {number}: {shown(row)} is no GID of ibv_devinfo")
            continue
        key, value = match.groups()
        if key == "hca_id":
            hca, port = value, 0
        elif key == "port" and re.fullmatch("[0-9]{1,3}", value):
            port = int(value)
            if verbose:
                seen.append(HcaStatement(hca, port, None, "gids", True, "ibv_devinfo"))
        elif key.startswith("GID["):
            slot = _devinfo_gid(hca, port, int(key[4:-1]), value)
            if slot is None:
                return Unknown(f"line {number}: {shown(row)} is no GID of ibv_devinfo")
            seen += slot
        elif key == "active_width":
            width = value
        elif key == "vendor_id" and value == _AMAZON:
            efa.add(hca)
        else:
            seen += _devinfo_value(hca, port, key, f"{width} {value}" if key == "active_speed" else value)
    seen = [one._replace(value=EFA) if one.hca in efa and one.what == "link_layer" else one for one in seen]
    return _agreeing(seen, "ibv_devinfo") or Unknown("there is neither a device (hca_id: ...) nor a GID of ibv_devinfo")


def _cut(text: str) -> Optional[Unknown]:
    """Return where the devices of ibv_devinfo start or end in the middle; None where each has what the others have."""
    begin, *devices = re.split(r"^hca_id:", text, flags=re.MULTILINE)
    said = [match[1] for match in map(_DEVINFO.fullmatch, begin.split("\n")) if match]
    if (devices and said) or any(not key.startswith("GID[") for key in said):
        return Unknown("the output of ibv_devinfo starts in the middle of a device: its beginning is cut off")
    if not re.search(r"^\s+port:\s", text, re.MULTILINE):
        # else names alone, as of a grep
        ports = re.search(r"^\s+(?:phys_port_cnt:\s+[1-9]|transport:)", text, re.MULTILINE)
        return Unknown("ibv_devinfo ends before its ports: it is cut off") if ports else None
    for device in devices:
        due = re.search(r"^\s+phys_port_cnt:\s+([0-9]+)\s*$", device, re.MULTILINE)
        if len(re.findall(r"^\s+port:\s", device, re.MULTILINE)) < int(due[1] if due else 1):
            return Unknown(
                f"ibv_devinfo: {shown(device.strip().partition(chr(10))[0])} ends in the middle: it is cut off"
            )
    return None


def _devinfo_gid(hca: str, port: int, slot: int, value: str) -> Optional[List[HcaStatement]]:
    text, _, kind = value.partition(", ")
    gid = gid_text(text)
    if gid is None or (kind and isinstance(gid_type(kind), Unknown)):
        return None
    if not in_use(gid):
        return []
    version: Found[str] = gid_type(kind) if kind else Unknown("ibv_devinfo does not say")
    told: Sequence[Tuple[str, Found[str]]] = (("type", version), ("gid", gid))
    return [HcaStatement(hca, port, slot, what, one, "ibv_devinfo") for what, one in told]


def _devinfo_value(hca: str, port: int, key: str, value: str) -> List[HcaStatement]:
    if key in ("fw_ver", "node_guid"):
        return [HcaStatement(hca, None, None, {"fw_ver": "firmware", "node_guid": "guid"}[key], value, "ibv_devinfo")]
    word = value.partition(" ")[0]
    if key == "state":
        state = word[len("PORT_") :] if word.startswith("PORT_") else ""
        found: Found[Union[str, float]] = state if state in _STATES else Unknown(f"ibv_devinfo: state {shown(value)}")
        return [HcaStatement(hca, port, None, "state", found, "ibv_devinfo")]
    if key == "phys_state":
        found = _PHYSICAL.get(word, Unknown(f"ibv_devinfo: phys_state {shown(value)}"))
        return [HcaStatement(hca, port, None, "physical", found, "ibv_devinfo")]
    if key == "link_layer":
        found = value if value in ("InfiniBand", "Ethernet") else Unknown(f"ibv_devinfo: link_layer {shown(value)}")
        return [HcaStatement(hca, port, None, "link_layer", found, "ibv_devinfo")]
    if key == "active_speed":
        match = re.fullmatch(r"([0-9]+)X \([0-9]+\) ([0-9.]+) Gbps \([0-9]+\)", value)
        found = int(match[1]) * float(match[2]) if match else Unknown(f"ibv_devinfo: width and speed {shown(value)}")
        return [HcaStatement(hca, port, None, "rate", found, "ibv_devinfo")]
    return []
