"""What git says of a folder that is copied: its commit, and a hash of what differs from that."""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from taco_launch.core import trace
from taco_launch.jobs.code import git_program
from taco_launch.jobs.code.snapshot import Snapshot

_FILTERS = r"^(filter\..*\.(clean|smudge|process)|include(if\..*)?\.path)$"
_OWN_SCOPES = (b"local", b"worktree")


class GitState(NamedTuple):
    """The commit and the branch of a work tree, and the paths below the folder that differ from the commit."""

    commit: str
    ref: str
    changed: tuple[str, ...]

    def dirty_hash(self, taken: Snapshot) -> str:
        """Return a hash of what differs from the commit, as a snapshot has it; "" where nothing does."""
        if not self.changed:
            return ""
        files = {file.path: f"{file.executable} {file.content}" for file in taken.manifest.files}
        links = {path: f"-> {target}" for path, target in taken.manifest.links}
        whole = hashlib.sha256()
        for path in sorted(self.changed):
            now = files.get(path) or links.get(path) or "gone"
            for part in (path, now):
                whole.update(part.encode("utf-8", "surrogateescape") + b"\0")
        return whole.hexdigest()[:16]


class GitQuestion:
    """What git is asked while the folder is read."""

    def __init__(self, process: "subprocess.Popen[bytes] | None", prefix: str) -> None:
        """Keep a git that runs, None where there is none to ask; `prefix` is the folder's path in its work tree."""
        self._process, self._prefix = process, prefix

    def answer(self) -> GitState | None:
        """Return what git says, None where it says nothing: no repository, no git, a repository of somebody else."""
        if self._process is None:
            return None
        code, said, _why = git_program.answer(self._process)
        return None if code else parsed(said, self._prefix)


def ask(folder: str, environ: Mapping[str, str], untracked: str = "all") -> GitQuestion:
    """Ask git of a folder, with its `untracked` files (all or no).

    Nothing that the repository itself names is run, fetched or included. One that includes settings of other files is
    not asked: what these say is not known before git does it.
    """
    real = os.path.realpath(folder)
    top = next((str(path) for path in (Path(real), *Path(real).parents) if (path / ".git").exists()), "")
    if not top or not git_program.find(environ):
        return GitQuestion(None, "")
    list_settings = ("-C", real, "config", "--no-includes", "-z", "--show-scope", "--name-only", "--get-regexp")
    show = (
        *("--no-optional-locks", "-C", real, "status", "--porcelain=v2", "--branch", "-z"),
        *(f"--untracked-files={untracked}", "--ignore-submodules=dirty", "--no-renames", "--", "."),
    )
    try:
        code, said, _why = git_program.answer(git_program.start((*list_settings, _FILTERS), environ, git_program.LOCAL))
        words = said.split(b"\0")
        own = [os.fsdecode(name) for scope, name in zip(words[::2], words[1::2], strict=False) if scope in _OWN_SCOPES]
        if code not in (0, 1) or any(name.startswith("include") for name in own):
            trace.decision("code: git is not asked of %s: exit code %s, own settings %s", real, code, own)
            return GitQuestion(None, "")
        required = {f"{name.rpartition('.')[0]}.required": "false" for name in own}
        off = (*((name, "") for name in own), *required.items())
        process = git_program.start(show, environ, git_program.LOCAL, off)
    except OSError:
        return GitQuestion(None, "")
    prefix = os.path.relpath(real, top)
    return GitQuestion(process, "" if prefix == "." else prefix)


def parsed(said: bytes, prefix: str) -> GitState | None:
    """Read `git status --porcelain=v2 --branch -z`; paths are counted from `prefix`. None where there is no commit yet."""
    commit = ref = ""
    changed = []
    below = f"{prefix}/" if prefix else ""
    for entry in said.split(b"\0"):
        line = os.fsdecode(entry)
        kind, _, rest = line.partition(" ")
        path = ""
        if line.startswith("# branch.oid "):
            commit = line.removeprefix("# branch.oid ")
        elif line.startswith("# branch.head "):
            ref = line.removeprefix("# branch.head ")
        elif kind in ("1", "u"):
            path = rest.split(" ", 7 if kind == "1" else 9)[-1]
        elif kind == "?":
            path = rest
        if path and path.startswith(below):
            changed.append(path[len(below) :])
    if not commit or commit == "(initial)":
        return None
    return GitState(commit, "" if ref == "(detached)" else ref, tuple(changed))
