"""Who has a slot of this host, or had it last: a record beside the slot's lock, `SLOT.UID`, written by that user.

Every user may write into the folder of the leases, and so may a rank, who is root in its container and may give a file to
any user. So nothing is ended by the word of a record: slot_cleanup.py has what this user's jobs had. What is believed:

    that somebody has the slot   never: only the kernel's lock says that
    uid                          the owner of the file, which has to be the one in its name; what the content says of it
                                 is not read
    id                           it limits which processes of the record's user may be left, for who may see that
    since                        a finite time that is not in the future: how old a process of that user has to be, but
                                 not older than the record itself
    job, cluster                 as words to show; `job` by the rule for names
    owner                        of root's records (a container's processes are root's), else it is the file's owner
"""

import contextlib
import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Tuple

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import is_name
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.slots import SlotHolder
from taco_launch.core.protocol.framing import dump, parsed

_MOST_BYTES = 1 << 14
# A folder that somebody has filled is not read to its end: a user's own records are found by their names all the same.
_MOST_ENTRIES = 1 << 14
_ID = re.compile(r"[!-~]{1,256}")
_UID = re.compile(r"[0-9]{1,10}")  # str.isdigit also takes what int() does not
_MOST_LETTERS = 256
# Of a slot the records of so many other users are read, root's first: each costs a look at all processes, and root in a
# container may write records of any number of users. Fewer have used one slot in turn without removing their records.
_MOST_USERS = 8
# Clocks of a host are set back now and then.
_AHEAD_SECONDS = 86400.0


@dataclass(frozen=True)
class Holder:
    """A job, as its guard has written it.

    `id` is its mark, `since` when it took the slot (seconds since the epoch). `uid` is the user that its processes run as,
    `pid` that of its guard, which has the lock; both -1 where they are not known. `written` is when its file was.
    """

    job: str
    id: str
    since: float
    cluster: str = ""
    owner: str = ""
    uid: int = -1
    pid: int = -1
    written: float = 0.0

    @property
    def shown(self) -> SlotHolder:
        """Return what others are told of it."""
        return SlotHolder(self.job, self.id, self.since, self.cluster, self.owner)


def write(folder: Path, slot: str, holder: Holder) -> None:
    """Write this user's record of a slot, in the place of its record before, where that can be done.

    It is what others are shown. The folder may be full, or another user have made what is in the way: the slot is had
    all the same.
    """
    path = _path(folder, slot, os.geteuid())
    part = folder / f".{path.name}.{os.urandom(8).hex()}"
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    try:
        os.write(file, dump(to_json(holder)))
        os.fchmod(file, 0o644)  # whatever the umask
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
    finally:
        os.close(file)


def remove(folder: Path, slot: str, uid: Optional[int] = None) -> None:
    """Remove a user's record of a slot, by default this user's, if there is one and this user may."""
    with contextlib.suppress(OSError):
        _path(folder, slot, os.geteuid() if uid is None else uid).unlink()


def read(folder: Path, slots: Iterable[str]) -> Dict[str, Tuple[Holder, ...]]:
    """Return the believed records of each of the slots that have some: this user's first, then by user."""
    users: Dict[str, List[int]] = {slot: [os.geteuid()] for slot in slots}
    for name in _listed(folder):
        slot, _, uid = name.rpartition(".")
        if slot in users and _UID.fullmatch(uid) and int(uid) != os.geteuid():
            users[slot].append(int(uid))
    found = {
        slot: tuple(
            filter(None, (_read(_path(folder, slot, uid), uid) for uid in [own, *sorted(others)[:_MOST_USERS]]))
        )
        for slot, (own, *others) in users.items()
    }
    return {slot: holders for slot, holders in found.items() if holders}


def _listed(folder: Path) -> List[str]:
    names: List[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry, _number in zip(entries, range(_MOST_ENTRIES)):
            names.append(entry.name)
    return names


def _path(folder: Path, slot: str, uid: int) -> Path:
    return folder / f"{slot}.{uid}"


def _read(path: Path, uid: int) -> Optional[Holder]:
    """Read a record, None where it is missing or not to be believed."""
    try:
        with untrusted.opened(path) as file:
            about = os.fstat(file)
            if about.st_uid != uid or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            message = parsed(untrusted.content(file, _MOST_BYTES))
        holder = None if message is None else from_json(Holder, message)
    except (OSError, ValueError, OverflowError):
        return None
    if holder is None or not _is_plausible(holder):
        return None
    owner = _shown(holder.owner) if uid == 0 else untrusted.user_name(uid)
    return replace(holder, uid=uid, written=about.st_ctime, cluster=_shown(holder.cluster), owner=owner)


def _is_plausible(holder: Holder) -> bool:
    return (
        is_name(holder.job)
        and _ID.fullmatch(holder.id) is not None
        and 0 <= holder.since <= time.time() + _AHEAD_SECONDS  # also false for nan
    )


def _shown(text: str) -> str:
    """Return a text as it may stand in a message: on one line, without control characters, and not long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_LETTERS])
