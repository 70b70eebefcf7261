"""A hostfile's text -> Inventory: one host on each line, as Open MPI, DeepSpeed and Horovod write them.

`gpu1 slots=8 max-slots=16`: found by trying what Open MPI 4.1.4 and 5.0.11 take, down to spaces around `=` and comments
behind `#` and `//`. `gpu1:8` is the same as `gpu1 slots=8`, as Hydra and Horovod's -H write it. Ranges and IPv6 addresses in brackets are ours. Neither YAML nor pydantic is needed.
"""

import re
from pathlib import PurePath

from taco_launch.core.errors import SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.inventory import ranges, select
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import Faults

# All lines together, where one host stands in many: ten slots on each host of the largest inventory.
MAX_NAMES = 10 * ranges.MAX_HOSTS

_HINT = (
    "it was read as a hostfile: one host on each line, such as gpu1 slots=8. "
    "A YAML inventory needs a file name that ends with .yaml, or a first line such as cluster: NAME"
)
_COMMENT = re.compile(r"(?:#|//).*")
_PIECE = re.compile(r"[^\s=]+|=")
_NUMBER = re.compile(r"[0-9]{1,9}")
_KEYS = {"slots": "slots", "max-slots": "max_slots", "max_slots": "max_slots"}
_WORDS_FOR_SLOTS = frozenset(("count", "cpu", "cpus", "gpu", "gpus", "np", "ppn"))
_YAML_KEYS = frozenset(("address", "port", "identity_file", "labels", "connection"))
_RANGE = re.compile(r"\[[0-9,/-]*\]")
_STRAY_SLOTS = re.compile(r"(?:slots?)?[\s:=]*([0-9]{1,9})", re.IGNORECASE)


def parse(text: str, source: str, local_names: frozenset[str] = frozenset()) -> Inventory:
    """Return the inventory that a hostfile amounts to: its first host is the head, its name that of the cluster.

    A host without slots has those of its facts.

    Args:
        text: the file's text.
        source: names it, in messages and in the result.
        local_names: this machine's names; they, localhost, 127.0.0.1 and ::1 are connected to as `local`.

    Raises:
        SpecError: something in it is wrong: all faults, each with its line and column.
    """
    faults = Faults(source, _HINT)
    hosts: dict[str, _Entry] = {}
    again: dict[str, list[_Entry]] = {}
    room = MAX_NAMES
    for number, line in enumerate(text.split("\n"), start=1):
        entry = _entry(_COMMENT.sub("", line), number, faults)
        if entry is None:
            continue
        room -= len(entry.names)
        twice = next((name for name in entry.names if name in hosts), None)
        if room < 0 or (twice is None and len(hosts) + len(entry.names) > ranges.MAX_HOSTS):
            most = f"{MAX_NAMES} names of hosts" if room < 0 else f"{ranges.MAX_HOSTS} hosts"
            problem = f"more than {most}, which is the limit for one file"
            faults.add_at(number, entry.column, entry.written, problem)
            break
        if twice is not None:
            again.setdefault(twice, []).append(entry)
        else:
            hosts.update(dict.fromkeys(entry.names, entry))
    for name, entries in again.items():
        _add_again(name, hosts[name], entries, faults)
    faults.raise_any()
    if not hosts:
        faults.add_at(1, 1, "", "this file names no host")
        raise faults.error()
    local = select.names_of_this_machine(local_names)
    return Inventory(
        cluster=re.sub("[^A-Za-z0-9._-]+", "-", PurePath(source).stem).strip("._-")[:63] or "hosts",
        head=next(iter(hosts)),
        hosts=tuple(
            Host(
                name=name,
                address=name,
                user=entry.user,
                slots=entry.slots,
                max_slots=entry.max_slots,
                connection="local" if name.lower() in local else "ssh",
            )
            for name, entry in hosts.items()
        ),
        source=faults.source,
    )


@dataclass(frozen=True)
class _Entry:
    """What one line says; `names` is empty where the host is faulty, `column` is where it stands, from 1."""

    line: int
    column: int
    written: str
    user: str
    names: tuple[str, ...]
    slots: int | None
    max_slots: int | None


def _entry(line: str, number: int, faults: Faults) -> _Entry | None:
    """Read a line without its comment; what is wrong is noted, and None is given where there is no host."""
    pieces = [(found.start() + 1, found[0]) for found in _PIECE.finditer(line)]
    if not pieces:
        return None
    column, written = pieces[0]
    if "=" in (written, *(text for _, text in pieces[1:2])):
        value = "".join(text for _, text in pieces[2:3])
        hint = f"write {written} slots={value}" if _is_host(written) and _NUMBER.fullmatch(value) else ""
        problem = "the line has to start with a host"
        faults.add_at(number, column, line.strip(), problem, "such as gpu1 slots=8" if written in _KEYS else hint)
        return None
    user, at, host = written.rpartition("@")
    host, count = _counted(host)
    found = _names(host, written, number, column, faults)
    try:
        if at:
            names.user(user)
    except SpecError as error:
        faults.add_at(number, column, written, f"the part before the @ {error.faults[0].problem}")
    if not found and host.endswith(":"):
        return None  # `gpu1: 8` is one mistake
    start = [(column, "slots"), (column, "="), (column, count)] if count else []
    options = _options(line, [*start, *pieces[1:]], number, faults)
    slots, most = options.get("slots"), options.get("max_slots")
    if slots is not None and most is not None and most < slots:
        faults.add_at(number, column, written, f"max-slots={most} is less than slots={slots}")
    return _Entry(number, column, written, user, found, slots, most)


