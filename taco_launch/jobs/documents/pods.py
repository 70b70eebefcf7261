"""What a manifest says of its pods beside their program: image, folders, where it starts, GPUs -> keys of a job file."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from taco_launch.hosts.inventory.schema.faults import Loc, path_of
from taco_launch.jobs.command_lines import shell_line
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.documents.manifest import Manifest

_QUANTITY = re.compile(r"([0-9]{1,12})([kMGT]i?)?")
_SHM = "/dev/shm"  # noqa: S108 - where POSIX has it
_ONE_IMAGE = "taco-launch runs all of a job in one image, and the workers have"
GPUS = "nvidia.com/gpu"
OF_SLOT = "which is a GPU where its host has GPUs, else a core"
NUMBER = re.compile(r"[0-9]{1,9}")


def take(manifest: Manifest, containers: Sequence[Loc], starting: Sequence[Loc]) -> None:
    """Take the pods' parts: of all `containers`, and the folder of those that start the program."""
    _image(manifest, [(*place, "image") for place in containers])
    found: dict[str, Loc] = {}
    for container in containers:
        for text, at in _mounts(manifest, container):
            found.setdefault(text, at)
    if found:
        manifest.put(("data",), tuple(found), next(iter(found.values())))
        for number, at in enumerate(found.values()):
            manifest.origin["data", number] = at
    for container in starting:
        folder = manifest.take((*container, "workingDir"))
        if folder is not None and ("workingDir",) not in manifest.origin:  # that of mpirun wins
            manifest.put(("workingDir",), folder, (*container, "workingDir"))


def _image(manifest: Manifest, places: Sequence[Loc]) -> None:
    found = [(place, value) for place in places if (value := manifest.take(place)) is not None]
    for (first, image), (place, other) in itertools.product(found[:1], found):
        manifest.put(("image",), image, first)
        if other != image:
            manifest.faults.add(
                place, f"{_ONE_IMAGE} {image}", "use that image, which has what starts the ranks as well"
            )


def gpus(manifest: Manifest, resources: Loc, slots: Any = None) -> int:
    """Return how many GPUs a pod asks for, 0 for none; a pod of another number of ranks, its `slots`, is named."""
    limits, requests = (number(manifest, (*resources, kind, GPUS)) for kind in ("limits", "requests"))
    count = limits or requests
    if count and isinstance(slots, int) and count != slots:
        place = path_of((*resources, "limits", GPUS))
        manifest.notes.append(f"{place}: {count} for a worker of {slots} ranks: here each rank has one slot, {OF_SLOT}")
    return count


def number(manifest: Manifest, place: Loc, least: int = 0) -> int:
    """Take a number of a manifest that may be written as text; 0 where there is none."""
    value = manifest.take(place)
    count = int(str(value)) if NUMBER.fullmatch(str(value)) else -1
    if value is not None and count < least:
        manifest.faults.add(place, f"must be a number, at least {least}")
    return max(count, 0)


def _mounts(manifest: Manifest, container: Loc) -> Iterator[tuple[str, Loc]]:
    """Yield each folder of the hosts as --data takes it, with its place."""
    pod = container[:-2]
    listed = manifest.at((*pod, "volumes"))
    volumes = {
        each["name"]: (each, (*pod, "volumes", number))
        for number, each in enumerate(listed if isinstance(listed, tuple) else ())
        if isinstance(each, dict) and isinstance(each.get("name"), str)
    }
    mounts = manifest.at((*container, "volumeMounts"))
    if not volumes:
        manifest.take((*pod, "volumes"))
    used: set[str] = set()
    for number, mount in enumerate(mounts if isinstance(mounts, tuple) else ()):
        at: Loc = (*container, "volumeMounts", number)
        manifest.take(at)
        if (
            not isinstance(mount, dict)
            or mount.get("name") not in [*volumes]  # which may be anything: a mapping has no hash
            or not isinstance(mount.get("mountPath"), str)
        ):
            manifest.faults.add(at, "is not a mount: it needs mountPath, and the name of one of the pod's volumes")
            continue
        volume, place = volumes[mount["name"]]
        manifest.take(place)
        used.add(mount["name"])
        text = _mount(manifest, mount, volume, place)
        if text:
            yield text, at
    for name, (_volume, place) in volumes.items():
        if name not in used and manifest.at(place) is not None:
            manifest.take(place)  # nobody mounts it, so nothing is left out


def _mount(manifest: Manifest, mount: dict[str, Any], volume: dict[str, Any], place: Loc) -> str:
    inside, sub = mount["mountPath"], mount.get("subPath")
    mode = ":ro" if mount.get("readOnly") is True else ""
    path = _of(volume, "hostPath", "path")
    claim = _of(volume, "persistentVolumeClaim", "claimName")
    if path is not None:
        return f"{path.rstrip('/')}{f'/{sub}' if sub else ''}:{inside}{mode}"
    if claim is not None and not sub:
        return f"{claim}:{inside}{mode}"
    empty = volume.get("emptyDir")
    if empty is not None and inside.rstrip("/") == _SHM:
        size = _bytes(empty.get("sizeLimit") if isinstance(empty, dict) else None)
        if size is not None:
            manifest.put(("shmSize",), f"{size}b", (*place, "emptyDir", "sizeLimit"))
        return ""
    kinds = ", ".join(key for key in volume if key != "name") or "nothing"
    problem = f"{kinds}: only folders of the hosts (hostPath) and data sets of the inventory (persistentVolumeClaim, without subPath) are mounted here"
    manifest.faults.add(place, problem, f"put it on the hosts, and write hostPath: {{path: ...}} for {inside}")
    return ""


def _of(volume: dict[str, Any], kind: str, key: str) -> str | None:
    found = volume.get(kind)
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None


def _bytes(quantity: Any) -> int | None:
    """Read a quantity of Kubernetes in bytes, None where it is none."""
    found = _QUANTITY.fullmatch(str(quantity)) if quantity is not None else None
    if found is None:
        return None
    unit = found[2] or ""
    base = 1024 if unit.endswith("i") else 1000
    return int(found[1]) * base ** (" kMGT".index(unit[0]) if unit else 0) or None


_STATEMENTS = re.compile(r"&&|;|\n")


def before_sshd(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return what a worker does for its sshd before it becomes one, None where it does anything else."""
    try:
        found = shell_line.read(words)
    except UnclearError as error:
        if error.index != len(words) - 1:
            return None
        *before, last = [text.strip() for text in _STATEMENTS.split(words[-1]) if text.strip()] or [""]
        its_own = _is_sshd(last.removeprefix("exec ").split()) and all("ssh" in text for text in before)
        return tuple(before) if its_own else None
    return () if _is_sshd(words if found is None else found[0]) else None


def _is_sshd(words: Sequence[str]) -> bool:
    return bool(words) and words[0].rpartition("/")[2] == "sshd"
