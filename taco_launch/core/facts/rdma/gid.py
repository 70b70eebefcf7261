"""Chooses the GID index of a RoCE port.

NCCL since 2.21 chooses by itself (ncclIbGetGidIndex and ncclUpdateGidIndex, src/transport/net_ib/connect.cc, before
2.24 src/transport/net_ib.cc): it starts with slot 0 and walks up; it goes over to a slot of the wanted address family
(NCCL_IB_ADDR_FAMILY) and address range (NCCL_IB_ADDR_RANGE) from one of another family, whatever its version; and from
one of another RoCE version, or that is not valid, to a valid one of the wanted version (NCCL_IB_ROCE_VERSION_NUM).
Older NCCL takes slot 0, which is never right, unless it is told.
"""

import ipaddress
from typing import Dict, List, Optional, Sequence, Union

from taco_launch.core.model.host.fabric import GidChoice
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.hardware import Gid, Port

_ZERO = ":".join(["0000"] * 8)
_VERSIONS = {"IB/RoCE v1": 1, "RoCE v2": 2}
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


def by_nccl(
    hca: str, port: Port, family: str = "AF_INET", address_range: Optional[str] = None, version: int = 2
) -> Found[GidChoice]:
    """Return the slot that NCCL 2.21 or newer takes by itself, with these values of its three variables.

    `address_range` is a CIDR. Unknown where NCCL would end at a slot that cannot work: not in use, link-local, or of
    another family, range or version than requested; the reason names it. Absent on InfiniBand: no index is chosen.
    """
    table = _table(port)
    if not isinstance(table, dict):
        return table
    network = _network(address_range, family)
    if isinstance(network, Unknown):
        return network
    chosen = 0
    for candidate in range(1, max(table, default=0) + 1):
        found = _update(table, chosen, candidate, family, network, version)
        if isinstance(found, Unknown):
            return found
        chosen = found
    gid = table.get(chosen)
    fault = _fault(gid, family, network, version)
    if gid is None or fault:
        return Unknown(
            f"{_place(hca, port)}: NCCL would choose GID index {chosen}, which cannot work ({fault}): {_has(table)}"
        )
    return GidChoice(hca, port.number, chosen, f"{_words(gid)}: the one that NCCL 2.21 and newer choose by themselves")


def on_interface(
    hca: str, port: Port, interfaces: Sequence[str] = (), subnet: Optional[str] = None
) -> Found[GidChoice]:
    """Return the lowest slot of RoCE v2 over IPv4, for NCCL that has to be told.

    Of `interfaces` (one that is wanted, and the bond it belongs to) and in `subnet` (a CIDR), where given. A slot whose
    interface is not known counts only where `subnet` is given and holds its address.
    """
    table = _table(port)
    if not isinstance(table, dict):
        return table
    network = _network(subnet, "AF_INET")
    if isinstance(network, Unknown):
        return network
    for index in sorted(table):
        gid = table[index]
        if isinstance(gid.type, Unknown) and _family(gid.gid) == "AF_INET":
            return Unknown(f"{_place(hca, port)}: GID index {index}: its type is not known: {gid.type.reason}")
        known = isinstance(gid.netdev, str)
        wanted = not interfaces or gid.netdev in interfaces or (not known and network is not None)
        if wanted and not _fault(gid, "AF_INET", network, 2):
            return GidChoice(hca, port.number, index, f"{_words(gid)}: the lowest such index{_of(interfaces, subnet)}")
    return Unknown(f"{_place(hca, port)}: it has no GID of RoCE v2 over IPv4{_of(interfaces, subnet)}: {_has(table)}")


def readable(port: Port) -> bool:
    """Return whether all is known that `on_interface` looks at, so that what it does not find does not exist."""
    table = _table(port)
    return isinstance(table, dict) and not any(isinstance(gid.type, Unknown) for gid in table.values())


def address_of(gid: str) -> Optional[ipaddress.IPv4Address]:
    """Return the IPv4 address that a GID stands for; None for any other GID."""
    return ipaddress.IPv6Address(gid).ipv4_mapped


