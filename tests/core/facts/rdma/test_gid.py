"""The GID index: by NCCL's own rule, and by interface where NCCL has to be told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.rdma.gid import by_nccl, on_interface
from taco_launch.core.model.host.fabric import GidChoice
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.hardware import Gid, Port
from tests.support.host_facts import known

V1, V2 = "IB/RoCE v1", "RoCE v2"
LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
GLOBAL = "2010:0200:0000:0002:0e42:a1ff:fe00:0001"


def ip(address: str) -> str:
    return "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))


def port(*slots: tuple[int, str, str], link_layer: Found[str] = "Ethernet", netdev: Found[str] = "bond0") -> Port:
    gids = tuple(Gid(index, gid, version, netdev) for index, gid, version in slots)
    return Port(1, "ACTIVE", "LinkUp", link_layer, 100.0, gids)


def both(first: int, gid: str) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
    return (first, gid, V1), (first + 1, gid, V2)


USUAL = (*both(0, LOCAL), *both(2, ip("10.0.0.1")))
TWO = (*USUAL, *both(4, ip("10.9.0.1")))
CHOOSES = "mlx5_0:1: NCCL would choose GID index"


@pytest.mark.parametrize(
    ("slots", "asked", "index"),
    [
        (USUAL, {}, 3),
        ((*both(0, LOCAL), *both(2, LOCAL), *both(4, ip("10.0.0.1"))), {}, 5),
        (TWO, {}, 3),
        (TWO, {"address_range": "10.9.0.0/16"}, 5),
        (TWO, {"address_range": "10.0.0.0/8"}, 3),
        (USUAL, {"version": 1}, 2),
        ((*USUAL, *both(4, GLOBAL)), {"family": "AF_INET6"}, 5),
        ((*USUAL, *both(4, GLOBAL)), {"family": "AF_INET6", "address_range": "2010:200::/32"}, 5),
        # the tables of containers: slots of other network namespaces are not to be seen
        (both(6, ip("10.152.0.12")), {}, 7),
        (both(0, ip("10.0.0.1")), {}, 1),
        # v2 before v1: the first of the family is taken whatever its version, and v1 does not replace it
        (((2, ip("10.0.0.1"), V2), (3, ip("10.0.0.1"), V1)), {}, 2),
        # the first of the family is v1; a later v2 replaces it even on another address
        (((2, ip("10.0.0.1"), V1), (3, ip("10.7.0.1"), V2)), {}, 3),
    ],
)
def test_nccl_by_itself(slots: tuple[tuple[int, str, str], ...], asked: dict[str, object], index: int) -> None:
    found = known(by_nccl("mlx5_0", port(*slots), **asked))  # type: ignore[arg-type]
    assert (found.hca, found.port, found.gid_index) == ("mlx5_0", 1, index)


@pytest.mark.parametrize(
    ("slots", "asked", "reason"),
    [
        (both(0, LOCAL), {}, f"{CHOOSES} 0, which cannot work (link-local, which is not routed): its "),
        ((), {}, f"{CHOOSES} 0, which cannot work (not in use): the table is empty"),
        (USUAL[:3], {}, f"{CHOOSES} 2, which cannot work (RoCE v1, which is not routed): the port has 10."),
        (USUAL, {"address_range": "10.1.0.0/16"}, f"{CHOOSES} 0, which cannot work (link-local"),
        # NCCL does not look whether where it starts is in the range
        (
            ((0, ip("10.0.0.1"), V2), (1, ip("10.9.0.1"), V2)),
            {"address_range": "10.9.0.0/16"},
            f"{CHOOSES} 0, which cannot work (outside of 10.9.0.0/16)",
        ),
        (USUAL, {"address_range": "10.1.0.0/99"}, "10.1.0.0/99 is not a range of addresses"),
        (USUAL, {"address_range": "2010::/16"}, "2010::/16 is not a range of the address family AF_INET"),
        (USUAL, {"family": "AF_INET6"}, f"{CHOOSES} 0, which cannot work (link-local"),
        # an unused slot is of the family AF_INET6 for NCCL: it leaves an IPv4 address for it
        (both(0, ip("10.0.0.1")) + both(3, ip("10.9.0.1")), {"family": "AF_INET6"}, f"{CHOOSES} 2"),
    ],
)
def test_where_nccl_ends_at_a_slot_that_cannot_work(
    slots: tuple[tuple[int, str, str], ...], asked: dict[str, object], reason: str
) -> None:
    found = by_nccl("mlx5_0", port(*slots), **asked)  # type: ignore[arg-type]
    assert isinstance(found, Unknown)
    assert found.reason.startswith(reason), found.reason


def test_infiniband_has_no_index_to_choose() -> None:
    assert isinstance(by_nccl("mlx5_0", port((0, LOCAL, V1), link_layer="InfiniBand")), Absent)
    assert isinstance(on_interface("mlx5_0", port((0, LOCAL, V1), link_layer="InfiniBand")), Absent)


def test_a_link_layer_that_is_not_known_is_told_by_the_types() -> None:
    unknown = Unknown("show_gids does not say")
    assert isinstance(by_nccl("mlx5_0", port(*USUAL, link_layer=unknown)), GidChoice)
    found = by_nccl("mlx5_0", port((0, LOCAL, V1), link_layer=unknown))
    assert found == Unknown("it is not known whether the port is RoCE: show_gids does not say")


def test_a_table_or_a_type_that_is_not_known_gives_no_index() -> None:
    assert by_nccl("a", Port(1, "ACTIVE", "", "Ethernet", 1.0, Unknown("cut off"))) == Unknown("cut off")
    gids = (Gid(2, ip("10.0.0.1"), V1, "bond0"), Gid(3, ip("10.0.0.1"), Unknown("EINVAL"), "bond0"))
    blind = Port(1, "ACTIVE", "", "Ethernet", 1.0, gids)
    assert by_nccl("a", blind) == Unknown("GID index 3: its type is not known: EINVAL")
    assert on_interface("a", blind) == Unknown("a:1: GID index 3: its type is not known: EINVAL")


@pytest.mark.parametrize(
    ("interfaces", "subnet", "index"),
    [
        ((), None, 3),
        (("bond0",), None, 3),
        (("bond0.7",), None, 5),
        (("bond0", "bond0.7"), "10.9.0.0/16", 5),
        ((), "10.9.0.0/24", 5),
        (("bond0.7",), "10.0.0.0/24", None),
        (("eth1",), None, None),
    ],
)
def test_on_an_interface(interfaces: tuple[str, ...], subnet: str | None, index: int | None) -> None:
    one, other = port(*USUAL).gids, port(*both(4, ip("10.9.0.1")), netdev="bond0.7").gids
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    found = on_interface("mlx5_0", Port(1, "ACTIVE", "", "Ethernet", 1.0, one + other), interfaces, subnet)
    assert (found.gid_index if isinstance(found, GidChoice) else None) == index
    if isinstance(found, Unknown):
        assert "the port has 10.0.0.1, 10.9.0.1" in found.reason


def test_an_interface_that_is_not_known_counts_in_the_wanted_subnet_only() -> None:
    blind = port(*USUAL, netdev=Unknown("EINVAL"))
    assert isinstance(on_interface("a", blind, ("bond0",)), Unknown)
    assert isinstance(on_interface("a", blind, ("bond0",), "10.0.0.0/24"), GidChoice)


GIDS = st.sampled_from([LOCAL, GLOBAL, ip("10.0.0.1"), ip("10.9.0.1"), ip("192.168.3.4")])


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(GIDS, st.sampled_from([V1, V2]))),
    st.sampled_from([None, "10.0.0.0/8", "10.9.0.1/32"]),
)
def test_what_is_chosen_is_always_as_asked_for(table: dict[int, tuple[str, str]], range_: str | None) -> None:
    of = port(*((index, *gid) for index, gid in table.items()))
    for found in (by_nccl("a", of, address_range=range_), on_interface("a", of, (), range_)):
        if isinstance(found, GidChoice):
            gid, version = table[found.gid_index]
            assert version == V2
            assert gid.startswith("0000:0000:0000:0000:0000:ffff:")
            assert range_ is None or gid.startswith("0000:0000:0000:0000:0000:ffff:0a")
        else:
            assert isinstance(found, Unknown)
            assert found.reason
    if isinstance(on_interface("a", of, (), range_), Unknown):
        assert not isinstance(by_nccl("a", of, address_range=range_), GidChoice)
