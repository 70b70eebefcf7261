"""What is said of a line, and what a line becomes of it: LightCC, contradictions, the caller's environment."""

from typing import Any

import pytest

from taco_launch.core.launch.light_program import with_light
from taco_launch.core.model.host.hosts import Container, Host, Network
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import CodeSnapshot, NetworkOverrides, Policy, Restart, TensorBoard
from taco_launch.hosts.inventory import profile
from tests.support.planned import BOND, FAR, LIGHTCC, LOCAL, PROFILES, RDMA, gids, plan, settings


def test_light_is_the_guides_combination() -> None:
    with_it = plan(hosts=FAR, network=BOND, asked=NetworkOverrides(light=True), container=LIGHTCC)
    assert {name: value for name, value in settings(with_it).items() if name.startswith(("LIGHT_", "HOROVOD_"))} == {
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CYCLE_TIME": "0",
        "LIGHT_INTRA_SIZE": "8",
        "LIGHT_2D_ALLREDUCE": "1",
        "LIGHT_TOPK_ALLREDUCE": "1",
        "LIGHT_TOPK_THRESHOLD": "2097152",
    }
    assert any("lossy" in warning for warning in with_it.warnings)
    assert not any("nothing is known to read" in warning for warning in with_it.warnings)
    without = plan(hosts=FAR, network=BOND, asked=NetworkOverrides(light=True))
    assert any("nothing is known to read" in warning for warning in without.warnings)
    assert not {name for name in settings(without) if name.startswith("HOROVOD_")}
    ours = plan(hosts=FAR, network=BOND, asked=NetworkOverrides(light=True), command=with_light(("python3", "t.py")))
    assert any("taco_launch.light applies them" in warning for warning in ours.warnings)
    assert not any("nothing is known to read" in warning for warning in ours.warnings)
    uneven = plan(hosts=FAR, np=12, network=BOND, asked=NetworkOverrides(light=True))
    assert "LIGHT_INTRA_SIZE" not in settings(uneven)
    assert any("hosts differ" in warning for warning in uneven.warnings)
    assert any("one host" in warning for warning in plan(asked=NetworkOverrides(light=True)).warnings)


def test_2d_alone_is_horovods_torus_where_nothing_reads_the_other() -> None:
    def found(horovod: str | None = "0.28.1", **fields: Any) -> list[str]:
        facts = JobFacts(False, openmpi="4.1.4", horovod=horovod)
        made = plan(facts, **{"hosts": FAR, "network": BOND, "env": (("LIGHT_2D_ALLREDUCE", "1"),), **fields})
        return [name for name in settings(made) if name.startswith(("LIGHT_", "HOROVOD_"))]

    assert found() == ["HOROVOD_TORUS_ALLREDUCE"]
    assert found(env=(("LIGHT_INTRA_SIZE", "8"), ("LIGHT_2D_ALLREDUCE", "1"))) == ["HOROVOD_TORUS_ALLREDUCE"]
    unchanged = ["LIGHT_2D_ALLREDUCE"]
    assert found(np=12) == ["LIGHT_2D_ALLREDUCE"]
    assert found("0.25.0") == found(None) == found(container=LIGHTCC) == found(hosts=(LOCAL,)) == unchanged
    assert found(env=(("LIGHT_INTRA_SIZE", "4"), *((name, "1") for name in unchanged))) == [
        "LIGHT_INTRA_SIZE",
        *unchanged,
    ]
    assert found(env=(("LIGHT_2D_ALLREDUCE", "0"),)) == unchanged
    both = (("LIGHT_2D_ALLREDUCE", "1"), ("LIGHT_TOPK_ALLREDUCE", "1"))
    assert found(env=both) == ["LIGHT_2D_ALLREDUCE", "LIGHT_TOPK_ALLREDUCE"]


def test_what_the_environment_holds_and_the_line_overrides() -> None:
    inherited = (
        ("NCCL_DEBUG", "TRACE"),
        ("NCCL_IB_TC", "106"),
        ("OMPI_MCA_pml", "ucx"),
        ("OMPI_MCA_btl", "^openib,ofi"),
    )
    facts = JobFacts(False, environment=inherited, openmpi="4.1.4")
    said = plan(facts, hosts=FAR, network=BOND).warnings
    assert [warning.split()[0] for warning in said if "your environment" in warning] == ["NCCL_DEBUG=WARN", "--mca"]
    asked = plan(facts, hosts=FAR, network=BOND, env=(("NCCL_DEBUG", "INFO"),), mca=(("pml", "cm"),)).warnings
    assert not [warning for warning in asked if "your environment" in warning]


