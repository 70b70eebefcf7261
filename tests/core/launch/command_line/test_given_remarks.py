"""What a line of variables and parameters that a user gives is warned of, or refused for."""

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.core.launch.knobs.remarks import remarks
from taco_launch.jobs.request.variables import check, pairs
from tests.support.planned import BOND, FAR, plan


def test_a_port_of_ones_own_is_no_mistake() -> None:
    assert not [
        text for text in plan(hosts=FAR, network=BOND, env=pairs(["MASTER_PORT=40999"])).warnings if "MASTER" in text
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("PATH=$PATH:/opt/x/bin", "PATH: no shell expands the value, so the ranks get $PATH literally"),
        ("LD_LIBRARY_PATH=/a:${B}", "get ${B} literally"),
        ("MASTER_ADDR=nosuch", "MASTER_ADDR=nosuch overrides what taco-launch sets"),
        ("CUDA_VISIBLE_DEVICES=0", "ranks share GPUs: CUDA_VISIBLE_DEVICES=0 names 1 for up to 8 ranks on a host"),
    ],
)
def test_a_value_that_does_not_do_what_one_hopes(given: str, said: str) -> None:
    found = plan(hosts=FAR, network=BOND, env=pairs([given]))
    assert any(said in warning for warning in found.warnings), found.warnings


@pytest.mark.parametrize("given", ["PATH=/opt/x/bin", "TOKEN=a$b", "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"])
def test_a_value_that_does(given: str) -> None:
    name = given.partition("=")[0]
    assert not [text for text in plan(hosts=FAR, network=BOND, env=pairs([given])).warnings if name in text]


def test_a_parameter_is_looked_at_under_its_own_name() -> None:
    found = plan(hosts=FAR, network=BOND, mca=(("btl_tcp_if_exclude", "docker0"),))
    assert any("btl_tcp_if_exclude docker0 lacks lo" in warning for warning in found.warnings)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"])
def test_what_differs_from_rank_to_rank_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="would be the same for every rank"):
        check(pairs([f"{name}=0"]), (), (), {}, allow_unknown=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"NCCL_IB_HCA": "=mlx5"}, "mlx5 is a driver's name, not an HCA's"),
        ({"NCCL_IB_HCA": "=mlx5_0,bnxt_re"}, "bnxt_re is a driver's name"),
        ({"NCCL_IB_HCA": "=mlx5_0:1,mlx5_bond_0"}, ""),
        ({"NCCL_IB_HCA": "mlx5"}, ""),
        ({"NCCL_SOCKET_IFNAME": "^docker0"}, "write ^docker0,lo"),
        ({"NCCL_SOCKET_IFNAME": "^lo,docker"}, ""),
        ({"btl_tcp_if_exclude": "docker0"}, "write lo,docker0"),
        ({"btl_tcp_if_exclude": "docker0,127.0.0.1/8"}, ""),
        (
            {"NCCL_IB_DISABLE": "1", "NCCL_IB_TC": "106", "NCCL_IB_SL": "3"},
            "so NCCL_IB_TC, NCCL_IB_SL do nothing",
        ),
        ({"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}, ""),
    ],
)
def test_knobs(given: dict[str, str], said: str) -> None:
    found = remarks(tuple(given.items()))
    assert [said in text for text in found] == ([True] if said else [])
