"""What a set of hosts is told of HCAs, GID index and interface, and which host is named as odd."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.facts.fabric import fabric
from taco_launch.core.model.host.fabric import Fabric, FabricChoice
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Address, Bond, BondMember, Interface
from taco_launch.core.model.host.hardware import Gid
from tests.support.fleet import hca, mapped, network, roce, with_hcas
from tests.support.host_facts import host, known


def value(found: Any) -> str | None:
    if isinstance(found, FabricChoice):
        assert found.why
        return found.value
    return None


def env(found: Fabric) -> dict[str, dict[str, str]]:
    told: dict[str, dict[str, str]] = {}
    for one in found.host_env:
        assert one.why
        told.setdefault(one.host, {})[one.name] = one.value
    return told


def odd(found: Fabric) -> list[str]:
    return [f"{one.host}: {one.what}" for one in found.odd]


def test_eight_infiniband_ports_and_one_for_management() -> None:
    hcas = [hca(f"mlx5_{n}") for n in (0, 1, 10, 11, 2, 3, 4, 5)]
    found = fabric([with_hcas(name, *hcas, roce("mlx5_bond_0", "bond0", "10.0.0.1")) for name in ("gpu1", "gpu2")])
    assert value(found.hcas) == "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_10:1,mlx5_11:1"
    assert value(found.link_layer) == "InfiniBand"
    assert isinstance(found.gid_index, Absent)
    assert value(found.interface) == "bond0"
    assert [one.what for one in found.left_out] == [
        "mlx5_bond_0:1 is Ethernet, but a job uses ports of one link layer only, here InfiniBand"
    ] * 2
    assert odd(found) == []


def test_one_bond_and_one_index_for_all() -> None:
    found = fabric([with_hcas(f"gpu{n}", roce("mlx5_bond_0", "bond0", f"10.0.0.{n}")) for n in (1, 2, 3)])
    assert (value(found.hcas), value(found.gid_index), value(found.interface)) == ("=mlx5_bond_0:1", "3", "bond0")
    assert [(one.host, one.choice.gid_index) for one in found.gids] == [("gpu1", 3), ("gpu2", 3), ("gpu3", 3)]
    assert found.host_env == ()
    assert odd(found) == []


def test_indices_that_differ_are_told_per_host_to_an_old_nccl() -> None:
    hosts = [
        with_hcas(f"gpu{n}", roce("mlx5_bond_0", "bond0", f"10.0.0.{n}", first))
        for n, first in ((1, 2), (2, 2), (3, 4))
    ]
    for nccl in (None, "2.9.9"):
        found = fabric(hosts, nccl)
        assert found.gid_index == Absent("the index differs from host to host")
        assert env(found) == {
            name: {"NCCL_IB_GID_INDEX": index} for name, index in (("gpu1", "3"), ("gpu2", "3"), ("gpu3", "5"))
        }
        assert odd(found) == ["gpu3: mlx5_bond_0:1 has its GID at index 5, but most ports have it at index 3"]


def test_indices_that_differ_are_left_to_a_new_nccl_within_a_range() -> None:
    hosts = [with_hcas(f"gpu{n}", roce("mlx5_bond_0", "bond0", f"10.0.0.{n}", first)) for n, first in ((1, 2), (2, 4))]
    found = fabric(hosts, "2.21.5")
    assert value(found.gid_index) is None
    assert value(found.address_range) == "10.0.0.0/24"
    assert env(found) == {}


def test_where_a_range_would_mislead_nccl_each_host_is_told() -> None:
    """NCCL starts at slot 0 without a look at the range, and stays at a slot of RoCE v2 over IPv4."""
    first = with_hcas("gpu1", roce("mlx5_bond_0", "bond0", "10.0.0.1"))
    slots = (Gid(0, mapped("172.16.0.9"), "RoCE v2", "eth9"), Gid(1, mapped("10.0.0.2"), "RoCE v2", "bond0"))
    found = fabric([first, with_hcas("gpu2", roce("mlx5_bond_0", "bond0", "10.0.0.2", gids=slots))], "2.22.3")
    assert value(found.address_range) is None
    assert env(found) == {"gpu1": {"NCCL_IB_GID_INDEX": "3"}, "gpu2": {"NCCL_IB_GID_INDEX": "1"}}


def test_a_range_that_holds_another_address_of_a_port_is_not_given() -> None:
    second = roce("mlx5_bond_0", "bond0", "10.0.0.2", 4)
    vlan = roce("mlx5_bond_0", "bond0.7", "10.0.0.200").ports[0].gids
    own = known(second.ports[0].gids)
    assert isinstance(vlan, tuple)
    both = replace(second, ports=(replace(second.ports[0], gids=(*vlan, *own[2:])),))
    found = fabric([with_hcas("gpu1", roce("mlx5_bond_0", "bond0", "10.0.0.1")), with_hcas("gpu2", both)], "2.22.3")
    assert env(found)["gpu2"] == {"NCCL_IB_GID_INDEX": "5"}


def test_two_indices_on_one_host_have_no_answer_for_an_old_nccl() -> None:
    hosts = [with_hcas("gpu1", roce("mlx5_0", "eth0", "10.1.0.1"), roce("mlx5_1", "eth1", "10.2.0.1", 4))]
    found = fabric(hosts, "2.20.3")
    assert isinstance(found.gid_index, Unknown)
    assert found.gid_index.reason.startswith("gpu1 needs more than one index (mlx5_0:1 3, mlx5_1:1 5), but NCCL 2.20.3")
    assert value(fabric(hosts, "2.22").address_range) == "10.0.0.0/14"


def test_a_port_without_an_address_is_named() -> None:
    bare = roce("mlx5_bond_0", "bond0", "10.0.0.2")
    local = replace(bare, ports=(replace(bare.ports[0], gids=bare.ports[0].gids[:2]),))  # type: ignore[index]
    found = fabric([with_hcas("gpu1", roce("mlx5_bond_0", "bond0", "10.0.0.1")), with_hcas("gpu2", local)])
    assert isinstance(found.gid_index, Unknown)
    assert odd(found) == [
        "gpu2: mlx5_bond_0:1: it has no GID of RoCE v2 over IPv4 on bond0 in 10.0.0.0/24: its interface has no IPv4 address"
    ]


def test_the_gid_is_that_of_the_jobs_interface() -> None:
    two = roce("mlx5_bond_0", "bond0.7", "172.16.0.1")
    first, own = two.ports[0].gids, roce("mlx5_bond_0", "bond0", "10.0.0.1", 4).ports[0].gids
    assert isinstance(first, tuple)
    assert isinstance(own, tuple)
    both = replace(two, ports=(replace(two.ports[0], gids=(*first, *own[2:])),), interfaces=("bond0", "bond0.7"))
    assert value(fabric([with_hcas("gpu1", both)]).gid_index) == "5"


def test_names_that_differ_are_told_per_host_in_pci_order() -> None:
    one = with_hcas("gpu1", hca("mlx5_0", pci="0000:9b:00.0"), hca("mlx5_1", pci="0000:1b:00.0"))
    other = with_hcas("gpu2", hca("ibp27s0", pci="0000:1b:00.0"), hca("ibp155s0", pci="0000:9b:00.0"))
    found = fabric([one, other])
    assert found.hcas == Absent("the names differ from host to host")
    assert env(found) == {
        "gpu1": {"NCCL_IB_HCA": "=mlx5_1:1,mlx5_0:1"},
        "gpu2": {"NCCL_IB_HCA": "=ibp27s0:1,ibp155s0:1"},
    }


def test_a_name_that_is_another_kind_of_port_elsewhere_is_not_listed_for_all() -> None:
    usual = [hca("mlx5_0"), hca("mlx5_1"), hca("mlx5_2")]
    other = [hca("mlx5_0"), hca("mlx5_1"), roce("mlx5_2", "eth0", "10.0.0.3")]
    found = fabric([with_hcas("gpu1", *usual), with_hcas("gpu2", *usual), with_hcas("gpu3", *other)])
    assert value(found.hcas) is None
    assert env(found)["gpu3"] == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}


def test_a_port_that_is_down_is_named_and_the_list_stays_common() -> None:
    good = [hca("mlx5_0"), hca("mlx5_1")]
    found = fabric(
        [with_hcas("gpu1", *good), with_hcas("gpu2", *good), with_hcas("gpu3", good[0], hca("mlx5_1", state="DOWN"))]
    )
    assert value(found.hcas) == "=mlx5_0:1,mlx5_1:1"
    assert odd(found) == ["gpu3: mlx5_1:1 is DOWN", "gpu3: uses mlx5_0:1, but most hosts use mlx5_0:1, mlx5_1:1"]


def test_a_slower_port_and_a_slower_host_are_named() -> None:
    good = [hca("mlx5_0"), hca("mlx5_1"), hca("mlx5_2")]
    slow = [*good[:2], hca("mlx5_2", rate=100.0)]
    found = fabric([with_hcas("gpu1", *good), with_hcas("gpu2", *good), with_hcas("gpu3", *slow)])
    assert "gpu3: mlx5_2:1 has 100 Gb/s, but most ports have 400 Gb/s, so it is left out" in odd(found)
    half = [hca(one.name, rate=200.0) for one in good]
    found = fabric([with_hcas("gpu1", *good), with_hcas("gpu2", *good), with_hcas("gpu3", *half)])
    assert odd(found) == ["gpu3: its ports have 200 Gb/s, but those of most hosts have 400 Gb/s"]


def test_most_hosts_are_counted_by_hosts_not_by_ports() -> None:
    few = [hca(f"mlx5_{n}", rate=100.0) for n in range(4)]
    many = [hca(f"mlx5_{n}") for n in range(8)]
    found = fabric([with_hcas("v1", *few), with_hcas("v2", *few), with_hcas("h1", *many)])
    names = [f"mlx5_{n}:1" for n in range(8)]
    assert odd(found) == [
        "h1: its ports have 400 Gb/s, but those of most hosts have 100 Gb/s",
        f"h1: uses {', '.join(names)}, but most hosts use {', '.join(names[:4])}",
    ]
    assert odd(fabric([with_hcas("v1", *few), with_hcas("h1", *many)])) == odd(found)


def test_a_rate_that_nobody_knows_is_not_odd() -> None:
    hidden = [hca("mlx5_0", rate=Unknown("rate 'x'"))]
    assert odd(fabric([with_hcas("gpu1", *hidden), with_hcas("gpu2", *hidden)])) == []
    assert odd(fabric([with_hcas("gpu1", *hidden), with_hcas("gpu2", hca("mlx5_0"))])) == [
        "gpu1: its ports have a rate that is not known, but those of most hosts have 400 Gb/s"
    ]


def test_an_hca_without_a_name_is_listed_for_nobody() -> None:
    found = fabric([with_hcas("gpu1", hca("unnamed"))])
    assert found.hcas == Unknown("no port is known to be ACTIVE with a known link layer")


def test_the_port_of_the_default_route_is_left_out_beside_others() -> None:
    rails = [roce(f"mlx5_{n}", f"eth{n}", f"10.{n}.0.1") for n in (1, 2)]
    main = roce("mlx5_0", "eth0", "192.168.0.1")
    own = network("eth0", "192.168.0.1/24")
    found = fabric([with_hcas("gpu1", main, *rails, network=own)])
    assert value(found.hcas) == "=mlx5_1:1,mlx5_2:1"
    assert "default route" in found.left_out[0].what
    assert value(fabric([with_hcas("gpu1", main, rails[0], network=own)]).hcas) == "=mlx5_0:1,mlx5_1:1"


def test_interfaces_of_different_names_are_told_by_their_network() -> None:
    docker = Interface("docker0", "bridge", "up", 1500, "bb", (Address("172.17.0.1/16", "global"),))
    hosts = [
        with_hcas("gpu1", network=network("bond0", "10.0.0.1/24", docker)),
        with_hcas("gpu2", network=network("eth0", "10.0.0.2/24", docker)),
    ]
    found = fabric(hosts)
    assert value(found.interface) == "10.0.0.0/24"
    assert env(found) == {"gpu1": {"NCCL_SOCKET_IFNAME": "=bond0"}, "gpu2": {"NCCL_SOCKET_IFNAME": "=eth0"}}
    second = Interface("eth9", "physical", "up", 1500, "cc", (Address("10.0.0.9/24", "global"),))
    found = fabric([hosts[0], with_hcas("gpu2", network=network("eth0", "10.0.0.2/24", second))])
    assert isinstance(found.interface, Unknown)
    assert found.interface.reason.endswith("gpu2 has several interfaces in 10.0.0.0/24: eth0, eth9")
    assert env(found)["gpu2"] == {"NCCL_SOCKET_IFNAME": "=eth0"}


def test_a_range_that_nobody_configured_says_so() -> None:
    def why(*addresses: str) -> str:
        hosts = [with_hcas(f"gpu{n}", network=network(f"eth{n}", address)) for n, address in enumerate(addresses)]
        found = known(fabric(hosts).interface)
        return f"{found.value}: {found.why.partition(': ')[2]}"

    assert why("10.213.2.1/24", "10.213.5.1/24") == (
        "10.213.0.0/21: the smallest range that contains 10.213.2.0/24 and 10.213.5.0/24; it is not known whether these networks can reach each other"
    )
    assert why("10.213.2.1/24", "10.213.2.2/24") == "10.213.2.0/24: the network of their addresses"


def test_an_interface_that_the_user_names_has_to_be_there() -> None:
    hosts = [with_hcas("gpu1", network=network("eth0", "10.0.0.1/24"))]
    assert value(fabric(hosts, interface="eth0").interface) == "eth0"
    assert fabric(hosts, interface="bond0").interface == Unknown("gpu1: there is no interface bond0: there are eth0")


def test_a_member_stands_for_its_bond_and_loopback_for_none() -> None:
    member = Interface("eth0", "physical", "up", 1500, "aa", (), None, "bond0")
    plain = network(
        "bond0", "10.0.0.1/24", member, Interface("lo", "loopback", "up", 65536, "", (Address("127.0.0.1/8", "host"),))
    )
    for reached in ("eth0", "lo", Absent("not over SSH")):
        assert value(fabric([with_hcas("gpu1", network=replace(plain, reached_by=reached))]).interface) == "bond0"


def test_half_a_bond_is_named() -> None:
    facts = host("gpu1")
    bond = Bond("bond0", "IEEE 802.3ad", True, (BondMember("eth0", True, 50.0), BondMember("eth1", False, None)))
    found = fabric([replace(facts, network=replace(known(facts.network), bonds=(bond,)))])
    assert odd(found)[0] == "gpu1: bond0 has 1 of 2 members up: eth1 is down"


@pytest.mark.parametrize("rdma", [Absent("no device"), Unknown("not asked")])
def test_hosts_without_rdma(rdma: Any) -> None:
    found = fabric([replace(host("gpu1"), rdma=rdma)])
    assert isinstance(found.hcas, type(rdma))
    assert isinstance(found.gid_index, type(rdma))
    assert value(found.interface) == "bond0"


def test_a_host_of_which_nothing_is_known_is_named() -> None:
    found = fabric([with_hcas("gpu1", hca("mlx5_0")), replace(host("gpu2"), rdma=Unknown("probe cut"))])
    assert odd(found)[0] == "gpu2: no HCA is known: probe cut"
    assert value(found.hcas) == "=mlx5_0:1"