BONDED = {"hosts": FAR, "network": BOND}
UNDONE = "-x NCCL_NET_GDR_LEVEL=SYS undoes -x NCCL_NET_GDR_LEVEL=LOC (no GPUDirect RDMA; --no-gdr)"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"asked": NetworkOverrides(interface="eth0")}, ["--interface changes nothing on the line on one host"]),
        ({"asked": NetworkOverrides(transport="rdma", gdr=True)}, ["--transport rdma changes", "--gdr changes"]),
        ({"asked": NetworkOverrides(transport="auto")}, []),
        ({"hosts": FAR, "asked": NetworkOverrides(transport="rdma", interface="ib0", gdr=False)}, []),
        (
            {"hosts": FAR, "asked": NetworkOverrides(transport="tcp"), "network": RDMA, "profile": "taco-bare-metal"},
            ["--transport tcp: nothing on the line keeps NCCL off RDMA: add -x NCCL_IB_DISABLE=1"],
        ),
        (
            {**BONDED, "asked": NetworkOverrides(gdr=True), "profile": "ack"},
            ["--gdr changes", "the line names no hosts"],
        ),
        (
            {**BONDED, "asked": NetworkOverrides(transport="tcp", gdr=True)},
            ["GPUDirect RDMA is requested, but the job uses TCP"],
        ),
        ({**BONDED, "asked": NetworkOverrides(gdr=False), "env": (("NCCL_NET_GDR_LEVEL", "SYS"),)}, [UNDONE]),
        (
            {**BONDED, "env": (("NCCL_SOCKET_IFNAME", "=eth0"),)},
            ["NCCL_SOCKET_IFNAME==eth0 and bond0 for MPI differ: --interface sets both"],
        ),
        ({**BONDED, "mca": (("btl_tcp_if_include", "10.0.0.0/16"),)}, []),
    ],
)
def test_what_is_asked_and_comes_to_nothing_is_said(fields: dict[str, Any], said: list[str]) -> None:
    if "profile" in fields:
        fields = {**fields, "profile": profile.load(fields["profile"], "", {})}
    warnings = plan(JobFacts(False, openmpi="4.1.4", nccl="2.27.3"), **fields).warnings
    ours = [
        warning
        for warning in warnings
        if not warning.startswith(("NCCL_IB_DISABLE=0", "NCCL_IB_GID", "NCCL_SOCKET_IFNAME, "))
    ]
    assert len(ours) == len(said), ours
    assert all(warning.startswith(start) for warning, start in zip(ours, said, strict=True))


def test_an_option_that_takes_words_away_changes_the_line() -> None:
    guide: dict[str, Any] = {
        "hosts": FAR,
        "np": 8,
        "head": "gpu1",
        "network": Network("bond0", "on", 3),
        "profile": PROFILES[1],
    }
    made = plan(asked=NetworkOverrides(transport="tcp", interface="eth0"), **guide)
    assert made.warnings == ()


def test_what_mpirun_takes_from_a_program_is_said() -> None:
    made = plan(command=("train.py", "--epochs", "1", "--mca", "a", "b", "--map-by", "slot", ":"))
    (said,) = made.warnings
    assert said.startswith("--mca, --map-by, :: with taco-launch")
    assert plan(command=("--mca", "--epochs")).warnings == ()


def test_a_range_of_ports_that_is_too_small() -> None:
    def said(first: int, last: int, np: int) -> list[str]:
        made = plan(hosts=FAR, np=np, network=Network(interface="bond0", port_range=(first, last)))
        return [warning for warning in made.warnings if "port_range" in warning]

    assert said(40000, 40000, 16)
    assert said(40000, 40007, 16)
    assert not said(40000, 40008, 16)
    assert not said(40000, 40000, 8)


def test_open_mpi_5_and_the_guides_single_dashes() -> None:
    guide = PROFILES[1]
    facts = JobFacts(False, openmpi="5.0.11")
    assert any(
        warning.startswith("-bind-to, -map-by: ") for warning in plan(facts, profile=guide, network=RDMA).warnings
    )
    assert not any("two dashes" in warning for warning in plan(profile=guide, network=RDMA).warnings)
    assert not any("two dashes" in warning for warning in plan(facts).warnings)


