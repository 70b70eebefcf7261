"""Works out how far each GPU is from each HCA, in nvidia-smi's words, from the PCI tree and from `topo -m`.

PIX: below one PCIe switch (or bridge). PXB: over several, and no host bridge. PHB: over the host bridge they share.
NODE: over host bridges of one NUMA node. SYS: between NUMA nodes. (The legend of nvidia-smi topo -m.)
"""

from typing import Dict, List, Optional, Sequence, Tuple

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Distance, PciDevice, Topology

# Devices below one switch differ in two places of their paths: the switch's downstream port, and themselves.
_SWITCH = 2
# NCCL looks for paths over PIX and over PXB in any case, and farther only where it found none (its ncclTopoCompute).
_EQUALLY_NEAR = (("PIX", "PXB"), ("PHB",), ("NODE",), ("SYS",))
_NEAREST_FIRST = tuple(link for alike in _EQUALLY_NEAR for link in alike)


def distances(facts: HostFacts) -> Found[Tuple[Distance, ...]]:
    """Return the distance of every GPU to every HCA that the PCI tree or the matrix knows, by GPU, then by HCA.

    Where both know a pair and do not agree, its distance is Unknown and says what each has: in virtual machines the
    matrix often says PHB for everything. Absent where there is no GPU or no HCA.
    """
    tree = _by_tree(facts)
    matrix = by_matrix(facts.topology) if isinstance(facts.topology, Topology) else {}
    if not tree and not matrix:
        return _why_none(facts)
    pairs = list(dict.fromkeys([*tree, *matrix]))
    found: List[Distance] = []
    for gpu, hca in sorted(pairs, key=lambda pair: (pair[0], pairs.index(pair))):
        one, other = tree.get((gpu, hca)), matrix.get((gpu, hca))
        link: Found[str] = other or one or Unknown("neither the PCI tree nor topo -m shows it")
        if isinstance(one, str) and isinstance(other, str) and one != other:
            link = Unknown(f"the PCI tree shows {one}, and nvidia-smi topo -m shows {other}")
        found.append(Distance(gpu, hca, link))
    return tuple(found)


def by_matrix(topology: Topology) -> Dict[Tuple[int, str], str]:
    """Return (GPU, HCA) -> link as the matrix has it."""
    count = len(topology.gpus)
    return {
        (gpu, nic): topology.links[gpu][count + place]
        for gpu in range(count)
        for place, nic in enumerate(topology.nics)
    }


def nearest_first(topology: Topology, gpus: Sequence[int]) -> Tuple[Tuple[Tuple[str, ...], ...], ...]:
    """Return for each of the GPUs the names of the HCAs at PIX or PXB, at PHB, at NODE, at SYS, as the matrix has it."""
    links = by_matrix(topology)
    return tuple(
        tuple(tuple(nic for nic in topology.nics if links[gpu, nic] in alike) for alike in _EQUALLY_NEAR)
        for gpu in gpus
    )


def nearest(topology: Topology, gpu: int, among: Sequence[str]) -> Tuple[str, Tuple[str, ...]]:
    """Return the link of a GPU to the HCAs that are the nearest of some, and their names, as the matrix has it.

    ("", ()) where it has none of them.
    """
    links = by_matrix(topology)
    for link in _NEAREST_FIRST:
        found = tuple(nic for nic in topology.nics if nic in among and links[gpu, nic] == link)
        if found:
            return link, found
    return "", ()


def between(one: PciDevice, other: PciDevice) -> Found[str]:
    """Return the distance of two devices by their places in the PCI tree."""
    common = 0
    for mine, theirs in zip(one.path, other.path):
        if mine != theirs:
            break
        common += 1
    if common > 1:
        near = max(len(one.path), len(other.path)) - common <= _SWITCH
        return "PIX" if near else "PXB"
    if common == 1:
        return "PHB"
    if one.numa is None or other.numa is None:
        return Unknown(f"the platform reports no NUMA node for {one.address if one.numa is None else other.address}")
    return "NODE" if one.numa == other.numa else "SYS"


def _by_tree(facts: HostFacts) -> Dict[Tuple[int, str], Found[str]]:
    found: Dict[Tuple[int, str], Found[str]] = {}
    devices = known_value(facts.pci) or ()
    hcas = [device for device in devices if device.kind == "hca"]
    for device in devices:
        index = _index(facts, device) if device.kind == "gpu" else None
        if index is not None:
            found.update({(index, hca.name): between(device, hca) for hca in hcas})
    return found


def _index(facts: HostFacts, device: PciDevice) -> Optional[int]:
    """Return nvidia-smi's index of a GPU on PCI."""
    return next((gpu.index for gpu in known_value(facts.gpus) or () if gpu.pci == device.address), None)


def _why_none(facts: HostFacts) -> Found[Tuple[Distance, ...]]:
    for part in (facts.topology, facts.pci):
        if isinstance(part, Unknown):
            return part
    return Absent("the distance of no GPU and HCA pair could be determined")
