"""Leases: which job has the slots of this host, by the kernel's locks on one file a slot.

The kernel frees a lock whatever dies, but processes may outlive it: who takes the lock first ends what its own user's
job has left (slot_cleanup.py), and sees that nothing is left of others, by a record of each user's last holder beside the
file (slot_holders.py: what is believed of it), and that nobody uses the GPU. A holder that ended in order leaves no record.
Whoever may use the host may take its slots: the files are everybody's to lock, and their content is never read.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.host import drain, gpus, slot_cleanup, slot_holders
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.agent.store import folders, untrusted
from taco_launch.core.errors import HostError, write_hint
from taco_launch.core.model.slots import PORT, is_gpu, port_name

_FOR_ALL = 0o1777
_LEASE_MODE = 0o644
# So long a GPU's memory may take to be free once its processes are gone; seconds.
_SETTLE_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Who fills the folder is seen long before.
_MOST_ENTRIES = 1 << 16


class Leases:
    """The leases that one guard holds."""

    def __init__(self, folder: Path, jobs: Path) -> None:
        """Hold none yet; `jobs` is the folder of this user's jobs."""
        self._folder = folder
        self._own = slot_cleanup.OwnSlots(jobs, folder)
        self._held: Dict[str, Tuple[int, ...]] = {}
        self._use: Optional[Mapping[str, gpus.GpuUse]] = None
        self.refused: Dict[str, str] = {}  # of the last try, besides those that are locked: slot, why

    def take(
        self,
        names: Sequence[str],
        count: int,
        holder: Holder,
        use: Optional[Mapping[str, gpus.GpuUse]],
        ports: Sequence[int] = (),
        *,
        while_drained: bool = False,
    ) -> Tuple[str, ...]:
        """Take any `count` of the slots, the first that can be had, and TCP ports that no other job is to use meanwhile.

        All that, or nothing. Gives the names of what is had, `port_name` of each port before the slots. `use` is who uses
        each GPU as far as that was looked at just now, None where it was not.

        A drained host gives no slots, but to a job that may have them `while_drained`.

        Raises:
            HostError: there can be no leases in that folder.
        """
        if self._held:
            return tuple(self._held)
        self._use, self.refused = use, {}
        if (
            count and not while_drained and drain.read() is not None
        ):  # since the job was placed: who looks again is told why
            return ()
        wanted = count + len(ports)
        taken: Dict[str, Tuple[int, ...]] = {}
        try:
            _make(self._folder)
            for number, name in enumerate((*map(port_name, ports), *names)):
                if len(taken) == wanted or (number >= len(ports) and len(taken) < len(ports)):
                    break
                files = self._lock(name)
                if files:
                    taken[name] = files
                    self._look_into(name, holder)
                    if name in self.refused:
                        _close(taken.pop(name))
                if number < len(ports) and name not in taken:
                    self.refused.setdefault(name, "held by another job")
            if len(taken) == wanted:
                for name in taken:
                    self._own.write(name, holder.job, holder.id)
                    slot_holders.write(self._folder, name, holder)
                self._held, taken = taken, {}
        except OSError as error:
            raise _no_leases(self._folder, error) from None
        finally:
            for files in taken.values():
                _close(files)
        return tuple(self._held)

    def is_leased(self, port: int) -> bool:
        """Return whether some job has a TCP port at this moment, as far as that can be seen."""
        path = self._folder / port_name(port)
        with contextlib.suppress(OSError):
            if path.exists():
                file = _locked(path)
                if file is None:
                    return True
                os.close(file)
        return False

    def holder(self, port: int) -> str:
        """Return which job has a TCP port, "" where none has."""
        if not self.is_leased(port):
            return ""
        name = port_name(port)
        found = slot_holders.read(self._folder, (name,)).get(name, ())
        return f"job {max(found, key=lambda last: last.since).job}" if found else ""

    def release(self, *, gone: bool) -> None:
        """Let all go; `gone` says that nothing is left of the holder."""
        for name, files in self._held.items():
            if gone:
                self._own.remove(name)
                slot_holders.remove(self._folder, name)
            if gone and name.startswith(PORT):  # there may be as many as there are ports
                with contextlib.suppress(OSError):  # another user has made it
                    (self._folder / name).unlink()
            _close(files)
        self._held = {}

    def _lock(self, name: str) -> Tuple[int, ...]:
        """Lock a slot for all users and among this user's jobs; none where another job has it, with the reason noted.

        Raises:
            OSError: there can be no leases in the folder.
        """
        own = self._own.lock(name)
        if own is None:
            with contextlib.suppress(OSError):
                shared = self._shared(name)
                if shared is not None:  # else that says it
                    os.close(shared)
                    self.refused[name] = "held by another job of this user, whose lease file was removed"
            return ()
        try:
            shared = self._shared(name)
        except OSError as error:
            if not (name.startswith(PORT) and error.errno in _FULL):
                os.close(own)
                raise
            return (own,)  # somebody has filled the folder; who else wants the port finds it bound
        if shared is None:
            os.close(own)
            return ()
        return own, shared

    def _shared(self, name: str) -> Optional[int]:
        path = self._folder / name
        try:
            return _locked(path)
        except OSError:
            try:
                what = untrusted.describe(path)
            except OSError:
                what = ""
            if not what:  # nothing has that name, so it is the folder
                raise
            self.refused[name] = f"with a lease file that cannot be used: {path} is {what}"
            return None

    def _look_into(self, name: str, holder: Holder) -> None:
        """End what this user's last job left, look for what others' left; note why the slot cannot be had all the same."""
        had = self._own.read(name)
        ours = had if had is not None and had.id != holder.id else None
        known = {holder.id, *((had.id,) if had is not None else ())}
        others = [
            last
            for last in slot_holders.read(self._folder, (name,)).get(name, ())
            if last.uid != os.geteuid() or last.id not in known
        ]
        why = self._own.end(ours) if ours is not None else ""
        why = why or next(filter(None, map(slot_cleanup.report, others)), "")
        if not why and is_gpu(name):
            why = self._used(name, _SETTLE_SECONDS if ours is not None else 0.0)
        if why:
            self.refused[name] = why
            return
        if ours is not None:
            self._own.remove(name)
            slot_holders.remove(self._folder, name)
        for last in others:  # proven gone, by root also of other users, who would else be waited for again and again
            slot_holders.remove(self._folder, name, last.uid)

    def _used(self, name: str, seconds: float) -> str:
        """Return who uses a GPU; wait for it to be free for some seconds, where something was just ended on it."""
        deadline = time.monotonic() + seconds
        if seconds:
            self._use = None
        while True:
            if self._use is None:
                try:
                    self._use = gpus.used()
                except HostError as error:
                    return f"with unknown users ({error.message})"
            why = gpus.describe(name, self._use)
            if not why or time.monotonic() > deadline:
                return why
            time.sleep(_PAUSE_SECONDS)
            self._use = None