def test_an_exclude_of_the_environment_stands_against_our_include() -> None:
    facts = JobFacts(False, openmpi="4.1.4", environment=(("OMPI_MCA_btl_tcp_if_exclude", "docker0"),))
    assert any("unset it" in warning for warning in plan(facts, hosts=FAR, network=BOND).warnings)
    assert not any("unset it" in warning for warning in plan(facts).warnings)


def test_logins_and_ports_that_a_pasted_line_has_not_are_named() -> None:
    odd = (Host("a", "a", slots=1, user="bob"), Host("b", "b", slots=1, port=2222), Host("c", "c", slots=1))
    said = [warning for warning in plan(hosts=odd, head="a", network=BOND).warnings if "~/.ssh/config" in warning]
    assert [warning.partition(":")[0] for warning in said] == ["a and 1 more"]
    assert not [warning for warning in plan(hosts=FAR, network=BOND).warnings if "~/.ssh/config" in warning]


def test_each_host_its_own_gid_index_is_said() -> None:
    assert any("differs from host to host (gpu1 3, gpu2 5)" in warning for warning in gids("2.9.9", 3, 5).warnings)


@pytest.mark.parametrize(("head", "is_told"), [("gpu1", False), ("gpu2", True)])
def test_a_tensorboard_that_does_not_see_rank_0(head: str, *, is_told: bool) -> None:
    made = plan(hosts=FAR, network=BOND, head=head, np=2, tensorboard=TensorBoard("runs", 600.0))
    assert any("TensorBoard reads runs on gpu2, and rank 0 runs on gpu1" in each for each in made.warnings) is is_told


@pytest.mark.parametrize(("value", "is_told"), [("0,1", True), ("0,1,2,3,4,5,6,7", False)])
def test_gpus_that_the_user_has_the_ranks_see(value: str, *, is_told: bool) -> None:
    hosts = (JobHost("gpu1", gpus=8), JobHost("gpu2", gpus=8))
    made = plan(
        JobFacts(False, openmpi="4.1.4", hosts=hosts),
        hosts=FAR,
        network=BOND,
        np=2,
        env=(("CUDA_VISIBLE_DEVICES", value),),
    )
    assert any("the ranks see these GPUs, whichever the job has" in each for each in made.warnings) is is_told


def test_ranks_that_share_gpus_and_a_host_with_fewer_than_the_others() -> None:
    def said(one: int | None, two: int | None, **fields: Any) -> list[str]:
        hosts = (JobHost("gpu1", gpus=one), JobHost("gpu2", gpus=two))
        made = plan(JobFacts(False, openmpi="4.1.4", hosts=hosts), **{"hosts": FAR, "network": BOND, **fields})
        return [warning for warning in made.warnings if "GPUs" in warning]

    assert said(8, 8) == said(0, 0) == said(None, 8) == said(8, 0) == []
    gone = "gpu1 has 7 GPUs, and other hosts of the job have 8: is a GPU missing? taco-launch setup --check -H gpu1 shows it"
    assert said(7, 8) == ["ranks share GPUs: gpu1 has 7 GPUs for 8 ranks", gone]
    assert said(7, 8, np=4) == [], "the other host takes no part"
    uneven = (Host("gpu1", "10.0.0.1", slots=14), Host("gpu2", "10.0.0.2", slots=2))
    assert said(8, 8, hosts=uneven) == ["ranks share GPUs: gpu1 has 8 GPUs for 14 ranks"]
    assert said(4, 8, hosts=(Host("gpu1", "10.0.0.1", slots=4), FAR[1])) == [], "it is declared so"


def test_a_retry_does_not_find_checkpoints_in_the_copy_of_the_code() -> None:
    retry, code = Policy(restart=Restart.ON_FAILURE, backoff_limit=3), CodeSnapshot("1" * 64, "/src")
    (said,) = plan(policy=retry, code=code).warnings
    assert "a retry does not find checkpoints" in said
    mounted = Container("image", mounts=(("/data", "/data", "rw"),))
    for fine in (
        {"code": code},
        {"policy": retry},
        {"policy": retry, "code": CodeSnapshot("1" * 64)},
        {"policy": retry, "code": code, "workdir": "/work"},
    ):
        assert plan(**fine).warnings == ()
    assert not any("checkpoints" in warning for warning in plan(policy=retry, code=code, container=mounted).warnings)
    (bare,) = (
        warning
        for warning in plan(policy=retry, code=code, container=Container("image")).warnings
        if "check" in warning
    )
    assert bare.endswith("write them to a folder of --data")
