"""InventoryFile -> Inventory: ranges become hosts, and every host gets its values from itself, its groups, the defaults."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

from taco_launch.core.errors import SpecError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.engines import has_sites_containers
from taco_launch.core.model.host.hosts import (
    Container,
    DataSet,
    DockerEngine,
    GpuConstraints,
    HealthPolicy,
    Host,
    Inventory,
    Network,
    Peermem,
    Registry,
    SlurmCluster,
    Toolkit,
)
from taco_launch.hosts.inventory import ansible, file_kinds, ranges
from taco_launch.hosts.inventory.schema import check, document, mounts, names, schema
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.schema.notify import notices
from taco_launch.hosts.inventory.schema.schema import Group, HostDefaults, HostEntry, InventoryFile

T = TypeVar("T")

# All entries of all groups together: ten groups of the largest inventory.
MAX_MEMBERS = 10 * ranges.MAX_HOSTS

_ULIMITS = {"memlock": -1, "stack": 67108864}
# Keys that belong to some sources only, and these.
_SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "docker": {"url": ("docker", "script"), "key": ("docker",), "sha256": ("script",), "packages": ("packages",)},
    "toolkit": {"url": ("nvidia",), "key": ("nvidia",), "packages": ("packages",)},
}
# Sources for which all of these keys have defaults.
_WITH_DEFAULTS = ("docker", "nvidia")


def parse(text: str, faults: Faults, *, is_ini: bool) -> Inventory:
    """Return the inventory of a text in YAML, ours or Ansible's, or of one of Ansible's in INI.

    Raises:
        SpecError: it is another kind of file, or something in it is wrong: all faults.
    """
    if is_ini:
        return resolve(check.check(ansible.from_ini(text, faults), faults), faults)
    try:
        value = document.read(text, faults)
    except SpecError:
        file_kinds.refuse_text(text, faults.source)
        raise
    if not isinstance(value, dict):
        file_kinds.refuse_text(text, faults.source)
    keys = InventoryFile.model_fields
    file_kinds.refuse_document(value, keys, faults.source)
    if ansible.is_yaml(value, keys):
        faults.raise_any()
        places, faults = faults, Faults(faults.source, ansible.HINT)
        value = ansible.from_yaml(value, places, faults)
    return resolve(check.check(value, faults), faults)


def resolve(file: InventoryFile, faults: Faults) -> Inventory:
    """Return the inventory that `file` describes.

    Raises:
        SpecError: there are faults, found here or before: all of them.
    """
    entries, complete = _entries(file, faults)
    groups = _groups(file, entries, complete, faults)
    hosts = _hosts(file, entries, groups, faults)
    head = file.head if file.head is not None else next(iter(entries), "")
    if complete and head not in entries:
        faults.add_unknown(("head",), head, entries, "no such host in this inventory")
    container = _container(file, faults)
    data_roots = _data_roots(file, faults)
    if file.slurm.containers is not None and not has_sites_containers(file.engine):
        faults.add(("slurm", "containers"), "applies only to a Slurm cluster", "add engine: slurm, or omit it")
    _check_sources("docker", file.docker, faults)
    _check_sources("toolkit", file.toolkit, faults)
    faults.raise_any()
    gid_index, proxy = file.network.gid_index, file.docker.proxy
    return _copied(
        Inventory,
        file,
        file.ssh,
        head=head,
        hosts=hosts,
        container=container,
        network=_copied(Network, file.network, gid_index=None if gid_index == "auto" else gid_index),
        versions=tuple((name, version) for name, version in file.versions if version is not None),
        groups=tuple(groups.items()),
        source=faults.source,
        docker=_copied(
            DockerEngine,
            file.docker,
            proxy=tuple((name.removesuffix("_proxy"), value) for name, value in proxy if value is not None),
        ),
        toolkit=_copied(Toolkit, file.toolkit),
        slurm=_copied(SlurmCluster, file.slurm),
        peermem=_copied(Peermem, file.peermem),
        data=tuple(_copied(DataSet, entry, name=name) for name, entry in file.data.items()),
        data_roots=data_roots,
        notify=notices(file.notify),
        health=None if file.health is None else _copied(HealthPolicy, file.health),
    )


def _copied(kind: type[T], *written: Iterable[tuple[str, Any]], **converted: Any) -> T:
    """Return a `kind` with those keys of `written` that have the name of one of its fields.

    A later section overrides an earlier one, `converted` override all. A key that is not written leaves the field its default.
    """
    field_names = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]  # every kind is a dataclass
    values: dict[str, Any] = {}
    for section in written:
        values |= {key: value for key, value in section if key in field_names and value is not None}
    plain = {key: tuple(value.items()) if isinstance(value, dict) else value for key, value in values.items()}
    return kind(**plain | converted)


@dataclass(frozen=True)
class _Entry:
    """What `hosts` says of one host; `key` is the key it is under."""

    key: str
    address: str
    keys: HostEntry


def _entries(file: InventoryFile, faults: Faults) -> tuple[dict[str, _Entry], bool]:
    """Return what `hosts` says of every host, by name, in the order written; and whether all names are known."""
    entries: dict[str, _Entry] = {}
    complete = bool(file.hosts)
    if not complete:
        faults.add(("hosts",), "must name at least one host")
    for key, written in file.hosts.items():
        loc: Loc = ("hosts", key)
        keys = written or HostEntry()
        found = _expanded(key, loc, faults)
        complete = complete and bool(found)
        if twice := next((name for name in found if name in entries), None):
            problem = f"{twice} is already named by hosts.{names.plain(entries[twice].key)}"
            faults.add(loc, problem, value=names.shown(key))
        if len(entries) + len(found) > ranges.MAX_HOSTS:
            faults.add(("hosts",), f"more than {ranges.MAX_HOSTS} hosts, which is the limit")
            return entries, False
        addresses = found
        if keys.address is not None:
            addresses = _expanded(keys.address, (*loc, "address"), faults) or found
            if found and len(addresses) != len(found):
                problem = f"has {len(addresses)} addresses, but {names.plain(key)} has {len(found)} hosts: the numbers must be equal"
                faults.add((*loc, "address"), problem, "such as gpu[1-2] and 10.0.0.[1-2]")
        entries |= {name: _Entry(key, address, keys) for name, address in zip(found, addresses, strict=False)}
    return entries, complete


def _expanded(text: str, loc: Loc, faults: Faults) -> tuple[str, ...]:
    """Expand a range and check each name in it; what is wrong is noted, and then nothing is given."""
    try:
        return tuple(map(names.address, ranges.expand(text)))
    except ValueError as error:
        hint = "write an IPv6 address without brackets here" if ":" in text else ""
        faults.add(loc, str(error), hint, names.shown(text))
    except SpecError as error:
        fault = error.faults[0]
        faults.add(loc, fault.problem, fault.hint, fault.value)
    return ()


def _groups(
    file: InventoryFile, entries: dict[str, _Entry], complete: bool, faults: Faults
) -> dict[str, tuple[str, ...]]:
    """Return the members of every group."""
    groups: dict[str, tuple[str, ...]] = {}
    room = MAX_MEMBERS
    for group, written in file.groups.items():
        loc: Loc = ("groups", group, "hosts") if isinstance(written, Group) else ("groups", group)
        members: dict[str, None] = {}
        for index, text in enumerate(written.hosts if isinstance(written, Group) else written):
            at = (*loc, index)
            found = () if at in faults else _expanded(text, at, faults)
            room -= len(found)
            if room < 0:
                faults.add(("groups",), f"the groups name more than {MAX_MEMBERS} hosts together, which is the limit")
                return groups
            stranger = next((name for name in found if name not in entries), None)
            if complete and stranger is not None:
                faults.add_unknown(at, stranger, entries, f"no host {stranger} in this inventory")
            if twice := next((name for name in found if name in members), None):
                faults.add(at, f"{twice} is listed twice in this group")
            members.update(dict.fromkeys(name for name in found if name in entries))
        groups[group] = tuple(members)
    return groups


def _hosts(
    file: InventoryFile, entries: dict[str, _Entry], groups: dict[str, tuple[str, ...]], faults: Faults
) -> tuple[Host, ...]:
    """Return the hosts with all their values; where two groups disagree on one, that is noted."""
    layers: dict[str, list[tuple[str, HostDefaults]]] = {name: [] for name in entries}
    for group, members in groups.items():
        keys = file.groups[group]
        if isinstance(keys, Group):
            for name in members:
                layers[name].append((group, keys))
    hosts: list[Host] = []
    machines: dict[tuple[str, int], str] = {}
    for name, entry in entries.items():
        values = _values(name, entry, layers[name], file, faults)
        slots, most = values.get(("slots",), "auto"), values.get(("max_slots",))
        if slots != "auto" and most is not None and most < slots:
            parts: list[Loc] = [("hosts", entry.key), *(("groups", group) for group, _ in layers[name]), ("defaults",)]
            loc = next((*part, "max_slots") for part in parts if (*part, "max_slots") in faults.places)
            faults.add(loc, f"is less than slots: {name} has slots {slots} and max_slots {most}")
        hosts.append(
            _copied(
                Host,
                file.ssh,
                ((loc[0], value) for loc, value in values.items()),
                name=name,
                address=entry.address,
                slots=None if slots == "auto" else slots,
                labels=tuple(sorted((loc[1], value) for loc, value in values.items() if loc[0] == "labels")),
                constraints=GpuConstraints(topology=values.get(("topology",), "on") == "on"),
                gate=file.health is not None and file.health.gate,
            )
        )
        other = machines.setdefault((hosts[-1].address, hosts[-1].port), name)
        if other != name:
            at: Loc = ("hosts", entry.key, *(("address",) if entry.keys.address is not None else ()))
            problem = f"{name} has the address and port of {other}: a machine can be only one host"
            faults.add(at, problem, "to count its slots together, name it once")
    return tuple(hosts)


def _values(
    name: str, entry: _Entry, groups: list[tuple[str, HostDefaults]], file: InventoryFile, faults: Faults
) -> dict[tuple[str, ...], Any]:
    """Return what is set for a host, by path: its own, else what its groups say, else the defaults."""
    own = _set(entry.keys)
    shared: dict[tuple[str, ...], Any] = {}
    origin: dict[tuple[str, ...], str] = {}
    for group, keys in groups:
        for path, value in _set(keys).items():
            if path not in own and shared.get(path, value) != value:
                other = f"the group {origin[path]} sets another value for {name}: {names.shown(shared[path])}"
                faults.add(
                    ("groups", group, *path),
                    other,
                    f"set it in hosts.{names.plain(entry.key)}, which overrides its groups",
                )
            shared.setdefault(path, value)
            origin.setdefault(path, group)
    return _set(file.defaults) | shared | own


def _set(keys: HostDefaults) -> dict[tuple[str, ...], Any]:
    """Return the keys that are set, by path: each label counts on its own."""
    values: dict[tuple[str, ...], Any] = {("labels", label): value for label, value in (keys.labels or {}).items()}
    plain = HostDefaults.model_fields.keys() - {"labels"}
    return values | {(key,): value for key, value in keys if key in plain and value is not None}


def _container(file: InventoryFile, faults: Faults) -> Container | None:
    written = file.container
    if written is None:
        return None
    places = [inside for _, inside, _ in written.mounts]
    for index, place in enumerate(places):
        if place in places[:index]:
            faults.add(("container", "mounts", index), f"{place} is mounted twice")
    registry = written.registry
    asked = written.image
    named, source = (asked, "registry") if isinstance(asked, str) else (asked.name, asked.source)
    if source != "registry" and "@" in named:
        faults.add(("container", "image", "name"), "only an image from a registry has a digest", "name it by its tag")
    if source != "registry" and registry is not None:
        faults.add(("container", "registry"), f"has no effect with from: {source}, which needs no login")
    return _copied(
        Container,
        written,
        image=named,
        source=source,
        ulimits=tuple((_ULIMITS | dict(written.ulimits)).items()),
        registry=None if registry is None else _copied(Registry, registry),
    )


def _data_roots(file: InventoryFile, faults: Faults) -> tuple[tuple[str, str], ...]:
    """Return the folders that jobs may mount; one that would hand out the engine's folder, or whose mode has no effect, is noted."""
    roots = tuple((root, "ro") if isinstance(root, str) else (root.path, root.mode) for root in file.data_roots)
    engine = (file.docker.data_root or "").rstrip("/")
    for index, (path, mode) in enumerate(roots):
        if engine and (mounts.is_below(engine, path) or mounts.is_below(path, engine)):
            problem = f"the Docker Engine keeps its files in {engine} (docker.data_root): anyone who runs a rank could become root on the host"
            faults.add(("data_roots", index), problem, "name the folders with data")
        for other, others_mode in roots[:index] + roots[index + 1 :]:
            if mode == "ro" and others_mode == "rw" and mounts.is_below(path, other):
                faults.add(("data_roots", index), f"has no effect: jobs can write to {other} (mode: rw)", "remove it")
    return roots


def _check_sources(section: str, written: schema.Docker | schema.Toolkit, faults: Faults) -> None:
    """Note the keys that the source of a section does not use, and those that it needs and lacks."""
    for key, sources in _SOURCES[section].items():
        is_set, is_used = getattr(written, key) is not None, written.source in sources
        if is_set and not is_used:
            problem = f"has no effect with source {written.source}: it is only for {' or '.join(sources)}"
            faults.add((section, key), problem)
        elif is_used and not is_set and written.source not in _WITH_DEFAULTS:
            faults.add((section, key), f"source {written.source} needs this key", value="missing")
