"""What the links of `nvidia-smi topo -m` carry: GB/s in one direction, by the model of the GPUs.

These are figures of a model, good for saying which of two sets of GPUs is the better one; nothing was measured.

NVLink, of one link: P100 (NVLink 1) 20, V100, A100, H100 and their kin (NVLink 2 to 4) 25, B200 (NVLink 5) 50, from
NVIDIA's data sheets of the products, which give both directions together; GPUs with a bridge (RTX A6000, RTX 3090, A40)
14.0625, four links having 112.5 in both directions. NCCL reckons with some 0.8 of it, of all of them alike.

How many of them there can be between two GPUs is of the same data sheets: all that a GPU has where a switch joins it to
the others (V100 6, A100 12, H100 and B200 18), else a share of them.

PCIe: PIX is what NCCL takes for 16 lanes (src/graph/topo.h, PCI_BW): 12 for PCIe 3.0, doubled by each later generation.
PHB is that without what NCCL takes off for traffic between GPUs through a host bridge (INTEL_P2P_OVERHEAD, 6/5). SYS is
NCCL's figure of the link between the CPUs of the time: 6 (BDW_QPI_BW), 10 (SKL_QPI_BW), 22 (SRP_QPI_BW). NCCL takes PXB
to be as good as PIX, and NODE as PHB; here each has a twelfth of PIX less, since more of the way is shared with others.
"""

import re
from typing import Iterable, Optional, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hardware import UNSEEN


@dataclass(frozen=True)
class Bandwidths:
    """GB/s in one direction: `nvlink` of one NVLink, `paths` of PIX, PXB, PHB, NODE and SYS; `description` says of what.

    `bound` is the fewest and the most NVLinks that two GPUs with any have between them, (0, 0) where there are none.
    """

    nvlink: float
    paths: Tuple[Tuple[str, float], ...]
    description: str
    bound: Tuple[int, int]

    def gbps(self, link: str) -> float:
        """Return what a link carries, in the words of `nvidia-smi topo -m`: NV2, PIX, PXB, PHB, NODE or SYS.

        UNSEEN carries what SYS does: no link carries less.

        Raises:
            KeyError: it is not a link.
        """
        if link.startswith("NV"):
            return self.nvlink * int(link[2:])
        return dict(self.paths)["SYS" if link == UNSEEN else link]

    def strange(self, links: Iterable[str]) -> str:
        """Return a link that is not one of these GPUs, "" where there is none."""
        fewest, most = self.bound
        return next((link for link in links if link[:2] == "NV" and not fewest <= int(link[2:]) <= most), "")


def _pcie(pix: float, sys: float) -> Tuple[Tuple[str, float], ...]:
    return (*((path, pix * twelfths / 12) for path, twelfths in _TWELFTHS), ("SYS", sys))


_TWELFTHS = (("PIX", 12), ("PXB", 11), ("PHB", 10), ("NODE", 9))
_GENERATION = {3: _pcie(12.0, 6.0), 4: _pcie(24.0, 10.0), 5: _pcie(48.0, 22.0)}
_NO_NVLINK = (0, 0)
# What a product's name has in it; NVLink's GB/s of one link, PCIe's generation, the links of a pair. The first one that
# fits counts.
_MODELS = (
    (r"P100", 20.0, 3, (1, 4)),
    (r"V100", 25.0, 3, (1, 6)),
    (r"TITAN RTX|RTX 2080|Quadro RTX [5-8]000", 25.0, 3, (1, 2)),
    (r"K[48]0|M[46]0|P4|P40|T4|GTX [0-9]+|Quadro P[0-9]+", 25.0, 3, _NO_NVLINK),
    (r"A100|A800|A30", 25.0, 4, (4, 12)),
    (r"A40|A10G?|A16|A2|A[24-6][05]00|30[5-9]0", 14.0625, 4, (1, 4)),
    (r"L4|L40S?|L20|L2|40[5-9]0|RTX [4-6]000 Ada", 25.0, 4, _NO_NVLINK),
    (r"H100|H200|H800|H20|GH200", 25.0, 5, (4, 18)),
    (r"G?B[12]00|B300|GB300", 50.0, 5, (4, 18)),
    (r"50[5-9]0|RTX PRO [0-9]+", 25.0, 5, _NO_NVLINK),
)
DEFAULT = Bandwidths(25.0, _GENERATION[3], "25 GB/s per NVLink, PCIe 3.0", (1, 18))
# The models that are known, for people.
KNOWN = (
    *("Tesla P100-SXM2", "Tesla V100-SXM2", "Tesla T4", "A100-SXM4", "A800-SXM4", "A30", "A40", "A10", "RTX A6000"),
    *("RTX 3090", "L4", "L40S", "RTX 4090", "H100", "H800", "H200", "H20", "B200"),
)


def figures_of(name: str) -> Optional[Bandwidths]:
    """Return the figures of a GPU by the name of its product (`Tesla V100-SXM2-32GB`), None for one that is not known."""
    for pattern, nvlink, generation, bound in _MODELS:
        if re.search(rf"(?<![A-Za-z0-9])(?:{pattern})(?![0-9A-Za-z])", name, re.IGNORECASE):
            return Bandwidths(
                nvlink, _GENERATION[generation], f"{nvlink:g} GB/s per NVLink, PCIe {generation}.0", bound
            )
    return None
