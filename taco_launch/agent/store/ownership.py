"""Refuses folders that are read back where another user can decide what is in them."""

import grp
import os
import pwd
import stat
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Set, Tuple

from taco_launch.core.errors import UsageError


def why_not_own(found: os.stat_result, uid: int, own_group: int = -1) -> str:
    """Return why another user may decide what is in a file or folder; "" where only `uid` and root can.

    `own_group` is a group that may write: ssh of Debian lets it be the user's own.
    """
    if found.st_uid not in (0, uid):
        return f"belongs to user {found.st_uid}"
    others = stat.S_IWOTH if found.st_gid == own_group else stat.S_IWGRP | stat.S_IWOTH
    return "can be written by others" if found.st_mode & others else ""


def require_own(folder: Path, uid: int, what: str, variable: str) -> Path:
    """Return a folder that is read back, out of which programs may run, where only its user and root decide what is in it.

    Every folder above it, up to /, must belong to them and be closed to the writes of others, or be sticky: a user who can
    rename one of them can replace all that is below. The same holds on the way to where a link leads, and the link itself
    must be theirs. The group of a user's own name may write above: the umask of some systems gives it that right, and
    only root adds others to it. sshd's StrictModes refuses even that. In a user namespace, where root of the
    host and all strangers look alike, a folder above may belong to that one user.

    Raises:
        UsageError: another user can; `variable` names another folder.
    """
    for path, above in _way(folder.absolute(), set()):
        try:
            found = path.lstat()
        except OSError:  # who makes it or looks into it fails, and says why
            continue
        why = _why_refused(found, uid, above=above)
        if why:
            where = f"{what} {folder}: {path}" if above else f"{what} {path}"
            cure = f"chmod go-w {path}, or " if found.st_uid in (0, uid) else f"remove {path} if it is not yours, or "
            if found.st_mode & stat.S_ISVTX or not stat.S_ISDIR(found.st_mode) or (uid and found.st_uid == 0):
                cure = ""  # /tmp and devices have to stay as they are, and only root changes what is root's
            hint = f"{cure}set another folder: {variable}=FOLDER"
            raise UsageError(f"{where} {why}: files there would run with your permissions", hint=hint)
    return folder


def _way(path: Path, links: Set[Path], *, above: bool = False) -> Iterator[Tuple[Path, bool]]:
    """Yield a path, all above it and all on the way to where links lead, and whether each is above what is looked for.

    `links` are those that were followed: a circle of links ends.
    """
    for each in (path, *path.parents):
        is_above = above or each != path
        yield each, is_above
        try:
            target = os.readlink(each)
        except OSError:  # it is no link
            continue
        if each not in links:
            links.add(each)
            yield from _way(each.parent / target, links, above=is_above)


def _why_refused(found: os.stat_result, uid: int, *, above: bool) -> str:
    """Return why a folder or link on the way is not believed: "" if it is."""
    is_own = found.st_uid in (0, uid) or (above and found.st_uid == _stranger())
    if is_own and (stat.S_ISLNK(found.st_mode) or (above and found.st_mode & stat.S_ISVTX)):
        return ""
    group = _private_group(uid) if above and found.st_mode & stat.S_IWGRP else -1
    return why_not_own(found, found.st_uid if is_own else uid, group)


def _private_group(uid: int) -> int:
    """Return the number of the group that a user has alone by its name, else -1."""
    try:
        user = pwd.getpwuid(uid)
        return user.pw_gid if grp.getgrgid(user.pw_gid).gr_name == user.pw_name else -1
    except KeyError:
        return -1


@lru_cache(maxsize=1)
def _stranger() -> int:
    """Return the user as whom a user namespace shows root of the host and all others that it lacks; -1 elsewhere."""
    try:
        if Path("/proc/self/uid_map").read_text("utf-8").split() == ["0", "0", "4294967295"]:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text("utf-8"))
    except (OSError, ValueError):
        return -1
