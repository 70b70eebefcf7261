"""The snapshots that a host keeps: each is one file `snapshots/packs/ID`, its manifest with the contents that another lacks.

A pack begins with a line: the ID of the pack that has its other contents ("-" for none: a base has all its own), the bytes of
its manifest and those of its contents. These follow, contents in the order of the manifest. What is not whole yet ends with
`.part`. Ranks can write here: whatever is read is checked, a content when it is written into a job's folder.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from pathlib import Path
from typing import Collection, Dict, Iterator, NamedTuple, Optional, Set, Tuple

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import make_private
from taco_launch.core import manifest
from taco_launch.core.manifest import Manifest

PART = ".part"
LINE_BYTES = 128
_LINE = re.compile(rb"(-|[0-9a-f]{64}) ([0-9]{1,9}) ([0-9]{1,15})\n")
# The end of a file's row in a manifest: within a name, a quotation mark has a backslash before it.
_ROW_END = re.compile(r'[0-9],"([0-9a-f]{64})"\]')
# The manifests that this process has read last, by the hashes of their texts: a tree, the one before it, and the base of both.
_PARSED: Dict[str, Manifest] = {}
_MOST_PARSED = 3
# A new snapshot is compared with so many of those that were used last.
_MOST_BASES = 4
# A base that has this part of the bytes is taken without a look at older ones.
_ENOUGH = 0.95


class DamagedError(Exception):
    """What is kept is not what its name says, or cannot be read."""


class Place(NamedTuple):
    """Where a content lies: an open file, and the offset and the bytes in it."""

    file: int
    offset: int
    size: int


class Header(NamedTuple):
    """The first line of a pack: the ID of its base, "" for none; the bytes of its manifest and of its contents."""

    base: str
    text: int
    content: int


class Pack:
    """An open pack; a context manager that closes it."""

    def __init__(self, path: Path, file: int, line: bytes, found: Manifest) -> None:
        """Take an open file that begins with this line; it is, or is to be, at a path."""
        header_line = header(line)
        assert header_line is not None
        self.id, self.file, self.manifest = path.name, file, found
        self.base_path = path.with_name(header_line.base) if header_line.base else None
        self._begin, self.content = len(line) + header_line.text, header_line.content
        self._base: Optional[Pack] = None

    def is_whole(self) -> bool:
        """Return whether all contents are there."""
        return os.fstat(self.file).st_size == self._begin + self.content

    def places(self, wanted: Optional[Collection[str]] = None) -> Dict[str, Place]:
        """Return where each content lies, or at least each of those that are wanted.

        Raises:
            DamagedError: the base is not here, or damaged.
        """
        found: Dict[str, Place] = {}
        offset = self._begin
        for name, size in missing(self.manifest, _named(self.base_path) if self.base_path else ()).items():
            found[name] = Place(self.file, offset, size)
            offset += size
        if offset != self._begin + self.content:
            raise DamagedError("the contents of a snapshot do not fit its manifest")
        if self.base_path and (wanted is None or not found.keys() >= set(wanted)):
            self._base = self._base or open_pack(self.base_path, is_base=True)
            found.update(self._base.places())
        return found

    def __enter__(self) -> "Pack":  # noqa: PYI034 - typing.Self is of Python 3.11
        """Return it as it is."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the files."""
        os.close(self.file)
        if self._base:
            self._base.__exit__()


