"""`-H`: what it takes, what it refuses and at which column, against an inventory and without one."""

import time

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.inventory.ranges import MAX_HOSTS, expand, fold
from taco_launch.hosts.inventory.schema.faults import MAX_FAULTS
from taco_launch.hosts.inventory.select import choose, hosts_of, parse_hosts

GPUS = tuple(Host(f"gpu{number}", f"10.0.0.{number}", slots=8, user="root") for number in range(1, 5))
CLUSTER = Inventory("c", "gpu1", (*GPUS, Host("host2", "host2"), Host("host", "host")), source="c.yaml")
GROUPED = Inventory(
    "c",
    "gpu1",
    (*GPUS, Host("fe80::5", "fe80::5")),
    groups=(
        ("v100.2", ("gpu2",)),
        ("nightly", ("gpu1", "gpu2")),
        ("one", ("gpu3",)),
        ("mixed", ("gpu4", "fe80::5", "gpu1")),
    ),
    source="c.yaml",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h1:8,h2:8", (("h1", 8), ("h2", 8))),
        ("h2,h1:4096", (("h2", None), ("h1", 4096))),
        ("gpu[2,1]:8,x", (("gpu2", 8), ("gpu1", 8), ("x", None))),
        (
            "[::1]:2,[fe80::1%eth0],10.0.0.[1-2]",
            (("::1", 2), ("fe80::1%eth0", None), ("10.0.0.1", None), ("10.0.0.2", None)),
        ),
    ],
)
def test_host_strings(text: str, expected: tuple[tuple[str, int | None], ...]) -> None:
    assert parse_hosts(text) == expected


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["column 1: '': no host is named here"]),
        ("a,,b", ["column 3: '': no host is named here"]),
        ("a:1,", ["column 5: '': no host is named here"]),
        ("a:1 b:1", ["column 4: 'a:1 b:1': a space is not allowed here"]),
        ("a:1, b:1", ["column 5: ' b:1': a space is not allowed here"]),
        ("a:1\n", ["column 4: 'a:1\\n': a space is not allowed here"]),
        ("localhost:server2:2", ["column 1: 'localhost:server2:2': more than one ':' (is a comma missing between "]),
        ("::1", ["column 1: '::1': more than one ':' (write IPv6 in brackets: [::1]:2)"]),
        ("h1:8,h2:0", ["column 9: 'h2:0': slots are a whole number from 1 to 4096"]),
        ("h1:-1", ["column 4: 'h1:-1': slots are"]),
        ("h1:", ["column 4: 'h1:': slots are"]),
        ("h1:x", ["column 4: 'h1:x': slots are"]),
        ("h1:08", ["column 4: 'h1:08': slots are"]),
        ("h1:1.5", ["column 4: 'h1:1.5': slots are"]),
        ("h1:\u0661", ["column 4: 'h1:\u0661': slots are"]),
        ("h1:4097", ["column 4: 'h1:4097': slots are"]),
        ("h1:" + "9" * 100, ["column 4: 'h1:999"]),
        ("[::1]:0", ["column 7: '[::1]:0': slots are"]),
        ("[::1]2", ["column 1: '[::1]2': more than one ':'"]),
        (":8", ["column 1: '': is neither a host name"]),
        ("-oProxyCommand=x:1", ["column 1: '-oProxyCommand=x': is neither a host name"]),
        ("$(id)", ["column 1: '$(id)': is neither a host name"]),
        ("\x1b[31m", ["column 1: '\\x1b[31m': has an unmatched bracket; a range"]),
        ("24", ["column 1: '24': is neither a host name"]),
        ("gpu[1-2:8", ["column 1: 'gpu[1-2:8': has an unmatched bracket; a range"]),
        ("gpu[2-1]", ["column 1: 'gpu[2-1]': has an empty range: 2-1"]),
        ("gpu[1-99999999]:8", ["column 1: 'gpu[1-99999999]:8': means more than 10000 "]),
        ("a[1-9999],b[1-2]", ["column 11: 'b[1-2]': more than 10000 hosts"]),
        (
            "a:1,b,a:2",
            ["column 7: 'a:2': a is already named at column 1 (name it only once, with the sum of its slots)"],
        ),
        ("g[1-3],g2", ["column 8: 'g2': g2 is already named at column 1"]),
        ("a b,c:0,d:", ["column 2: 'a b': a space", "column 7: 'c:0': slots are", "column 11: 'd:': slots are"]),
    ],
)
def test_bad_host_strings(text: str, faults: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_hosts(text)
    assert caught.value.source == "-H"
    assert [str(fault)[: len(start)] for fault, start in zip(caught.value.faults, faults, strict=True)] == faults


def test_the_form_is_said_where_it_is_missed() -> None:
    with pytest.raises(SpecError, match="hosts are written NAME or NAME:SLOTS, with commas and no spaces between them"):
        parse_hosts("a:1 b:1")


def test_a_long_string_is_refused_soon() -> None:
    begin = time.process_time()  # that of the clock depends on what else runs here
    with pytest.raises(SpecError) as caught:
        parse_hosts("-," * 60_000)
    assert len(caught.value.faults) == MAX_FAULTS + 1
    with pytest.raises(SpecError, match="the limit"):
        parse_hosts("[1-9]" * 20_000)
    with pytest.raises(SpecError) as caught:
        choose(CLUSTER, ",".join(f"x{number}" for number in range(10_000)))
    assert len(caught.value.faults) == MAX_FAULTS + 1
    assert time.process_time() - begin < 10


def test_chosen_hosts_keep_all_but_their_slots() -> None:
    assert choose(CLUSTER, "gpu[3,1],gpu2:16,host:1") == (
        GPUS[2],
        GPUS[0],
        Host("gpu2", "10.0.0.2", slots=16, user="root", has=8),
        Host("host", "host", slots=1, has=0),
    )


def test_what_a_job_may_take_is_not_what_a_host_has() -> None:
    sizes = {host.name: host.size for host in choose(CLUSTER, "gpu1:1,gpu2:16,gpu3,host:4,host2")}
    assert sizes == {"gpu1": "8", "gpu2": "16", "gpu3": "8", "host": "auto+4", "host2": "auto"}


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("gup1:8", "column 1: 'gup1'", " (did you mean 'gpu1'?)"),
        ("gpu1,host24", "column 6: 'host24'", " (did you mean 'host2:4'?)"),
        ("10.0.0.3", "column 1: '10.0.0.3'", " (it is the address of gpu3: write -H gpu3)"),
        ("10.0.0.1:8", "column 1: '10.0.0.1'", " (it is the address of gpu1: write -H gpu1:8)"),
        ("GPU1", "column 1: 'GPU1'", " (did you mean 'gpu1'?)"),
        ("host24:8", "column 1: 'host24'", " (did you mean 'host2'?)"),
        ("gpu[4-8]", "column 1: 'gpu5'", " (did you mean 'gpu4'?)"),
        ("qqq", "column 1: 'qqq'", ""),
    ],
)
def test_strangers(text: str, place: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        choose(CLUSTER, text)
    (fault,) = caught.value.faults
    assert str(fault) == f"{place}: unknown host: the hosts of c.yaml are gpu[1-4],host,host2{hint}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nightly", [("gpu1", 8), ("gpu2", 8)]),
        ("gpu3,nightly:4", [("gpu3", 8), ("gpu1", 4), ("gpu2", 4)]),
        ("one:2,nightly", [("gpu3", 2), ("gpu1", 8), ("gpu2", 8)]),
        ("mixed:2", [("gpu4", 2), ("fe80::5", 2), ("gpu1", 2)]),
        ("v100.2", [("gpu2", 8)]),
    ],
)
def test_a_group_stands_for_its_hosts(text: str, expected: list[tuple[str, int]]) -> None:
    assert [(host.name, host.slots) for host in choose(GROUPED, text)] == expected


