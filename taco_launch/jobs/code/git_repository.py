"""A git repository by its URL -> the files of one commit, in the user's cache: fetched by this machine's git, and only here."""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import make_private, write_private
from taco_launch.agent.store.ownership import require_own
from taco_launch.core.digest import digest
from taco_launch.core.errors import HostError, UsageError
from taco_launch.jobs.code import git_program

_SECONDS = 600.0
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ABBREVIATED = re.compile(r"[0-9a-f]{7,64}")
_POINTER = b"version https://git-lfs.github.com/spec/v1"
_POINTER_BYTES = 1024
_MOST_TREES = 10
_MOST_NAMED = 5
_PRIVATE = (
    f"a private repository requires {git_program.USERNAME} and {git_program.PASSWORD} (or {git_program.PASSWORD_FILE}) over https, "
    "your ssh-agent over ssh"
)
# Of an error of git (transport.c, http.c, connect.c) and of ssh: the network, or what is no repository.
_NO_NETWORK = re.compile(
    r"(?i)could not resolve|connection (?:refused|timed out|reset)|failed to connect|couldn't connect|no route|unreachable|timed out"
)
_NO_REPOSITORY = re.compile(r"(?i)not a git repository|does not appear to be a git repo|'[^']*' does not exist")
_LFS = (
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
    ("filter.lfs.process", "git-lfs filter-process"),
    ("filter.lfs.required", "true"),
)


class Checkout(NamedTuple):
    """The files of a commit, which `ref` names."""

    folder: str
    commit: str
    ref: str


