"""Variants: a cluster's containers of another image, with other data or another /dev/shm than the inventory says; pure.

All that a variant does not say is as the inventory has it, also when that changes later. Each is known by a key, which is
made of what it says: two jobs that need the same have the same container.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from taco_launch.core.frozen import dataclass
from taco_launch.core.model import codec
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import DockerFacts, HostFacts
from taco_launch.core.model.host.hosts import Container, Inventory
from taco_launch.core.model.host.image_reference import parse_reference
from taco_launch.core.model.host.job_containers import KEY_DIGITS, Variant, VariantRecord, VariantUse
from taco_launch.setup.model.host_files import files_of

# Ports of their sshds begin so far behind the cluster's own, where the inventory does not say: those next to it are for
# the copy of images from host to host.
_BEHIND, _COUNT = 100, 100
_LAST_PORT = 65535


def variant_of(wanted: Variant, base: Container) -> Variant:
    """Leave out what the inventory's container has as it is wanted."""
    same = same_image(wanted.image or base.image, base.image) and wanted.source in ("", base.source)
    there = set(base.mounts)
    return replace(
        wanted,
        image="" if same else wanted.image or base.image,
        source="" if same else wanted.source or base.source,
        mounts=tuple(mount for mount in wanted.mounts if mount not in there),
        data=tuple(mount for mount in wanted.data if mount not in there),
        shm_size=None if wanted.shm_size == base.shm_size else wanted.shm_size,
    )


def same_image(one: str, other: str) -> bool:
    """Return whether two names are of the same image."""
    return parse_reference(one).name == parse_reference(other).name


def container_of(base: Container, variant: Variant, port: int = 0) -> Container:
    """Return a variant's container; `port` is its sshd's."""
    if not variant.key:
        return base
    replaced = {inside for _source, inside, _mode in (*variant.mounts, *variant.data)}
    kept = tuple(mount for mount in base.mounts if mount[1] not in replaced)
    return replace(
        base,
        image=variant.image or base.image,
        source=variant.source or base.source,
        provides=() if variant.image else base.provides,  # it is said of the inventory's image
        registry=base.registry if not variant.image or _registry(variant.image) == _registry(base.image) else None,
        shm_size=base.shm_size if variant.shm_size is None else variant.shm_size,
        mounts=(*kept, *variant.mounts),
        data=variant.data,
        variant=variant.key,
        ssh_port=port,
    )


def inventory_of(inventory: Inventory, variant: Variant, port: int) -> Inventory:
    """Return the inventory by which set-up makes a variant.

    Raises:
        ValueError: the inventory has no container.
    """
    if inventory.container is None:
        raise ValueError("no container")
    made = container_of(inventory.container, variant, port)
    return replace(inventory, cluster=paths.variant(inventory.cluster, variant.key), container=made)


def ports(container: Container) -> tuple[int, int]:
    """Return the first and the last port that the sshds of variants may have."""
    if container.variant_ports is not None:
        return container.variant_ports
    first = container.ssh_port + _BEHIND
    if first + _COUNT > _LAST_PORT:
        first = container.ssh_port - _BEHIND - _COUNT
    return first, first + _COUNT - 1


def keys_of(facts: HostFacts, cluster: str) -> tuple[str, ...]:
    """Return the keys of a cluster's variants that a host has anything of: a container, or files of set-up."""
    found = set(_of_containers(facts, cluster))
    host_folder = f"{paths.HOST}/{paths.variant(cluster, '')}"
    for file in (files_of(facts) or {}).values():
        if file.path.startswith(host_folder):
            found.add(file.path.removeprefix(host_folder).partition("/")[0])
    return tuple(sorted(key for key in found if is_key(key)))


def is_key(text: str) -> bool:
    """Return whether a text may be a variant's key, and so a part of a path."""
    return len(text) == KEY_DIGITS and not set(text) - set("0123456789abcdef")


def _of_containers(facts: HostFacts, cluster: str) -> Iterator[str]:
    for container in facts.containers:
        name, key = paths.split(dict(container.labels).get(paths.CLUSTER_LABEL, ""))
        if key and name == cluster:
            yield key


def written(record: VariantRecord) -> bytes:
    """Return the text of a record."""
    return json.dumps(codec.to_json(record), indent=1).encode("utf-8", "surrogateescape") + b"\n"


def read(text: bytes) -> VariantRecord | None:
    """Read a record, None where it is none."""
    try:
        return codec.from_json(VariantRecord, codec.load(text))
    except ValueError:
        return None


@dataclass(frozen=True)
class KnownVariant:
    """A container that jobs brought, as far as the head knows it; without a record it was never finished."""

    use: VariantUse
    record: VariantRecord | None

    def unused(self, now: float) -> float | None:
        """Return for how many seconds no job has needed it, None where one does."""
        if self.use.jobs:
            return None
        return max(0.0, now - (self.use.used or 0.0))


def parse_job_containers(uses: Iterable[VariantUse]) -> tuple[KnownVariant, ...]:
    """Return the variants of a head's answer."""
    found = (KnownVariant(use, read(use.record.encode("utf-8", "surrogateescape"))) for use in uses)
    return tuple(each for each in found if is_key(each.use.key))


def unneeded(uses: Iterable[VariantUse], seconds: float, now: float) -> tuple[KnownVariant, ...]:
    """Return those that no job that waits or runs needs, and none has for so many seconds; `now` is in seconds since the epoch."""
    return tuple(
        each for each in parse_job_containers(uses) if (unused := each.unused(now)) is not None and unused >= seconds
    )


def images_of(image: str, facts: Mapping[str, HostFacts], hosts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return what the engines of hosts call an image."""
    wanted = parse_reference(image).name
    found = []
    for host in hosts:
        docker = facts[host].docker if host in facts else None
        images = docker.images if isinstance(docker, DockerFacts) and isinstance(docker.images, tuple) else ()
        found += [(host, each.id) for each in images if parse_reference(each.reference).name == wanted][:1]
    return tuple(found)


def _registry(image: str) -> str:
    return parse_reference(image).registry
