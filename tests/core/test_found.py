"""Facts of hosts over SSH end up in the line: slots, interface, software, GID index, who mpirun runs as."""

from dataclasses import replace

import pytest

from taco_launch.launch.found import over_ssh, slots
from taco_launch.model.facts import HostFacts, Network, Software, System
from taco_launch.model.found import Absent, Unknown
from taco_launch.model.hardware import Gid, Gpus, Hca, Port, Rdma
from taco_launch.model.hosts import Container, Host
from taco_launch.model.job_facts import JobFacts
from taco_launch.model.jobs import JobSpec
from tests.facts.fleet import hca, with_hcas
from tests.facts.hosts import host

KNOWN = JobFacts(root=False)


def spec(**fields: object) -> JobSpec:
    hosts = tuple(Host(name, name) for name in ("gpu1", "gpu2"))
    return replace(JobSpec("j", ("true",), hosts, head="gpu1"), **fields)  # type: ignore[arg-type]


def with_gids(name: str, index: int) -> HostFacts:
    facts = host(name)
    assert isinstance(facts.rdma, Rdma)
    gid = Gid(index, f"0000:0000:0000:0000:0000:ffff:0a00:000{name[-1]}", "RoCE v2", "bond0")
    port = Port(1, "ACTIVE", "LinkUp", "Ethernet", 100.0, (gid,))
    hca = Hca("mlx5_bond_0", (port,), "0000:1b:00.0", 0, "22.31", "MT", "g", ("bond0",))
    return replace(facts, rdma=replace(facts.rdma, hcas=(hca,)))


def test_slots_are_the_gpus_else_the_cpus_and_never_a_guess() -> None:
    assert slots(host("gpu1")) == 8
    assert slots(host("gpu1", gpu=Absent("no driver"))) == 96
    assert slots(host("gpu1", gpu=Unknown("nvidia-smi hangs"))) is None
    assert slots(host("gpu1", gpu=Absent(), system=Unknown("cut off"))) is None
    facts = host("gpu1")
    assert isinstance(facts.gpu, Gpus)
    assert slots(replace(facts, gpu=replace(facts.gpu, gpus=Unknown("driver mismatch")))) is None


def test_the_software_is_the_heads() -> None:
    other = host("gpu2")
    assert isinstance(other.image, Software)
    found = over_ssh(KNOWN, spec(), (host("gpu1"), replace(other, image=replace(other.image, openmpi="5.0.11"))))
    assert (found.openmpi, found.nccl, found.horovod) == ("4.1.4", "2.9.9", "0.22.1")
    contained = spec(container=Container("image"))
    assert over_ssh(KNOWN, contained, (host("gpu1"),)).openmpi is None
    assert over_ssh(
        KNOWN, contained, (replace(host("gpu1"), image=replace(other.image, where="taco-launch-c")),)
    ).openmpi
    assert over_ssh(KNOWN, spec(), (host("gpu1", image=Unknown("cut off")),)).openmpi is None


def test_the_interface_of_each_host_is_the_one_it_is_reached_by() -> None:
    facts = host("gpu2")
    assert isinstance(facts.network, Network)
    lost = replace(facts, network=Unknown("cut off"))
    found = over_ssh(KNOWN, spec(), (host("gpu1"), lost))
    assert [entry.interface for entry in found.hosts] == ["bond0", None]


def test_each_host_has_the_gid_index_that_its_own_table_gives() -> None:
    found = over_ssh(KNOWN, spec(), (with_gids("gpu1", 3), with_gids("gpu2", 5)))
    assert [entry.gid_index for entry in found.hosts] == [3, 5]
    assert [entry.gid_index for entry in over_ssh(KNOWN, spec(), (host("gpu1"),)).hosts] == [None]


def test_each_host_has_the_link_layer_of_the_ports_a_job_uses() -> None:
    found = over_ssh(
        KNOWN, spec(), (with_hcas("gpu1", hca("mlx5_0")), with_gids("gpu2", 3), host("gpu3", rdma=Absent()))
    )
    assert [entry.link_layer for entry in found.hosts] == ["InfiniBand", "Ethernet", None]


@pytest.mark.parametrize(("access", "root"), [("root", True), ("sudo", False), ("user", False)])
def test_mpirun_runs_as_the_login_does(access: str, root: bool) -> None:
    facts = host("gpu1")
    assert isinstance(facts.system, System)
    logged_in = replace(facts, system=replace(facts.system, access=access))
    assert over_ssh(JobFacts(root=not root), spec(), (logged_in,)).root is root
    assert over_ssh(JobFacts(root=True), spec(container=Container("image")), (logged_in,)).root is True
