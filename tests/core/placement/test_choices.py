"""Which GPUs a job gets: known answers, one file each, and what holds on every machine."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import PlacementError
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.placement.bandwidth import DEFAULT, KNOWN, figures_of
from taco_launch.core.placement.gpus import choose
from taco_launch.core.placement.mesh import GpuMesh, mesh_of
from tests.support.placement_machines import ABOUT, mesh

CASES = sorted((Path(__file__).parent / "cases" / "choices").glob("*.json"))
SMALL = [name for name in ABOUT if len(mesh(name).matrix) <= 8]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_known_answers(path: Path) -> None:
    case: dict[str, Any] = json.loads(path.read_text("utf-8"))
    on = mesh(case["machine"])
    free = case.get("free", range(len(on.matrix)))
    found = choose(case["gpus"], free, on)
    assert {name: _plain(getattr(found, name)) for name in case["choice"]} == case["choice"]
    for part in case.get("why", ()):
        assert part in found.why
    for lost, expected in zip(found.alternatives, case.get("lost", ()), strict=False):
        assert list(lost.gpus) == expected["gpus"]
        assert expected["why"] in lost.why
    assert len(found.alternatives) >= len(case.get("lost", ()))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def bottleneck(on: GpuMesh, gpus: tuple[int, ...]) -> float:
    return on.rings.bottleneck(sum(1 << gpu for gpu in gpus)) or 0.0


@given(st.sampled_from(SMALL), st.data())
def test_nothing_is_better_than_what_is_chosen(name: str, data: st.DataObject) -> None:
    on = mesh(name)
    free = data.draw(st.lists(st.sampled_from(range(len(on.matrix))), min_size=1, unique=True))
    count = data.draw(st.integers(1, len(free)))
    found = choose(count, free, on)
    every = list(combinations(sorted(free), count))
    assert found.gpus in every
    assert found.bottleneck_gbps == (bottleneck(on, found.gpus) or None)
    assert found.sum_gbps == on.linked(found.gpus)
    best = max((bottleneck(on, gpus), on.linked(gpus)) for gpus in every)
    assert (found.bottleneck_gbps or 0.0, found.sum_gbps) == best
    assert found.ring == () if count == 1 else set(found.ring) == set(found.gpus)
    # what lost is different, no better, in order, and says by what
    shown = [found.gpus, *(lost.gpus for lost in found.alternatives)]
    assert len(set(shown)) == len(shown) == min(3, len(every))
    figures = [(bottleneck(on, gpus), on.linked(gpus)) for gpus in shown]
    assert figures == sorted(figures, reverse=True)
    assert all("; it " in lost.why for lost in found.alternatives)
    # the same question, however it is put
    assert choose(count, sorted(free, reverse=True), on) == found
    assert choose.__globals__["_choose"].__wrapped__(count, tuple(sorted(free)), on, True) == found


@given(st.sampled_from(sorted(ABOUT)), st.data())
def test_more_free_gpus_are_never_worse(name: str, data: st.DataObject) -> None:
    on = mesh(name)
    more = data.draw(st.lists(st.sampled_from(range(len(on.matrix))), min_size=2, max_size=9, unique=True))
    fewer = data.draw(st.lists(st.sampled_from(more), min_size=2, unique=True))
    count = data.draw(st.integers(2, len(fewer)))
    one, other = choose(count, fewer, on).bottleneck_gbps, choose(count, more, on).bottleneck_gbps
    assert one is not None
    assert other is not None
    assert other >= one


def test_without_a_matrix_the_lowest_indices() -> None:
    assert choose(2, (5, 3, 1)) == GpuChoice(
        (1, 3), (), None, None, "the lowest free indices: how the GPUs are linked is not known"
    )


def test_with_topology_off_the_lowest_indices_and_what_they_are_worth() -> None:
    """The guide's second way: GPU 4 is reached from 1 and 3 over no NVLink."""
    assert choose(4, (0, 1, 3, 4, 5, 6, 7), mesh("dgx1v"), topology=False) == GpuChoice(
        (0, 1, 3, 4), (0, 3, 1, 4), 6, 162,
        "the lowest free indices, topology is off: ring 0-3-1-4: NV2, NV1, SYS, NV2: slowest link 6 GB/s",
    )  # fmt: skip
    assert choose(2, (5, 3, 1), topology=False).why == "the lowest free indices: topology is off"


def test_hosts_of_more_gpus_than_are_worked_out() -> None:
    links = tuple(tuple("X" if one == other else "NV6" for other in range(17)) for one in range(17))
    large = mesh_of(Topology(tuple(f"GPU{gpu}" for gpu in range(17)), (), links), DEFAULT)
    found = choose(3, (16, 2, 9, 4), large)
    assert (found.gpus, found.why) == ((2, 4, 9), "the lowest free indices: there are more than 16 GPUs")


@pytest.mark.parametrize(
    ("count", "free", "message"),
    [
        (5, (0, 1, 2), "5 GPUs do not fit: free: 0,1,2"),
        (1, (), "1 GPU does not fit: none is free"),
    ],
)
def test_too_few_are_free(count: int, free: tuple[int, ...], message: str) -> None:
    with pytest.raises(PlacementError, match=f"^{message}$"):
        choose(count, free, mesh("dgx1v"))


@pytest.mark.parametrize(("count", "free"), [(0, (0,)), (1, (8,))])
def test_what_cannot_be(count: int, free: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="of GPUs"):
        choose(count, free, mesh("dgx1v"))


# --- What a link carries, by the names that nvidia-smi gives GPUs


@pytest.mark.parametrize(
    ("name", "link", "gbps"),
    [
        ("Tesla P100-SXM2-16GB", "NV1", 20),
        ("Tesla V100-SXM2-32GB", "NV2", 50),
        ("Tesla V100-SXM3-32GB", "NV6", 150),
        ("NVIDIA A100-SXM4-80GB", "NV12", 300),
        ("NVIDIA A800-SXM4-80GB", "NV8", 200),
        ("NVIDIA H100 80GB HBM3", "NV18", 450),
        ("NVIDIA H20", "NV18", 450),
        ("NVIDIA B200", "NV18", 900),
        ("NVIDIA RTX A6000", "NV4", 56.25),
        ("NVIDIA GeForce RTX 3090", "NV4", 56.25),
        ("A4500", "NV4", 56.25),
        ("Tesla T4", "PIX", 12),
        ("NVIDIA GeForce RTX 4090", "PIX", 24),
        ("NVIDIA GeForce RTX 5090", "PIX", 48),
        ("NVIDIA L40S", "PIX", 24),
        ("NVIDIA L4", "SYS", 10),
        ("NVIDIA A10G", "NODE", 18),
        ("NVIDIA H200", "PHB", 40),
        ("NVIDIA RTX 6000 Ada Generation", "PXB", 22),
        ("Quadro RTX 6000", "PXB", 11),
    ],
)
def test_figures(name: str, link: str, gbps: float) -> None:
    figures = figures_of(name)
    assert figures is not None
    assert figures.gbps(link) == gbps


def test_unknown_models_and_known_ones() -> None:
    assert figures_of("NVIDIA Q9000") is None
    assert figures_of("") is None
    assert all(figures_of(name) for name in KNOWN)
    paths = [DEFAULT.gbps(path) for path in ("NV1", "PIX", "PXB", "PHB", "NODE", "SYS")]
    assert paths == sorted(paths, reverse=True) == [25, 12, 11, 10, 9, 6]
    with pytest.raises(KeyError):
        DEFAULT.gbps("OK")
