"""Hosts of a job that differ: in ports, names, GID indexes, interfaces; and what an inventory says against the facts."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.errors import UnusableError
from taco_launch.core.launch.fabric_facts import between
from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Gid
from taco_launch.core.model.host.hosts import Network
from taco_launch.core.model.jobs import NetworkOverrides, Profile, ProfileOption
from taco_launch.hosts.inventory import profile
from tests.support.fleet import hca, mapped, network, roce, with_hcas
from tests.support.machines import EIGHT, bond, line, made, rails, said, unread, why, with_peers, with_slots
from tests.support.planned import FAR, missing, own, plan, settings, told


def test_what_is_odd_about_many_hosts_is_one_sentence() -> None:
    def half(number: int) -> HostFacts:
        return with_hcas(f"gpu{number}", hca("mlx5_0"), hca("mlx5_1", state="DOWN"))

    found = between([with_hcas("gpu1", hca("mlx5_0"), hca("mlx5_1")), *(half(number) for number in range(2, 9))])
    assert len(found.odd_ports) == 1
    assert found.odd_ports[0].startswith(
        "gpu2, gpu3, gpu4, gpu5 and 3 more: only 1 of the 2 RDMA ports that the job can use on other hosts: mlx5_1:1 is DOWN"
    )


def test_one_port_of_many_that_is_down_is_told_and_the_rest_is_used() -> None:
    states = {3: "DOWN", 9: "DOWN"}
    half = with_peers(with_hcas("gpu2", *(hca(f"mlx5_{n}", state=states.get(n, "ACTIVE")) for n in (*range(8), 9))))
    found = made(rails(1), half)
    assert line(found)["NCCL_IB_HCA"] == EIGHT
    assert len(said(found)) == 1
    assert "gpu2: only 7 of the 8 RDMA ports that the job can use on other hosts: mlx5_3:1 is DOWN (" in said(found)[0]
    # a second port that nobody uses is not a fault
    spare = hca("mlx5_9", state="DOWN")
    assert said(made(rails(1, spare), rails(2, spare))) == []


@pytest.mark.parametrize(
    "gids",
    [
        Unknown("permission denied"),
        (Gid(0, mapped("10.0.0.2"), Unknown("no such file"), "bond0"),),
    ],
)
def test_a_gid_table_that_cannot_be_read_is_no_fault_of_the_port(gids: Any) -> None:
    hosts = (bond(1), unread(2, gids=gids))
    found = made(*hosts, nccl="2.9.9")
    assert "NCCL_IB_DISABLE" not in line(found)
    assert [text.startswith("NCCL_IB_GID_INDEX: left out, since gpu2: ") for text in said(found)] == [True]
    assert "NCCL_NET_GDR_LEVEL" in line(made(*hosts, nccl="2.9.9", network=Network(rdma="on")))


def test_two_indices_on_one_host_are_too_many_for_an_old_nccl() -> None:
    def two(number: int) -> HostFacts:
        eth = [roce(f"mlx5_{port}", f"eth{port}", f"10.{port}.0.{number}", 2 + 2 * port) for port in (0, 1)]
        return with_hcas(f"gpu{number}", *eth)

    with pytest.raises(UnusableError, match="gpu1 needs more than one index"):
        made(two(1), two(2), nccl="2.9.9", network=Network(rdma="on"))
    assert "NCCL_IB_DISABLE" in line(made(two(1), two(2), nccl="2.9.9"))
    assert "NCCL_IB_DISABLE" not in line(made(two(1), two(2), nccl=None))
    assert "NCCL_IB_ADDR_RANGE" in line(made(two(1), two(2), nccl="2.21.5"))


def test_names_that_differ_are_given_host_by_host() -> None:
    hosts = (rails(1, names=(0, 1)), with_hcas("gpu2", hca("ibp27s0"), hca("ibp155s0", pci="0000:9b:00.0")))
    found = made(*hosts)
    assert "NCCL_IB_HCA" not in line(found)
    assert own(found)["gpu2"] == (("NCCL_IB_HCA", "=ibp27s0:1,ibp155s0:1"),)
    assert any(text.startswith("NCCL_IB_HCA differs from host to host (gpu1 =mlx5_0:1") for text in said(found))
    # what the user gives, or a profile that has no word of it, goes before
    mine = made(*hosts, env=(("NCCL_IB_HCA", "=mlx5_0"),))
    other = made(*hosts, profile=Profile("p", (ProfileOption(("-np", "{np}"), "ranks"),)))
    assert own(mine) == own(other) == own(made(*hosts, asked=NetworkOverrides(transport="tcp"))) == {}
    assert not [text for text in (*said(mine), *said(other)) if "differs from host to host" in text]


def test_interfaces_that_differ_are_a_network_for_mpi_and_a_name_for_each_nccl() -> None:
    differ = [with_hcas(f"gpu{n}", network=network(name, f"10.0.0.{n}/24")) for n, name in ((1, "eth0"), (2, "ens3f0"))]
    found = made(*differ)
    assert "NCCL_SOCKET_IFNAME" not in line(found)
    assert own(found) == {
        "gpu1": (("NCCL_SOCKET_IFNAME", "=eth0"),),
        "gpu2": (("NCCL_SOCKET_IFNAME", "=ens3f0"),),
    }
    assert settings(found)["btl_tcp_if_include"] == settings(found)["oob_tcp_if_include"] == "10.0.0.0/24"
    assert missing(found) == []
    guide = made(*differ, profile=profile.load("ack", "", {}))
    assert any("the names differ (gpu1 eth0, gpu2 ens3f0)" in text for text in said(guide))


def test_an_interface_that_is_named_and_not_there_is_told() -> None:
    facts = replace(told(bond(1), bond(2)), between=None)
    assert said(plan(facts, hosts=FAR, network=Network("eth9"))) == []
    facts = replace(facts, between=between((bond(1), bond(2)), None, "eth9"))
    found = plan(facts, hosts=FAR, network=Network("eth9"))
    assert any(text.startswith("network.interface eth9: gpu1: there is no interface eth9") for text in said(found))


def test_the_index_of_the_inventory_wins_and_is_doubted() -> None:
    found = made(bond(1), bond(2, 4), nccl="2.9.9", network=Network(gid_index=3))
    assert line(found)["NCCL_IB_GID_INDEX"] == "3"
    assert own(found) == {}
    assert [text for text in said(found) if "at 5 on gpu2: check the inventory" in text] == said(found)
    assert said(made(bond(1), bond(2), nccl="2.9.9", network=Network(gid_index=3))) == []


def test_an_nccl_that_would_take_another_network_is_led() -> None:
    def vlan(number: int, index: int) -> HostFacts:
        return with_slots(number, (index, f"172.16.0.{number}", "bond0.7"), (5, f"10.0.0.{number}", "bond0"))

    assert line(made(vlan(1, 3), vlan(2, 3), nccl="2.9.9"))["NCCL_IB_GID_INDEX"] == "5"
    new = line(made(vlan(1, 3), vlan(2, 3), nccl="2.21.5"))
    assert new["NCCL_IB_ADDR_RANGE"] == "10.0.0.0/24"
    assert "NCCL_IB_GID_INDEX" not in new
    # it starts with slot 0, whatever the range
    found = made(vlan(1, 0), vlan(2, 0), nccl="2.21.5")
    assert line(found)["NCCL_IB_GID_INDEX"] == "5"
    assert "would choose an address of another network" in why(found, "NCCL_IB_GID_INDEX")
    assert said(found) == []
    own = made(vlan(1, 0), vlan(2, 0), nccl="2.21.5", env=(("NCCL_IB_GID_INDEX", "5"),))
    assert ["better omit it" in text for text in said(own)] == [True]