NAMED = "is already named at column 1 (name it only once, with the sum of its slots)"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nightly,gpu2", f"column 9: 'gpu2': gpu2 {NAMED}"),
        ("gpu1:2,nightly", f"column 8: 'nightly': gpu1 {NAMED}"),
        (
            "nigtly",
            "column 1: 'nigtly': unknown host: the hosts of c.yaml are fe80::5,gpu[1-4] (did you mean 'nightly'?)",
        ),
        ("nightly4", "(did you mean 'nightly:4'?)"),
    ],
)
def test_what_is_wrong_beside_groups(text: str, fault: str) -> None:
    with pytest.raises(SpecError) as caught:
        choose(GROUPED, text)
    assert [str(each).endswith(fault) for each in caught.value.faults] == [True]


def test_a_host_goes_before_a_group_of_its_name() -> None:
    inventory = Inventory("c", "gpu1", GPUS, groups=(("gpu1", ("gpu1", "gpu2")),), source="c.yaml")
    assert choose(inventory, "gpu1") == (GPUS[0],)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("gpu1:16,gpu2:16", []),
        (
            "gpu1:8,gpu2:17",
            [
                "column 8: 'gpu2:17': 17 slots are requested, but max_slots of gpu2 is 16 in c.yaml (request at most gpu2:16, or raise max_slots there)",
            ],
        ),
        ("gpu[1-2]:17,[::1]:3", ["column 1: 'gpu1:17': 17 slots are reque", "column 13: '[::1]:3': 3 slots are reque"]),
        ("free:4096,[::1]", []),
    ],
)
def test_no_more_slots_than_max_slots(text: str, faults: list[str]) -> None:
    hosts = (Host("gpu1", "a", slots=8, max_slots=16), Host("gpu2", "b", max_slots=16))
    inventory = Inventory("c", "gpu1", (*hosts, Host("::1", "::1", max_slots=2), Host("free", "d")), source="c.yaml")
    found = []
    try:
        choose(inventory, text)
    except SpecError as error:
        found = [str(fault) for fault in error.faults]
    assert [fault[: len(start)] for fault, start in zip(found, faults, strict=True)] == faults