def _table(port: Port) -> Union[Dict[int, Gid], Absent, Unknown]:
    if not isinstance(port.gids, tuple):
        return port.gids
    if port.link_layer == "InfiniBand":
        return Absent("not needed on InfiniBand, which routes by LID")
    if isinstance(port.link_layer, (Absent, Unknown)) and not any(gid.type == "RoCE v2" for gid in port.gids):
        return Unknown(f"it is not known whether the port is RoCE: {port.link_layer.reason}")
    return {gid.index: gid for gid in port.gids}


def _update(
    table: Dict[int, Gid], chosen: int, candidate: int, family: str, network: Optional[Network], version: int
) -> Union[int, Unknown]:
    old, new = _gid(table, chosen), _gid(table, candidate)
    if _family(new) != family or not _inside(new, network):
        return chosen
    if _family(old) != family:
        return candidate
    if not _valid(new):
        return chosen
    versions: List[int] = []
    for index in (chosen, candidate):
        type_ = table[index].type if index in table else ""
        if isinstance(type_, (Absent, Unknown)):
            return Unknown(f"GID index {index}: its type is not known: {type_.reason}")
        versions.append(_VERSIONS.get(type_, 0))
    return candidate if (versions[0] != versions[1] or not _valid(old)) and versions[1] == version else chosen


def _gid(table: Dict[int, Gid], index: int) -> str:
    return table[index].gid if index in table else _ZERO


def _family(gid: str) -> str:
    """Return the address family as NCCL sees it: IPv4-mapped, also as multicast, is AF_INET."""
    address = ipaddress.IPv6Address(gid)
    packed = address.packed
    multicast = packed[:12] == b"\xff\x0e" + bytes(8) + b"\xff\xff"
    return "AF_INET" if address.ipv4_mapped is not None or multicast else "AF_INET6"


def _valid(gid: str) -> bool:
    """Return whether NCCL takes it for configured: neither zeros nor link-local (fe80::/64)."""
    return gid != _ZERO and not gid.startswith("fe80:0000:0000:0000:")


def _inside(gid: str, network: Optional[Network]) -> bool:
    if network is None:
        return True
    packed = ipaddress.IPv6Address(gid).packed
    if isinstance(network, ipaddress.IPv4Network):
        return ipaddress.IPv4Address(packed[12:]) in network
    return ipaddress.IPv6Address(packed) in network


def _network(cidr: Optional[str], family: str) -> Union[Network, Unknown, None]:
    if cidr is None:
        return None
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError as error:
        return Unknown(f"{cidr} is not a range of addresses: {error}")
    if network.version != (4 if family == "AF_INET" else 6):
        return Unknown(f"{cidr} is not a range of the address family {family}")
    return network


def _fault(gid: Optional[Gid], family: str, network: Optional[Network], version: int) -> str:
    """Return what is wrong with a slot, empty where it is as requested."""
    if gid is None:
        return "not in use"
    if not _valid(gid.gid):
        return "link-local, which is not routed"
    if _family(gid.gid) != family:
        return f"not an address of {'IPv4' if family == 'AF_INET' else 'IPv6'}"
    if not _inside(gid.gid, network):
        return f"outside of {network}"
    if not isinstance(gid.type, str) or _VERSIONS[gid.type] != version:
        return "RoCE v1, which is not routed" if version == 2 else "RoCE v2"
    return ""


def _words(gid: Gid) -> str:
    address = address_of(gid.gid)
    on = f" on {gid.netdev}" if isinstance(gid.netdev, str) else ""
    return f"{gid.type if isinstance(gid.type, str) else 'type not known'}, {address or gid.gid}{on}"


def _has(table: Dict[int, Gid]) -> str:
    addresses = sorted({str(address_of(gid.gid)) for gid in table.values() if address_of(gid.gid)})
    if addresses:
        return f"the port has {', '.join(addresses)}"
    if not table:
        return "the table is empty: is its interface up?"
    six = [index for index in sorted(table) if not _fault(table[index], "AF_INET6", None, 2)]
    cure = f"; -x NCCL_IB_ADDR_FAMILY=AF_INET6 or -x NCCL_IB_GID_INDEX={six[0]} uses its IPv6 address" if six else ""
    return f"its interface has no IPv4 address{cure}"


def _of(interfaces: Sequence[str], subnet: Optional[str]) -> str:
    return (f" on {' or '.join(interfaces)}" if interfaces else "") + (f" in {subnet}" if subnet else "")


def _place(hca: str, port: Port) -> str:
    return f"{hca or 'HCA without a name'}:{port.number}"
