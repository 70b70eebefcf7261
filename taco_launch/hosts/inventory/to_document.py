"""Inventory -> the document of an inventory file: what is written out can be read again, and is the same inventory."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from taco_launch.core.model.host import hosts
from taco_launch.hosts.inventory.schema import schema
from taco_launch.hosts.inventory.schema.section import SchemaSection

_SECTIONS: Mapping[type, type[SchemaSection]] = {
    hosts.Container: schema.Container,
    hosts.DataSet: schema.DataEntry,
    hosts.DockerEngine: schema.Docker,
    hosts.Network: schema.Network,
    hosts.Peermem: schema.Peermem,
    hosts.Registry: schema.Registry,
    hosts.Toolkit: schema.Toolkit,
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an inventory file, for editors: every key with its description."""
    return schema.InventoryFile.model_json_schema() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def document(inventory: hosts.Inventory) -> dict[str, Any]:
    """Return the keys of a file that describes an inventory, in the schema's order; what has its default is left out.

    Of ranges, groups' keys and defaults only that is left which comes of them; keys that all hosts share stand in
    `defaults`. A profile that is a path counts from where the file lies.
    """
    all_hosts = {host.name: _host(host) for host in inventory.hosts}
    shared = _shared(all_hosts.values())
    own = {name: {key: value for key, value in keys.items() if key not in shared} for name, keys in all_hosts.items()}
    keys = _changed(inventory, schema.InventoryFile)
    keys |= {"ssh": _changed(inventory, schema.Ssh), "defaults": shared, "hosts": own}
    return {key: keys[key] for key in schema.InventoryFile.model_fields if keys.get(key)}


def _changed(value: Any, section: type[SchemaSection]) -> dict[str, Any]:
    """Return those keys of a section for which a dataclass has another value than its default."""
    defaults = {entry.name: entry.default for entry in fields(value)}
    changed = {name: getattr(value, name) for name in section.model_fields if name in defaults}
    return {name: _FORMS.get(name, _plain)(each) for name, each in changed.items() if each != defaults[name]}


def _plain(value: Any) -> Any:
    if type(value) in _SECTIONS:
        return _changed(value, _SECTIONS[type(value)])
    return list(value) if isinstance(value, tuple) else value


def _host(host: hosts.Host) -> dict[str, Any]:
    address = {} if host.address == host.name else {"address": host.address}
    topology = {} if host.constraints.topology else {"topology": "off"}
    return {**address, **_changed(host, schema.HostDefaults), **topology}


def _shared(all_hosts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the keys with values that every host has, of those that may stand in `defaults`."""
    first, *others = all_hosts
    keys = (key for key in first if key != "address" and all(key in other for other in others))
    return {key: first[key] for key in keys if others and all(other[key] == first[key] for other in others)}


def _container(container: hosts.Container) -> dict[str, Any]:
    keys: dict[str, Any] = _plain(container)
    image = container.image if container.source == "registry" else {"name": container.image, "from": container.source}
    return {**keys, "image": image}


def _ports(ports: tuple[int, int]) -> str:
    return "-".join(map(str, ports))


# Keys that a file writes in another form than the inventory holds them.
_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "container": _container,
    "data": lambda data: {one.name: _plain(one) for one in data},
    "env": dict,
    "groups": lambda groups: {name: list(members) for name, members in groups},
    "labels": dict,
    "mounts": lambda mounts: [":".join(mount[:2] if mount[2] == "rw" else mount) for mount in mounts],
    "port_range": _ports,
    "proxy": lambda proxy: {"no_proxy" if name == "no" else name: value for name, value in proxy},
    "settings": lambda settings: {key: json.loads(text) for key, text in settings},
    "ulimits": dict,
    "variant_ports": _ports,
    "versions": dict,
}
