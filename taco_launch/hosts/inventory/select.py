"""`-H h1:8,h2:8` -> hosts: those of an inventory, or without one the hosts as they are named."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.hosts.inventory import ranges
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import MAX_FAULTS, limited

OPTION = "-H"
# An IPv6 address, and what stands behind a colon after it.
IPV6 = re.compile(r"\[([^\[\]]*:[^\[\]]*)\](?::(.*))?", re.DOTALL)

_MOST_SHOWN = 200
_FORM = "hosts are written NAME or NAME:SLOTS, with commas and no spaces between them"
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
_SLOTS = re.compile(r"[1-9][0-9]{0,8}")
_NO_GROUPS: Mapping[str, tuple[str, ...]] = {}


def parse_hosts(text: str) -> tuple[tuple[str, int | None], ...]:
    """Read `h1:8,h2,gpu[1-2]:8,[::1]:2` into (host, slots); slots is None where none is given.

    Raises:
        SpecError: all that is wrong, each with its column (from 1).
    """
    return tuple((entry.host, entry.slots) for entry in _entries(text))


def choose(inventory: Inventory, text: str) -> tuple[Host, ...]:
    """Return the hosts of the inventory that `text` names, in its order; slots it gives go before the host's own.

    The name of a group, where no host has it too, stands for the group's hosts, and slots behind it are those of each.
    More slots than the host has are allowed, up to its `max_slots`: the user says what the host can take.

    Raises:
        SpecError: `text` is wrong, names hosts that the inventory has not, or asks more of one than it may.
    """
    hosts = {host.name: host for host in inventory.hosts}
    entries = _entries(text, {name: members for name, members in inventory.groups if name not in hosts})
    # one fault per item: a range of strangers is one mistake
    strangers = {entry.column: entry for entry in reversed(entries) if entry.host not in hosts}
    if strangers:
        faults = [_stranger(strangers[column], inventory) for column in sorted(strangers)[:MAX_FAULTS]]
        if len(faults) == 1:
            short = f"unknown host {faults[0].value}: {_hosts_of(inventory)}"
            raise SpecError(OPTION, tuple(faults), faults[0].hint or None, short=short)
        raise SpecError(OPTION, limited(faults, len(strangers)))
    over = {
        entry.column: entry
        for entry in reversed(entries)
        if (entry.slots or 0) > (hosts[entry.host].max_slots or math.inf)
    }
    if over:
        faults = [_over(over[column], hosts[over[column].host], inventory) for column in sorted(over)[:MAX_FAULTS]]
        raise SpecError(OPTION, limited(faults, len(over)))
    return tuple(
        host if entry.slots is None else replace(host, slots=entry.slots, has=host.slots or 0)
        for entry, host in ((entry, hosts[entry.host]) for entry in entries)
    )


def named(inventory: Inventory, words: Sequence[str]) -> tuple[Host, ...]:
    """Return the hosts that `words` name, in inventory order: names, ranges (`gpu[1-4]`) and groups; all for no words.

    Raises:
        SpecError: a word names no host of the inventory.
    """
    try:
        chosen = {host.name for word in words for host in choose(inventory, word)}
    except SpecError as error:
        raise SpecError("HOST", error.faults, error.hint, short=error.short) from None
    return tuple(host for host in inventory.hosts if not words or host.name in chosen)


def hosts_of(text: str, local_names: frozenset[str] = frozenset()) -> tuple[Host, ...]:
    """Return the hosts that `text` names, without an inventory: each one's address is its name.

    Args:
        text: as for `parse_hosts`.
        local_names: this machine's names. These, localhost, 127.0.0.1 and ::1 are connected to as `local`.

    Raises:
        SpecError: `text` is wrong.
    """
    local = names_of_this_machine(local_names)
    return tuple(
        Host(
            name=entry.host,
            address=entry.host,
            slots=entry.slots,
            has=None if entry.slots is None else 0,
            connection="local" if entry.host.lower() in local else "ssh",
        )
        for entry in _entries(text)
    )


def names_of_this_machine(known: frozenset[str]) -> frozenset[str]:
    """Return the `known` names in lower case, and those that every machine has."""
    return _LOCAL | {name.lower() for name in known}


@dataclass(frozen=True)
class _Entry:
    """One host that was requested; `column` is where its item starts, from 1."""

    host: str
    slots: int | None
    column: int


def _entries(text: str, groups: Mapping[str, tuple[str, ...]] = _NO_GROUPS) -> tuple[_Entry, ...]:
    """Read the hosts that a text names; a name that is one of `groups` stands for its hosts.

    Raises:
        SpecError: items are wrong; it lists the first of them.
    """
    entries: dict[str, _Entry] = {}
    faults: list[Fault] = []
    for column, item in _items(text):
        try:
            found, slots = _item(column, item, groups)
        except SpecError as error:
            faults.extend(error.faults)
            continue
        if twice := next((host for host in found if host in entries), None):
            problem = f"{twice} is already named at column {entries[twice].column}"
            faults.append(
                Fault(f"column {column}", names.shown(item), problem, "name it only once, with the sum of its slots")
            )
        elif len(entries) + len(found) > ranges.MAX_HOSTS:
            faults.append(Fault(f"column {column}", names.shown(item), f"more than {ranges.MAX_HOSTS} hosts"))
            break
        entries.update((host, _Entry(host, slots, column)) for host in found)
    if faults:
        raise SpecError(OPTION, limited(faults[:MAX_FAULTS], len(faults)))
    return tuple(entries.values())


def _items(text: str) -> Iterator[tuple[int, str]]:
    """Yield (column, item) between the commas that are not inside of brackets."""
    start = depth = 0
    for index, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth = max(depth - 1, 0)
        elif character == "," and depth == 0:
            yield start + 1, text[start:index]
            start = index + 1
    yield start + 1, text[start:]


def _item(column: int, item: str, groups: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], int | None]:
    """Read one item into the hosts it stands for and their slots.

    Raises:
        SpecError: the item names no host, or its form or slots are wrong.
    """
    if not item:
        raise _refused(column, item, "no host is named here", _FORM)
    space = next((index for index, character in enumerate(item) if character.isspace()), None)
    if space is not None:
        raise _refused(column + space, item, "a space is not allowed here", _FORM)
    if ipv6 := IPV6.fullmatch(item):
        name, slots = ipv6[1], ipv6[2]
        found: tuple[str, ...] = (name,)
    else:
        name, colon, rest = item.partition(":")
        slots = rest if colon else None
        if ":" in rest:
            hint = "write IPv6 in brackets: [::1]:2" if is_address(item) else "is a comma missing between two hosts?"
            raise _refused(column, item, "more than one ':'", hint)
        try:
            found = ranges.expand(name)
        except ValueError as error:
            raise _refused(column, item, str(error)) from None
    for host in found:
        if host not in groups:
            names.address(host, f"column {column}", OPTION)
    if slots is not None and (not _SLOTS.fullmatch(slots) or int(slots) > names.MAX_SLOTS):
        at = column + len(item) - len(slots)
        raise _refused(at, item, f"slots are a whole number from 1 to {names.MAX_SLOTS}")
    hosts = tuple(host for name in found for host in groups.get(name, (name,)))
    return hosts, int(slots) if slots is not None else None


def is_address(text: str) -> bool:
    """Return whether a text has the form of a host's name or address."""
    try:
        names.address(text)
    except SpecError:
        return False
    return True


