"""Ansible's inventories, INI or YAML, as the document of an inventory here: hosts, their groups, how each is reached.

The rules are Ansible's (docs.ansible.com, "How to build your inventory"): a host's own variables override those of its
groups, a child group's override its parent's, of two groups at one level the later name wins, and `all` comes last.
Variables that are not Ansible's own are the user's, and are passed over.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from taco_launch.hosts.inventory import ranges
from taco_launch.hosts.inventory.schema import names
from taco_launch.hosts.inventory.schema.faults import Faults, Loc, Position

HINT = (
    "it was read as an inventory of Ansible: of its variables ansible_host, ansible_port, ansible_user, "
    "ansible_ssh_private_key_file and ansible_connection are used"
)
_SECTION = re.compile(
    r"\[[ \t]*([A-Za-z_][\w.-]*)[ \t]*(?::[ \t]*(children|vars|hosts)[ \t]*)?\][ \t]*(?:[#;].*)?", re.ASCII
)
_INI = re.compile(
    rf"^[ \t]*{_SECTION.pattern}\r?$|^[ \t]*[^#\s]\S*[ \t].*\bansible_[a-z_]{{1,60}}=", re.MULTILINE | re.ASCII
)
_RANGE = re.compile(r"\[([0-9]+):([0-9]+)(?::([0-9]+))?\]")
_LETTERS = re.compile(r"\[([A-Za-z]):([A-Za-z])\]")
_PORT = re.compile(r"((?:[^:\[\]]|\[[^\]]*\])+):([0-9]{1,5})")
_TEMPLATE = re.compile(r"\{[{%]")
_KEYS = {
    "ansible_host": "address",
    "ansible_ssh_host": "address",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_ssh_private_key_file": "identity_file",
    "ansible_private_key_file": "identity_file",
    "ansible_connection": "connection",
}
_CONNECTIONS = {"ssh": "ssh", "smart": "ssh", "paramiko": "ssh", "paramiko_ssh": "ssh", "local": "local"}
# What Ansible does on a host once it is connected; a password in a file is not one of these.
_OF_ANSIBLE = re.compile(
    r"ansible_(?:python_|(?:become|sudo)(?!_pass)|shell_|remote_tmp|pipelining|ssh_pipelining|.*_interpreter$)"
)
_OF_SUDO = re.compile(r"ansible_(?:become|sudo)_")
_SECRET = re.compile(r"pass|secret|token")
_MOST_LEVELS = 32
_LONGEST = 512
_MOST_MEMBERS = 10 * ranges.MAX_HOSTS
_Variables = dict[str, tuple[Any, Position]]


@dataclass
class _Group:
    hosts: dict[str, None] = field(default_factory=dict)
    # Where each is named, None in YAML, which defines it there.
    children: dict[str, Position | None] = field(default_factory=dict)
    variables: _Variables = field(default_factory=dict)


@dataclass
class _Content:
    """What a file has: its groups by name, the variables of each host, and where each host is named first.

    `judged` are the variables that were noted as wrong: those of a group are of many hosts.
    """

    faults: Faults
    groups: dict[str, _Group] = field(default_factory=lambda: {"all": _Group()})
    hosts: dict[str, _Variables] = field(default_factory=dict)
    places: dict[str, Position] = field(default_factory=dict)
    judged: set[tuple[str, Position]] = field(default_factory=set)
    room: int = _MOST_MEMBERS

    def group(self, name: str) -> _Group:
        return self.groups.setdefault(name, _Group())

    def add_host(self, group: str, pattern: str, variables: _Variables, place: Position) -> None:
        """Add the hosts of a pattern to a group; a pattern that is none is noted.

        Raises:
            SpecError: there are too many.
        """
        if port := _PORT.fullmatch(pattern):
            pattern, variables = port[1], {"ansible_port": (port[2], place), **variables}
        try:
            hosts = _expanded(pattern)
        except ValueError as error:
            self.faults.add_at(place.line, place.column, pattern, str(error))
            return
        self.room -= len(hosts)
        if self.room < 0:
            self.faults.add_at(place.line, place.column, pattern, f"more than {_MOST_MEMBERS} names of hosts")
            raise self.faults.error()
        for host in hosts:
            self.group(group).hosts[host] = None
            self.hosts.setdefault(host, {}).update(variables)
            self.places.setdefault(host, place)


def is_ini(text: str) -> bool:
    """Return whether a text that is not YAML has sections as Ansible's, or lines with its variables."""
    return bool(_INI.search(text))


def is_yaml(value: Any, own: Mapping[str, object]) -> bool:
    """Return whether a document is an inventory of Ansible: groups at its top, and none of our own keys."""
    return (
        isinstance(value, dict)
        and not own.keys() & value.keys()
        and all(part is None or isinstance(part, dict) for part in value.values())
        and any({"hosts", "children", "vars"} & set(part) for part in value.values() if part)
    )


