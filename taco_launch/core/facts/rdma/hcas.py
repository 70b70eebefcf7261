"""Puts together what several tools say of the same HCAs: statements in, HCAs with their ports and GIDs out."""

import ipaddress
import re
from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, not_told
from taco_launch.core.model.host.hardware import Gid, Hca, Port

UNNAMED = "unnamed"


class HcaStatement(NamedTuple):
    """One statement of `source`: what it says of an HCA (port None), of a port, or of a slot of its GID table.

    `what` is a field of Hca, Port or Gid; `interface` for one of an HCA's; `gids` (True) says that the port's table was
    read; `gid` starts a slot. `hca` is "" and `port` 0 where the source does not name them. An Unknown as value
    says why there is none.
    """

    hca: str
    port: Optional[int]
    slot: Optional[int]
    what: str
    value: Any
    source: str


def build(seen: Sequence[HcaStatement]) -> Tuple[Hca, ...]:
    """Return the HCAs of all statements, in natural order of their names (mlx5_10 behind mlx5_2).

    What nobody says is Unknown, and so is what two sources say differently. An HCA whose name no source shows is
    called UNNAMED.
    """
    names = sorted({one.hca for one in seen}, key=natural)
    return tuple(_hca(name, [one for one in seen if one.hca == name]) for name in names)


def natural(name: str) -> Tuple[Tuple[Union[int, str], ...], str]:
    """Return a key that sorts names by the numbers in them."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def gid_text(text: str) -> Optional[str]:
    """Return a GID as eight groups of four hexadecimal digits; None where `text` is none."""
    try:
        # not `exploded`, which since Python 3.13 ends in 10.0.0.1: the hosts of a cluster may have different Pythons
        return ipaddress.IPv6Address(text).packed.hex(":", 2) if "%" not in text else None
    except ValueError:
        return None


def in_use(gid: str) -> bool:
    """Return whether a GID in eight groups is more than an empty slot (all zeros, or the bare prefix fe80::)."""
    return not re.fullmatch(r"(?:fe80|0000)(?::0000){7}", gid)


def gid_type(text: str) -> Found[str]:
    """Return the type of a GID in sysfs's words, from any tool's."""
    known = {
        "v1": "IB/RoCE v1",
        "RoCE v1": "IB/RoCE v1",
        "IB/RoCE v1": "IB/RoCE v1",
        "v2": "RoCE v2",
        "RoCE v2": "RoCE v2",
    }
    return known.get(text, Unknown(f"{text!r} is not a type of a GID"))


def _hca(name: str, seen: Sequence[HcaStatement]) -> Hca:
    own = [one for one in seen if one.port is None]
    numbers = sorted({one.port for one in seen if one.port is not None})
    told = [one.value for one in seen if one.what in ("interface", "netdev") and isinstance(one.value, str)]
    interfaces = tuple(sorted(set(told), key=natural))
    return Hca(
        name=name or UNNAMED,
        ports=tuple(_port(number, [one for one in seen if one.port == number]) for number in numbers),
        pci=_value(own, "pci", seen),
        numa=_value(own, "numa", seen),
        firmware=_value(own, "firmware", seen),
        type=_value(own, "type", seen),
        guid=_value(own, "guid", seen),
        interfaces=interfaces or _value(own, "interfaces", seen),
    )


def _port(number: int, seen: Sequence[HcaStatement]) -> Port:
    tables = [one for one in seen if one.what == "gids"]
    broken = next((one.value for one in tables if isinstance(one.value, Unknown)), None)
    slots = sorted({one.slot for one in seen if one.slot is not None})
    gids: Found[Tuple[Gid, ...]] = broken or not_told(f"{_sources(seen)} does not say")
    if broken is None and (tables or slots):
        gids = _gids([[one for one in seen if one.slot == slot] for slot in slots])
    if isinstance(gids, tuple) and _value(seen, "link_layer") == "InfiniBand":
        none = Absent("a GID of InfiniBand belongs to no interface")
        gids = tuple(gid if isinstance(gid.netdev, str) else replace(gid, netdev=none) for gid in gids)
    return Port(
        number=number,
        state=_value(seen, "state"),
        physical=_value(seen, "physical"),
        link_layer=_value(seen, "link_layer"),
        rate=_value(seen, "rate"),
        gids=gids,
    )


def _gids(slots: Sequence[Sequence[HcaStatement]]) -> Found[Tuple[Gid, ...]]:
    found: List[Gid] = []
    for seen in slots:
        gid = _value(seen, "gid")
        if not isinstance(gid, str):
            return Unknown(f"slot {seen[0].slot}: {gid.reason}")
        found.append(Gid(seen[0].slot or 0, gid, _value(seen, "type"), _value(seen, "netdev")))
    return tuple(found)


def _value(seen: Sequence[HcaStatement], what: str, by: Sequence[HcaStatement] = ()) -> Found[Any]:
    """Return what `seen` says; where it does not, the reason names the sources of `by`, or else its own."""
    told: Dict[Any, str] = {}
    why: List[Union[Absent, Unknown]] = []
    for one in seen:
        if one.what == what and isinstance(one.value, (Absent, Unknown)):
            why.append(one.value)
        elif one.what == what:
            told.setdefault(one.value, one.source)
    if len(told) > 1:
        return Unknown(", and ".join(f"{source} says {value}" for value, source in told.items()))
    if told:
        return next(iter(told))
    return why[0] if why else not_told(f"{_sources(by or seen)} does not say")


def _sources(seen: Sequence[HcaStatement]) -> str:
    return " and ".join(dict.fromkeys(one.source for one in seen))
