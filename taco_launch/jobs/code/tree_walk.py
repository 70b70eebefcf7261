"""A folder as it is -> the files, links and empty folders of a snapshot; what cannot be one is an error, or said."""

import os
import stat
import time
from collections.abc import Callable, Sequence, Sized
from typing import NamedTuple

from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import MOST_ENTRIES, check_paths, links_out
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
    found.check()
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
        others: tuple[Sized, ...] = (self.files, self.links, self.skipped)
        before = sum(map(len, others))
        below, rules = self._inside(path, there, above)
        # one whose whole content is left out counts as empty
        if path and not below and sum(map(len, others)) == before:
            self.folders.append(path)
        if len(self.files) + len(self.links) + len(self.folders) > MOST_ENTRIES:
            raise UsageError(
                f"{shown(self._root)}: more than {MOST_ENTRIES} files",
                hint="check that this is the right folder; to exclude data, list it in .tacoignore",
            )
        for inner in below:
            self.folder(inner, rules)

    def _inside(self, path: str, there: str, above: IgnoreRules | None) -> tuple[list[str], IgnoreRules | None]:
        """Add what a folder holds beside folders; return these, and the rules for them.

        Raises:
            UsageError: an entry cannot be read.
        """
        below, at, prefix = [], there, f"{path}/" if path else ""
        try:
            # by its descriptor, which spares a look-up of the whole path for each entry
            file = os.open(there, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if path else 0))
            try:
                with os.scandir(file) as entries:
                    inside = {entry.name: entry for entry in entries}
                names = [name for name in self._rules if name in inside]
                rules = ignore_rules.rules_of(path, there, names, above, self._deadline) if names else above
                for name in sorted(inside.keys() - _LEFT_OUT):
                    own, at = prefix + name, f"{there}/{name}"
                    is_folder = inside[name].is_dir(follow_symlinks=False)
                    if rules is not None and rules.leave_out(own, is_folder=is_folder):
                        continue
                    if is_folder:
                        below.append(own)
                        continue
                    status = inside[name].stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        self.files.append(FoundFile(own, status))
                    elif stat.S_ISLNK(status.st_mode):
                        self.links.append((own, os.readlink(name, dir_fd=file)))
                    else:
                        kind = next((what for is_it, what in _KINDS if is_it(status.st_mode)), "no file")
                        self.skipped.append((own, kind))
            finally:
                os.close(file)
        except OSError as error:
            raise _unreadable(at, error) from None
        return below, rules

    def check(self) -> None:
        """Check that a snapshot can hold the paths, all of them together.

        Raises:
            UsageError: one is too long, or has a name that no host can have.
        """
        paths = (*(file.path for file in self.files), *(path for path, _target in self.links), *self.folders)
        try:
            check_paths(paths)
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
