"""Host files: those in `hostfiles/` give the hosts or the message beside them; made-up ones give hosts, or our error."""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.inventory.hostfile import MAX_NAMES
from taco_launch.hosts.inventory.load import load, parse
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import MAX_FAULTS
from taco_launch.hosts.inventory.schema.text import is_hostfile
from tests.support.document_cases import Cases, check_refused, stem

CASES = Cases(Path(__file__).with_name("hostfiles"), ".hosts")


def local_names() -> frozenset[str]:
    return frozenset(("me", "me.example"))


def rows(inventory: Inventory) -> list[list[Any]]:
    return [[host.name, host.user, host.slots, host.max_slots, host.connection] for host in inventory.hosts]


@pytest.mark.parametrize("case", CASES.good, ids=stem)
def test_good(case: Path) -> None:
    inventory = parse(case.read_bytes(), f"/etc/{case.stem}.hosts", local_names)
    assert rows(inventory) == json.loads(case.with_suffix(".json").read_text("utf-8"))
    plain = tuple(
        Host(host.name, host.name, 22, host.user, None, host.slots, host.max_slots, (), host.connection)
        for host in inventory.hosts
    )
    assert inventory == Inventory(case.stem, inventory.hosts[0].name, plain, source=f"/etc/{case.stem}.hosts")


@pytest.mark.parametrize("case", CASES.bad, ids=stem)
def test_bad(case: Path) -> None:
    check_refused(case, lambda data: parse(data, "hosts", local_names))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert CASES.unmatched() == set()


YAML_TEXTS = [
    "cluster: c\n",
    "hosts:\n",
    "# c\n\n  cluster : c",
    '{"cluster": 1}',
    "---\n",
    "%YAML 1.1\n",
    "'a': 1",
    "a: b",
]
HOST_TEXTS = ["gpu1 slots=8", "gpu1", "gpu1:8", "[::1] slots=2", "fe80::1", "- gpu1", "", "# c\n", "// c\ncluster: x"]


@pytest.mark.parametrize("text", YAML_TEXTS + HOST_TEXTS)
def test_how_the_kind_is_told(text: str) -> None:
    for name in ("hosts", "cluster", "hosts.txt", "yaml", "a.yaml.bak"):
        assert is_hostfile(text, name) == (text in HOST_TEXTS)
    for name in ("a.yaml", "a.yml", "a.json", "A.YAML"):
        assert not is_hostfile(text, name)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("hosts", "gpu1 8", "it was read as a hostfile: one host on each line, such as gpu1 slots=8. A YAML inventory"),
        (
            "hosts",
            "gpu1: 8",
            "it was read as YAML because of how it starts: .* a hostfile has lines such as gpu1 slots=8",
        ),
        ("h.yaml", "gpu1 slots=8", "it was read as YAML because of its name; a hostfile needs another name"),
        ("h.yaml", "cluster: c", "`taco-launch inventory --schema` describes every key"),
    ],
)
def test_the_hint_helps_whoever_meant_the_other_kind(name: str, text: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text.encode(), name)
    assert caught.value.hint
    assert re.match(hint, caught.value.hint)


@pytest.mark.parametrize(
    ("path", "cluster"),
    [
        ("hostfile", "hostfile"),
        ("/etc/my hosts.txt", "my-hosts"),
        (".hosts", "hosts"),
        ("-", "hosts"),
        ("a/\u00fc", "hosts"),
        ("x" * 100, "x" * 63),
        ("a.b.c", "a.b"),
    ],
)
def test_the_name_of_the_cluster(path: str, cluster: str) -> None:
    found = parse(b"gpu1", path).cluster
    assert (found, names.word(found, "a cluster name", "")) == (cluster, cluster)