def _no_leases(folder: Path, error: OSError) -> HostError:
    """Return the error of a folder in which there can be no leases."""
    why = error.strerror or str(error)
    if error.filename and folder not in (Path(error.filename), *Path(error.filename).parents):
        hint = write_hint(error, str(error.filename), "name another folder with TACO_LAUNCH_STATE")
        return HostError(f"{error.filename}: {why}", hint)
    if error.errno in _FULL:
        return HostError(f"cannot write lease files in {folder}: {why}", f"free some space there: {_fillers(folder)}")
    return HostError(
        f"cannot write lease files in {folder}: {why}",
        f"set another folder with {folders.LEASES_VARIABLE}, or run as root",
    )


def _fillers(folder: Path) -> str:
    """Return who has how many files in a folder: `30000 files of bob, 12 of root`."""
    owners = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry, _number in zip(entries, range(_MOST_ENTRIES)):
            owners.append(entry.stat(follow_symlinks=False).st_uid)
    most = Counter(owners).most_common(3)
    return ", ".join(f"{count} files of {untrusted.user_name(uid)}" for uid, count in most)


def _make(folder: Path) -> None:
    """Make the folder where it is missing: that for all with what is above it for everybody to pass.

    Root opens it again where somebody has closed it, as root of a container may.
    """
    if folder.is_dir():
        if (
            str(folder) == folders.LEASES_FOR_ALL
            and os.geteuid() == 0
            and stat.S_IMODE(folder.lstat().st_mode) != _FOR_ALL
        ):
            folder.chmod(_FOR_ALL)
        return
    if str(folder) != folders.LEASES_FOR_ALL:
        folders.make_private(folder)
        return
    folder.parent.mkdir(exist_ok=True)
    folder.parent.chmod(0o711)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(_FOR_ALL)


def _locked(path: Path, *, again: bool = True) -> Optional[int]:
    """Open a slot's file and lock it, None where another has the lock.

    Raises:
        OSError: it cannot be opened, is not a regular file, or has another name as well.
    """
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever made it could else remove it while it is held. Under another name it is no lease, but somebody's file.
        if os.geteuid() == 0 and os.fstat(file).st_nlink == 1:
            os.fchown(file, 0, 0)
            os.fchmod(file, _LEASE_MODE)
        mine = os.path.samestat(os.fstat(file), path.lstat())  # else somebody removed it in between
    except OSError:
        mine = False
    linked = os.fstat(file).st_nlink > 1  # a lock of one name locks all of a file's names
    if mine and not linked:
        return file
    if linked and mine and again and os.geteuid() == 0:  # nobody has it, so root may make it anew
        path.unlink()
        os.close(file)
        return _locked(path, again=False)
    os.close(file)
    if linked:
        raise OSError(errno.EMLINK, "has several names (hard links)", str(path))
    return None


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _opened(path: Path) -> int:
    """Open a slot's file, after making it where it is missing.

    In a folder that all may write to, the kernel refuses O_CREAT on another user's file (fs.protected_regular), root's as
    well. So it is made without a name, with the mode it is to have from the first moment that others see it, and never has
    two names. Others may lock it, but not write to it, which would let them link it (fs.protected_hardlinks).
    """
    try:
        return _existing(path)
    except FileNotFoundError:
        pass
    try:
        file = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        return untrusted.open_regular(path, os.O_RDWR | os.O_CREAT)  # as on NFS: a folder of this user alone
    try:
        os.fchmod(file, _LEASE_MODE)
        # With a descriptor of a folder, which an absolute path does not need, Python follows the link.
        os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file, follow_symlinks=True)
    except OSError as error:
        os.close(file)
        if error.errno == errno.EEXIST:  # another was faster
            return _existing(path)
        raise
    return file


def _existing(path: Path) -> int:
    try:
        return untrusted.open_regular(path, os.O_RDWR)
    except PermissionError:  # another user's: a lock needs no more
        return untrusted.open_regular(path)
