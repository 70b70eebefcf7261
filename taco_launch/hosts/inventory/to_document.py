"""Inventory -> the document of an inventory file: what is written out can be read again, and is the same inventory."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from taco_launch.core.model.host import hosts
from taco_launch.hosts.inventory.schema import notify, schema
from taco_launch.hosts.inventory.schema.data_folders import DataEntry
from taco_launch.hosts.inventory.schema.health import HealthPolicy
from taco_launch.hosts.inventory.schema.section import SchemaSection, section_in


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
    changed = {
        name: (getattr(value, name), key.annotation)
        for name, key in section.model_fields.items()
        if name in defaults and getattr(value, name) != defaults[name]
    }
    return {
        name: _FORMS[name](held) if name in _FORMS else _plain(held, kind) for name, (held, kind) in changed.items()
    }


def _plain(value: Any, annotation: Any) -> Any:
    if is_dataclass(value) and (section := section_in(annotation)):
        return _changed(value, section)
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
    image = container.image if container.source == "registry" else {"name": container.image, "from": container.source}
    return {**_changed(container, schema.Container), "image": image}


def _ports(ports: tuple[int, int]) -> str:
    return "-".join(map(str, ports))


# Keys that a file writes in another form than the inventory holds them.
_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "container": _container,
    "data": lambda data: {one.name: _changed(one, DataEntry) for one in data},
    "data_roots": lambda roots: [path if mode == "ro" else {"path": path, "mode": mode} for path, mode in roots],
    "env": dict,
    "groups": lambda groups: {name: list(members) for name, members in groups},
    # A section with defaults alone says something, too.
    "health": lambda policy: {"drain": list(policy.drain), **_changed(policy, HealthPolicy)},
    "labels": dict,
    "notify": lambda held: notify.to_document(held) if isinstance(held, tuple) else held,
    "mounts": lambda mounts: [":".join(mount[:2] if mount[2] == "rw" else mount) for mount in mounts],
    "port_range": _ports,
    "proxy": lambda proxy: {"no_proxy" if name == "no" else name: value for name, value in proxy},
    "settings": lambda settings: {key: json.loads(text) for key, text in settings},
    "ulimits": dict,
    "variant_ports": _ports,
    "versions": dict,
}
