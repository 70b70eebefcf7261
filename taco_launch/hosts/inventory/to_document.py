"""Inventory -> the document of an inventory file: what is written out can be read again, and is the same inventory."""

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from taco_launch.core.model.host.hosts import Container, DockerEngine, Host, Inventory

# Values of Host, and of Inventory, that are keys of the file by the same names.
_HOST = "port", "user", "identity_file", "slots", "max_slots", "gpus", "connection"
_TOP = "engine", "mpirun", "profile", "host_loss_timeout"
_SSH = "host_keys", "known_hosts", "connect_timeout"


def document(found: Inventory) -> dict[str, Any]:
    """Return the keys of a file that describes an inventory; what has its default is left out.

    Of ranges, groups' keys and defaults only that is left which comes of them; keys that all hosts share stand in
    `defaults`. A profile that is a path counts from where the file lies.
    """
    hosts = {host.name: _host(host) for host in found.hosts}
    shared = _shared(hosts.values())
    own = {name: {key: value for key, value in keys.items() if key not in shared} for name, keys in hosts.items()}
    network = _changed(found.network)
    if found.network.port_range is not None:
        network["port_range"] = "-".join(map(str, found.network.port_range))
    parts = {
        "ssh": _changed(found, _SSH),
        "network": network,
        "container": None if found.container is None else _container(found.container),
        "docker": _docker(found.docker),
        "toolkit": _changed(found.toolkit),
        "peermem": _changed(found.peermem),
        **_changed(found, _TOP),
        "versions": dict(found.versions),
        "data": {one.name: {"path": one.path, **_changed(one, ("description", "mode", "owner"))} for one in found.data},
        "defaults": shared,
    }
    groups = {name: list(members) for name, members in found.groups}
    return {
        "cluster": found.cluster,
        "head": found.head,
        **{key: value for key, value in parts.items() if value},
        "hosts": own,
        **({"groups": groups} if groups else {}),
    }


def _changed(value: Any, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return those values of a dataclass that are not their defaults."""
    found = {}
    for entry in fields(value):
        held = getattr(value, entry.name)
        if (names is None or entry.name in names) and held != entry.default:
            found[entry.name] = list(held) if isinstance(held, tuple) else held
    return found


def _host(host: Host) -> dict[str, Any]:
    address = {} if host.address == host.name else {"address": host.address}
    labels = {"labels": dict(host.labels)} if host.labels else {}
    topology = {} if host.constraints.topology else {"topology": "off"}
    return {**address, **_changed(host, _HOST), **topology, **labels}


def _shared(hosts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the keys with values that every host has, of those that may stand in `defaults`."""
    first, *others = hosts
    keys = (key for key in first if key != "address" and all(key in other for other in others))
    return {key: first[key] for key in keys if others and all(other[key] == first[key] for other in others)}


def _container(container: Container) -> dict[str, Any]:
    image = container.image if container.source == "registry" else {"name": container.image, "from": container.source}
    found = {**_changed(container), "image": image}
    for name in ("source", "variant", "data"):  # of a job's own container
        found.pop(name, None)
    if container.variant_ports is not None:
        found["variant_ports"] = "-".join(map(str, container.variant_ports))
    if container.ulimits:
        found["ulimits"] = dict(container.ulimits)
    if container.mounts:
        found["mounts"] = [
            f"{host}:{place}:ro" if mode == "ro" else f"{host}:{place}" for host, place, mode in container.mounts
        ]
    if container.env:
        found["env"] = dict(container.env)
    if container.registry is not None:
        found["registry"] = _changed(container.registry)
    return found


def _docker(engine: DockerEngine) -> dict[str, Any]:
    found = _changed(engine)
    if engine.proxy:
        found["proxy"] = {"no_proxy" if name == "no" else name: value for name, value in engine.proxy}
    if engine.settings:
        found["settings"] = {key: json.loads(text) for key, text in engine.settings}
    return found