def from_ini(text: str, faults: Faults) -> dict[str, Any]:
    """Return the document of an INI inventory; what is wrong is noted in `faults`."""
    content = _Content(faults)
    group, kind = "ungrouped", "hosts"
    for number, row in enumerate(text.split("\n"), 1):
        line = row.strip()
        if not line or line[0] in "#;":
            continue
        word = line.split()[0].partition("=")[0]  # a value may be a password
        place = Position(number, len(row) - len(row.lstrip()) + 1, names.shown(word))
        if section := _SECTION.fullmatch(line):
            group, kind = section[1], section[2] or "hosts"
            content.group(group)
        elif kind == "children":
            content.group(group).children[line.split()[0]] = place
        else:
            _ini_line(content, group, kind, line, place)
    _refuse_unknown_children(content)
    return _document(content)


def _refuse_unknown_children(content: _Content) -> None:
    """Note each child of a group that no section defines, as Ansible does."""
    for group in tuple(content.groups.values()):
        for child, place in group.children.items():
            if child not in content.groups and place is not None:
                hint = names.did_you_mean(child, tuple(content.groups))
                content.faults.add_at(place.line, place.column, child, "no section defines this group", hint)


def _ini_line(content: _Content, group: str, kind: str, line: str, place: Position) -> None:
    """Read a line with a host or, of a section of variables, with one of them."""
    try:
        if kind == "vars":
            key, _equals, value = line.partition("=")
            words = [f"{key.strip()}={' '.join(shlex.split(value, comments=True))}"]
        else:
            host, *words = shlex.split(line, comments=True)
    except ValueError as error:
        content.faults.add_at(place.line, place.column, place.shown.strip("'"), f"cannot be read: {str(error).lower()}")
        return
    pairs = [word.partition("=") for word in words]
    if stray := next((key for key, equals, _value in pairs if not equals), None):
        if _TEMPLATE.search(line):
            _add_template(content.faults, place)
        else:
            content.faults.add_at(place.line, place.column, stray, "after a host of Ansible only KEY=VALUE is allowed")
        return
    variables: _Variables = {key: (value, place) for key, _equals, value in pairs}
    if kind == "vars":
        content.group(group).variables.update(variables)
    else:
        content.add_host(group, host, variables, place)


def from_yaml(value: Mapping[str, Any], read: Faults, faults: Faults) -> dict[str, Any]:
    """Return the document of a YAML inventory, which `read` has the places of; what is wrong is noted in `faults`."""
    content = _Content(faults)
    for name, part in value.items():
        _yaml_group(content, read, name, part, (name,))
    return _document(content)


def _yaml_group(content: _Content, read: Faults, name: str, part: Any, loc: Loc) -> None:
    group = content.group(name)
    if part is not None and not isinstance(part, dict):
        content.faults.add_at(read.places[loc].line, read.places[loc].column, name, "must be a mapping (key: value)")
        return
    group.variables |= _yaml_variables(content, read, part, (*loc, "vars"))
    for host, _own_variables in _mapping(content, read, part, (*loc, "hosts")):
        at = (*loc, "hosts", host)
        if _TEMPLATE.search(host):
            _add_template(content.faults, read.places[at])
        else:
            hosts = _yaml_variables(content, read, (part or {})["hosts"], at)
            content.add_host(name, host, hosts, read.places[at])
    for child, inner in _mapping(content, read, part, (*loc, "children")):
        group.children[child] = None
        _yaml_group(content, read, child, inner, (*loc, "children", child))


def _yaml_variables(content: _Content, read: Faults, part: Any, loc: Loc) -> _Variables:
    places = {key: (*loc, key) for key, _value in _mapping(content, read, part, loc)}
    return {key: (part[loc[-1]][key], read.places[place]) for key, place in places.items()}


def _mapping(content: _Content, read: Faults, part: Any, loc: Loc) -> Iterator[tuple[str, Any]]:
    """Yield what a group has under the last step of `loc`; what is no mapping is noted."""
    value = (part or {}).get(loc[-1])
    if isinstance(value, dict):
        yield from value.items()
    elif value is not None:
        place = read.places[loc]
        content.faults.add_at(place.line, place.column, str(loc[-1]), "must be a mapping (key: value)")


