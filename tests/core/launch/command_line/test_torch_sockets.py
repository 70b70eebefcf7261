"""The interface of gloo and TensorPipe: each host's own, under every launcher, never instead of the user's."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.launch.command_line.env import TORCH_SOCKETS
from taco_launch.core.launch.command_line.torch_sockets import WHY
from taco_launch.core.launch.plan import plan
from taco_launch.core.model.host.hosts import Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement, Share
from taco_launch.hosts.inventory import profile
from tests.support.fleet import network, with_hcas
from tests.support.planned import AUTO, FAR, told

TWO = Placement((Share("gpu1", 1), Share("gpu2", 1)), "so")
LAUNCHERS = ("mpirun", "torchrun", "env")
KNOWN = JobFacts(root=False, openmpi="4.1.4")


def made(launcher: str, facts: JobFacts = KNOWN, placement: Placement = TWO, **fields: Any) -> LaunchPlan:
    job = JobSpec("j", ("true",), FAR, head="gpu1", profile=AUTO, network=Network("bond0"), launcher=launcher)
    return plan(replace(job, **fields), "id", placement, facts, ("agent", "--"), "", 4242)


def sockets(found: LaunchPlan) -> dict[str, str | None]:
    """Return what each host is told, the same for both libraries."""
    given: dict[str, str | None] = {}
    for host, pairs in found.host_env:
        values = {value for name, value in pairs if name in TORCH_SOCKETS}
        assert len(values) == 1
        given[host] = values.pop()
    return given


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_host_is_told_the_interface_that_nccl_has(launcher: str) -> None:
    found = made(launcher)
    assert sockets(found) == {"gpu1": "bond0", "gpu2": "bond0"}
    if launcher != "mpirun":
        for command in found.commands:
            assert {f"{name}=bond0" for name in TORCH_SOCKETS} <= set(command.lines[0])
        assert [token.why for token in found.tokens if token.text == "GLOO_SOCKET_IFNAME=bond0"] == [WHY]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_has_its_own_where_names_differ(launcher: str) -> None:
    hosts = [with_hcas(f"gpu{n}", network=network(name, f"10.0.0.{n}/24")) for n, name in ((1, "eth0"), (2, "ens3f0"))]
    assert sockets(made(launcher, told(*hosts), network=Network())) == {"gpu1": "eth0", "gpu2": "ens3f0"}


@pytest.mark.parametrize(
    ("nccl", "expected"),
    [("=eth1", "eth1"), ("bond0", "bond0"), ("bond", ""), ("^docker0", ""), ("=eth0,eth1", ""), ("=", "")],
)
def test_a_value_for_nccl_that_may_mean_several_interfaces_is_none_for_gloo(nccl: str, expected: str) -> None:
    found = made("torchrun", env=(("NCCL_SOCKET_IFNAME", nccl),))
    assert set(sockets(found).values()) == ({expected} if expected else set())


@pytest.mark.parametrize(
    "more",
    [
        {"env": tuple((name, "eth9") for name in TORCH_SOCKETS)},
        {"facts": replace(KNOWN, environment=tuple((name, "eth9") for name in TORCH_SOCKETS))},
        {"placement": Placement((Share("gpu1", 2),), "so")},
        {"network": Network()},
    ],
    ids=["given with the job", "set by the caller", "one host", "nobody knows it"],
)
def test_nothing_is_told(more: dict[str, Any]) -> None:
    assert sockets(made("env", **more)) == {}


def test_the_lines_of_the_guide_stay_and_gloo_works_beside_them() -> None:
    found = made("mpirun", profile=profile.load("taco-bare-metal", "", {}))
    assert "GLOO" not in " ".join(found.argv)
    assert sockets(found) == {"gpu1": "bond0", "gpu2": "bond0"}
