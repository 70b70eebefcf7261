"""Made-up inventories, host strings, names and `-x` values: each gives a value, or our error with path and value.

They are 10,000 with `--hypothesis-profile thorough`, and a tenth of that otherwise.

What is made up is near to what is right: good pieces with a few of them changed. A tally sees to it that both outcomes
really come up.
"""

import copy
import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.inventory.load import parse
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.select import choose, hosts_of, parse_hosts

T = TypeVar("T")
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # that of libyaml, where PyYAML has it
EACH = settings(max_examples=5 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow])

GOOD: dict[str, Any] = {
    "cluster": "hcc",
    "head": "gpu1",
    "ssh": {"user": "root", "identity_file": "~/.ssh/id_ed25519", "host_keys": "strict"},
    "network": {"interface": "bond0", "rdma": "auto", "gid_index": 3, "gdr": True, "port_range": "40000-45000"},
    "container": {
        "image": "a/b:c",
        "ssh_port": 12222,
        "shm_size": "32g",
        "ulimits": {"memlock": -1},
        "provides": ["x"],
    },
    "mpirun": "/usr/bin/mpirun",
    "profile": "auto",
    "versions": {"openmpi": "4.1.4", "nccl": "2.9.9"},
    "defaults": {"port": 22, "slots": "auto", "max_slots": 16, "labels": {"leaf": "a"}, "connection": "ssh"},
    "hosts": {"gpu[1-2]": {"address": "10.0.0.[1-2]", "slots": 8, "user": "u"}, "n[01-10/3]": None, "me": {}},
    "groups": {"some": ["gpu1", "n[01-04/3]"], "more": {"hosts": ["me"], "slots": 2, "identity_file": "/key"}},
}
WORDS = ["auto", "on", "off", "local", "strict", "gpu1", "gpu[1-2]", "gpu[2-1]", "gpu[1-3]", "n01", "me", "10.0.0.1"]
WORDS += ["10.0.0.[1-2]", "::1", "[::1]", "32g", "1-2", "2-1", "root", "/", "~/x", "-x", "$(id)", "cluster", "hosts"]
WORDS += ["groups", "slots", "address", "labels", "memlock", "image", "ssh", "[key]", "list", "mapping", "<<"]
JUNK = st.one_of(
    st.sampled_from([*WORDS, "", " ", "a b", "a\nb", "\x1b[31m", "é", "\u202e", "x" * 300, "yes", "12", "1.5", "null"]),
    st.sampled_from([None, True, False, 0, -1, 1, 8, 65536, 10**30, 1.5, float("nan"), dt.date(2024, 1, 1), b"x"]),
    st.sampled_from([[], {}, ["gpu1"], ["gpu1", "gpu1"], [[]], {"a": "b"}, {"hosts": ["gpu1"]}, {1: 2}, {None: None}]),
    st.text(max_size=8),
    st.integers(),
)


def outcome(tally: Counter[str], make: Callable[[], T]) -> T | None:
    try:
        value = make()
    except SpecError as error:
        tally["refused"] += 1
        problem = error
    else:
        tally["taken"] += 1
        return value
    assert problem.faults
    assert all(fault.path and fault.value and fault.problem for fault in problem.faults)
    assert all(line.isprintable() for line in str(problem).split("\n"))
    assert len(str(problem)) < 100_000
    return None


def both_came_up(tally: Counter[str]) -> None:
    assert min(tally["taken"], tally["refused"]) > tally.total() / 25, tally


