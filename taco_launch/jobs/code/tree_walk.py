"""A folder as it is -> the files, links and empty folders of a snapshot; what cannot be one is an error, or said."""

import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import MOST_ENTRIES, check_path, links_out
from taco_launch.jobs.code import ignore_rules
from taco_launch.jobs.code.ignore_rules import IgnoreRules

# What git keeps is no code; a submodule has a file of this name.
_LEFT_OUT = frozenset((".git",))
_KINDS = (
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_MOST_NAMED = 10
_MOST_LEVELS = 200
_MOST_SECONDS = 600.0
_IGNORE = "leave it out: write its path into .tacoignore"
Say = Callable[[str], None]


class FoundFile(NamedTuple):
    """A file of a tree: its path below the root, and what tells whether it has changed."""

    path: str
    status: os.stat_result


class Tree(NamedTuple):
    """What a folder holds; links are (path, target), `folders` the empty ones."""

    root: str
    files: tuple[FoundFile, ...]
    links: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]


def walk(root: str, say: Say, rules: Sequence[str] = ignore_rules.FILES) -> Tree:
    """Return what a folder holds; no symbolic link is followed. Its files of these names say what is left out.

    Sockets, FIFOs and devices are left out, and said.

    Raises:
        UsageError: it is not a folder, something in it cannot be read, or a link leads out of it; all such links are named.
    """
    if not os.path.isdir(root):  # noqa: PTH112 - a Path takes longer, and there may be many of them
        what = "not a folder" if os.path.lexists(root) else "no such folder"
        raise UsageError(
            f"{shown(root)}: {what}", hint="--sync requires a folder, or git+https://HOST/REPOSITORY[@REF]"
        )
    found = _Walk(root, rules)
    found.folder("", None)
    skipped = found.skipped
    for path, what in skipped[:_MOST_NAMED]:
        say(f"left out: {shown(path)} is {what}")
    if len(skipped) > _MOST_NAMED:
        say(f"left out: {len(skipped) - _MOST_NAMED} more sockets, FIFOs and devices")
    _refuse_links_out(root, found.links)
    return Tree(root, tuple(found.files), tuple(found.links), tuple(found.folders))


def shown(path: str) -> str:
    """Return a path as it may be printed: a name may hold anything but NUL."""
    return path if path.isprintable() else ascii(path)


class _Walk:
    """Gathers the entries of one tree."""

    def __init__(self, root: str, rules: Sequence[str]) -> None:
        self._root = root
        self._rules = rules
        self._deadline = time.monotonic() + _MOST_SECONDS
        self.files: list[FoundFile] = []
        self.links: list[tuple[str, str]] = []
        self.folders: list[str] = []
        self.skipped: list[tuple[str, str]] = []

    def folder(self, path: str, above: IgnoreRules | None) -> None:
        there = f"{self._root}/{path}" if path else self._root
        if path.count("/") > _MOST_LEVELS:
            raise UsageError(f"{shown(there)}: more than {_MOST_LEVELS} folders deep", hint=_IGNORE)
        if time.monotonic() > self._deadline:
            raise UsageError(
                f"{shown(there)}: reading the files before this folder took {_MOST_SECONDS:g} s", hint=_IGNORE
            )
        try:
            with os.scandir(there) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise _unreadable(there, error) from None
        there_are = {entry.name for entry in inside}
        names = [name for name in self._rules if name in there_are]
        rules = ignore_rules.rules_of(path, there, names, above, self._deadline) if names else above
        empty = True
        for entry in inside:
            if entry.name in _LEFT_OUT:
                continue
            own = f"{path}/{entry.name}" if path else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules is not None and rules.leave_out(own, is_folder=is_folder):
                continue
            empty = False
            if is_folder:
                self.folder(own, rules)
            else:
                self._entry(own, entry)
        # one whose whole content is left out counts as empty
        if empty and path:
            self._add_folder(path)

    def _entry(self, path: str, entry: "os.DirEntry[str]") -> None:
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                self._check(path)
                self.files.append(FoundFile(path, status))
            elif stat.S_ISLNK(status.st_mode):
                self._check(path)
                self.links.append((path, os.readlink(entry.path)))  # noqa: PTH115 - see above
            else:
                self.skipped.append((path, next((what for is_it, what in _KINDS if is_it(status.st_mode)), "no file")))
        except OSError as error:
            raise _unreadable(entry.path, error) from None

    def _add_folder(self, path: str) -> None:
        self._check(path)
        self.folders.append(path)

    def _check(self, path: str) -> None:
        if len(self.files) + len(self.links) + len(self.folders) >= MOST_ENTRIES:
            raise UsageError(
                f"{shown(self._root)}: more than {MOST_ENTRIES} files",
                hint="check that this is the right folder; to exclude data, list it in .tacoignore",
            )
        try:
            check_path(path)
        except ValueError as error:
            raise UsageError(f"{shown(self._root)}: {error}", hint=_IGNORE) from None


def _refuse_links_out(root: str, links: list[tuple[str, str]]) -> None:
    out = links_out(links)
    if not out:
        return
    targets = dict(links)
    named = [f"  {shown(path)} -> {shown(targets[path])}" for path in out[:_MOST_NAMED]]
    more = [f"  and {len(out) - _MOST_NAMED} more"] if len(out) > _MOST_NAMED else []
    one = len(out) == 1
    raise UsageError(
        "\n".join(
            (
                f"{shown(root)}: {'a symbolic link leads' if one else f'{len(out)} symbolic links lead'} out of it",
                *named,
                *more,
            )
        ),
        hint="hosts do not have the targets: exclude the links with .tacoignore, or copy the targets into the folder",
    )


def _unreadable(path: str, error: OSError) -> UsageError:
    return UsageError(f"{shown(path)}: cannot be read: {error.strerror}", hint=_IGNORE)
