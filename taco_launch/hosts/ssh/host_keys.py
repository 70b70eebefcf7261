"""Known host keys: which key a host has shown before, by known_hosts files, and our own file of them.

`~/.ssh` is only read. The format is that of sshd(8), section SSH_KNOWN_HOSTS FILE FORMAT.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import make_private, state_folder
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass

_REVOKED, _AUTHORITY = "@revoked", "@cert-authority"
# Of a known_hosts file: about 200,000 keys.
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class HostKey:
    """A host's public key: `kind` such as ssh-ed25519, and its bytes as they go over the wire."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """The SHA256 fingerprint as `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class KnownHostsLine:
    """One line of a known_hosts file: its marker (empty, or @revoked, @cert-authority), its key, where it stands."""

    marker: str
    key: HostKey
    file: str
    line: int

    def __str__(self) -> str:
        """Return the place and the fingerprint."""
        return f"{self.file}:{self.line}: {self.key.kind} {self.key.fingerprint}"


@dataclass(frozen=True)
class HostKeyStatus:
    """What is known of a key that a host shows: known, new, changed or revoked; `by` are the lines that say so."""

    state: str
    by: tuple[KnownHostsLine, ...] = ()


class KnownHosts:
    """Known_hosts files, each read once; the last is ours, and the only one that is written."""

    def __init__(self, own: Path, more: tuple[str, ...] = ()) -> None:
        """Look into `more` besides the files that a route names, and into `own`."""
        self._own = own
        self._more = more
        self._files: dict[str, _File] = {}
        self._lock = threading.RLock()

    def lines(self, name: str, files: Iterable[str]) -> tuple[KnownHostsLine, ...]:
        """Return all lines about a host, which is called `host` or `[host]:port` there.

        Raises:
            HostError: a file cannot be read.
        """
        found: list[KnownHostsLine] = []
        for path in dict.fromkeys((*files, *self._more, str(self._own))):
            with self._lock:
                file = self._files.get(path) or self._files.setdefault(path, _File(path))
            found += file.about(name)
        return tuple(found)

    def kinds(self, name: str, files: Iterable[str]) -> tuple[str, ...]:
        """Return the kinds of keys that are known of a host, to be preferred in negotiation."""
        lines = self.lines(name, files) or self.lines(_without_port(name), files)
        return tuple(dict.fromkeys(known.key.kind for known in lines if not known.marker))

    def judge(self, name: str, key: HostKey, files: Iterable[str]) -> HostKeyStatus:
        """Return what is known of a key that a host shows.

        A host that shows a key of another kind than the known ones has changed: the known kinds were requested first.
        """
        lines, own = self.lines(name, files), str(self._own)
        revoked = tuple(known for known in lines if known.marker == _REVOKED and known.key == key)
        if revoked:
            return HostKeyStatus("revoked", revoked)
        plain = tuple(known for known in lines if not known.marker)
        # A key that a person took in place of another ends what other files say of that kind.
        plain = tuple(known for known in plain if known.file == own and known.key.kind == key.kind) or plain
        same = tuple(known for known in plain if known.key == key)
        if same:
            return HostKeyStatus("known", same)
        if plain:
            return HostKeyStatus("changed", plain)
        # as ssh does it: a line for all ports can vouch for a key, but not speak against one
        anywhere = [known for known in self.lines(_without_port(name), files) if not known.marker and known.key == key]
        if anywhere:
            return HostKeyStatus("known", tuple(anywhere))
        return HostKeyStatus("new", tuple(known for known in lines if known.marker == _AUTHORITY))

    def add(self, entries: Iterable[tuple[str, HostKey]]) -> None:
        """Write keys into our file; lines that only name the same hosts go.

        Raises:
            HostError: it cannot be written.
        """
        with self._writing():
            self._write(dict(entries))

    def accept(self, name: str, key: HostKey, files: Iterable[str]) -> HostKeyStatus:
        """Judge a key once more, with nobody else writing, and write it into our file if it is still new.

        Raises:
            HostError: it cannot be written.
        """
        with self._writing():
            verdict = self.judge(name, key, files)
            if verdict.state == "new":
                self._write({name: key})
        return verdict

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            try:
                make_private(self._own.parent)
                with _locked(self._own):
                    self._files.pop(str(self._own), None)  # others write it too
                    yield
            except OSError as error:
                raise HostError(
                    f"{self._own}: cannot keep host keys: {error.strerror}",
                    hint="name another folder with TACO_LAUNCH_STATE",
                ) from None

    def _write(self, new: Mapping[str, HostKey]) -> None:
        before = _File(str(self._own)).text.splitlines()
        kept = [line for line in before if (line.split() or [""])[0] not in new]
        added = [f"{name} {key.kind} {base64.b64encode(key.blob).decode()}" for name, key in new.items()]
        _replace(self._own, "".join(f"{line}\n" for line in (*kept, *added)))
        self._files.pop(str(self._own), None)

    @property
    def own(self) -> Path:
        """The file that is ours."""
        return self._own


def own_file(environ: Mapping[str, str]) -> Path:
    """Return the path of our file."""
    return state_folder(environ, os.geteuid()) / "known_hosts"


class _File:
    """The lines of one file; those without patterns are found by name."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            data = b"" if path == os.devnull else untrusted.read_named(Path(path), _MOST_BYTES)
            self.text = data.decode("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            self.text = ""
        except OSError as error:
            raise HostError(
                f"{path}: cannot read host keys: {error.strerror}",
                hint=f"look at its type and mode: {shell(('ls', '-l', path))}",
            ) from None
        self._by_name: dict[str, list[KnownHostsLine]] = {}
        self._patterns: list[tuple[str, KnownHostsLine]] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            self._add(number, line)

    def about(self, name: str) -> list[KnownHostsLine]:
        """Return the lines that match a name."""
        low = name.lower()
        found = self._by_name.get(low, []) + [known for text, known in self._patterns if _matches(text, low)]
        return sorted(found, key=lambda known: known.line)

    def _add(self, number: int, line: str) -> None:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            return
        try:
            key = HostKey(words[1], base64.b64decode(words[2], validate=True))
        except binascii.Error:
            return  # ssh passes over such a line too
        known = KnownHostsLine(marker, key, self._path, number)
        if re.search(r"[*?!|]", words[0]):
            self._patterns.append((words[0], known))
        else:
            for name in words[0].lower().split(","):
                self._by_name.setdefault(name, []).append(known)


def _without_port(name: str) -> str:
    found = re.fullmatch(r"\[(.+)\]:[0-9]+", name)
    return found[1] if found else name


def _matches(text: str, name: str) -> bool:
    if text.startswith("|1|"):
        salt, _, digest = text[3:].partition("|")
        try:
            hashed = hmac.digest(base64.b64decode(salt), name.encode("utf-8", "surrogateescape"), "sha1")
        except binascii.Error:
            return False
        return base64.b64encode(hashed).decode() == digest
    patterns = text.lower().split(",")
    if any(pattern.startswith("!") and _fits(name, pattern[1:]) for pattern in patterns):
        return False
    return any(_fits(name, pattern) for pattern in patterns if not pattern.startswith("!"))


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))  # brackets are only themselves here


def _locked(path: Path) -> AbstractContextManager[None]:
    return untrusted.locked(path.with_name(f"{path.name}.lock"))


def _replace(path: Path, text: str) -> None:
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(part).rename(path)
    except OSError:
        Path(part).unlink()
        raise