def test_the_list_of_hosts_is_shortened() -> None:
    many = tuple(Host(f"{chr(97 + number % 26)}{number}x", "a") for number in range(500))
    with pytest.raises(SpecError) as caught:
        choose(Inventory("c", "h0x", many, source="c.yaml"), "zz")
    assert "... (500 hosts)" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_without_an_inventory() -> None:
    assert hosts_of("localhost:2,10.0.0.1,Me.example:3,127.0.0.1,[::1]", frozenset(("me.example",))) == (
        Host("localhost", "localhost", slots=2, connection="local", has=0),
        Host("10.0.0.1", "10.0.0.1"),
        Host("Me.example", "Me.example", slots=3, connection="local", has=0),
        Host("127.0.0.1", "127.0.0.1", connection="local"),
        Host("::1", "::1", connection="local"),
    )
    assert hosts_of("me") == (Host("me", "me"),)


# --- Ranges: in the order of the text, bounded, and the same hosts as ClusterShell gives


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ("gpu1",)),
        ("gpu[3,1-2]", ("gpu3", "gpu1", "gpu2")),
        ("n[08-11]x", ("n08x", "n09x", "n10x", "n11x")),
        ("n[1,01]", ("n1", "n01")),
        ("r[1-2]n[0-4/4]", ("r1n0", "r1n4", "r2n0", "r2n4")),
        ("fd00::[1-2]", ("fd00::1", "fd00::2")),
        ("", ("",)),
    ],
)
def test_expand(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a[1", "has an unmatched bracket"),
        ("a]1[", "has an unmatched bracket"),
        ("a[[1]]", "has an unmatched bracket"),
        ("a[]", "has an invalid range"),
        ("a[1-2,]", "has an invalid range"),
        ("a[1 -2]", "has an invalid range"),
        ("a[1-2-3]", "has an invalid range"),
        ("a[-1]", "has an invalid range"),
        ("a[1-1000000000]", "up to 9 digits"),
        ("a[\u0661]", "has an invalid range"),
        ("a[2-1]", "has an empty range: 2-1"),
        ("a[1-2/0]", "has an empty range: 1-2/0"),
        ("a[01-100]", "different numbers of digits: 01-100"),
        ("a[1-3,2]", "names 'a2' twice"),
        ("\x1b]0;\a[1,1]", "bracket"),
        ("\x07[1,1]", r"names '\\x071' twice"),
        ("a[1-10001]", "more than 10000 hosts"),
        ("a[1-99999999]", "more than 10000 hosts"),
        ("a[1-101][1-100]", "more than 10000 hosts"),
        ("x" * 254, "longer than any host name"),
    ],
)
def test_expand_refuses(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        expand(text)


def test_what_is_too_much_is_refused_before_it_is_made() -> None:
    begin = time.process_time()
    for text in ("a" + "[0-999999999]" * 1000, "a[" + "0-999999999," * 1000 + "1]", "[" * 100_000, "a[1]" * 100_000):
        with pytest.raises(ValueError, match=r"more than|bracket|longer"):
            expand(text)
    assert time.process_time() - begin < 10  # where it is made first it is for ever


def test_as_many_as_are_allowed() -> None:
    assert len(expand(f"a[1-{MAX_HOSTS}]")) == MAX_HOSTS


def test_fold() -> None:
    assert (
        fold(["gpu2", "gpu1", "head", "n09", "gpu4", "::1", "fe80::1%eth0"]) == "::1,fe80::1%eth0,gpu[1-2,4],head,n09"
    )


def items() -> st.SearchStrategy[str]:
    def item(first: int, length: int, step: int, width: int) -> str:
        last = first + length
        ends = (str(first).zfill(width), str(last).zfill(width))
        if length == 0:
            return ends[0]
        return "-".join(ends) + (f"/{step}" if step > 1 else "")

    whole = st.integers(0, 120)
    return st.builds(item, whole, st.integers(0, 12), st.integers(1, 4), st.integers(1, 3))


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.tuples(st.sampled_from(["gpu", "a-"]), st.lists(items(), min_size=1, max_size=3)), max_size=2))
def test_the_same_hosts_as_clustershell(axes: list[tuple[str, list[str]]]) -> None:
    text = "n" + "".join(f"{prefix}[{','.join(body)}]" for prefix, body in axes)
    try:
        names = expand(text)
    except ValueError:  # ClusterShell drops what is listed twice, and mixes widths in one list in its own way
        return
    assert set(names) == set(NodeSet(text, resolver=RESOLVER_NOGROUP))
    assert set(NodeSet(fold(names), resolver=RESOLVER_NOGROUP)) == set(names)
