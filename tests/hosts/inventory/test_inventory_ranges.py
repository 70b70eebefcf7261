"""Ranges: in the order of the text, bounded, and the same hosts as ClusterShell gives."""

import time

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.hosts.inventory.ranges import MAX_HOSTS, expand, fold


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