def _expanded(pattern: str) -> tuple[str, ...]:
    """Expand a pattern of Ansible: `gpu[01:16]`, every second `[0:8:2]`, `[a:d]`, both ends included.

    Raises:
        ValueError: the brackets are wrong, or there are too many hosts.
    """
    if len(pattern) > _LONGEST:
        raise ValueError("is longer than any host name")
    if letters := _LETTERS.search(pattern):
        hosts: list[str] = []
        for letter in range(ord(letters[1]), ord(letters[2]) + 1):
            hosts += _expanded(f"{pattern[: letters.start()]}{chr(letter)}{pattern[letters.end() :]}")
            if len(hosts) > ranges.MAX_HOSTS:
                raise ValueError(f"means more than {ranges.MAX_HOSTS} hosts, which is the limit")
        return tuple(hosts)
    return ranges.expand(_RANGE.sub(lambda ends: f"[{ends[1]}-{ends[2]}{f'/{ends[3]}' if ends[3] else ''}]", pattern))


def _document(content: _Content) -> dict[str, Any]:
    """Return the document of all hosts and groups."""
    faults = content.faults
    members = _members(content)
    faults.places[()] = faults.places["hosts",] = Position(1, 1, "{...}")
    hosts: dict[str, dict[str, Any]] = {}
    for host, own in content.hosts.items():
        faults.places["hosts", host] = content.places[host]
        variables = members[host] | own
        hosts[host] = {key: value for name in variables for key, value in _key(content, host, name, variables[name])}
    return {
        "cluster": re.sub("[^A-Za-z0-9._-]+", "-", PurePath(faults.source).stem).strip("._-")[:63] or "hosts",
        "hosts": hosts,
        "groups": {
            name: tuple(group.hosts)
            for name, group in content.groups.items()
            if group.hosts and name not in ("all", "ungrouped")
        },
    }


def _members(content: _Content) -> dict[str, _Variables]:
    """Return what the groups of each host set, the nearest last; every group gets its children's hosts too.

    Raises:
        SpecError: a group is its own child, or there are too many members.
    """
    children = {name: group.children for name, group in content.groups.items() if name != "all"}
    level = {name: 0 if name == "all" else 1 for name in content.groups}
    for _pass in range(_MOST_LEVELS + 1):
        deeper = {
            child: level[name] + 1
            for name in children
            for child in children[name]
            if level.get(child, 0) <= level[name]
        }
        level |= deeper
        if not deeper:
            break
    else:
        problem = f"this group is its own child, or nested deeper than {_MOST_LEVELS} levels"
        content.faults.add_at(1, 1, min(deeper), problem)
        raise content.faults.error()
    order = sorted(level, key=lambda name: (level[name], name))
    room = _MOST_MEMBERS
    for name in reversed(order):
        group = content.group(name)
        for child in group.children:
            group.hosts |= content.group(child).hosts
        room -= len(group.hosts)
        if room < 0:
            content.faults.add_at(1, 1, name, f"the groups name more than {_MOST_MEMBERS} hosts together")
            raise content.faults.error()
    variables: dict[str, _Variables] = {host: dict(content.group("all").variables) for host in content.hosts}
    for name in order:
        for host in content.group(name).hosts:
            variables[host] |= content.group(name).variables
    return variables


def _key(content: _Content, host: str, name: str, variable: tuple[Any, Position]) -> Iterator[tuple[str, Any]]:
    """Yield the key of a host that a variable is, if any; one that would connect in another way is noted, once."""
    faults, (value, place) = content.faults, variable
    if not name.startswith("ansible_") or _OF_ANSIBLE.match(name) or (name, place) in content.judged:
        return
    key = _KEYS.get(name)
    if key is None or (key == "connection" and value not in _CONNECTIONS) or _TEMPLATE.search(str(value)):
        content.judged.add((name, place))
    loc = ("hosts", host, key or name)
    faults.places[loc] = Position(place.line, place.column, "(hidden)" if _SECRET.search(name) else names.shown(value))
    if key is None:
        hint = "put options of ssh into ~/.ssh/config, which taco-launch follows"
        hint = "log in with a key or the SSH agent" if _SECRET.search(name) else hint
        hint = "--ask-sudo-password asks for the password of sudo" if _OF_SUDO.match(name) else hint
        faults.add(loc, "this variable of Ansible is not used here, so it must not be set", hint)
    elif _TEMPLATE.search(str(value)):
        _add_template(faults, faults.places[loc])
    elif key == "connection" and value not in _CONNECTIONS:
        faults.add(loc, f"{name} must be one of {', '.join(_CONNECTIONS)}")
    elif key == "connection":
        yield key, _CONNECTIONS[value]
    else:
        number = key == "port" and isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value)
        yield key, int(value) if number else value


def _add_template(faults: Faults, place: Position) -> None:
    hint = "write the value out; ansible-inventory --list shows what Ansible makes of it"
    faults.add_at(
        place.line, place.column, place.shown.strip("'"), "a Jinja expression, which only Ansible evaluates", hint
    )
