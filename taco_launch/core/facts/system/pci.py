"""Reads where GPUs and HCAs are in the PCI tree: the probe's lines of /sys/bus/pci and /sys/class/infiniband."""

import re
from typing import List, Optional, Tuple

from taco_launch.core.facts.text.sections import Sections, failure, unasked
from taco_launch.core.facts.text.strip_terminal import plain, shown
from taco_launch.core.model.host.fact_value import Found, Unknown
from taco_launch.core.model.host.hardware import PciDevice

_ADDRESS = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_PATH = re.compile(rf"/sys/devices/(?:\S+/)?(pci[0-9a-f]{{4,}}:[0-9a-f]{{2}}(?:/{_ADDRESS})+)", re.ASCII)
_WIDTHS = ("1", "2", "4", "8", "12", "16", "32")


def parse_pci(sections: Sections) -> Found[Tuple[PciDevice, ...]]:
    """Read the probe's section topology.pci or, where only the HCAs were requested, rdma.pci."""
    name = "rdma.pci" if "topology.pci" not in sections and "rdma.pci" in sections else "topology.pci"
    missing = unasked(sections, name.partition(".")[0]) or failure(sections, name)
    return missing or read_pci(sections[name].stdout)


def read_pci(text: str) -> Found[Tuple[PciDevice, ...]]:
    """Read lines of KIND, NAME, PATH, NUMA node, speed, greatest speed, width, greatest width, with tabs between them.

    Devices that are not on PCI (software RDMA) are left out.
    """
    devices: List[PciDevice] = []
    for number, line in enumerate(plain(text).split("\n"), 1):
        fields = line.split("\t")
        if not line.strip():
            continue
        if len(fields) != 8 or fields[0] not in ("gpu", "hca") or not fields[1] or not fields[2].startswith("/sys/"):
            return Unknown(f"line {number}: {shown(line)} is not understood")
        kind, name, folder, numa, speed, max_speed, width, max_width = fields
        path = _PATH.fullmatch(folder)
        if path:
            devices.append(
                PciDevice(
                    kind=kind,
                    name=name,
                    path=tuple(path[1].split("/")),
                    numa=int(numa) if re.fullmatch("[0-9]{1,4}", numa) else None,  # -1: the platform names no node
                    speed=_speed(speed),
                    max_speed=_speed(max_speed),
                    width=_width(width),
                    max_width=_width(max_width),
                )
            )
    if len({(device.kind, device.name) for device in devices}) < len(devices):
        return Unknown("a device is there twice")
    return tuple(devices)


def _speed(text: str) -> Optional[float]:
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9])?) GT/s(?: PCIe)?", text)
    return float(match[1]) if match else None


def _width(text: str) -> Optional[int]:
    return int(text) if text in _WIDTHS else None  # 255 stands for "not known"