def checked_out(url: str, ref: str, cache: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> Checkout:
    """Return the files of a branch, tag or commit of a repository, of its default branch where `ref` is empty.

    Raises:
        UsageError: it has no such ref, or files of Git LFS that cannot be had here.
        HostError: there is no git here, or the repository cannot be reached.
    """
    if not git_program.find(environ):
        raise HostError("this machine has no git", hint="install it: apt-get install git")
    repository = _Repository(url, cache, environ, say)
    with repository.locked():
        return repository.check_out(ref)


class _Repository:
    """The mirror of one URL, without files, and a folder for each commit that was wanted."""

    def __init__(self, url: str, cache: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._secrets, settings = git_program.credentials(url, environ)
        scheme = urlsplit(url).scheme
        self._protocols = ":".join(("https", "ssh", *([scheme] if scheme in ("http", "file") else [])))
        if shutil.which("git-lfs", path=environ.get("PATH")):
            settings = (*settings, *_LFS)
        self._settings = (*settings, ("protocol.file.allow", "always")) if scheme == "file" else settings
        self._environ, self._url, self._say = environ, url, say
        name = digest((url.encode(),))
        self._mirror, self._trees = cache / "git" / name, cache / "trees"
        self._name = name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands off the mirror while the block runs."""
        make_private(self._mirror.parent)
        with untrusted.locked(self._mirror.with_suffix(".lock")):
            yield

    def check_out(self, ref: str) -> Checkout:
        self._require_own(self._mirror)
        if not (self._mirror / "HEAD").exists():
            shutil.rmtree(self._mirror, ignore_errors=True)
            self._run("init", "--quiet", "--bare", "--", str(self._mirror))
        commit, named = self._resolve(ref)
        folder = self._require_own(self._trees / f"{self._name}-{commit}")
        seal = self._mirror.with_name(f"{folder.name}.seal")
        if folder.is_dir() and _read(seal) != _seal(folder):
            self._say(f"{self._url}: the files of {commit[:12]} in the cache have changed: writing them again")
            shutil.rmtree(folder.rename(self._aside(folder)), ignore_errors=True)
        if not folder.is_dir():
            self._make(commit, folder)
            write_private(seal, _seal(folder))
        os.utime(folder)
        return Checkout(str(folder), commit, named)

    def _aside(self, folder: Path) -> Path:
        """Return another path for a tree, which `_clear_old` clears away if this process does not."""
        return self._trees / f".{folder.name}.{os.urandom(4).hex()}"

    def _require_own(self, folder: Path) -> Path:
        """Return a folder of the cache, which may be from a time when others could write there."""
        return require_own(folder, os.geteuid(), "the cache", "XDG_CACHE_HOME")

    def _resolve(self, ref: str) -> tuple[str, str]:
        """Return the commit of a ref, which is in the mirror then, and the ref's name.

        Raises:
            UsageError: the repository does not have it.
        """
        if _COMMIT.fullmatch(ref) and self._has(ref):
            return ref, ref
        wanted = ("HEAD",) if not ref else (f"refs/heads/{ref}", f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", ref)
        said = self._run("ls-remote", "--symref", "--", self._url, *wanted).decode("utf-8", "replace")
        found, symbolic = _read_refs(said)
        for name in ("HEAD",) if not ref else (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
            if name in found:
                short = (
                    symbolic.get(name, name).removeprefix("refs/heads/").removeprefix("refs/tags/").removesuffix("^{}")
                )
                if not self._has(found[name]):
                    self._fetch(name.removesuffix("^{}"))
                return self._commit_of(found[name], ref), short
        if _ABBREVIATED.fullmatch(ref):
            self._fetch_commit(ref)
            return self._commit_of(ref, ref), ref
        what = f"no branch, tag or commit {ref}" if ref else "no commit yet"
        raise UsageError(f"{self._url}: it has {what}", hint=f"see what it has: git ls-remote {self._url}")

    def _has(self, commit: str) -> bool:
        try:
            self._in_mirror("cat-file", "-e", f"{commit}^{{commit}}")
        except HostError:
            return False
        return True

    def _commit_of(self, name: str, ref: str) -> str:
        try:
            return self._in_mirror("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
        except HostError:
            raise UsageError(f"{self._url}: {ref or 'HEAD'} is not a commit") from None

    def _fetch(self, *refs: str) -> None:
        self._say(f"fetching {self._url}")
        self._in_mirror(
            "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--force", "--", self._url, *refs
        )

    def _fetch_commit(self, commit: str) -> None:
        """Fetch a commit; where the server gives none by its hash, all branches and tags."""
        if _COMMIT.fullmatch(commit):
            with contextlib.suppress(HostError):
                self._fetch(commit)
                return
        self._say(f"fetching all of {self._url}")
        every = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        shallow = ["--unshallow"] if (self._mirror / "shallow").exists() else []
        self._in_mirror("fetch", "--quiet", *shallow, "--no-recurse-submodules", "--force", "--", self._url, *every)

    def _make(self, commit: str, folder: Path) -> None:
        """Write the files of a commit and of its submodules, whole or not at all."""
        make_private(self._trees)
        self._clear_old()
        part = self._aside(folder)
        try:
            self._run("init", "--quiet", "--", str(part))
            inside = part / ".git"
            (inside / "objects" / "info" / "alternates").write_text(f"{self._mirror}/objects\n", encoding="utf-8")
            if (self._mirror / "shallow").exists():
                shutil.copyfile(self._mirror / "shallow", inside / "shallow")
            self._run("-C", str(part), "config", "remote.origin.url", self._url)
            self._run("-C", str(part), "checkout", "--quiet", "--force", "--detach", commit)
            if (part / ".gitmodules").is_file():
                self._say("fetching its submodules")
                update = ("submodule", "--quiet", "update", "--init", "--recursive", "--checkout", "--depth=1")
                self._run("-C", str(part), *update)
            self._refuse_pointers(part)
            shutil.rmtree(inside)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _refuse_pointers(self, part: Path) -> None:
        found = [path for path in _small_files(part) if _is_pointer(path)]
        if found:
            named = ", ".join(ascii(str(path.relative_to(part)))[1:-1] for path in found[:_MOST_NAMED])
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            raise UsageError(
                f"{self._url}: {named}{more}: in Git LFS, but git-lfs is not installed here",
                hint="install it on this machine: apt-get install git-lfs",
            )

    def _clear_old(self) -> None:
        """Remove the folders of commits that were wanted the longest ago."""
        with contextlib.suppress(OSError):
            known = [path for path in self._trees.iterdir() if not path.name.startswith(".")]
            for path in sorted(known, key=lambda path: path.stat().st_mtime, reverse=True)[_MOST_TREES - 1 :]:
                shutil.rmtree(path, ignore_errors=True)
            for seal in self._mirror.parent.glob("*.seal"):
                if not (self._trees / seal.stem).exists():
                    seal.unlink()
            for path in self._trees.glob(".*"):
                if time.time() - path.stat().st_mtime > _SECONDS * 2:
                    shutil.rmtree(path, ignore_errors=True)

    def _in_mirror(self, *words: str) -> bytes:
        return self._run("-C", str(self._mirror), *words)

    def _run(self, *words: str) -> bytes:
        process = git_program.start(words, self._environ, self._protocols, self._settings, self._secrets)
        return git_program.succeed(process, _SECONDS, self._url, _hint)


def _hint(why: str) -> str:
    """Return what to do about an error of git."""
    if _NO_NETWORK.search(why):
        return "check the address, and that this machine reaches it (a proxy: https_proxy)"
    return "check the address: git ls-remote URL" if _NO_REPOSITORY.search(why) else _PRIVATE


def _seal(folder: Path) -> str:
    """Return a hash of what tells that nothing below a folder has changed.

    Neither `git ls-tree` nor an index can: they have no files of submodules, and files of Git LFS, or with other ends of lines,
    are not the blobs of the commit.
    """
    entries = []
    for there, folders, names in os.walk(folder):
        folders.sort()
        for path in (f"{there}/{name}" for name in (*folders, *sorted(names))):
            with contextlib.suppress(OSError):  # it is gone
                found = os.lstat(path)
                times = () if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                entries.append(os.fsencode(path) + repr((found.st_mode, *times)).encode())
    return digest(entries)


def _read(seal: Path) -> str:
    try:
        return seal.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _read_refs(said: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read `git ls-remote --symref`: the object of each ref, and what symbolic refs stand for."""
    found: dict[str, str] = {}
    symbolic: dict[str, str] = {}
    for line in said.splitlines():
        left, _tab, name = line.partition("\t")
        if left.startswith("ref: "):
            symbolic[name] = left.removeprefix("ref: ")
        elif _COMMIT.fullmatch(left):
            found[name] = left
    return found, symbolic


def _small_files(folder: Path) -> Iterator[Path]:
    for there, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in names:
            path = Path(there, name)
            if not path.is_symlink() and path.stat().st_size <= _POINTER_BYTES:
                yield path


def _is_pointer(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_POINTER)) == _POINTER
