"""What a snapshot of code holds, as text that has a hash: files by their contents, links, empty folders, config files.

The text is made on the controller and read by every host, which takes it from others: all of it is checked.
"""

import json
import re
from collections import Counter
from typing import Any, AnyStr, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

SCHEMA = 2
MOST_BYTES = 1 << 26  # of the text
MOST_ENTRIES = 200_000
MOST_CONTENT = 1 << 44  # bytes of all files
MOST_CONFIG_BYTES, MOST_CONFIG_FILES = 1 << 20, 100
# Below the folder of a job, which takes some of the 4096 bytes that a path may have (PATH_MAX).
_PATH_BYTES, _NAME_BYTES, _TARGET_BYTES = 3000, 255, 4000
_HASH = re.compile(r"[0-9a-f]{64}")


class FileEntry(NamedTuple):
    """A file: its path, whether it can be executed, its size in bytes, the SHA-256 of its content."""

    path: str
    executable: bool
    size: int
    content: str


class Manifest(NamedTuple):
    """A tree: its files, its symbolic links (path, target), its empty folders; and config files, by absolute paths.

    Bytes of a name that are no UTF-8 are lone surrogates, as os.fsdecode has them.
    """

    files: Tuple[FileEntry, ...] = ()
    links: Tuple[Tuple[str, str], ...] = ()
    folders: Tuple[str, ...] = ()
    config: Tuple[FileEntry, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in (*self.files, *self.config))


def is_hash(text: str) -> bool:
    """Return whether a text may be a SHA-256, and so a part of a path."""
    return _HASH.fullmatch(text) is not None


def size_text(count: int) -> str:
    """Return a size as people write it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.{4 if count >= 1000 * size else 3}g} {unit}"
    return f"{count} byte{'' if count == 1 else 's'}"


def contents(manifest: Manifest) -> Dict[str, int]:
    """Return the size of each content, by its hash, in the order in which a tree is written."""
    return {file.content: file.size for file in (*manifest.files, *manifest.config)}


def written(manifest: Manifest) -> bytes:
    """Return the text of a manifest: the same for the same tree."""
    document = {
        "schema": SCHEMA,
        "files": sorted(manifest.files),
        "links": sorted(manifest.links),
        "folders": sorted(manifest.folders),
        "config": sorted(manifest.config),
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def parsed(data: bytes) -> Manifest:
    """Return the manifest of a text that anybody may have written.

    Raises:
        ValueError: it is none: too large, a path that leads out of the tree, a file below a link, sizes that do not fit.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"the manifest is larger than {MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("not a manifest: nested too deeply") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("not a manifest of this version")
    manifest = Manifest(
        _files(_rows(document, "files")),
        tuple(_link(each) for each in _rows(document, "links")),
        tuple(_text(each) for each in _rows(document, "folders")),
        _files(_rows(document, "config")),
    )
    check(manifest)
    return manifest


def links_out(links: Sequence[Tuple[str, str]]) -> List[str]:
    """Return the paths of the links whose text leads out of their tree, taken as it is: nothing is written through a link."""
    return [path for path, target in links if target.startswith("/") or _climbs(target, path.count("/"))]


def _climbs(target: str, depth: int) -> bool:
    """Return whether a relative path leads above the root of a tree from a folder `depth` levels below it."""
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False


def in_bytes(text: str) -> bytes:
    """Return a name as the file system has it.

    Raises:
        ValueError: no file can have such a name.
    """
    return text.encode("utf-8", "surrogateescape")


def check_path(path: str) -> bytes:
    """Return a path below a tree's root in bytes.

    Raises:
        ValueError: it is empty, absolute, too long, or leads elsewhere.
    """
    name = in_bytes(path)
    parts = name.split(b"/")
    if any(part in (b"", b".", b"..") for part in parts):
        raise ValueError(f"invalid path: {path[:100]!r} (no empty parts, no . and no ..)")
    if len(name) > _PATH_BYTES or b"\0" in name:
        raise ValueError(f"invalid path: {path[:100]!r} (at most {_PATH_BYTES} bytes, none of them 0)")
    if max(map(len, parts)) > _NAME_BYTES:
        raise ValueError(f"a name is longer than {_NAME_BYTES} bytes: {path[:100]!r}")
    return name


def check_paths(paths: Sequence[str]) -> List[bytes]:
    """Return paths below a tree's root in bytes, all looked at together. Raises as `check_path` does for the first bad one."""
    try:
        joined = in_bytes("\0".join(paths))
    except ValueError:
        return [check_path(path) for path in paths]
    names, rooted = joined.split(b"\0"), b"/" + joined.replace(b"\0", b"/\0/") + b"/"
    is_right = (
        len(names) == len(paths)
        and not any(bad in rooted for bad in (b"//", b"/./", b"/../"))
        and max(map(len, names)) <= _PATH_BYTES
        and max(map(len, rooted.split(b"/"))) <= _NAME_BYTES
    )
    return names if is_right else [check_path(path) for path in paths]


