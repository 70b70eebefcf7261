"""Reads ibstat: devices and ports, as infiniband-diags prints them (ibstat.c)."""

import re
from typing import Dict, List, Optional, Tuple, Union

from taco_launch.core.facts.rdma.hcas import HcaStatement
from taco_launch.core.facts.rdma.verbs import conflict
from taco_launch.core.facts.text.strip_terminal import PROMPT, plain, shown
from taco_launch.core.model.host.fact_value import Found, Unknown

_DEVICE = re.compile(r"\s*CA '([A-Za-z][\w.-]*)'\s*", re.ASCII)
_PORT = re.compile(r"\s*Port ([0-9]{1,3}):\s*")
# Its last line where it gives up, as a rule at a device (util/ibstat.c, IBPANIC).
PANIC = re.compile(r"ibpanic: \[[0-9]+\] \w+: (?P<why>.*?(?:'(?P<hca>[A-Za-z][\w.-]*)'.*)?)\s*", re.ASCII)
_ROW = re.compile(r"\s*([A-Z][A-Za-z ]*[A-Za-z]):\s*(\S.*?)?\s*")
_STATES = {"Active": "ACTIVE", "Down": "DOWN", "Initializing": "INIT", "Armed": "ARMED"}
_PHYSICAL = (
    *("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery"),
    *("Phy Test", "PhyTest", "No state change"),
)
_GUID = re.compile(r"0x([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})")
# What each port has, in this order; then Link layer, which came with RoCE: of all ports or of none.
_OF_PORT = ("State", "Physical state", "Rate", "Port GUID")
_Key = Tuple[str, Optional[int]]


def read(text: str) -> Union[Tuple[HcaStatement, ...], Unknown]:
    """Read the devices; Unknown where one of them, or a port, does not exist as a whole."""
    found: Dict[_Key, Dict[str, str]] = {}
    at: Optional[_Key] = None
    unread: List[HcaStatement] = []
    for number, row in enumerate(plain(text).split("\n"), 1):
        device, port, value = _DEVICE.fullmatch(row), _PORT.fullmatch(row), _ROW.fullmatch(row)
        if panic := PANIC.fullmatch(row):
            ends = Unknown(f"ibstat ends there: {panic['why']}")
            if not found or not panic["hca"]:
                return ends
            unread.append(HcaStatement(panic["hca"], 1, None, "state", ends, "ibstat"))
            at = None
        elif device or (port and at):
            at = (device[1], None) if device else (at[0] if at else "", int(port[1]) if port else 0)
            if at in found:
                return Unknown(f"line {number}: {shown(row)}: ibstat lists it twice: is this the output of two hosts?")
            found[at] = {}
        elif value and at:
            found[at][value[1]] = value[2] or ""
        elif row.strip() and at and not PROMPT.match(row):
            if (why := _missing(found)) is not None:
                return Unknown(f"line {number}: {shown(row)} is not a row of ibstat: {why}")
            at = None
    if (why := _missing(found)) is not None:
        return Unknown(why)
    seen = unread + [one for (hca, port_), values in found.items() for one in _seen(hca, port_, values)]
    other = conflict(seen)
    return tuple(seen) if other is None else Unknown(f"ibstat shows two different values for {other}")


def _missing(found: Dict[_Key, Dict[str, str]]) -> Optional[str]:
    """Return what is not there of a device or port that is named; None where all is there."""
    layered = any("Link layer" in values for values in found.values())
    for (hca, port), values in found.items():
        if port is not None:
            lacking = [name for name in (*_OF_PORT, *(("Link layer",) if layered else ())) if not values.get(name)]
            if lacking:
                return f"ibstat: {hca} port {port} has no {lacking[0]}: it is cut off"
            continue
        due = values.get("Number of ports", "")
        there = sum(1 for name, number in found if name == hca and number is not None)
        if not due.isdecimal() or len(due) > 3 or int(due) != there:
            return f"ibstat: the output for {hca} is cut off: it shows {there} of {due or 'an unknown number of'} ports"
    return None


def _seen(hca: str, port: Optional[int], values: Dict[str, str]) -> List[HcaStatement]:
    if port is None:
        guid = _GUID.fullmatch(values.get("Node GUID", ""))
        own = {
            "type": values.get("CA type"),
            "firmware": values.get("Firmware version"),
            "guid": ":".join(guid.groups()) if guid else None,
        }
        return [HcaStatement(hca, None, None, what, value, "ibstat") for what, value in own.items() if value]
    state, physical = values["State"], values["Physical state"]
    rate = re.match(r"([0-9]{1,5}(?:\.[0-9])?)(?: \(\w+\))?$", values["Rate"])
    told: Dict[str, Found[Union[str, float]]] = {
        "state": _STATES.get(state, Unknown(f"ibstat: State {shown(state)}")),
        "physical": physical if physical in _PHYSICAL else Unknown(f"ibstat: Physical state {shown(physical)}"),
        "rate": float(rate[1]) if rate else Unknown(f"ibstat: Rate {shown(values['Rate'])}"),
    }
    layer = values.get("Link layer")
    if layer is not None:
        told["link_layer"] = layer if layer in ("InfiniBand", "Ethernet") else Unknown(f"ibstat: {shown(layer)}")
    return [HcaStatement(hca, port, None, what, value, "ibstat") for what, value in told.items()]
