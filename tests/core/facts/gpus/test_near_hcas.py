"""Which ports a job uses that has some GPUs of its hosts, over captured matrices; one file each."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.facts.gpus.hca_distance import nearest_first
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.plans import LaunchPlan
from tests.support.fleet import hca, with_hcas
from tests.support.machines import line, rails, why, with_peers
from tests.support.placement_machines import mesh
from tests.support.planned import FAR, own, plan, told

CASES = sorted((Path(__file__).parent / "cases" / "near_hcas").glob("*.json"))
NAME = "NCCL_IB_HCA"


def facts(hosts: Sequence[HostFacts], links: Sequence[Topology], gpus: Sequence[list[int] | None]) -> JobFacts:
    near = ((host.host, of, its) for host, of, its in zip(hosts, links, gpus, strict=True))
    return replace(
        told(*hosts, nccl="2.18.3"),
        near=tuple((name, nearest_first(of, its)) for name, of, its in near if its is not None),
    )


def half(known: JobFacts, **fields: Any) -> LaunchPlan:
    """Plan for four ranks on each of two hosts."""
    return plan(known, hosts=FAR, slots_per_host=4, **fields)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_captured_machines(path: Path) -> None:
    case: dict[str, Any] = json.loads(path.read_text("utf-8"))
    links, gpus = mesh(case["machine"]).topology, case["gpus"]
    listed = case.get("listed", links.nics)
    down = case.get("down", [[], []])
    hosts = [
        with_peers(
            with_hcas(f"gpu{number}", *(hca(name, state="DOWN" if name in its else "ACTIVE") for name in listed))
        )
        for number, its in enumerate(down, 1)
    ]
    found = half(facts(hosts, [links] * 2, gpus))
    assert line(found)[NAME] == "=" + ",".join(f"{name}:1" for name in case["hcas"])
    assert own(found) == {}
    told_why = why(found, f"{NAME}=")
    assert case.get("why", "") in told_why
    assert ("nearer" in told_why) == (len(case["hcas"]) < len(listed))


def test_where_names_differ_the_same_places_are_left_out_on_every_host() -> None:
    links = mesh("dgx1v").topology
    assert links.nics == ("mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3")
    other = ("ibp10s0", "ibp12s0", "ibp11s0", "ibp13s0")
    hosts = (
        rails(1, names=range(4)),
        with_peers(with_hcas("gpu2", *(hca(name, pci=f"0000:{name[3:5]}:00.0") for name in other))),
    )
    of = [links, replace(links, nics=other)]
    first = half(facts(hosts, of, [[0, 1, 2, 3]] * 2))
    assert [dict(pairs)[NAME] for _host, pairs in first.host_env] == ["=mlx5_0:1,mlx5_1:1", "=ibp10s0:1,ibp11s0:1"]
    opposite = half(facts(hosts, of, [[0, 1], [4, 5]]))
    assert dict(dict(opposite.host_env)["gpu2"])[NAME] == "=ibp10s0:1,ibp12s0:1"


def test_a_list_of_the_users_stays() -> None:
    links = mesh("dgx1v").topology
    known = facts([rails(number, names=range(4)) for number in (1, 2)], [links] * 2, [[0, 1, 2, 3]] * 2)
    assert line(half(known))[NAME] == "=mlx5_0:1,mlx5_1:1"
    assert line(half(known, env=((NAME, "=mlx5_3"),)))[NAME] == "=mlx5_3"


def test_without_knowing_that_every_host_can_nothing_is_left_out() -> None:
    links = mesh("dgx1v").topology
    known = facts([rails(number, names=range(4)) for number in (1, 2)], [links] * 2, [[0, 1, 2, 3]] * 2)
    assert known.between is not None
    doubtful = replace(known, between=replace(known.between, rdma=replace(known.between.rdma, able=None)))
    assert line(half(doubtful))[NAME].count("mlx5_") == 4