def folders_above(names: Iterable[AnyStr], separator: AnyStr) -> Set[AnyStr]:
    """Return every folder that is above some paths, but the root."""
    above: Set[AnyStr] = set()
    for folder in {name.rpartition(separator)[0] for name in names}:
        while folder and folder not in above:
            above.add(folder)
            folder = folder.rpartition(separator)[0]  # noqa: PLW2901 - up to the root
    return above


def _rows(document: Mapping[str, Any], key: str) -> List[Any]:
    found = document.get(key)
    if not isinstance(found, list) or len(found) > MOST_ENTRIES:
        raise ValueError(f"not a manifest: {key} is not a list, or has more than {MOST_ENTRIES} entries")
    return found


def _files(rows: List[Any]) -> Tuple[FileEntry, ...]:
    """Return the entries of files; columns are checked, as that is faster than each value of many rows.

    Raises:
        ValueError: a row is no entry of a file.
    """
    if set(map(type, rows)) - {list} or set(map(len, rows)) - {4}:
        raise ValueError("not a manifest: an entry of a file is invalid")
    paths, executable, sizes, hashes = zip(*rows) if rows else ((), (), (), ())
    if set(map(type, executable)) - {bool} or set(map(type, sizes)) - {int} or min(sizes, default=0) < 0:
        raise ValueError("not a manifest: an entry of a file is invalid")
    if set(map(type, hashes)) - {str} or set(map(len, hashes)) - {64} or not _is_hex("".join(hashes)):
        raise ValueError("not a manifest: invalid hash")
    if set(map(type, paths)) - {str}:
        raise ValueError("not a manifest: a name is not text")
    return tuple(map(FileEntry._make, rows))


def _is_hex(text: str) -> bool:
    """Return whether a text is bytes in hexadecimal, written in lower case."""
    try:
        return bytes.fromhex(text).hex() == text
    except ValueError:
        return False


def _link(row: Any) -> Tuple[str, str]:
    if not (isinstance(row, list) and len(row) == 2):
        raise ValueError("not a manifest: invalid link entry")
    return _text(row[0]), _text(row[1])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a manifest: a name is not text")  # noqa: TRY004 - as of any other wrong value
    return value


def check(manifest: Manifest) -> None:
    """Check that a tree can be written as a manifest says, and that nothing of it comes to lie elsewhere.

    Raises:
        ValueError: it cannot; says which entry is why.
    """
    files, links = manifest.files, manifest.links
    if len(files) + len(links) + len(manifest.folders) > MOST_ENTRIES:
        raise ValueError(f"more than {MOST_ENTRIES} files, links and folders")
    sizes, every_file = contents(manifest), (*files, *manifest.config)
    if len(sizes) < len(every_file) and any(sizes[file.content] != file.size for file in every_file):
        raise ValueError("two sizes for one content")
    if sum(sizes.values()) > MOST_CONTENT:
        raise ValueError(f"more than {MOST_CONTENT >> 40} TiB")
    names = check_paths([*(file.path for file in files), *(path for path, _target in links)])
    ends, folders = set(names), check_paths(manifest.folders)
    every = ends.union(folders)
    if len(every) < len(names) + len(folders):
        ((name, _count),) = Counter((*names, *folders)).most_common(1)
        raise ValueError(f"twice: {name.decode('utf-8', 'surrogateescape')[:100]!r}")
    above = folders_above(every, b"/")
    for name in above & ends:  # nothing is ever written by way of a link
        raise ValueError(f"an entry is below a path that is a file: {name[:100]!r}")
    for path, target in links:
        if not target or "\0" in target or len(in_bytes(target)) > _TARGET_BYTES:
            raise ValueError(f"a link has an invalid target: {path[:100]!r}")
    for path in links_out(links):
        raise ValueError(f"a link that leads out of the tree: {path[:100]!r}")
    _check_config(manifest.config)


def _add(seen: Set[bytes], name: bytes, path: str) -> None:
    if name in seen:
        raise ValueError(f"twice: {path[:100]!r}")
    seen.add(name)


def _check_config(config: Sequence[FileEntry]) -> None:
    if len(config) > MOST_CONFIG_FILES:
        raise ValueError(f"more than {MOST_CONFIG_FILES} config files")
    seen: Set[bytes] = set()
    for file in config:
        if not file.path.startswith("/"):
            raise ValueError(f"a config file without an absolute path: {file.path[:100]!r}")
        _add(seen, check_path(file.path[1:]), file.path)
        if file.size > MOST_CONFIG_BYTES:
            raise ValueError(f"a config file of more than {MOST_CONFIG_BYTES >> 20} MiB: {file.path[:100]!r}")