def test_a_file_by_option_and_by_variable(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("me slots=2\ngpu2 slots=8\n")
    asked = Counter[str]()

    def local() -> frozenset[str]:
        asked["names"] += 1
        return local_names()

    expected = [["me", "", 2, None, "local"], ["gpu2", "", 8, None, "ssh"]]
    assert rows(load(str(file), {}, local)) == expected
    assert rows(load(None, {"TACO_LAUNCH_INVENTORY": str(file)}, local)) == expected
    assert load(str(file), {}).hosts[0].connection == "ssh"
    assert load(str(file), {}).source == str(file)
    assert asked["names"] == 2
    load(None, {}, local)
    assert asked["names"] == 2  # asking may take seconds (DNS), and only a hostfile needs it


def test_what_is_kept_of_a_host_file_is_not_for_another_machine(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("me\n")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert load(str(file), environ, local_names).hosts[0].connection == "local"
    assert load(str(file), environ).hosts[0].connection == "ssh"


def test_reading_one_needs_neither_yaml_nor_pydantic(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("gpu1 slots=2\n")
    code = (
        "import sys; from taco_launch.hosts.inventory.load import load; load(sys.argv[1], {}); "
        "print([name for name in ('yaml', 'pydantic', 'ClusterShell') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_hostile_files_are_refused_soon() -> None:
    begin = time.process_time()
    for text in (
        "gpu1 " * 20_000,
        "=" * 1_000_000,
        "gpu1 slots" + " " * 1_000_000 + "8",
        "x" * 1_000_000,
        "@" * 1_000_000,
        "x" * 1_000_000 + "@::1",
        "x" * 1_000_000 + "@gpu1:8",
        ":" * 1_000_000,
        "[" * 1_000_000,
        "gpu1\n" * 20_000,
        "gpu1 slots=0\n" * 7_000,
        "a[1-9999]\n" * 7_000,
        "a[1-9999] b[1-9999]\n" * 4_000,
        "a[1-9999,1]\n" * 7_000,
        "a[1-9999]:8\n" * 4_000,
        "#" * 1_000_000,
        "#\n" * 100_000,
    ):
        with pytest.raises(SpecError) as caught:
            parse(text.encode(), "hosts")
        assert len(caught.value.faults) <= MAX_FAULTS + 1
        assert len(str(caught.value)) < 100_000
    assert time.process_time() - begin < 15  # without a bound on names it is minutes


def test_one_line_for_each_slot_of_very_many() -> None:
    with pytest.raises(SpecError) as caught:
        parse(b"gpu1\n" * (MAX_NAMES + 1) + b"gpu2 slots=0\n", "hosts")
    twice, more = map(str, caught.value.faults)
    assert twice.startswith(f"line 2 column 1: 'gpu1': gpu1 is already named in line 1, {MAX_NAMES} lines name it ")
    assert (
        more
        == f"line {MAX_NAMES + 1} column 1: 'gpu1': more than {MAX_NAMES} names of hosts, which is the limit for one file"
    )


HOSTS = ["gpu1", "gpu2", "gpu[1-3]", "[::1]", "::1", "root@", "@", "-x", "$(id)", "\u00fc", "["]
OPTIONS = ["slots", "slots=8", "max-slots=8", "max_slots", "=", "8", "0", "-1", ":", ":8", ","]
BLANKS = [" ", " ", "\t", "\n", "\n", "\r\n", "#", "//", "\x1b", "\x00", "\ufeff"]
PIECES = st.sampled_from([*HOSTS, *OPTIONS, *BLANKS]) | st.text(max_size=4)


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_any_text_gives_hosts_or_our_error(text: str) -> None:
    try:
        inventory = parse(text.encode("utf-8", "surrogatepass"), "hosts")
    except SpecError as error:
        problem = error
    else:
        sound(inventory)
        return
    assert all(line.isprintable() for line in str(problem).split("\n"))
    assert [fault for fault in problem.faults if not (fault.path and fault.value and fault.problem)] == []
    assert problem.faults


def sound(inventory: Inventory) -> None:
    assert inventory.head == inventory.hosts[0].name
    for host in inventory.hosts:
        names.address(host.name)
        assert 1 <= (host.slots or 1) <= (host.max_slots or names.MAX_SLOTS) <= names.MAX_SLOTS
        assert not host.user or names.user(host.user)


NUMBER = st.integers(1, names.MAX_SLOTS)
BLANK = st.sampled_from([" ", "  ", "\t"])
EQUALS = st.sampled_from(["=", " = ", "= ", " =", "\t=\t"])
NAME = st.one_of(
    st.integers(0, 999).map("gpu{}".format),
    st.integers(0, 255).map("10.0.0.{}".format),
    st.integers(0, 255).map("2001:db8::{:x}".format),
    st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9](\.[a-z]{1,5})?", fullmatch=True),
)
LIMITS = st.tuples(st.none() | NUMBER, st.none() | NUMBER).filter(lambda pair: (pair[0] or 0) <= (pair[1] or 10**6))
ROW = st.tuples(NAME, st.sampled_from(["", "root", "j.doe"]), LIMITS)


@st.composite
def right_files(draw: st.DrawFn) -> tuple[str, list[list[Any]]]:
    wanted = draw(st.lists(ROW, min_size=1, max_size=6, unique_by=lambda row: row[0]))
    lines = []
    for name, user, (slots, most) in wanted:
        lines += draw(st.lists(st.sampled_from(["", "# gpu1 slots=0", "  ", "// x"]), max_size=2))
        words = [f"{user}@" * bool(user) + (f"[{name}]" if ":" in name else name)]
        if most is not None:
            words.append(draw(st.sampled_from(["max-slots", "max_slots"])) + draw(EQUALS) + str(most))
        if slots is not None:
            words.insert(draw(st.integers(1, len(words))), f"slots{draw(EQUALS)}{slots}")
        lines.append(
            draw(st.sampled_from(["", " "])) + draw(BLANK).join(words) + draw(st.sampled_from(["", " ", " # x"]))
        )
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(lines) + draw(st.sampled_from(["", end])), [[n, u, s, m] for n, u, (s, m) in wanted]


@given(right_files())
def test_a_right_file_gives_its_hosts(made: tuple[str, list[list[Any]]]) -> None:
    text, wanted = made
    assert [row[:4] for row in rows(parse(text.encode(), "hosts"))] == wanted
