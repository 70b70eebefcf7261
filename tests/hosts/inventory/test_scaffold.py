"""A new inventory: what its text says of its hosts, and that it is always one."""

from hypothesis import given
from hypothesis import strategies as st

from taco_launch.hosts.inventory.load import parse
from taco_launch.hosts.inventory.scaffold import HostSketch, text

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