class SnapshotStore:
    """The snapshots under one state folder."""

    def __init__(self, state: Path) -> None:
        """Name the folders; nothing is touched."""
        self.path = state / "snapshots"
        self.packs = self.path / "packs"
        # The tree of an attempt that has ended, for the next one.
        self.spare = self.path / "tree"

    def pack(self, snapshot: str) -> Path:
        """Return where a whole snapshot lies.

        Raises:
            ValueError: it is no id of a snapshot.
        """
        if not manifest.is_hash(snapshot):
            raise ValueError(f"not a snapshot ID: {snapshot[:80]!r}")
        return self.packs / snapshot

    def use(self, snapshot: str) -> bool:
        """Note that a snapshot is used now, and its base; return whether it is here, and whole."""
        try:
            path = self.pack(snapshot)
            base = header_of(path).base
            for each in (base, snapshot) if base else (snapshot,):
                os.utime(self.pack(each), follow_symlinks=False)
        except (OSError, ValueError, DamagedError):
            return False
        return True

    def found(self, snapshot: str) -> Optional[Pack]:
        """Open a whole snapshot whose base is here; where one of them is damaged, forget both and return None."""
        try:
            return self.open(snapshot)
        except DamagedError:
            self.drop(snapshot)
        return None

    def hold(self, snapshot: str) -> Optional[int]:
        """Return a descriptor that keeps a whole snapshot from being removed until it is closed; None where it is not here."""
        path = self.pack(snapshot)
        with contextlib.suppress(OSError):
            file = untrusted.open_regular(path)
            fcntl.flock(file, fcntl.LOCK_SH)
            if os.fstat(file).st_nlink and path.stat().st_ino == os.fstat(file).st_ino:
                return file
            os.close(file)
        return None

    def open(self, snapshot: str) -> Pack:
        """Open a whole snapshot.

        Raises:
            DamagedError: it is not here, not whole, or its manifest is not what its hash says.
        """
        return open_pack(self.pack(snapshot))

    def begin(self, snapshot: str, base: str, text: bytes) -> Tuple[Pack, Path, Dict[str, int]]:
        """Begin a snapshot, or continue one that broke off, in a block of `arriving`.

        Return it, its path until `finish`, and the contents that are to be written behind what is there.

        Raises:
            DamagedError: the manifest is not what its hash says, or the base is not here.
            OSError: it cannot be written.
        """
        found, path = checked(snapshot, text), self.pack(snapshot)
        wanted = missing(found, _named(self.pack(base)) if base else ())
        line = b"%s %d %d\n" % (base.encode() or b"-", len(text), sum(wanted.values()))
        make_private(self.packs)
        part = path.with_name(path.name + PART)
        file = _resumed(part, line + text, wanted)
        return Pack(path, _begun(part, line + text) if file is None else file, line, found), part, wanted

    def finish(self, snapshot: str, pack: Pack, part: Path) -> None:
        """Show a snapshot whose contents were written as whole.

        Raises:
            DamagedError: some are missing.
        """
        if not pack.is_whole():
            raise DamagedError(f"snapshot {snapshot[:12]} is not whole")
        part.rename(self.pack(snapshot))

    def base_for(self, found: Manifest) -> str:
        """Return the base that has at least half of the bytes of a new snapshot, and the most or enough; "" where none has."""
        wanted = manifest.contents(found)
        best, most, enough = "", max(sum(wanted.values()) / 2, 1), sum(wanted.values()) * _ENOUGH
        try:
            names = sorted(os.scandir(self.packs), key=lambda entry: -entry.stat(follow_symlinks=False).st_mtime)
        except OSError:
            return ""
        seen = 0
        for entry in names:
            with contextlib.suppress(OSError, DamagedError):
                if seen < _MOST_BASES and manifest.is_hash(entry.name) and not header_of(Path(entry.path)).base:
                    seen += 1
                    there = _named(Path(entry.path))
                    shared = sum(size for name, size in wanted.items() if name in there)
                    if shared >= most:
                        best, most = entry.name, shared
                    if shared >= enough:
                        break
        return best

    def drop(self, snapshot: str) -> None:
        """Forget a snapshot that is damaged, and its base, which may be what is damaged."""
        with contextlib.suppress(OSError, DamagedError):
            base = header_of(self.pack(snapshot)).base
            self.pack(base or snapshot).unlink()
        self.pack(snapshot).unlink(missing_ok=True)

    def incoming(self, snapshot: str) -> Path:
        """Return the file whose lock is held by who brings a snapshot here."""
        return self.packs / f".{self.pack(snapshot).name}.incoming"

    @contextlib.contextmanager
    def arriving(self, snapshot: str) -> Iterator[None]:
        """Have others know, while the block runs, that a snapshot is being brought here; one at a time does that."""
        make_private(self.packs)
        with untrusted.locked(self.incoming(snapshot)):
            yield

    def is_arriving(self, snapshot: str) -> bool:
        """Return whether a process copies a snapshot to this host now."""
        return untrusted.is_locked(self.incoming(snapshot))