def _counted(host: str) -> tuple[str, str]:
    """Split `gpu1:8` into its host and its slots; these are empty where there are none."""
    name, _, count = host.rpartition(":")
    if _NUMBER.fullmatch(count) and (":" not in name or select.IPV6.fullmatch(name)):
        return name, count
    return host, ""


def _names(host: str, written: str, number: int, column: int, faults: Faults) -> tuple[str, ...]:
    """Return the hosts that the first word of a line stands for; what is wrong is noted, and then nothing is given."""
    if ipv6 := select.IPV6.fullmatch(host):
        found: tuple[str, ...] = (ipv6[1],)
        if ipv6[2] is not None:
            _add_colon(written, number, column, faults)
            return ()
    elif ":" in host:
        _add_colon(written, number, column, faults)
        return ()
    else:
        try:
            # names that only count faults are not made one by one
            found = ranges.expand(_RANGE.sub("1", host) if faults.full else host)
        except ValueError as error:
            faults.add_at(number, column, written, str(error))
            return ()
    try:
        return tuple(map(names.address, found))
    except SpecError as error:
        hint = "to leave a host out, as Open MPI does with ^, put # before it" if host.startswith("^") else ""
        hint = "one host on each line" if "," in host else hint
        faults.add_at(number, column, written, error.faults[0].problem, hint)
    return ()


def _add_colon(written: str, number: int, column: int, faults: Faults) -> None:
    """Note a host with a colon that no number of slots follows, and an IPv6 address without brackets."""
    user, at, host = written.rpartition("@")
    if _is_host(host):
        hint = f"write {names.plain(f'{user}{at}[{host}]')}"
        faults.add_at(number, column, written, "an IPv6 address must be in brackets", hint)
        return
    name, _, count = host.rpartition(":")
    known = _is_host(name) or (name.startswith("[") and _is_host(name[1:-1]))
    hint = f"write {names.plain(f'{user}{at}{name} slots=8')}" if known and not count else "such as gpu1 slots=8"
    faults.add_at(number, column, written, "a ':' is only allowed before the number of slots", hint)


def _options(line: str, pieces: list[tuple[int, str]], number: int, faults: Faults) -> dict[str, int]:
    """Read what stands behind a host; what is wrong is noted, and the first stray word ends the reading."""
    options: dict[str, int] = {}
    at = 0
    while at < len(pieces):
        column, key = pieces[at]
        if key == "=" or [text for _, text in pieces[at + 1 : at + 2]] != ["="]:
            rest = line[column - 1 :].strip()
            problem = "after the host only slots=N and max-slots=N are allowed"
            faults.add_at(number, column, rest, problem, _stray_hint(rest))
            break
        value = pieces[at + 2][1] if at + 2 < len(pieces) else ""
        option = f"{key}={value}"
        if key not in _KEYS:
            problem = "unknown key; known here: slots, max-slots"
            faults.add_at(number, column, option, problem, _key_hint(key, value))
        elif _KEYS[key] in options:
            faults.add_at(number, column, option, f"{key} is listed twice in this line")
        elif not _NUMBER.fullmatch(value) or not 1 <= int(value) <= names.MAX_SLOTS:
            none = key == "slots" and value and not value.strip("0")
            hint = "to leave a host out, put # before it" if none else ""
            faults.add_at(number, column, option, f"must be a whole number from 1 to {names.MAX_SLOTS}", hint)
        else:
            options[_KEYS[key]] = int(value)
        at += 3
        if value == "=":
            break
    return options


def _key_hint(key: str, value: str) -> str:
    if key.lower() in _WORDS_FOR_SLOTS:
        return f"did you mean {names.shown(f'slots={value}')}?"
    if key.lower() in ("user", "username", "user-name", "user_name"):
        return "write the user before the host: root@gpu1"
    if key.lower() in _YAML_KEYS:
        return "only a YAML inventory can have this key"
    return names.did_you_mean(key.lower(), _KEYS)


def _stray_hint(rest: str) -> str:
    if slots := _STRAY_SLOTS.fullmatch(rest):
        return f"did you mean slots={slots[1]}?"
    return "one host on each line" if _is_host(rest.split(maxsplit=1)[0]) else ""


def _add_again(name: str, first: _Entry, entries: list[_Entry], faults: Faults) -> None:
    """Note that a host stands in several lines, once for all of them."""
    lines = 1 + len(entries)
    hint = "keep one of the lines"
    if all(entry.slots is None for entry in (first, *entries)):
        hint = f"one line for each slot? write {name} slots={lines} in one line instead"
    problem = f"{name} is already named in line {first.line}" + (f", {lines} lines name it" if lines > 2 else "")
    faults.add_at(entries[0].line, entries[0].column, entries[0].written, problem, hint)


def _is_host(text: str) -> bool:
    """Return whether a text has the form of a host or a range of hosts, without making all of its names."""
    return select.is_address(_RANGE.sub("1", text))
