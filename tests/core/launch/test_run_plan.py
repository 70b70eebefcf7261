"""What a line says of the network, as values that a run can be compared with."""

from dataclasses import replace

import pytest

from taco_launch.core.launch.run_plan import run_plan
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import NetworkOverrides
from taco_launch.core.model.plans import LaunchPlan, Placement, Share, Token
from taco_launch.core.model.run.planned import NcclPlan, PlannedTransport
from tests.support.fleet import roce, with_hcas
from tests.support.planned import FAR, RDMA, plan, told

PLACE = Placement((Share("gpu1", 8), Share("gpu2", 8)), "")
FLEET = [with_hcas(host.name, roce("mlx5_bond_0", "bond0", host.address)) for host in FAR]
FACTS = told(*FLEET, nccl="2.9.9")


def line(*words: str, **fields: object) -> LaunchPlan:
    tokens = tuple(Token(word, "profile", "") for word in words)
    return LaunchPlan(tokens, (), **fields)  # type: ignore[arg-type]


def test_a_real_line_on_roce() -> None:
    """The plan of the planner itself: what it chose is what is compared."""
    made = plan(FACTS, hosts=FAR, np=16, head="gpu1", network=RDMA)
    found = run_plan(PLACE, made, FACTS, {"gpu1": ("node-1",)})
    assert found.np == 16
    assert [host.ranks for host in found.hosts] == [tuple(range(8)), tuple(range(8, 16))]
    assert found.hosts[0].hostnames == ("node-1",)
    assert {host.interface for host in found.hosts} == {"bond0"}
    assert found.hosts[0].gid_index == 3
    assert found.hosts[0].hcas is not None
    assert found.nccl is not None
    assert found.nccl.transport is PlannedTransport.IB
    assert all(
        name.startswith(("NCCL_", "HOROVOD_", "OMPI_", "GLOO_", "TP_", "LD_", "UCX_")) for name, _value in found.env
    )


def test_tcp_as_it_was_asked_for() -> None:
    made = plan(FACTS, hosts=FAR, np=16, head="gpu1", network=RDMA, asked=NetworkOverrides(transport="tcp"))
    found = run_plan(PLACE, made, FACTS, {})
    assert found.nccl == NcclPlan(PlannedTransport.SOCKET)


def test_a_secret_is_not_compared() -> None:
    made = line("-x", "WANDB_API_KEY=abc", "-x", "NCCL_DEBUG=INFO", "-x", "PATH")
    assert run_plan(PLACE, made, FACTS, {}).env == (("NCCL_DEBUG", "INFO"),)


@pytest.mark.parametrize(
    ("words", "hcas", "gid", "interface"),
    [
        (
            ("-x", "NCCL_IB_HCA==mlx5_1:1,mlx5_0", "-x", "NCCL_IB_GID_INDEX=5", "-x", "NCCL_SOCKET_IFNAME==eth1"),
            ("mlx5_0", "mlx5_1"),
            5,
            "eth1",
        ),
        (("-genv", "NCCL_IB_HCA", "=mlx5_0", "-genv", "NCCL_IB_GID_INDEX", "-1"), ("mlx5_0",), None, "bond0"),
        (("-x", "NCCL_IB_HCA=mlx5", "-x", "NCCL_SOCKET_IFNAME=eth,bond"), None, None, None),
        (("-x", "NCCL_IB_HCA=^=mlx5_3", "-x", "NCCL_SOCKET_IFNAME=^docker0"), None, None, None),
        ((), None, None, "bond0"),
        (("-x",), None, None, "bond0"),
    ],
)
def test_values_of_a_line(
    words: tuple[str, ...], hcas: tuple[str, ...] | None, gid: int | None, interface: str | None
) -> None:
    host = run_plan(PLACE, line(*words), FACTS, {}).hosts[1]
    assert (host.hcas, host.gid_index, host.interface) == (hcas, gid, interface)


def test_what_differs_from_host_to_host() -> None:
    own = (("gpu2", (("NCCL_IB_GID_INDEX", "5"), ("NCCL_IB_HCA", "=mlx5_9"))),)
    found = run_plan(PLACE, line("-x", "NCCL_SOCKET_IFNAME==eth0", host_env=own), FACTS, {})
    assert [(host.gid_index, host.hcas) for host in found.hosts] == [(None, None), (5, ("mlx5_9",))]


@pytest.mark.parametrize(("value", "gpus", "all_gpus"), [("GPU-a,GPU-b", ("GPU-a", "GPU-b"), True), ("", None, False)])
def test_the_gpus_of_a_job(value: str, gpus: tuple[str, ...] | None, all_gpus: bool) -> None:
    facts = replace(FACTS, hosts=(JobHost("gpu1", gpus=2), JobHost("gpu2", gpus=8)))
    own = (("gpu1", (("CUDA_VISIBLE_DEVICES", value),)), ("gpu2", (("CUDA_VISIBLE_DEVICES", "3"),)))
    found = run_plan(PLACE, line(host_env=own), facts, {})
    assert [(host.gpus, host.all_gpus) for host in found.hosts] == [(gpus, all_gpus), (("3",), False)]


@pytest.mark.parametrize(
    ("words", "facts", "expected"),
    [
        (("-x", "NCCL_IB_DISABLE=1"), FACTS, NcclPlan(PlannedTransport.SOCKET)),
        (("-x", "NCCL_NET=Socket"), FACTS, NcclPlan(PlannedTransport.SOCKET)),
        (("-x", "NCCL_NET=AWS Libfabric"), FACTS, NcclPlan(None)),
        (("-x", "NCCL_NET_GDR_LEVEL=LOC"), FACTS, NcclPlan(PlannedTransport.IB, gdr=False)),
        ((), replace(FACTS, between=None), NcclPlan(None)),
        ((), replace(FACTS, nccl=None), NcclPlan(PlannedTransport.IB)),
        ((), replace(FACTS, hosts=(JobHost("gpu1", gpus=0),)), None),
    ],
)
def test_nccl(words: tuple[str, ...], facts: JobFacts, expected: NcclPlan | None) -> None:
    assert run_plan(PLACE, line(*words), facts, {}).nccl == expected
