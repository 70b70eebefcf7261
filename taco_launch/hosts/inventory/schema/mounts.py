"""Folders of the host in a container, and sizes, as inventories, job files and command lines write them."""

import json
import re
from collections.abc import Collection

# Of a host, or of the container: nothing that docker reads as more than a path.
_PART = r"[^/:,\s\x00-\x1f\x7f][^/:,\x00-\x1f\x7f]{0,254}"
PATH = re.compile(rf"/(?:{_PART}(?:/{_PART})*/?)?")
_SIZE = re.compile(r"([1-9][0-9]{0,14})([bkmgt]?)", re.IGNORECASE)
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
# What of the container is ours: docker's own files and set-up's.
_OWN_PLACES = ("/var/lib/taco-launch", "/run/taco-launch", "/etc/hosts", "/etc/ssh/ssh_config")
MODES = ("rw", "ro")
# Of the host: who writes there, and of some who reads, becomes its root.
_OF_THE_HOST = (
    *(
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/sys",
        "/usr",
    ),
    *("/var/lib/containerd", "/var/lib/docker", "/var/lib/taco-launch", "/var/run", "/var/spool"),
)
_ABOVE_THEM = ("/", "/var", "/var/lib")
_PLAIN = re.compile(r"/[A-Za-z0-9._/-]*")


def mount(source: str, inside: str, mode: str = "rw") -> tuple[str, str, str]:
    """Return a mount whose paths are plain: no `//`, `.` or slash at the end.

    Raises:
        ValueError: (problem, hint): docker or we would refuse it.
    """
    if not PATH.fullmatch(source) or not PATH.fullmatch(inside) or mode not in MODES:
        raise ValueError("must be HOST_PATH:PATH or HOST_PATH:PATH:ro, both absolute paths, such as /data:/data:ro", "")
    source, inside = (part.rstrip("/") or "/" for part in (source, inside))
    if {"..", "."} & {*source.split("/"), *inside.split("/")}:
        raise ValueError("a path here must not contain '.' or '..'", "")
    if inside == "/":
        raise ValueError("the container's / comes from the image", "mount it on another folder, such as /:/host:ro")
    if any(is_below(place, inside) or is_below(inside, place) for place in _OWN_PLACES):
        raise ValueError("this path is reserved for set-up's own mounts", f"reserved: {', '.join(_OWN_PLACES)}")
    return source, inside, mode


def parse_mount(text: str) -> tuple[str, str, str]:
    """Read `HOST_PATH:PATH` or `HOST_PATH:PATH:ro`. Raises as `mount` does."""
    parts = text.split(":") if text.isprintable() else []
    if len(parts) not in (2, 3):
        raise ValueError("must be HOST_PATH:PATH or HOST_PATH:PATH:ro, both absolute paths, such as /data:/data:ro", "")
    return mount(*parts)


def belongs_to_the_host(path: str) -> bool:
    """Return whether who may be root of a container could become root of its host by a folder of the host."""
    return path in _ABOVE_THEM or any(is_below(path, place) for place in _OF_THE_HOST)


def is_below(path: str, folder: str) -> bool:
    """Return whether a plain path is a folder, or below it."""
    return f"{path}/".startswith(f"{folder}/")


def roots_line(roots: Collection[tuple[str, str]]) -> str:
    """Return the line of an inventory file with these `data_roots`: (path, mode), without the `ro` below an `rw`."""
    writable = [path for path, mode in roots if mode == "rw"]
    useful = [root for root in roots if root[1] == "rw" or not any(is_below(root[0], path) for path in writable)]
    quoted = ((path if _PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False), mode) for path, mode in useful)
    return (
        f"data_roots: [{', '.join(path if mode == 'ro' else f'{{path: {path}, mode: rw}}' for path, mode in quoted)}]"
    )


def parse_size(text: str) -> int:
    """Read a size such as `32g` in bytes.

    Raises:
        ValueError: (problem, hint): it is none.
    """
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError("must be a size: a whole number and b, k, m, g or t, such as 32g", "")
    size = int(found[1]) << _UNITS[found[2].lower()]
    if size >= 1 << 50:
        raise ValueError("must be a size under 1024t", "")
    return size
