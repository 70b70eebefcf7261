"""Byte and error counters of this host's interfaces and InfiniBand ports, from /sys."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

_ROOT = Path("/sys/class")
_MOST_DEVICES = 1024
_MOST_BYTES = 64
# Of InfiniBand's counters: data is told in words of four bytes (IBTA 16.1.3.5, PortXmitData).
_WORD = 4
_FAULTS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
)
_HARDWARE_FAULTS = ("local_ack_timeout_err", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err")


class DeviceCounters(NamedTuple):
    """An interface (`eth0`) or an InfiniBand port (`mlx5_0:1`): bytes, None where not told, and its error counters."""

    name: str
    received: Optional[int]
    sent: Optional[int]
    faults: Dict[str, int]


def number(text: str) -> Optional[int]:
    """Read a counter of /sys; None where it is not a number ("N/A (no PMA)")."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= 20 else None


def interfaces(root: Path = _ROOT) -> List[DeviceCounters]:
    """Return the interfaces of the host, without lo."""
    found = []
    for name in _names(root / "net"):
        folder = root / "net" / name / "statistics"
        if name != "lo" and folder.is_dir():
            faults = _counters(folder, ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"))
            found.append(DeviceCounters(name, _read(folder / "rx_bytes"), _read(folder / "tx_bytes"), faults))
    return found


def infiniband_ports(root: Path = _ROOT) -> List[DeviceCounters]:
    """Return the ports of the HCAs of the host, RoCE's too."""
    found = []
    for hca in _names(root / "infiniband"):
        for port in _names(root / "infiniband" / hca / "ports"):
            folder = root / "infiniband" / hca / "ports" / port
            received, sent = (_read(folder / "counters" / f"port_{way}_data") for way in ("rcv", "xmit"))
            faults = {**_counters(folder / "counters", _FAULTS), **_counters(folder / "hw_counters", _HARDWARE_FAULTS)}
            found.append(DeviceCounters(f"{hca}:{port}", _words(received), _words(sent), faults))
    return found


def _words(count: Optional[int]) -> Optional[int]:
    return None if count is None else count * _WORD


def _counters(folder: Path, names: Tuple[str, ...]) -> Dict[str, int]:
    found = ((name, _read(folder / name)) for name in names)
    return {name: value for name, value in found if value is not None}


def _names(folder: Path) -> List[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())[:_MOST_DEVICES]
    except OSError:
        return []


def _read(path: Path) -> Optional[int]:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return number(file.read(_MOST_BYTES))
    except OSError:  # an interface that is down, or a counter that the driver lacks
        return None


def is_port(name: str) -> bool:
    """Return whether a name is that of an HCA's port, and not of an interface."""
    return ":" in name


def link_speed(name: str, root: Path = _ROOT) -> Optional[float]:
    """Return the speed of an interface or port in bytes per second in each direction; None where the driver tells none."""
    hca, colon, port = name.partition(":")
    path = root / "infiniband" / hca / "ports" / port / "rate" if colon else root / "net" / name / "speed"
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            word = file.read(_MOST_BYTES).partition(" ")[0].strip()  # "100 Gb/sec (4X EDR)", or 25000 (Mbit/s)
        speed = float(word) * (1e9 if colon else 1e6) / 8
    except (OSError, ValueError):
        return None
    return speed if 0 < speed < 1e15 else None


def carriers(root: Path = _ROOT) -> List[DeviceCounters]:
    """Return the HCA ports and the interfaces that carry the host's traffic, each byte once.

    Bridges, bonds and ends of containers repeat what a device carries; a container has no device, and there all count.
    """
    every = interfaces(root)
    real = [one for one in every if (root / "net" / one.name / "device").exists()]
    return (real or every) + infiniband_ports(root)
