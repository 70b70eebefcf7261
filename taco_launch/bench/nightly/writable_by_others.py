"""Who besides a user (and root) may change what a program of that user reads or runs: the file, or a folder on the way to it."""

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from taco_launch.agent.store.untrusted import user_name

# Links on the way to a file: as many as the kernel follows (path_resolution(7)).
_MOST_LINKS = 40


def writable_by_others(paths: Iterable[Path], uid: int) -> tuple[str, ...]:
    """Return a line for each file or folder by which others may change one of `paths`, each once.

    A path that does not exist is followed as far as it exists.
    """
    found: dict[str, None] = {}
    for path in paths:
        for place in _way(path.absolute()):
            if why := _why(place, uid):
                found.setdefault(f"{place} {why}")
    return tuple(found)


def _way(path: Path) -> Iterator[Path]:
    """Yield every folder on the way to a file, links resolved as the kernel does, and the file."""
    left = list(path.parts[1:])
    here, links = Path("/"), 0
    yield here
    while left:
        name = left.pop(0)
        if name == "..":
            here = here.parent
            continue
        here /= name
        try:
            target = str(here.readlink())
        except OSError:
            yield here  # also what does not exist, which whoever may write to the folder can make
            if not os.path.lexists(here):
                return
            continue
        yield here  # who owns a link in a folder like /tmp may make it another
        links += 1
        if links > _MOST_LINKS:
            return
        left = [*(part for part in Path(target).parts if part != "/"), *left]
        here = Path("/") if target.startswith("/") else here.parent


def _why(place: Path, uid: int) -> str:
    try:
        status = place.lstat()
    except OSError:
        sticky = place.parent.is_dir() and place.parent.stat().st_mode & stat.S_ISVTX
        return "does not exist, and anyone can create it" if sticky else ""
    if status.st_uid not in (0, uid):
        return f"belongs to {user_name(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):
        return ""
    # In a folder like /tmp nobody but its owner removes or renames a file, and of that the next step tells.
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "is writable by everyone"
    if status.st_mode & stat.S_IWGRP and (_has_list(place) or not _is_own(status.st_gid, uid)):
        return f"is writable by the group {_group(status.st_gid)}, or by those that its access control list names"
    return ""


def _has_list(place: Path) -> bool:
    """Return whether a file has an access control list: then the bits of the group are the most that it grants (acl(5))."""
    try:
        return "system.posix_acl_access" in os.listxattr(place, follow_symlinks=False)
    except OSError:
        return False


def _is_own(gid: int, uid: int) -> bool:
    """Return whether a group is root's, or the user's private one: of the same name, and without other members."""
    if gid == 0:
        return True
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
