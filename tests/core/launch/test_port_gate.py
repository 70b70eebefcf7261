"""Which hosts are kept back because an RDMA port is down that their job uses on other hosts."""

import pytest

from taco_launch.core.launch.fabric_facts import between
from taco_launch.core.launch.job_facts_from import hosts_with_ports_down
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from tests.support.fleet import hca, with_hcas

WORDS = (
    "kept back by a check: RDMA ports: {}, and ACTIVE on other hosts of the job "
    "(check the cable and the port of the switch; taco-launch check shows all ports)"
)


def kept_back(
    *states: tuple[str, ...], choice: str | None = None, gate: bool = True, rdma: str = "auto"
) -> dict[str, str]:
    """Judge hosts whose ports mlx5_0, mlx5_1, mlx5_10 have these states."""
    names = ("mlx5_0", "mlx5_1", "mlx5_10")
    facts = [
        with_hcas(f"gpu{number}", *(hca(name, state=state) for name, state in zip(names, own, strict=False)))
        for number, own in enumerate(states, 1)
    ]
    hosts = tuple(Host(host.host, host.host, gate=gate) for host in facts)
    env = () if choice is None else (("NCCL_IB_HCA", choice),)
    spec = JobSpec("a", ("true",), hosts, env=env, network=Network(rdma=rdma))
    return hosts_with_ports_down(spec, JobFacts(root=False, between=between(facts)))


def test_a_port_that_others_have() -> None:
    assert kept_back(("ACTIVE", "ACTIVE"), ("ACTIVE", "DOWN"), ("INIT", "DOWN")) == {
        "gpu2": WORDS.format("mlx5_1:1 is DOWN"),
        "gpu3": WORDS.format("mlx5_0:1 is INIT, mlx5_1:1 is DOWN"),
    }


@pytest.mark.parametrize(
    "states",
    [
        (("ACTIVE", "DOWN"), ("ACTIVE", "DOWN")),
        (("ACTIVE", "ACTIVE"), ("ACTIVE",)),
        (("DOWN",), ("DOWN",)),
        (("ACTIVE",), ()),
    ],
    ids=["without-a-cable-everywhere", "fewer", "no-rdma", "no-hca"],
)
def test_what_is_no_fault_of_one_host(states: tuple[tuple[str, ...], ...]) -> None:
    assert kept_back(*states) == {}


@pytest.mark.parametrize(
    ("choice", "is_used"),
    [
        ("=mlx5_0", False),
        ("=mlx5_1", False),
        ("mlx5_1", True),
        ("=mlx5_10:1", True),
        ("=mlx5_10:2", False),
        ("^mlx5_1", False),
        ("^=mlx5_1", True),
        ("", True),
    ],
)
def test_a_port_that_the_job_leaves_out(choice: str, is_used: bool) -> None:
    found = kept_back(("ACTIVE",) * 3, ("ACTIVE", "ACTIVE", "DOWN"), choice=choice)
    assert found == ({"gpu2": WORDS.format("mlx5_10:1 is DOWN")} if is_used else {})


def test_where_nothing_is_looked_at() -> None:
    assert kept_back(("ACTIVE",), ("DOWN",), gate=False) == {}
    assert kept_back(("ACTIVE",), ("DOWN",), rdma="off") == {}
    spec = JobSpec("a", ("true",), (Host("gpu1", "gpu1", gate=True),))
    assert hosts_with_ports_down(spec, JobFacts(root=False)) == {}
