"""How far GPUs are from HCAs: by the PCI tree, by the matrix, and where the two do not agree."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.facts.gpus.hca_distance import between, distances
from taco_launch.core.facts.system.pci import parse_pci, read_pci
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Distance, PciDevice, Topology
from tests.support.host_facts import host, known
from tests.support.probe_answers import answer

# two GPUs and an HCA below one switch, another HCA below the next one, one at the other socket
TREE = """gpu\t0000:00:00.0\t/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0\t0\t8.0 GT/s PCIe\t16.0 GT/s PCIe\t8\t16
hca\tmlx5_0\t/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0\t0\t16.0 GT/s PCIe\t16.0 GT/s PCIe\t16\t16
hca\tmlx5_1\t/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/0000:1c:00.0\t0\t\t\t\t
hca\tmlx5_2\t/sys/devices/pci0000:15/0000:15:02.0/0000:20:00.0\t0\t\t\t\t
hca\tmlx5_3\t/sys/devices/pci0000:30/0000:30:01.0/0000:31:00.0\t0\t\t\t\t
hca\tmlx5_4\t/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0\t1\t\t\t\t
hca\tmlx5_5\t/sys/devices/pci0000:90/0000:90:01.0/0000:91:00.0\t-1\t\t\tUnknown\t255
hca\trxe0\t/sys/devices/virtual/infiniband/rxe0\t\t\t\t\t
"""


def devices(text: str = TREE) -> tuple[PciDevice, ...]:
    return known(read_pci(text))


def facts(pci: Any, topology: Any) -> HostFacts:
    base = host("gpu1")
    gpu = replace(known(known(base.gpu).gpus)[0], pci="0000:18:00.0")
    return replace(base, gpu=replace(known(base.gpu), gpus=(gpu,)), pci=pci, topology=topology)


@pytest.mark.parametrize(
    ("hca", "link"), [("mlx5_0", "PIX"), ("mlx5_1", "PXB"), ("mlx5_2", "PHB"), ("mlx5_3", "NODE"), ("mlx5_4", "SYS")]
)
def test_by_the_tree(hca: str, link: str) -> None:
    gpu, other = devices()[0], next(one for one in devices() if one.name == hca)
    assert between(gpu, other) == between(other, gpu) == link


def test_without_a_numa_node_two_host_bridges_are_not_told_apart() -> None:
    assert between(devices()[0], devices()[6]) == Unknown("the platform reports no NUMA node for 0000:91:00.0")


def test_the_places_are_read() -> None:
    gpu = devices()[0]
    assert (gpu.address, gpu.numa, gpu.speed, gpu.max_speed, gpu.width, gpu.max_width) == (
        "0000:18:00.0",
        0,
        8.0,
        16.0,
        8,
        16,
    )
    assert (devices()[6].width, devices()[6].max_width, devices()[6].numa) == (None, None, None)
    assert [one.name for one in devices()][-1] == "mlx5_5"


@pytest.mark.parametrize(
    "text", ["gpu 0000:18:00.0", TREE[:120], TREE.replace("\t0\t", "\t", 1), TREE + TREE.split("\n")[1]]
)
def test_lines_that_are_not_whole_are_refused(text: str) -> None:
    assert isinstance(read_pci(text), Unknown)


def test_hcas_alone_come_from_their_own_section() -> None:
    line = TREE.split("\n")[1] + "\n"
    found = known(parse_pci(answer(rdma_pci=line, rdma_sysfs="")))
    assert [one.name for one in found] == ["mlx5_0"]
    assert parse_pci(answer(gpu_list="")) == Unknown("not asked")


def matrix(*links: str) -> Topology:
    names = tuple(f"mlx5_{n}" for n in range(len(links)))
    rows = [
        ("X", *links),
        *((link, *("X" if n == m else "SYS" for m in range(len(links)))) for n, link in enumerate(links)),
    ]
    return Topology(("GPU0",), names, tuple(rows))


def test_tree_and_matrix_agree_or_say_so() -> None:
    found = known(distances(facts(devices(), matrix("PIX", "PHB"))))
    assert found[:3] == (
        Distance(0, "mlx5_0", "PIX"),
        Distance(0, "mlx5_1", Unknown("the PCI tree shows PXB, and nvidia-smi topo -m shows PHB")),
        Distance(0, "mlx5_2", "PHB"),
    )
    assert [one.hca for one in found] == [f"mlx5_{n}" for n in range(6)]


def test_one_of_them_is_enough() -> None:
    assert distances(facts(Unknown("not asked"), matrix("NODE"))) == (Distance(0, "mlx5_0", "NODE"),)
    (first, *_) = distances(facts(devices(), Unknown("cut")))  # type: ignore[misc]
    assert first == Distance(0, "mlx5_0", "PIX")


def test_none_of_them_says_why() -> None:
    assert distances(facts(Unknown("not asked"), Unknown("row GPU1 is missing"))) == Unknown("row GPU1 is missing")
    assert isinstance(distances(facts((), matrix())), Absent)
