"""Reads what the kernel says of the places that GPUs sit in: PCI devices, the IOMMU, Access Control Services."""

import re
from typing import List, Tuple

from taco_launch.core.facts.text.sections import Sections, failure
from taco_launch.core.facts.text.strip_terminal import lines, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.hardware import Board

_ADDRESS = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_GPU = re.compile(rf"gpu ({_ADDRESS}) ([A-Za-z-]+)")
_SWITCH = re.compile(rf"nvswitch ({_ADDRESS})")
# What the kernel calls an IOMMU group whose devices see all memory as it is (Documentation/ABI, iommu_groups/type).
_IDENTITY = ("identity",)
_TRANSLATED = ("DMA", "DMA-FQ")
_PASSES = ("iommu=pt", "iommu.passthrough=1")


def parse_board(sections: Sections) -> Found[Board]:
    """Read the probe's sections gpu.board and gpu.acs."""
    missing = failure(sections, "gpu.board")
    if missing is not None:
        return missing
    gpus: List[Tuple[str, str]] = []
    switches: List[str] = []
    options: List[str] = []
    for line in lines(sections["gpu.board"].stdout):
        gpu, switch = _GPU.fullmatch(line), _SWITCH.fullmatch(line)
        if gpu:
            gpus.append((gpu[1], gpu[2]))
        elif switch:
            switches.append(switch[1])
        elif line.startswith("option "):
            options.append(line.partition(" ")[2])
        elif line.strip():
            return Unknown(f"gpu.board: {shown(line)} is not understood")
    return Board(
        tuple(address for address, _ in gpus),
        tuple(switches),
        _iommu({kind for _, kind in gpus} - {"none"}, any(word in options for word in _PASSES)),
        _acs(sections) if gpus else Absent("there is no GPU"),
    )


def _iommu(kinds: "set[str]", passes: bool) -> Found[str]:
    """Return what the IOMMU does to the GPUs; where no group tells its kind, the kernel's command line decides."""
    if not kinds:
        return Absent("no GPU is behind an IOMMU")
    if kinds & set(_TRANSLATED):
        return "translates"
    if kinds <= {"untold", *_IDENTITY}:
        return "passes" if passes or "untold" not in kinds else "translates"
    return Unknown(f"IOMMU groups of the kind {', '.join(sorted(kinds))}")


def _acs(sections: Sections) -> Found[Tuple[str, ...]]:
    """Return the bridges with source validation or request redirect on, by `lspci -vvv` (PCI Express base, 7.7.11)."""
    missing = failure(sections, "gpu.acs")
    if missing is not None:
        return missing
    found: List[str] = []
    bridge = ""
    for line in lines(sections["gpu.acs"].stdout):
        address = re.match(rf"({_ADDRESS}) ", line)
        if address:
            bridge = address[1]
        elif "access denied" in line:
            return Unknown("only root may see the bridges' Access Control Services")
        elif "ACSCtl:" in line and bridge and re.search(r"SrcValid\+|ReqRedir\+", line):
            found.append(bridge)
    return tuple(found) if bridge else Unknown("lspci lists no bridge")