def _refused(column: int, item: str, problem: str, hint: str = "") -> SpecError:
    return SpecError(OPTION, (Fault(f"column {column}", names.shown(item), problem, hint),))


def _over(entry: _Entry, host: Host, inventory: Inventory) -> Fault:
    """Make the fault of a host with more slots than its inventory allows."""
    written = f"[{host.name}]" if ":" in host.name else host.name
    problem = (
        f"{entry.slots} slots are requested, but max_slots of {host.name} is {host.max_slots} in {inventory.source}"
    )
    hint = f"request at most {written}:{host.max_slots}, or raise max_slots there"
    return Fault(f"column {entry.column}", names.shown(f"{written}:{entry.slots}"), problem, hint)


def _stranger(entry: _Entry, inventory: Inventory) -> Fault:
    """Make the fault of an unknown host; host24 may be meant as host2:4, and an address is known by its host's name."""
    name = entry.host
    hosts = [host.name for host in inventory.hosts]
    known = [*hosts, *dict(inventory.groups)]
    heads = [host for host in known if name.startswith(host) and name[len(host) :].isdigit()]
    owner = next((host.name for host in inventory.hosts if host.address == name), "")
    if owner:
        hint = f"it is the address of {owner}: {_typed((owner,), entry.slots)}"
    elif heads and entry.slots is None:
        longest = max(heads, key=len)
        hint = f"did you mean {names.shown(f'{longest}:{name[len(longest) :]}')}?"
    else:
        hint = names.did_you_mean(name, known)
    return Fault(f"column {entry.column}", names.shown(name), f"unknown host: {_hosts_of(inventory)}", hint)


def _hosts_of(inventory: Inventory) -> str:
    return (
        f"the hosts of {inventory.source or 'the inventory'} are {_shortened([host.name for host in inventory.hosts])}"
    )


def _shortened(hosts: Sequence[str]) -> str:
    """Return hosts in short, the beginning where they are many."""
    folded = ranges.fold(hosts)
    return folded if len(folded) <= _MOST_SHOWN else f"{folded[:_MOST_SHOWN]}... ({len(hosts)} hosts)"


def _typed(hosts: Sequence[str], slots: int | None) -> str:
    """Return how to ask for hosts, each with these slots."""
    plain = [host for host in hosts if ":" not in host]
    items = [item for _column, item in _items(ranges.fold(plain))] if plain else []
    items += [f"[{host}]" for host in hosts if ":" in host]
    text = ",".join(item if slots is None else f"{item}:{slots}" for item in items)
    quoted = f"'{text}'" if "[" in text else text
    return f"write -H {quoted}"
