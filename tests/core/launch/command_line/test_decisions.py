"""What facts, inventory and command line decide: transport, interface, GID index, versions, many hosts."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.launch.command_line.decisions import CONDITIONS, VALUES, decide
from taco_launch.core.launch.missing_facts import missing_facts
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.host.versions import version
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import JobSpec, NetworkOverrides, Profile
from taco_launch.core.model.plans import FreeSlots, LaunchPlan, SlotRequest
from taco_launch.core.placement.hosts import place
from tests.support.fleet import hca, network, with_hcas
from tests.support.planned import AUTO, BOND, FAR, LIGHTCC, LOCAL, RDMA, gids, missing, own, plan, settings, told


def test_a_version_nobody_knows_is_missing_not_guessed() -> None:
    made = plan(JobFacts(False), hosts=FAR, network=BOND)
    assert missing(made) == ["btl, oob_tcp_if_include"]
    assert not {"orte_keep_fqdn_hostnames", "btl"} & settings(made).keys()
    # One host: no option depends on it but the one that the host's facts have to call for.
    assert missing(plan(JobFacts(False))) == []


def test_ranks_that_may_not_read_each_others_memory() -> None:
    def single_copy(*, allowed: bool | None, openmpi: str) -> dict[str, str]:
        host = JobHost("me", slots=2, single_copy=allowed)
        return settings(plan(JobFacts(False, openmpi=openmpi, hosts=(host,))))

    assert single_copy(allowed=False, openmpi="4.1.4") == {"btl_vader_single_copy_mechanism": "none"}
    assert single_copy(allowed=True, openmpi="4.1.4") == {}
    assert single_copy(allowed=None, openmpi="4.1.4") == {}
    assert "btl_vader_single_copy_mechanism" not in single_copy(allowed=False, openmpi="5.0.7")


def test_the_gid_index_where_nccl_needs_it() -> None:
    assert settings(gids("2.9.9", 3, 3))["NCCL_IB_GID_INDEX"] == "3"
    assert settings(gids("2.20.5", 5, 5))["NCCL_IB_GID_INDEX"] == "5"
    assert "NCCL_IB_GID_INDEX" not in settings(gids("2.21", 3, 3))
    differ = gids("2.9.9", 3, 5)
    assert "NCCL_IB_GID_INDEX" not in settings(differ)
    assert own(differ) == {"gpu1": (("NCCL_IB_GID_INDEX", "3"),), "gpu2": (("NCCL_IB_GID_INDEX", "5"),)}
    ranged = gids("2.21.5", 3, 5)
    assert own(ranged) == {}
    assert settings(ranged)["NCCL_IB_ADDR_RANGE"] == "10.0.0.0/24"
    assert settings(gids(None, gid_index=3))["NCCL_IB_GID_INDEX"] == "3"
    # whichever NCCL it is, it takes the index that it is told
    assert settings(gids(None, 3, 3))["NCCL_IB_GID_INDEX"] == "3"
    assert missing(gids("2.9.9")) == missing(gids(None)) == ["NCCL_IB_GID_INDEX"]
    assert any("show_gids" in warning for warning in gids("2.9.9").warnings)


@pytest.mark.parametrize("nccl", [None, "2.9.9"])
def test_infiniband_needs_no_gid_index_whatever_the_version_of_nccl(nccl: str | None) -> None:
    def made(**network: Any) -> LaunchPlan:
        facts = told(with_hcas("gpu1", hca("mlx5_0")), with_hcas("gpu2", hca("mlx5_0")), nccl=nccl)
        return plan(facts, hosts=FAR, network=Network("bond0", "on", **network))

    assert missing(made()) == []
    assert "NCCL_IB_GID_INDEX" not in settings(made())
    assert settings(made(gid_index=3))["NCCL_IB_GID_INDEX"] == "3"


@pytest.mark.parametrize(
    ("asked", "network", "wanted"),
    [
        (NetworkOverrides(), BOND, {}),
        (NetworkOverrides(), RDMA, {"NCCL_NET": "IB"}),
        (NetworkOverrides(transport="auto"), RDMA, {}),
        (NetworkOverrides(transport="tcp"), RDMA, {"NCCL_IB_DISABLE": "1"}),
        (NetworkOverrides(), Network("bond0", "off"), {"NCCL_IB_DISABLE": "1"}),
        (NetworkOverrides(gdr=True), BOND, {"NCCL_NET_GDR_LEVEL": "PXB"}),
        (NetworkOverrides(gdr=False), Network("bond0", gdr="on"), {"NCCL_NET_GDR_LEVEL": "LOC"}),
        (NetworkOverrides(), Network("bond0", gdr="off"), {"NCCL_NET_GDR_LEVEL": "LOC"}),
    ],
)
def test_the_transport(asked: NetworkOverrides, network: Network, wanted: dict[str, str]) -> None:
    found = settings(plan(JobFacts(False, openmpi="4.1.4", nccl="2.27.3"), hosts=FAR, asked=asked, network=network))
    assert {name: found[name] for name in found if name.startswith(("NCCL_NET", "NCCL_IB"))} == wanted


def test_the_interface_is_the_users_or_the_inventorys_or_a_fact() -> None:
    hosts = [with_hcas(host.name, network=network("eth9", f"{host.address}/24")) for host in FAR]
    facts = told(*hosts)
    found = [
        plan(facts, hosts=FAR, network=BOND, asked=NetworkOverrides(interface="ib0")),
        plan(facts, hosts=FAR, network=BOND),
        plan(facts, hosts=FAR),
    ]
    for made, name, source in zip(found, ("ib0", "bond0", "eth9"), ("user", "inventory", "fact"), strict=True):
        assert settings(made)["btl_tcp_if_include"] == settings(made)["oob_tcp_if_include"] == name
        assert settings(made)["NCCL_SOCKET_IFNAME"] == f"={name}"
        assert {token.source for token in made.tokens if token.text.endswith(name)} == {source}
    assert missing(plan(hosts=FAR)) == ["NCCL_SOCKET_IFNAME, btl_tcp_if_include, oob_tcp_if_include"]
    own = plan(hosts=FAR, env=(("NCCL_SOCKET_IFNAME", "=ib0"),), mca=(("btl_tcp_if_include", "ib0"),))
    assert missing(own) == ["oob_tcp_if_include"]


def test_a_declared_gid_index_stands_unless_tcp_is_asked_for() -> None:
    def found(nccl: str | None = "2.9.9", gid_index: int | None = 3, **fields: Any) -> str | None:
        network = Network("bond0", gid_index=gid_index)
        made = plan(JobFacts(False, openmpi="4.1.4", nccl=nccl), hosts=FAR, network=network, **fields)
        return settings(made).get("NCCL_IB_GID_INDEX") or ",".join(missing(made)) or None

    assert found() == found(None) == "3"
    assert found(asked=NetworkOverrides(transport="tcp")) is None
    assert found(gid_index=None) == "NCCL_IB_GID_INDEX"  # too old to find it, and nobody says which it is
    assert found(None, None) is None
    assert found("2.21.5", None) is None


def test_a_network_by_name_only_where_nccl_reads_it() -> None:
    def net(nccl: str | None) -> bool:
        return "NCCL_NET" in settings(plan(JobFacts(False, openmpi="4.1.4", nccl=nccl), hosts=FAR, network=RDMA))

    assert (net("2.9.9"), net("2.10.3"), net(None)) == (False, True, True)


def test_what_has_to_be_asked() -> None:
    spec = JobSpec("j", ("true",), (LOCAL,), profile=AUTO)
    assert [fact.split()[0] for fact in missing_facts(spec)] == ["version", "GPUs"]
    far = JobSpec("j", ("true",), FAR, profile=AUTO, versions=(("openmpi", "4.1"),))
    assert missing_facts(far) == ("interface between the hosts",)
    assert missing_facts(replace(far, hosts=FAR[1:], head=FAR[0].name)) == ("interface between the hosts",)
    assert missing_facts(replace(far, hosts=FAR[:1], head=FAR[0].name)) == ()
    assert missing_facts(replace(far, network=Network("bond0"))) == ()
    rdma = replace(far, network=Network("bond0", "on"))
    assert missing_facts(rdma) == ("GID index",)
    assert missing_facts(replace(rdma, network=Network("bond0", "on", 3))) == ()
    assert missing_facts(replace(rdma, asked=NetworkOverrides(transport="tcp"))) == ()
    assert missing_facts(replace(rdma, asked=NetworkOverrides(transport="auto"))) == ()
    assert missing_facts(replace(rdma, network=Network("bond0", "off"), asked=NetworkOverrides(transport="rdma"))) == (
        "GID index",
    )
    assert missing_facts(replace(far, asked=NetworkOverrides(interface="ib0"))) == ()
    assert missing_facts(JobSpec("j", ("true",), (Host("a", "a"),), profile=Profile())) == ("slots of a",)


def test_every_name_is_decided_or_missing() -> None:
    spec = JobSpec("j", ("true",), (LOCAL,), profile=AUTO)
    made = decide(spec, place(SlotRequest(), [FreeSlots("me", 2)]), JobFacts(False), "")
    assert made.conditions.keys() | made.missing.keys() == CONDITIONS.keys() | {"interface", "network", "gid_index"}
    assert made.values.keys() <= VALUES.keys()


@pytest.mark.parametrize(
    ("text", "numbers"), [("4.1.4", (4, 1, 4)), ("5.0.7rc1", (5, 0, 7)), ("2.9.9+cuda", (2, 9, 9)), ("", ())]
)
def test_version(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


def numbered(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"gpu{index}", f"gpu{index}", slots=1) for index in range(count))


@pytest.mark.parametrize("openmpi", ["4.1.4", "5.0.11"])
@pytest.mark.parametrize(("count", "concurrent"), [(63, None), (64, "64"), (256, "256"), (257, "256")])
def test_many_hosts(openmpi: str, count: int, concurrent: str | None) -> None:
    made = plan(JobFacts(False, openmpi=openmpi), hosts=numbered(count), head="gpu0", network=BOND)
    found = settings(made)
    rsh = "plm_rsh" if openmpi[0] == "4" else "plm_ssh"
    assert found.get(f"{rsh}_num_concurrent") == concurrent
    assert found.get(f"{rsh}_no_tree_spawn") == (None if concurrent is None else "1")
    assert ("--hostfile" in made.argv) == (concurrent is not None) == ("-H" not in made.argv)


def test_one_host_that_is_not_the_head() -> None:
    far: dict[str, Any] = {
        "hosts": FAR,
        "np": 8,
        "network": Network("bond0", port_range=(40000, 40100)),
        "container": LIGHTCC,
    }
    there = plan(head="gpu2", **far)
    ports = {f"oob_tcp_dynamic_ipv{family}_ports" for family in (4, 6)}
    assert settings(there).keys() == {"PATH", "LD_LIBRARY_PATH", "oob_tcp_if_include", *ports}
    assert "OMPI_MCA_plm_rsh_args" in dict(there.env)
    here = plan(head="gpu1", **far)
    assert settings(here) == {}
    assert "OMPI_MCA_plm_rsh_args" not in dict(here.env)


def test_the_library_path_is_handed_on_where_it_is_set() -> None:
    def found(*environment: tuple[str, str], **fields: Any) -> bool:
        facts = JobFacts(False, environment, "4.1.4")
        where: dict[str, Any] = {"network": BOND, "hosts": (LOCAL, *FAR), "np": 4, **fields}
        return "LD_LIBRARY_PATH" in settings(plan(facts, **where))

    assert found(("LD_LIBRARY_PATH", "/x"))
    assert not found()
    assert not found(hosts=FAR, head="gpu1", np=9)
    # A container's environment is known where its agent plans.
    far: dict[str, Any] = {"network": BOND, "hosts": FAR, "head": "gpu1", "np": 9, "container": LIGHTCC}
    assert not found(**far)
    assert "LD_LIBRARY_PATH" in settings(plan(JobFacts(False, None, "4.1.4"), **far))


@pytest.mark.parametrize(
    ("names", "head", "kept"),
    [
        (("n1.rack1.example", "n2"), "n1.rack1.example", False),
        (("n1", "n2.rack1.example"), "n1", True),
        (("n1.rack1.example", "n2"), "n2", True),
        (("n1", "10.0.0.2"), "n1", False),
        (("n1", "n2"), "n1", False),
    ],
)
def test_names_with_a_domain_are_kept_where_another_host_has_one(names: tuple[str, ...], head: str, kept: bool) -> None:
    made = plan(hosts=tuple(Host(name, name, slots=1) for name in names), head=head, network=BOND)
    assert ("orte_keep_fqdn_hostnames" in settings(made)) == kept