def open_pack(path: Path, *, is_base: bool = False) -> Pack:
    """Open the pack at a path whose name is its ID, which is to be a base where that is wanted. Raises as `SnapshotStore.open` does."""
    try:
        file = untrusted.open_regular(path)
    except FileNotFoundError:
        raise DamagedError(f"{path}: there is no such snapshot") from None
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, file)
        line, header_line = _line(path, os.read(file, LINE_BYTES))
        text = os.pread(file, header_line.text, len(line))
        found = checked(path.name, text)
        pack = Pack(path, file, line, found)
        if not pack.is_whole() or (pack.base_path and (is_base or not pack.base_path.exists())):
            raise DamagedError(f"snapshot {path.name[:12]} is not whole")
        stack.pop_all()
    return pack


def _named(path: Path) -> Set[str]:
    """Return the contents of a whole base at a path, by its text alone: reading every entry of it takes ten times as long.

    Raises:
        DamagedError: it cannot be read, is not whole, or not what its name says.
    """
    try:
        with untrusted.opened(path) as file:
            line, found = _line(path, os.read(file, LINE_BYTES))
            text, size = os.pread(file, found.text, len(line)), os.fstat(file).st_size
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from None
    if found.base or size != len(line) + found.text + found.content:
        raise DamagedError(f"snapshot {path.name[:12]} is not whole")
    if hashlib.sha256(text).hexdigest() != path.name:
        raise DamagedError(f"the manifest of snapshot {path.name[:12]} is damaged")
    return set(_ROW_END.findall(text.decode("ascii", "replace")))


def _begun(part: Path, data: bytes) -> int:
    """Open a new file that is seen at a path once it begins with this data."""
    drawn = part.with_name(f"{part.name.partition('.')[0]}.{os.urandom(6).hex()}{PART}")
    file = os.open(drawn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write(file, data)
        drawn.rename(part)
    except OSError:
        drawn.unlink()
        os.close(file)
        raise
    return file


def _resumed(part: Path, data: bytes, wanted: Dict[str, int]) -> Optional[int]:
    """Open a file that begins with this data at its last whole content, and take what it has from `wanted`; None for no such file."""
    with contextlib.suppress(OSError):
        file = untrusted.open_regular(part, os.O_RDWR)
        if os.pread(file, len(data), 0) == data:
            end, size = len(data), os.fstat(file).st_size
            for name in list(wanted):
                if end + wanted[name] > size:
                    break
                end += wanted.pop(name)
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            return file
        os.close(file)
    return None


def missing(found: Manifest, there: Collection[str]) -> Dict[str, int]:
    """Return the contents of a snapshot that are not there, with their sizes, in the order in which a pack has them."""
    return {name: size for name, size in manifest.contents(found).items() if name not in there}


def header_of(path: Path) -> Header:
    """Return the header of a pack.

    Raises:
        OSError: it cannot be read.
        DamagedError: it is none.
    """
    with untrusted.opened(path) as file:
        return _line(path, os.read(file, LINE_BYTES))[1]


def header(line: bytes) -> Optional[Header]:
    """Return what the first line of a pack says, None where it is none."""
    match = _LINE.fullmatch(line)
    if match is None or int(match[2]) > manifest.MOST_BYTES:
        return None
    base = match[1].decode()
    return Header("" if base == "-" else base, int(match[2]), int(match[3]))


def _line(path: Path, data: bytes) -> Tuple[bytes, Header]:
    line = b"".join(data.partition(b"\n")[:2])
    found = header(line)
    if found is None:
        raise DamagedError(f"the header of {path} is damaged")
    return line, found


def checked(snapshot: str, data: bytes) -> Manifest:
    """Return the manifest that a text is.

    Raises:
        DamagedError: it is not that of this snapshot, or none.
    """
    if hashlib.sha256(data).hexdigest() != snapshot:
        raise DamagedError(f"the manifest of snapshot {snapshot[:12]} is damaged")
    if snapshot not in _PARSED:
        try:
            parsed = manifest.parsed(data)
        except ValueError as error:
            raise DamagedError(f"snapshot {snapshot[:12]}: {error}") from None
        while len(_PARSED) >= _MOST_PARSED:
            _PARSED.pop(next(iter(_PARSED)), None)
        _PARSED[snapshot] = parsed
    return _PARSED[snapshot]


def write(file: int, data: bytes) -> None:
    """Write all of some data to an open file."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
