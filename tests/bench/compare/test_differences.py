"""What a run was made on, and what differs between two measurings: all of it, the largest suspects first."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.bench.compare.compare import compare
from taco_launch.bench.compare.differences import differences, merged
from taco_launch.bench.model.runs import Cell, RunEnvironment
from taco_launch.bench.run.run_environment import gpu_model, of_run
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Unknown
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, Image, NetworkFacts
from taco_launch.core.model.host.hardware import Gpus, Rdma
from taco_launch.core.model.host.hosts import Container, Host
from taco_launch.core.model.jobs import HostRanks, JobRecord, JobSpec, JobState, VerifiedRun
from tests.support.host_facts import host
from tests.support.ladders import run

COMMAND = ("python3", "train.py", "--model", "resnet 50")
LINE = (
    "mpirun -np 16 -H gpu1:8,gpu2:8 --bind-to none -x PATH -x NCCL_DEBUG=WARN -x 'A=b c' --mca pml ob1 --mca btl '^openib'"
    " --mca oob_tcp_dynamic_ipv4_ports 40000,40001 python3 train.py --model 'resnet 50'"
)


def made(*hosts: HostFacts, line: str = LINE, commit: str = "3f2a", **spec: Any) -> RunEnvironment:
    """Return the circumstances of a job on all of these hosts."""
    job = JobSpec("job", COMMAND, tuple(Host(one.host, "10.0.0.1") for one in hosts), **spec)
    shares = tuple(HostRanks(one.host, 8, (f"GPU-{one.host}",)) for one in hosts)
    return of_run(hosts, job, JobRecord("1", JobState.SUCCEEDED, line=line, shares=shares), commit)


def told(before: RunEnvironment, after: RunEnvironment) -> list[tuple[str, tuple[str, ...], str, str]]:
    return [(one.what, one.hosts, one.before, one.after) for one in differences(before, after)]


def test_what_is_known_of_a_job() -> None:
    found = made(host("gpu1"), host("gpu2"))
    of_all = {what: value for where, what, value in found.facts if where == ""}
    assert of_all == {
        "command": "python3 train.py --model 'resnet 50'",
        "commit": "3f2a",
        "image": "none: on the hosts themselves",
        "launcher": "mpirun",
        "profile": "none",
        "LightCC": "no",
        "mpirun options": "--bind-to none",
        "knob PATH": "(as the caller has it)",
        "knob NCCL_DEBUG": "WARN",
        "knob A": "b c",
        "knob pml": "ob1",
        "knob btl": "^openib",
    }
    of_one = {what: value for where, what, value in found.facts if where == "gpu2"}
    expected = {
        "driver": "535.104.05",
        "kernel": "3.10.0-957.el7.x86_64",
        "NCCL": "2.9.9",
        "Open MPI": "4.1.4",
        "UCX": "none",
        "OFED": "MLNX_OFED_LINUX-5.4-1.0.3.0",
        "NIC firmware mlx5_bond_0": "22.31",
        "HCA rate mlx5_bond_0": "100 Gb/s ACTIVE",
        "NIC rate bond0": "100 Gb/s, MTU 1500",
        "GPU model": "8x NVIDIA A100-SXM4-40GB",
        "GPUs used": "GPU-gpu2",
    }
    assert {what: of_one[what] for what in expected} == expected
    assert "GPUs" in of_one
    assert "GPU PCIe lanes" not in of_one  # nobody asked
    assert found.facts == tuple(sorted(found.facts))
    assert gpu_model((host("gpu1"), host("gpu2"))) == "NVIDIA A100-SXM4-40GB"
    assert gpu_model((host("gpu1", gpu=Absent()),)) == ""


def test_a_run_that_was_not_as_planned_is_a_suspect() -> None:
    def ran(status: str, why: str = "") -> RunEnvironment:
        record = JobRecord("1", JobState.SUCCEEDED, verified=VerifiedRun(status, why))
        return of_run((), JobSpec("job", COMMAND, (Host("gpu1", "10.0.0.1"),)), record)

    mismatch = "rank 0 on gpu2: transport: planned NET/IB, is Socket"
    assert told(ran("True"), ran("False", mismatch)) == [("runs as planned", (), "yes", f"no: {mismatch}")]
    assert told(ran("True"), ran("Unknown", "it ran for 5 s")) == []


@pytest.mark.parametrize("launcher", ["torchrun", "env"])
def test_the_knobs_of_a_line_without_mpirun(launcher: str) -> None:
    line = "env NCCL_DEBUG=WARN A=b MASTER_ADDR=10.0.0.1 RANK=0 torchrun --nnodes 2 X=y python3 train.py"
    found = made(host("gpu1"), line=line, launcher=launcher)
    assert [fact for fact in found.facts if fact[1].startswith("knob")] == [
        ("", "knob A", "b"),
        ("", "knob NCCL_DEBUG", "WARN"),
    ]


def test_of_a_job_that_never_began_what_was_asked_stands_for_its_line() -> None:
    spec = JobSpec("job", COMMAND, (), env=(("A", "b"), ("C", None)), mca=(("pml", "ob1"),))
    found = of_run((host("gpu1"),), spec, JobRecord("1", JobState.FAILED))
    assert [(what, value) for _, what, value in found.facts if what.startswith("knob")] == [
        *(("knob A", "b"), ("knob C", "(as the caller has it)"), ("knob pml", "ob1")),
    ]
    assert ("gpu1", "driver", "535.104.05") in found.facts


def test_the_image_that_each_host_has() -> None:
    docker = host("gpu1").docker
    assert isinstance(docker, DockerFacts)
    hosts = [
        host(
            name,
            docker=replace(
                docker, images=(Image("train:1", "sha256:id", digest, 1), Image("x:1", "sha256:x", None, 1))
            ),
        )
        for name, digest in (("gpu1", "sha256:a"), ("gpu2", None))
    ]
    found = made(*hosts, container=Container("train:1"))
    assert [fact for fact in found.facts if fact[1] == "image"] == [
        ("gpu1", "image", "sha256:a"),
        ("gpu2", "image", "sha256:id"),
    ]
    assert ("", "image", "train:1") in made(host("gpu1"), container=Container("train:1")).facts


def _with(subject: Any, **values: Any) -> Any:
    """Return a subject that is there, with other values."""
    return replace(subject, **values)


def changed(facts: HostFacts) -> HostFacts:
    """Return a host with another of everything that a suspect is."""
    assert isinstance(facts.gpu, Gpus)
    assert isinstance(facts.rdma, Rdma)
    assert isinstance(facts.network, NetworkFacts)
    (hca,) = facts.rdma.hcas  # type: ignore[misc]
    (port,) = hca.ports
    interfaces = tuple(replace(one, speed=25.0) for one in facts.network.interfaces)  # type: ignore[union-attr]
    return replace(
        facts,
        system=_with(facts.system, kernel="5.15"),
        network=replace(facts.network, interfaces=interfaces),
        gpu=replace(facts.gpu, driver=replace(facts.gpu.driver, loaded="550.54")),
        rdma=replace(facts.rdma, hcas=(replace(hca, firmware="22.40", ports=(replace(port, rate=25.0),)),)),
        image=_with(facts.image, nccl="2.21.5"),
    )


def test_the_largest_suspects_are_first_and_hosts_are_folded() -> None:
    hosts = tuple(host(f"gpu{number}") for number in range(1, 4))
    knobs = (
        LINE.replace("NCCL_DEBUG=WARN", "NCCL_ALGO=Ring")
        .replace("'A=b c'", "A=c")
        .replace("40000,40001", "40002,40003")
    )
    before = made(*hosts)
    after = made(*map(changed, hosts[:2]), hosts[2], commit="77ab", line=knobs)
    assert told(before, after) == [
        ("commit", (), "3f2a", "77ab"),
        ("driver", ("gpu1", "gpu2"), "535.104.05", "550.54"),
        ("NCCL", ("gpu1", "gpu2"), "2.9.9", "2.21.5"),
        ("NIC rate bond0", ("gpu1", "gpu2"), "100 Gb/s, MTU 1500", "25 Gb/s, MTU 1500"),
        ("HCA rate mlx5_bond_0", ("gpu1", "gpu2"), "100 Gb/s ACTIVE", "25 Gb/s ACTIVE"),
        ("knob A", (), "b c", "c"),
        ("knob NCCL_ALGO", (), "not set", "Ring"),
        ("knob NCCL_DEBUG", (), "WARN", "not set"),
        ("NIC firmware mlx5_bond_0", ("gpu1", "gpu2"), "22.31", "22.40"),
        ("kernel", ("gpu1", "gpu2"), "3.10.0-957.el7.x86_64", "5.15"),
    ]
    assert told(before, before) == []


def test_a_link_that_the_kernel_slows_is_told() -> None:
    network = host("gpu1").network
    assert isinstance(network, NetworkFacts)
    interfaces = tuple(replace(one, shaping="tbf rate 100Mbit") for one in network.interfaces)  # type: ignore[union-attr]
    slow = host("gpu2", network=replace(network, interfaces=interfaces))
    assert told(made(host("gpu1"), host("gpu2")), made(host("gpu1"), slow)) == [
        ("NIC rate bond0", ("gpu2",), "100 Gb/s, MTU 1500", "100 Gb/s, MTU 1500, slowed by tbf rate 100Mbit")
    ]


def test_a_host_behind_the_same_name_and_a_gpu_in_its_place() -> None:
    one, other = host("gpu1"), host("gpu2")
    (hca,) = one.rdma.hcas  # type: ignore[union-attr,misc]
    swapped = replace(host("gpu7"), host="gpu1", rdma=_with(one.rdma, hcas=(replace(hca, guid="h"),)))
    assert told(made(one, other), made(swapped, other)) == [
        ("machine", ("gpu1",), "HCA GUIDs g", "a different machine with the same name, h"),
    ]
    other_hca = replace(one, rdma=_with(one.rdma, hcas=(replace(hca, guid="h"),)))
    assert told(made(one, other), made(other_hca, other)) == [("HCA GUIDs", ("gpu1",), "g", "h")]
    assert isinstance(one.gpu, Gpus)
    assert isinstance(one.gpu.gpus, tuple)
    new = (replace(one.gpu.gpus[0], uuid="GPU-new"), *one.gpu.gpus[1:])
    assert told(made(one, other), made(replace(one, gpu=replace(one.gpu, gpus=new)), other)) == [
        ("GPUs", ("gpu1",), "GPU-1-0", "GPU-new"),
    ]


def test_other_hosts_are_told_once_and_what_they_alone_have() -> None:
    before = made(host("gpu1"), host("gpu2"))
    assert told(before, made(host("gpu1"), host("gpu3"))) == [("hosts", (), "gpu1, gpu2", "gpu1, gpu3")]
    assert told(before, made(host("gpu1"), host("gpu3", driver="550.54"))) == [
        ("driver", ("gpu3",), "535.104.05", "550.54"),
        ("hosts", (), "gpu1, gpu2", "gpu1, gpu3"),
    ]


def test_what_one_side_does_not_know_is_no_difference() -> None:
    silent = host("gpu1", gpu=Unknown("nvidia-smi hangs"), rdma=NOT_ASKED)
    assert told(made(host("gpu1")), made(silent)) == []
    assert told(RunEnvironment(), made(host("gpu1"))) == []
    without = host("gpu1", gpu=Absent(), rdma=Absent())
    assert told(made(host("gpu1")), made(without)) == [
        ("GPU model", ("gpu1",), "8x NVIDIA A100-SXM4-40GB", "none"),
        ("HCAs", ("gpu1",), "mlx5_bond_0", "none"),
    ]
    gone = host("gpu1", rdma=_with(host("gpu1").rdma, ofed=Absent()))
    assert told(made(host("gpu1")), made(gone)) == [("OFED", ("gpu1",), "MLNX_OFED_LINUX-5.4-1.0.3.0", "none")]


def test_what_differs_among_the_runs_of_a_side_stands_side_by_side() -> None:
    facts = [RunEnvironment((("", "commit", commit), ("gpu1", "driver", "1"))) for commit in ("a", "b", "a")]
    assert merged(facts).facts == (("", "commit", "a / b"), ("gpu1", "driver", "1"))
    assert merged(()).facts == ()


def _on(**facts: str) -> RunEnvironment:
    return RunEnvironment(tuple(sorted((host_name, "driver", value) for host_name, value in facts.items())))


def test_cells_that_both_have_are_compared_and_the_hosts_of_all_folded() -> None:
    before = [
        *(run(value, circumstances=_on(gpu1="1", gpu2="1")) for value in (99.0, 101.0)),
        run(10.0, ranks=1, circumstances=_on(gpu1="1")),
        run(5.0, "rdma", circumstances=_on(gpu1="9")),
        run(500.0, warm_up=True, circumstances=_on(gpu1="warm")),
    ]
    after = [
        *(run(value, circumstances=_on(gpu1="2", gpu2="2")) for value in (198.0, 202.0)),
        run(None, ranks=1, circumstances=_on(gpu1="2")),
    ]
    found = compare(before, after)
    assert [(one.difference.what, one.difference.hosts, one.everywhere) for one in found.differs] == [
        ("driver", ("gpu1", "gpu2"), True)
    ]
    one_rank, all_ranks = found.changed
    assert (one_rank.before_cell.ranks, one_rank.before, one_rank.after, one_rank.ratio) == (1, (10.0,), (), None)
    assert (all_ranks.before, all_ranks.after) == ((99.0, 101.0), (198.0, 202.0))
    assert all_ranks.ratio is not None
    assert all_ranks.ratio.value == pytest.approx(2.0)
    only_one = compare(before, [*after[:2], run(10.0, ranks=1, circumstances=_on(gpu1="1"))])
    assert [(one.cells, one.everywhere) for one in only_one.differs] == [((Cell("horovod", "tcp", 16),), False)]


def test_two_single_cells_are_compared_whatever_they_are() -> None:
    found = compare([run(1.0), run(2.0, warm_up=True)], [run(3.0, "rdma", 8, warm_up=True)])
    assert [(one.before, one.after, one.after_cell.variant) for one in found.changed] == [((1.0,), (3.0,), "rdma")]
    with pytest.raises(ValueError, match="no cell was measured in both"):
        compare([run(1.0), run(1.0, ranks=1)], [run(1.0, "rdma")])