def spots(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key or index) of everything in `tree`."""
    found = []
    for key, item in list(
        tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    ):
        found += [(tree, key), *spots(item)]
    return found


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    tree = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(0, 3))):
        places = spots(tree)
        tree_at, key = places[draw(st.integers(0, len(places) - 1))]
        change = draw(st.sampled_from(["replace", "delete", "rename", "add", "move"]))
        if change == "delete":
            del tree_at[key]
        elif change == "replace" or isinstance(tree_at, list):
            tree_at[key] = copy.deepcopy(draw(JUNK))
        elif change == "rename":
            tree_at[draw(st.sampled_from(WORDS) | st.text(max_size=8))] = tree_at.pop(key)
        elif change == "add":
            tree_at[draw(st.sampled_from(WORDS))] = copy.deepcopy(draw(JUNK))
        else:
            other_at, other = places[draw(st.integers(0, len(places) - 1))]
            tree_at[key] = (
                copy.deepcopy(other_at[other]) if other in range(len(other_at)) or other in other_at else None
            )
        if not tree:
            break
    data = yaml.dump(tree, Dumper=DUMPER, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data)))
        until = at + draw(st.integers(0, 6))
        junk = draw(
            st.sampled_from([b"", b"\n", b"\t", b": ", b"- ", b"[", b"}", b"&a ", b"*a", b"!!x ", b"\0", b"\xff", b"#"])
        )
        data = data[:at] + junk + data[until:]
    return data


def test_inventories() -> None:
    tally: Counter[str] = Counter()

    @EACH
    @given(documents())
    def each(data: bytes) -> None:
        inventory = outcome(tally, lambda: parse(data, "inventory.yaml"))
        if inventory is not None:
            sound(inventory)

    each()
    both_came_up(tally)


def sound(inventory: Inventory) -> None:
    hosts = [host.name for host in inventory.hosts]
    assert inventory.head in hosts
    assert len(set(hosts)) == len(hosts)
    assert all(member in hosts for _, members in inventory.groups for member in members)
    for host in inventory.hosts:
        names.address(host.name)
        names.address(host.address)
        assert host.slots is None or 1 <= host.slots <= (host.max_slots or names.MAX_SLOTS) <= names.MAX_SLOTS
        assert 1 <= host.port <= 65535
        assert host.connection in ("ssh", "local")
        assert not host.user.startswith("-")
        assert not (host.identity_file or "").startswith("-")


HOSTS = [
    "gpu1",
    "gpu2",
    "gpu[1-2]",
    "gpu[01-03]",
    "n-1.x_y",
    "10.0.0.1",
    "[::1]",
    "[fe80::1%e0]",
    "localhost",
    "host24",
]
BAD = ["", "-a", "a b", "::1", "a:b", "gpu[2-1]", "gpu[1-", "gpu[1-99999]", "12", "$(id)", "\x1b[1m", "é", "x" * 300]
SLOTS = ["", ":1", ":8", ":4096", ":0", ":-1", ":08", ":", ":x", ":4097", ":1:2", ": 1"]
ITEM = st.tuples(st.sampled_from(HOSTS) | st.sampled_from(HOSTS + BAD) | st.text(max_size=6), st.sampled_from(SLOTS))
HOST_STRING = st.builds(
    lambda items, joint: joint.join("".join(item) for item in items),
    st.lists(ITEM, min_size=1, max_size=4),
    st.sampled_from([",", ",", ",", ",,", ", ", " "]),
) | st.lists(st.sampled_from(HOSTS), unique=True).map(",".join)


def test_host_strings() -> None:
    tally: Counter[str] = Counter()
    inventory = Inventory("c", "gpu1", tuple(Host(name, name) for name in ("gpu1", "gpu2", "host2")), source="c.yaml")

    @EACH
    @given(HOST_STRING)
    def each(text: str) -> None:
        wanted = outcome(tally, lambda: parse_hosts(text))
        hosts = outcome(Counter(), lambda: hosts_of(text))
        chosen = outcome(Counter(), lambda: choose(inventory, text))
        assert (wanted is None) == (hosts is None)
        if wanted is not None and hosts is not None:
            assert [(host.name, host.slots) for host in hosts] == list(wanted)
            assert all(slots is None or 1 <= slots <= names.MAX_SLOTS for _, slots in wanted)
            assert len({name for name, _ in wanted}) == len(wanted)
            assert (chosen is None) == any(name not in ("gpu1", "gpu2", "host2") for name, _ in wanted)

    each()
    both_came_up(tally)


NAME = st.builds(
    lambda word, at, junk: word[:at] + junk + word[at:],
    st.sampled_from(["train", "a.b-c_1", "GPU", "10.0.0.1", "::1", "fe80::1%eth0", "A_B", "x" * 62]),
    st.integers(0, 12),
    st.sampled_from(["", "", ".", "-", "_", "1", " ", "\n", "\0", "\x1b", ":", "/", "$", "é", "\ud800"])
    | st.text(max_size=3),
)


def test_names() -> None:
    tallies: dict[Callable[[str], str], Counter[str]] = {}
    rules: tuple[Callable[[str], str], ...] = (names.host_name, names.address, names.job_name, names.env_name)

    @EACH
    @given(NAME)
    def each(text: str) -> None:
        for rule in rules:
            name = outcome(tallies.setdefault(rule, Counter()), lambda rule=rule: rule(text))  # type: ignore[misc]
            assert name in (None, text)
            assert name is None or (
                name.isascii() and name.isprintable() and name[0] != "-" and not set(name) & set(" /$;'\"")
            )

    each()
    for tally in tallies.values():
        both_came_up(tally)


def test_environment() -> None:
    tally: Counter[str] = Counter()

    @EACH
    @given(NAME | st.sampled_from(["A", "_", "PATH"]), st.none() | st.text(max_size=20) | st.just("\0"))
    def each(name: str, value: str | None) -> None:
        outcome(tally, lambda: names.env(name, value))

    each()
    both_came_up(tally)


def test_the_hint_on_a_host_that_is_a_text_holds_nothing_that_a_terminal_obeys() -> None:
    with pytest.raises(SpecError) as caught:
        parse(b'cluster: c\nhosts:\n  n1: "\\x1F"\n', "hosts.yaml")
    assert "(write n1: {address: '\\x1f'})" in str(caught.value)
