"""A new inventory: what its text says of its hosts, and that it is always one."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.inventory.load import parse
from taco_launch.hosts.inventory.scaffold import HostSketch, text
from taco_launch.hosts.inventory.to_document import document
from tests.support.command_line import call
from tests.support.paths import ROOT

KNOWN = HostSketch(8, "bond0", has_rdma=True)


def written(hosts: dict[str, HostSketch], **about: str) -> str:
    return text(hosts, cluster="demo", file="hosts.yaml", **about)


def test_equal_hosts_are_one_range_with_what_they_have() -> None:
    shown = written({f"gpu{number}": KNOWN for number in range(1, 5)}, user="root", image="train:1")
    assert 'hosts:\n  "gpu[1-4]": {}\n' in shown
    inventory = parse(shown.encode(), "x")
    assert [(host.name, host.slots, host.user) for host in inventory.hosts] == [
        (f"gpu{number}", 8, "root") for number in range(1, 5)
    ]
    assert inventory.network.interface == "bond0"
    assert inventory.head == "gpu1"
    assert 'container: {image: "train:1"}' in shown


def test_a_host_with_other_gpus_has_slots_of_its_own() -> None:
    hosts = {"gpu1": KNOWN, "gpu2": KNOWN, "old": HostSketch(4, "bond0", has_rdma=True)}
    inventory = parse(written(hosts).encode(), "x")
    assert {host.name: host.slots for host in inventory.hosts} == {"gpu1": 8, "gpu2": 8, "old": 4}


def test_what_is_not_known_is_a_comment() -> None:
    shown = written({"a": HostSketch(), "b": HostSketch()})
    inventory = parse(shown.encode(), "x")
    assert inventory.network.interface == "auto"
    assert "# network: {interface: NAME}" in shown
    assert "# defaults: {slots: 8}" in shown
    allowing = shown.replace("# data_roots:", "data_roots:")
    assert (inventory.data_roots, parse(allowing.encode(), "x").data_roots) == ((), (("/data", "ro"),))


def test_interfaces_that_differ_are_named_and_left_to_each_job() -> None:
    shown = written({"a": HostSketch(0, "eth0"), "b": HostSketch(0, "ens3")})
    assert "a: eth0" in shown.replace("b: ens3; ", "")
    assert parse(shown.encode(), "x").network.interface == "auto"


def test_without_rdma_none_is_looked_for() -> None:
    shown = written({"a": HostSketch(0, "eth0", has_rdma=False)})
    assert "network: {interface: eth0, rdma: off}" in shown


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9]{0,5}[0-9]{0,3}", fullmatch=True),
        st.builds(
            HostSketch,
            st.none() | st.integers(0, 16),
            st.none() | st.sampled_from(["eth0", "bond0", "no", "enp3s0.12"]),
            st.none() | st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["train:1", "registry.example.com:5000/team/train:2.1"]),
)
def test_it_is_always_an_inventory_with_the_same_hosts(hosts: dict[str, HostSketch], image: str) -> None:
    inventory = parse(written(hosts, image=image).encode(), "x")
    assert {host.name for host in inventory.hosts} == set(hosts)


# --- What `inventory -o yaml` prints is an inventory, and the same one


HERE = Path(__file__).parent
SHIPPED = ROOT / "inventories"
FILES = sorted((*HERE.glob("cases/good_*.yaml"), *HERE.glob("hostfiles/good_*.hosts"), *SHIPPED.glob("*.yaml")))


def again(found: Inventory) -> Inventory:
    text = yaml.safe_dump(document(found), sort_keys=False)
    return replace(parse(text.encode(), "again.yaml"), source=found.source)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_what_is_written_is_read_as_the_same(file: Path) -> None:
    found = parse(file.read_bytes(), str(file))
    assert again(found) == found


def test_what_all_hosts_share_is_written_once() -> None:
    text = "cluster: c\nhosts: {'n[1-2]': {slots: 8, user: u}, n3: {slots: 8, labels: {leaf: a}, address: 10.0.0.3}}\n"
    assert document(parse(text.encode(), "c.yaml")) == {
        "cluster": "c",
        "head": "n1",
        "defaults": {"slots": 8},
        "hosts": {"n1": {"user": "u"}, "n2": {"user": "u"}, "n3": {"address": "10.0.0.3", "labels": {"leaf": "a"}}},
    }


def test_the_command_line(tmp_path: Path) -> None:
    hostfile, file = tmp_path / "hostfile", tmp_path / "again.yaml"
    hostfile.write_text("gpu1 slots=8\ngpu2 slots=4 max-slots=8\n")
    file.write_text(call("-i", str(hostfile), "inventory", "-o", "yaml").stdout)
    one, two = (call("-i", str(path), "inventory").stdout.replace(str(path), "") for path in (hostfile, file))
    assert one == two
    assert "gpu2" in two
