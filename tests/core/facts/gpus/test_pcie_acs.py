"""Where GPUs sit: the IOMMU and Access Control Services as kernels old and new tell them, and a driver that is missing."""

import pytest

from taco_launch.core.facts.gpus.gpu import parse_gpu
from taco_launch.core.facts.gpus.pcie_acs import parse_board
from taco_launch.core.facts.rdma.rdma import parse_rdma
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.hardware import Adapters, Board
from tests.support.host_facts import known
from tests.support.probe_answers import answer

GPU = "0000:1b:00.0"
NO_MODULE = ("", 1, "modinfo: ERROR: Module mlx5_core not found.")
LSPCI = """0000:17:00.0 0604: 8086:2030 (rev 04) (prog-if 00 [Normal decode])
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
0000:18:00.0 0604: 10b5:9797 (rev aa) (prog-if 00 [Normal decode])
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
"""


def board(text: str, acs: str | tuple[str, int, str] = LSPCI) -> Board:
    return known(parse_board(answer(gpu_board=text, gpu_acs=acs)))


@pytest.mark.parametrize(
    ("kind", "options", "found"),
    [
        ("none", "", Absent("no GPU is behind an IOMMU")),
        ("DMA", "", "translates"),
        ("DMA-FQ", "option iommu=pt\n", "translates"),  # what the group says has the last word
        ("identity", "", "passes"),
        ("untold", "", "translates"),  # as on CentOS 7
        ("untold", "option iommu=pt\n", "passes"),
        ("untold", "option iommu=soft\n", "translates"),
        ("blocked", "", Unknown("IOMMU groups of the kind blocked")),
    ],
)
def test_the_iommu(kind: str, options: str, found: object) -> None:
    assert board(f"gpu {GPU} {kind}\n{options}").iommu == found


def test_bridges_and_switches() -> None:
    found = board(f"gpu {GPU} none\nnvswitch 0000:c4:00.0\nnvswitch 0000:c5:00.0\n")
    assert (found.gpus, found.nvswitches) == ((GPU,), ("0000:c4:00.0", "0000:c5:00.0"))
    assert found.acs == ("0000:18:00.0",)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("", 127, "lspci: not found"), Absent("lspci: not found")),
        (LSPCI.split("\n", maxsplit=1)[0] + "\n\tCapabilities: <access denied>\n", Unknown),
        (("", 1, "lspci: -d: Invalid device ID"), Unknown),
    ],
)
def test_bridges_that_cannot_be_seen_are_not_called_fine(said: str | tuple[str, int, str], found: object) -> None:
    acs = board(f"gpu {GPU} none\n", said).acs
    assert acs == found or type(acs) is found


def test_a_line_that_is_not_understood() -> None:
    assert isinstance(parse_board(answer(gpu_board="gpu 1b:00 none\n")), Unknown)


def test_gpus_without_any_driver_are_no_host_without_gpus() -> None:
    missing = ("", 127, "nvidia-smi: not found")
    sections = answer(
        gpu_board=f"gpu {GPU} none\n",
        gpu_acs=LSPCI,
        gpu_driver_loaded=("", 1, "cat: /proc/driver/nvidia/version: No such file or directory"),
        gpu_driver_installed=("", 1, "modinfo: ERROR: Module nvidia not found."),
        gpu_list=missing,
        gpu_query=missing,
    )
    found = known(parse_gpu(sections))
    assert found.gpus == Unknown("1 on PCI, and neither nvidia-smi nor a driver is there")
    assert isinstance(found.board, Board)


@pytest.mark.parametrize("words", ["Module nvidia", "Module alias nvidia"])
def test_kmods_words_for_a_driver_that_is_not_installed(words: str) -> None:
    none = ("", 1, f"modinfo: ERROR: {words} not found.")
    found = known(parse_gpu(answer(gpu_board=f"gpu {GPU} none\n", gpu_driver_installed=none)))
    assert isinstance(found.driver.installed, Absent)


def adapters(text: str, module: str | tuple[str, int, str] = "5.4-1.0.3\n") -> Found[Adapters]:
    return known(parse_rdma(answer(rdma_adapters=text, rdma_mlx5_core=module))).adapters


def test_adapters_and_the_versions_of_their_driver() -> None:
    one = "adapter 0000:1a:00.0\n"
    assert adapters(f"{one}loaded 5.4-1.0.3\n") == Adapters(("0000:1a:00.0",), "5.4-1.0.3", "5.4-1.0.3")
    assert adapters(f"{one}loaded \n", "\n") == Adapters(("0000:1a:00.0",), "untold", "untold")
    gone = known(adapters(one, NO_MODULE))
    assert (gone.loaded, isinstance(gone.installed, Absent)) == (Absent("mlx5_core is not loaded"), True)
    assert isinstance(adapters("loaded 5.0-0\n"), Absent)
