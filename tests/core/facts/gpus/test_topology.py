"""Whatever is done to the text of `nvidia-smi topo -m`: its links are read right, or not at all."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.gpus.hca_distance import between, distances
from taco_launch.core.facts.gpus.topology import parse_topology, read
from taco_launch.core.facts.system.pci import parse_pci, read_pci
from taco_launch.core.facts.text.sections import read as sections
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import UNSEEN, Distance, PciDevice, Topology
from tests.support.host_facts import host, known
from tests.support.probe_answers import answer

CASES = Path(__file__).parents[1] / "cases" / "captured"
LINKS = ("SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV4", "NV12", "NV18")
LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"


def text_of(topology: Topology, *, tabs: bool, numbered: bool) -> str:
    """Return a topology as nvidia-smi prints it, or as people align it; drivers before 450 know no NUMA affinity."""
    old = set(topology.numa) == {None}
    columns = (*topology.gpus, *(f"NIC{n}" if numbered else name for n, name in enumerate(topology.nics)))
    rows = [["", *columns, "CPU Affinity", *([] if old else ["NUMA Affinity", "GPU NUMA ID"])]]
    for place, name in enumerate(columns):
        cells = [f" {link} " if link == "X" else link for link in topology.links[place]]
        gpu = place < len(topology.gpus)
        more = [topology.cpus[place] or "", *([] if old else [topology.numa[place] or "N/A", "N/A"])] if gpu else []
        rows.append([name, *cells, *more])
    lines = ["\t".join(row[:-1] + (["", row[-1]] if row[-1] == "N/A" else [row[-1]])) for row in rows]
    if not tabs:
        lines = ["".join(f"{cell:16}" for cell in row).rstrip() for row in rows]
    names = "".join(f"  NIC{n}: {name}\n" for n, name in enumerate(topology.nics))
    return "\n".join(lines) + "\n" + LEGEND + (f"\nNIC Legend:\n\n{names}\n" if numbered and names else "")


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    count = draw(st.integers(1, 8))
    nics = draw(st.permutations([f"mlx5_{n}" for n in range(draw(st.sampled_from([0, 0, 1, 2, 12])))]))
    size = count + len(nics)
    chooser = random.Random(draw(st.integers(0, 1 << 30)))
    links = [["X"] * size for _ in range(size)]
    for one in range(size):
        for other in range(one):
            links[one][other] = links[other][one] = chooser.choice(LINKS[:5] if one >= count else LINKS)
    affinity = st.sampled_from(["0-23,48-71", "24-47", "3", None])
    numa = (
        [draw(st.sampled_from(["0", "1", "0-1", None])) for _ in range(count)]
        if draw(st.booleans())
        else [None] * count
    )
    return Topology(
        tuple(f"GPU{n}" for n in range(count)),
        tuple(nics),
        tuple(map(tuple, links)),
        tuple(draw(affinity) for _ in range(count)),
        tuple(numa),
    )


@given(topologies(), st.booleans(), st.booleans(), st.sampled_from(["plain", "crlf", "colour", "prompt"]))
def test_what_is_printed_is_read(topology: Topology, tabs: bool, numbered: bool, dress: str) -> None:
    text = text_of(topology, tabs=tabs, numbered=numbered)
    if dress == "crlf":
        text = text.replace("\n", "\r\n")
    elif dress == "colour":
        text = text.replace("GPU0", "\x1b[4mGPU0", 1).replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m", 1)
    elif dress == "prompt":
        text = f"root@gpu1:~# nvidia-smi topo -m\n{text}root@gpu1:~# "
    assert read(text) == topology


@given(topologies(), st.booleans(), st.booleans(), st.data())
def test_a_cut_text_gives_the_same_links_or_none(
    topology: Topology, tabs: bool, numbered: bool, data: st.DataObject
) -> None:
    text = text_of(topology, tabs=tabs, numbered=numbered)
    check_cut(topology, text[: data.draw(st.integers(0, len(text)))])


@pytest.mark.parametrize("tabs", [True, False], ids=["tabs", "blanks"])
@pytest.mark.parametrize("numa", [(None, None), ("0", "1")], ids=["old", "new"])
def test_every_cut_of_a_small_matrix(numa: tuple[str | None, ...], tabs: bool) -> None:
    topology = Topology(("GPU0", "GPU1"), (), (("X", "NV12"), ("NV12", "X")), ("0-23,48-71", "24-47,72-95"), numa)
    text = text_of(topology, tabs=tabs, numbered=False)
    for end in range(len(text)):
        check_cut(topology, text[:end])


def check_cut(topology: Topology, text: str) -> None:
    found = read(text)
    if isinstance(found, Topology):
        assert found.gpus == topology.gpus
        for place, (row, whole) in enumerate(zip(found.links, topology.links, strict=True)):
            alike = [one == other for one, other in zip(row, whole, strict=True)]
            count = len(found.gpus) if place >= len(found.gpus) else len(row)
            assert all(alike[:count])  # rows of HCAs may be cut off
            assert all(same or link == UNSEEN for same, link in zip(alike, row, strict=True))
        assert found.nics in (topology.nics, tuple(f"NIC{n}" for n in range(len(topology.nics))))
        assert all(one in (None, other) for one, other in zip(found.cpus, topology.cpus, strict=True))
        assert all(one in (None, other) for one, other in zip(found.numa, topology.numa, strict=True))
    else:
        assert isinstance(found, Unknown)
        assert found.reason


@given(topologies(), st.booleans(), st.sampled_from(["drop", "double", "fuse", "shift", "change"]), st.data())
def test_a_lost_doubled_or_fused_cell_never_shifts_a_column(
    topology: Topology, tabs: bool, how: str, data: st.DataObject
) -> None:
    lines = text_of(topology, tabs=tabs, numbered=False).split("\n")
    size = len(topology.links)
    row = data.draw(st.integers(1, size))
    at = data.draw(st.integers(1, size))
    cells = lines[row].split()
    if how == "fuse":
        cells[at : at + 2] = ["".join(cells[at : at + 2])]
    else:
        new = {"drop": [], "double": [cells[at]] * 2, "shift": [], "change": ["PIX" if cells[at] != "PIX" else "PXB"]}
        cells[at : at + 1] = new[how]
    if how == "shift":
        again = data.draw(st.integers(1, size))
        cells.insert(again, cells[min(again, len(cells) - 1)])
    lines[row] = ("\t" if tabs else "   ").join(cells)
    found = read("\n".join(lines))
    if isinstance(found, Topology):
        assert (found.gpus, found.nics, found.links) == (topology.gpus, topology.nics, topology.links)


@given(st.text(alphabet="GPU0NIC1X \t\n-,ABVSYMLmlx5_\x1b[4m\uff13", max_size=200))
def test_no_text_raises(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (
            "N begin topology.matrix\n\nN end topology.matrix 127\nN err nvidia-smi: not found\n",
            Absent("nvidia-smi: not found"),
        ),
        ("N begin topology.matrix\n\tGPU0\n", Unknown("topology.matrix: the answer was cut off")),
        ("N begin gpu.list\n\nN end gpu.list 0\nN done 1\n", Unknown("not asked")),
    ],
    ids=["no tool", "cut", "not asked"],
)
def test_a_probe_without_a_matrix(answer: str, found: object) -> None:
    assert parse_topology(sections(f"N probe 1 1700000000.0\n{answer}".encode())) == found


def test_a_probe_with_a_matrix() -> None:
    text = (CASES / "topo_names_out_of_order.txt").read_text("utf-8")
    answer = f"N probe 1 1.0\nN begin topology.matrix\n{text}\nN end topology.matrix 0\nN done 1.5\n"
    assert parse_topology(sections(answer.encode())) == read(text)


P2P = "\tGPU0\tGPU1\nGPU0\tX\tNS\nGPU1\tNS\tX\n\nLegend:\n"


def test_what_may_be_copied_is_passed_over_beside_how_it_is_linked() -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE\t0-15\nGPU1\tNODE\t X \t0-15\n\n"
    alone = known(read(matrix))
    assert read(matrix + P2P) == alone == read(P2P + matrix)
    assert "topo -p2p" in str(read(P2P))


def test_what_stands_right_below_a_whole_matrix_is_none_of_it() -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE\t0-15\nGPU1\tNODE\t X \t0-15\n"
    assert read(matrix + "*/\n") == read(matrix + "\n")
    first, second, third, _ = matrix.split("\n")
    assert "'*/' is not a complete row" in str(read(f"{first}\n{second}\n*/\n{third}\n"))


def test_a_matrix_that_was_put_in_line_by_hand_keeps_its_affinities() -> None:
    found = known(
        read(
            "\tGPU0\tGPU1\tCPU Affinity    NUMA Affinity\nGPU0\t X \t\tNODE\t\t0-15\t\t0\nGPU1\tNODE\t\t X \t\t0-15\t\t0\n\n"
        )
    )
    assert (found.cpus, found.numa) == (("0-15", "0-15"), ("0", "0"))


# --- How far GPUs are from HCAs: by the PCI tree, by the matrix, and where the two do not agree


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
