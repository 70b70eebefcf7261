"""Which HCAs --explain says are the nearest to each local rank's GPU, on every machine whose matrix has HCAs."""

from dataclasses import replace
from typing import Any

import click
import pytest

from taco_launch.cli.output import choice_tables
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Driver, Gpu, Gpus
from taco_launch.core.model.host.hosts import Container, GpuConstraints, Host, Network
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.inventory import profile
from taco_launch.jobs import dry_run
from tests.support.fake_backend import not_asked
from tests.support.fleet import hca, with_hcas
from tests.support.placement_machines import ABOUT, mesh

MACHINES = [name for name in ABOUT if mesh(name).topology.nics]
FARTHER = ("PIX", "PXB", "PHB", "NODE", "SYS")


def facts(name: str, machine: str) -> HostFacts:
    topology = mesh(machine).topology
    gpus = tuple(
        Gpu(index, f"GPU-{index}", ABOUT[machine]["model"], f"0000:{index:02x}:00.0", 16 << 30, 0, False, 0, 0)
        for index in range(len(topology.gpus))
    )
    driver = Driver("450.80.02", "450.80.02", "11.0", False, Absent())
    found = with_hcas(name, *(hca(nic) for nic in sorted(topology.nics)))
    return replace(found, gpu=Gpus(driver, gpus, (), ()), topology=topology)


def explained(machine: str, each: int, **constraints: Any) -> dry_run.Planned:
    return on((machine, machine), each, 2, **constraints)


def on(machines: tuple[str, ...], each: int, count: int, **constraints: Any) -> dry_run.Planned:
    """Explain a job with so many ranks on each of so many of the hosts gpu1, gpu2, ..."""
    found = tuple(facts(f"gpu{number}", machine) for number, machine in enumerate(machines, 1))
    spec = JobSpec(
        *("job", ("true",), tuple(Host(of.host, of.host, constraints=GpuConstraints(**constraints)) for of in found)),
        slots_per_host=each,
        host_count=count,
        head="gpu1",
        profile=profile.load("auto", "", {}),
        container=Container("image"),
        network=Network(interface="eth0"),
        versions=(("openmpi", "4.1.4"), ("nccl", "2.21.5")),
    )
    return dry_run.dry_run(spec, {}, not_asked, lambda _missing: (found, ()), root=True, explain=True)


def listed(planned: dry_run.Planned) -> list[str]:
    (token,) = (token.text for token in planned.plan.tokens if token.text.startswith("NCCL_IB_HCA="))
    return [port.partition(":")[0] for port in token.removeprefix("NCCL_IB_HCA==").split(",")]


@pytest.mark.parametrize("machine", MACHINES)
def test_each_rank_has_the_nearest_of_all(machine: str) -> None:
    """Whole hosts, and a half of each: what is left of the list always holds the nearest ones of every rank."""
    topology = mesh(machine).topology
    count = len(topology.gpus)
    for each in (count, count // 2, 1):
        planned = explained(machine, each)
        assert [host for host, _ranks in planned.nearest] == ["gpu1", "gpu2"]
        chosen = dict(planned.choices)
        for host, ranks in planned.nearest:
            assert [near.local_rank for near in ranks] == list(range(each))
            gpus = sorted(chosen[host].gpus) if host in chosen else list(range(count))
            assert [near.gpu for near in ranks] == gpus
            for near in ranks:
                row = dict(zip(topology.nics, topology.links[near.gpu][count:], strict=True))
                best = min(row.values(), key=FARTHER.index)
                assert (near.link, near.hcas) == (best, tuple(nic for nic, link in row.items() if link == best))
                assert set(near.hcas) <= set(listed(planned))


def test_the_ports_are_those_of_the_hosts_with_one_model() -> None:
    planned = on(("dgx1v", "a100x8", "dgx1v"), 8, 2)
    assert [host for host, _ranks in planned.nearest] == ["gpu1", "gpu3"]
    assert listed(planned) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def test_the_ranks_of_a_dgx() -> None:
    (_host, ranks), _other = explained("dgx1v", 4, only=(1, 2, 5, 6)).nearest
    assert [(near.local_rank, near.gpu, near.hcas, near.link) for near in ranks] == [
        (0, 1, ("mlx5_0",), "PIX"),
        (1, 2, ("mlx5_1",), "PIX"),
        (2, 5, ("mlx5_2",), "PIX"),
        (3, 6, ("mlx5_3",), "PIX"),
    ]


def test_hosts_that_are_alike_are_told_together() -> None:
    assert click.unstyle(choice_tables.nearest(explained("l40sx4", 4).nearest)) == (
        "\nThe nearest HCAs on gpu[1-2], which NCCL chooses for each GPU by itself:\n"
        "LOCAL RANK  GPU  HCA            LINK\n"
        "         0    0  mlx5_0,mlx5_1  SYS\n"
        "         1    1  mlx5_0,mlx5_1  SYS\n"
        "         2    2  mlx5_0,mlx5_1  NODE\n"
        "         3    3  mlx5_0,mlx5_1  NODE\n"
    )
    assert choice_tables.nearest(()) == ""
