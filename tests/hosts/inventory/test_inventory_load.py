"""Where an inventory comes from, and files that are none: each is refused at once, with its path, and nothing hangs."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.inventory import cache
from taco_launch.hosts.inventory.load import MAX_BYTES, SHIPPED, load, parse
from taco_launch.hosts.inventory.schema import document
from taco_launch.hosts.inventory.schema.faults import MAX_FAULTS

GOOD = "cluster: {name}\nhosts: {{gpu1: {{}}}}\n"
CASES = sorted(Path(__file__).with_name("cases").glob("*.yaml"))


def write(path: Path, name: str) -> str:
    path.write_text(GOOD.format(name=name), "utf-8")
    return str(path)


def message(data: bytes) -> str:
    with pytest.raises(SpecError) as caught:
        parse(data, "inventory.yaml")
    return str(caught.value)


@contextmanager
def at_most(seconds: float, clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    begin = clock()
    yield
    assert clock() - begin < seconds


def test_the_option_goes_before_the_variable_and_this_before_what_is_shipped(tmp_path: Path) -> None:
    option, variable = write(tmp_path / "a.yaml", "option"), write(tmp_path / "b.yaml", "variable")
    environ = {"TACO_LAUNCH_INVENTORY": variable}
    assert (load(option, environ).cluster, load(option, environ).source) == ("option", option)
    assert (load(None, environ).cluster, load(None, environ).source) == ("variable", variable)
    for empty in ({}, {"TACO_LAUNCH_INVENTORY": ""}):
        assert load(None, empty).cluster == "local"


def test_what_is_shipped_is_this_machine_with_slots_by_its_facts() -> None:
    here = Host("localhost", "127.0.0.1", connection="local")
    assert load(None, {}) == Inventory("local", "localhost", (here,), source=SHIPPED)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / ("no" * 100) / "no.yaml")
    for source, environ, option in ((path, {}, "-i"), (None, {"TACO_LAUNCH_INVENTORY": path}, "TACO_LAUNCH_INVENTORY")):
        with pytest.raises(SpecError, match="file not found") as caught:
            load(source, environ)
        assert caught.value.source == path
        assert [fault.path for fault in caught.value.faults] == [option]
        assert (
            caught.value.faults[0].hint == f"check the path; to write an inventory: taco-launch init HOST --to {path}"
        )


def test_a_file_with_a_similar_name_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.yaml").touch()
    monkeypatch.chdir(tmp_path)
    hints = []
    for name in ("host.yaml", "nothing/alike.yaml"):
        with pytest.raises(SpecError, match="file not found") as caught:
            load(name, {})
        hints.append(caught.value.faults[0].hint)
    write = "to write an inventory: taco-launch init HOST --to nothing/alike.yaml"
    assert hints == ["did you mean hosts.yaml?", f"check the path: it is relative to {tmp_path}; {write}"]


@pytest.mark.parametrize("name", ["taco-bare-metal", "inventories/taco-bare-metal.yaml"])
def test_a_file_that_is_not_there_and_is_shipped(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="file not found") as caught:
        load(str(tmp_path / name), {})
    said, _, path = caught.value.faults[0].hint.rpartition(" ")
    assert said == "the file shipped with taco-launch is"
    assert load(path, {}).cluster == "taco-bare-metal"


@pytest.mark.parametrize("kind", ["folder", "fifo", "socket", "/dev/zero", "/dev/null", "/proc/self/mem", "loop"])
def test_what_is_no_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = {
        "folder": "cannot be read: a directory, not a regular file",
        "fifo": "cannot be read: a FIFO, not a regular file",
        "socket": "cannot be read: No such device or address",
        "/proc/self/mem": "cannot be read: Input/output error",
        "loop": "cannot be read: Too many levels of symbolic links",
    }
    if kind == "folder":
        Path(kind).mkdir()
    elif kind == "fifo":
        os.mkfifo(kind)
    elif kind == "loop":
        Path(kind).symlink_to(kind)
    elif kind == "socket":
        os.mknod(kind, stat.S_IFSOCK | 0o600)
    with at_most(2), pytest.raises(SpecError, match=expected.get(kind, "a device, not a regular file")):
        load(kind, {})


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 300])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(SpecError, match=r"-i: '"):
        load(path, {})


def test_a_path_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "\x1b[31m\n.yaml", "a b")
    with pytest.raises(SpecError) as caught:
        load(path, {})
    assert "\x1b" not in str(caught.value)
    assert "\x1b" not in load(write(Path(path), "c"), {}).source
    with pytest.raises(SpecError) as caught:
        load(f"{path}/no", {})
    assert "\x1b" not in str(caught.value)


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.touch()
    os.truncate(path, 16 << 30)  # sparse: reading it would take seconds
    with at_most(1), pytest.raises(SpecError, match=r"larger than 1048576 bytes \(1 MiB\)"):
        load(str(path), {})


def test_the_limit_itself_is_allowed() -> None:
    text = GOOD.format(name="c").encode()
    fill = b"#" * (MAX_BYTES - len(text))
    assert parse(text + fill, "x").cluster == "c"
    assert "1048577 bytes: is larger than 1048576 bytes" in message(text + fill + b"#")


def test_encodings_that_are_read() -> None:
    text = GOOD.format(name="c") + "# h\u00e9llo\n"
    for data in (text.encode(), text.encode("utf-8-sig"), text.replace("\n", "\r\n").encode()):
        assert parse(data, "x").cluster == "c"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a: b".encode("utf-16"), "line 1 column 1: 'ÿþ': the file is in UTF-16 or UTF-32; save it as UTF-8"),
        ("\ufeffa: b".encode("utf-16-be"), "line 1 column 1: 'þÿ': the file is in UTF-16 or UTF-32; save it as UTF-8"),
        ("a: b".encode("utf-32"), "line 1 column 1: 'ÿþ': the file is in UTF-16 or UTF-32; save it as UTF-8"),
        ("a: b".encode("utf-16-le"), "line 1 column 2: 'a\\x00:\\x00 \\x00b\\x00': holds the control character U+0000"),
        (
            "a: b\nc: h\u00e9llo\n".encode("latin-1"),
            "line 2 column 5: 'c: héllo': byte 0xe9 is no UTF-8; save the file",
        ),
        (b"\xef\xbb\xbfa: \xff", "line 1 column 4: 'a: ÿ': byte 0xff is no UTF-8"),
        (b"a: b\nc: \0", "line 2 column 4: 'c: \\x00': holds the control character U+0000, which is not allowed"),
        (b"a: \x1b[31m", "line 1 column 4: 'a: \\x1b[31m': holds the control character U+001B"),
        (b"a: \xed\xa0\x80", "line 1 column 4: 'a: í\\xa0\\x80': byte 0xed is no UTF-8"),
    ],
)
def test_encodings_that_are_not(data: bytes, expected: str) -> None:
    assert expected in message(data)


# each would take hours, gigabytes or the stack of whoever builds what it says
HOSTILE = {
    "open lists": b"[" * MAX_BYTES,
    "open mappings": b"{a: " * (MAX_BYTES // 4),
    "nested lists": b"- " * (MAX_BYTES // 2),
    "nested keys": b"? " * (MAX_BYTES // 2),
    "long number": b"cluster: " + b"9" * 1_000_000,
    "long text": b"cluster: " + b"x" * 1_000_000,
    "long key": b"x" * 1000 + b": 1\n" + b"a" * 900_000 + b": 1",
    "unknown keys": b"".join(b"k%d: 1\n" % number for number in range(10_000)),
    "one key": b"a: 1\n" * 20_000,
    "anchored keys": b"".join(b"&a k%d: 1\n" % number for number in range(10_000)),
    "aliases": b"a: &a [x]\nb: [" + b"*a," * 70_000 + b"]",
    "bad hosts": b"cluster: c\nhosts:\n" + b"".join(b"  h%d: 1\n" % number for number in range(10_000)),
    "many hosts": b"cluster: c\nhosts:\n" + b"".join(b"  h%d:\n" % number for number in range(11_000)),
    "many ranges": b"cluster: c\nhosts:\n" + b"".join(b"  h%dx[1-9999]:\n" % number for number in range(7_000)),
    "same range": b"cluster: c\nhosts: {'h[1-9999]': }\ngroups: {g: [" + b"'h[1-9999]'," * 30_000 + b"]}",
    "strangers": b"cluster: c\nhosts: {'h[1-999]': }\ngroups: {g: [" + b"h10000," * 30_000 + b"]}",
    "groups": b"cluster: c\nhosts: {'h[1-9999]': }\ngroups:\n"
    + b"".join(b"  g%d: {hosts: ['h[1-9999]'], slots: %d}\n" % (number, number) for number in range(7_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_soon(name: str) -> None:
    with at_most(8, time.process_time):
        assert len(message(HOSTILE[name])) < 100_000


def test_very_many_faults_are_counted() -> None:
    with pytest.raises(SpecError) as caught:
        parse(b"cluster: c\nhosts: {a: {}}\n" + b"".join(b"k%d: 1\n" % number for number in range(3000)), "x")
    assert len(caught.value.faults) == MAX_FAULTS + 1
    assert str(caught.value.faults[-1]) == f"further: {3000 - MAX_FAULTS}: faults are not shown"


def test_nothing_in_a_file_is_built_or_run(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    assert "tags are not allowed" in message(f"a: !!python/object/apply:os.system ['touch {owned}']".encode())
    assert not owned.exists()


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_yaml_without_libyaml_reads_the_same(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> Inventory | str:
        try:
            return parse(case.read_bytes(), "x")
        except SpecError as error:
            # the parser's own words for what is invalid YAML differ, and it may see it one token later
            return "invalid YAML" if "invalid YAML" in str(error) else str(error)

    fast = outcome()
    monkeypatch.setattr(document, "_Loader", yaml.SafeLoader)
    assert outcome() == fast


@pytest.mark.parametrize("data", [b'cluster: "\\ud800"', b'"\\ud800": 1'])
def test_half_a_character(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "invalid YAML" in message(data)
    monkeypatch.setattr(document, "_Loader", yaml.SafeLoader)
    assert "invalid YAML: an escape sequence means an invalid character (a lone surrogate)" in message(data)


def test_a_long_key_is_shortened_wherever_it_is_named() -> None:
    key = f"h[{','.join(map(str, range(5000)))}]"
    data = f"cluster: c\nhosts:\n  {key}: {{address: 10.0.0.1}}\n  h7: {{}}\ngroups: {{a: {{hosts: [h1], slots: 1}}, "
    assert len(message(f"{data}b: {{hosts: [h1], slots: 2}}}}".encode())) < 1000


def test_an_escape_beyond_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'cluster: "\\UFFFFFFFF"'
    assert "invalid YAML" in message(data)
    monkeypatch.setattr(document, "_Loader", yaml.SafeLoader)
    assert "invalid YAML" in message(data)


# --- What is kept of a text that was read: only for the code that read it


@pytest.mark.parametrize(
    "changed", ["hosts/inventory/load.py", "hosts/inventory/schema/schema.py", "core/model/host/hosts.py"]
)
def test_an_inventory_is_read_again_after_a_change_of_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    for name in (
        "hosts/inventory/load.py",
        "hosts/inventory/schema/schema.py",
        "core/launch/plan.py",
        "core/model/host/hosts.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "hosts" / "inventory" / "cache.py"))
    read: list[bytes] = []
    found = Host("gpu1", "10.0.0.1")

    def slowly(text: bytes, _source: str) -> Host:
        read.append(text)
        return found

    def through() -> Host:
        return cache.through(Host, b"hosts", "a.yaml", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, slowly)

    assert (through(), through(), len(read)) == (found, found, 1)
    os.utime(tmp_path / changed, (1, 1))
    assert (through(), len(read)) == (found, 2)
