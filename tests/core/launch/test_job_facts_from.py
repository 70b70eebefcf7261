"""Facts of hosts over SSH end up in the line: slots, interface, software, GID index, who mpirun runs as."""

from dataclasses import replace

import pytest

from taco_launch.core.launch.job_facts_from import job_facts_from, slots
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Software, System
from taco_launch.core.model.host.hardware import Gpus
from taco_launch.core.model.host.hosts import Container, Host
from taco_launch.core.model.host.hosts import Network as Declared
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec, NetworkOverrides
from tests.support.fleet import roce, with_hcas
from tests.support.host_facts import host

KNOWN = JobFacts(root=False)


def spec(**fields: object) -> JobSpec:
    hosts = tuple(Host(name, name) for name in ("gpu1", "gpu2"))
    return replace(JobSpec("j", ("true",), hosts, head="gpu1"), **fields)  # type: ignore[arg-type]


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
    found = job_facts_from(KNOWN, spec(), (host("gpu1"), replace(other, image=replace(other.image, openmpi="5.0.11"))))
    assert (found.openmpi, found.nccl, found.horovod) == ("4.1.4", "2.9.9", "0.22.1")
    contained = spec(container=Container("image"))
    assert job_facts_from(KNOWN, contained, (host("gpu1"),)).openmpi is None
    assert job_facts_from(
        KNOWN, contained, (replace(host("gpu1"), image=replace(other.image, where="taco-launch-c")),)
    ).openmpi
    assert job_facts_from(KNOWN, spec(), (host("gpu1", image=Unknown("cut off")),)).openmpi is None


def test_only_the_hosts_that_ranks_go_to_are_asked_what_is_between_them() -> None:
    """What a host has that takes no part makes no difference."""
    hosts = (
        with_hcas("gpu1", roce("mlx5_bond_0", "bond0", "10.0.0.1")),
        with_hcas("gpu2", roce("mlx5_bond_0", "bond0", "10.0.0.2", 4)),
    )
    one = job_facts_from(KNOWN, spec(np=8), hosts).between
    two = job_facts_from(KNOWN, spec(np=16), hosts).between
    assert job_facts_from(KNOWN, spec(host_count=1, slots_per_host=2), hosts).between == one
    assert job_facts_from(KNOWN, spec(slots_per_host=2), hosts).between == two
    assert one is not None
    assert two is not None
    assert (one.gids, two.gids) == ((("gpu1", 3),), (("gpu1", 3), ("gpu2", 5)))
    assert job_facts_from(KNOWN, spec(np=99), hosts).between == job_facts_from(KNOWN, spec(), hosts).between == two


def test_where_a_host_is_silent_nothing_is_said_of_what_is_between() -> None:
    assert job_facts_from(KNOWN, spec(), (host("gpu1"),)).between is None
    alone = job_facts_from(KNOWN, spec(np=8), (host("gpu1"),)).between
    assert alone is not None
    assert alone.interface.value == "bond0"


def test_the_interface_that_is_named_decides_which_gid_is_meant() -> None:
    for fields in ({"asked": NetworkOverrides(interface="eth9")}, {"network": Declared(interface="eth9")}):
        found = job_facts_from(KNOWN, spec(**fields), (host("gpu1"), host("gpu2"))).between
        assert found is not None
        assert "there is no interface eth9" in found.network.why


@pytest.mark.parametrize(("access", "root"), [("root", True), ("sudo", False), ("user", False)])
def test_mpirun_runs_as_the_login_does(access: str, root: bool) -> None:
    facts = host("gpu1")
    assert isinstance(facts.system, System)
    logged_in = replace(facts, system=replace(facts.system, access=access))
    assert job_facts_from(JobFacts(root=not root), spec(), (logged_in,)).root is root
    assert job_facts_from(JobFacts(root=True), spec(container=Container("image")), (logged_in,)).root is True
