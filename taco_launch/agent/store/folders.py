"""Where everything of the agent lies on a host: the state folder and one folder per job. One class owns every path."""

import contextlib
import errno
import os
import re
import socket
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Mapping, Optional

from taco_launch.agent.store.ownership import require_own
from taco_launch.core.errors import NoJobError, TacoLaunchError, UsageError

STATE_VARIABLE = "TACO_LAUNCH_STATE"
# As core/model/host/paths.py names it.
CLUSTER_VARIABLE = "TACO_LAUNCH_CLUSTER"
LEASES_VARIABLE = "TACO_LAUNCH_LEASES"
# The process that the batch script of an allocation of Slurm is: what it starts ends with it.
IN_ALLOCATION = "TACO_LAUNCH_ALLOCATION"
# Of all jobs of a host, whatever their cluster and user; setup makes it at every boot.
LEASES_FOR_ALL = "/run/taco-launch/leases"
VARIANT_VARIABLE = "TACO_LAUNCH_VARIANT"
# A lock, a Unix socket and an append are not what they seem on these: the state folder has to be on a local disk.
_NOT_LOCAL = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "gpfs", "glusterfs", "beegfs", "afs"))


def state_folder(environ: Mapping[str, str], uid: int) -> Path:
    """Return the state folder: `$TACO_LAUNCH_STATE`, the container's, root's, or the user's own by the XDG rules.

    A container of a cluster has one of its own, which set-up mounts there (core/model/host/paths.py): neither the host nor the
    container of another cluster obeys what its ranks write.

    Raises:
        UsageError: another user can decide what is in it: see `require_own`.
    """
    if environ.get(STATE_VARIABLE):
        state = Path(environ[STATE_VARIABLE]).absolute()
    elif uid == 0:
        cluster = environ.get(CLUSTER_VARIABLE, "")
        state = Path("/var/lib/taco-launch", *(("containers", cluster) if is_name(cluster) else ()))
    else:
        state = _of_user(environ, "XDG_STATE_HOME", ".local/state")
    return require_own(state, uid, "the state folder", STATE_VARIABLE)


def cache_folder(environ: Mapping[str, str], uid: int) -> Path:
    """Return the folder of a user's caches.

    Raises:
        UsageError: another user can decide what is in it: see `require_own`.
    """
    return require_own(_of_user(environ, "XDG_CACHE_HOME", ".cache"), uid, "the cache folder", "XDG_CACHE_HOME")


def config_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of a user's settings; code that reads a file there calls `require_config`."""
    return _of_user(environ, "XDG_CONFIG_HOME", ".config")


def require_config(folder: Path, uid: int) -> None:
    """Refuse a folder of settings in which another user can decide what is in it: see `require_own`."""
    require_own(folder, uid, "the configuration folder", "XDG_CONFIG_HOME")


def _of_user(environ: Mapping[str, str], variable: str, in_home: str) -> Path:
    given = Path(environ.get(variable, ""))
    # XDG Base Directory Specification: a relative path is to be ignored.
    return (given if given.is_absolute() else Path(environ.get("HOME", "/"), in_home)) / "taco-launch"


def lease_folder(environ: Mapping[str, str], state: Path, *, root: bool) -> Path:
    """Return the folder of the leases: a user's own, below the state folder, where nobody has made the one for all."""
    if environ.get(LEASES_VARIABLE):
        return Path(environ[LEASES_VARIABLE])
    # Where this user may not look, nobody has made it for all; Path.is_dir would raise.
    return Path(LEASES_FOR_ALL) if root or os.path.isdir(LEASES_FOR_ALL) else state / "leases"  # noqa: PTH112


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, all for their owner only."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file for open(), which makes it for its owner only: an `opener`, whatever the umask."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file that is its owner's only.

    Raises:
        OSError: it cannot be written.
    """
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def require_local_disk(folder: Path) -> None:
    """Refuse a folder on a network or FUSE file system.

    Raises:
        TacoLaunchError: it is on one, by /proc/self/mountinfo.
    """
    real = os.path.realpath(folder)
    best, kind = "", ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            left, _, right = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), left.split(" ")[4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, right.split(" ")[0]
    if kind in _NOT_LOCAL or kind.startswith("fuse"):
        raise TacoLaunchError(
            f"{folder}: it is on a {kind} file system (mounted at {best}), but jobs need a local disk for their locks",
            hint="set TACO_LAUNCH_STATE to a folder on a local disk",
        )


# What may stand in a path; the controller has the same rule for job names.
_WITH_PATTERNS = "list, wait, stop, suspend, resume and delete"
# Shorter names are alike by chance.
_LEAST_ALIKE = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# How folders are called before and after they are a job's; nobody takes an hour to make or to remove one.
_NEW, _GONE = ".new-", ".gone-"
_LEFT_SECONDS = 3600.0
# A job is marked before it has its name, and gets that in less.
_MAKE_SECONDS = 60.0


def is_name(text: str) -> bool:
    """Return whether a text may be a job's name, and so a part of a path."""
    return _NAME.fullmatch(text) is not None


def at_short_path(socket_path: Path, use: Callable[[str], object]) -> None:
    """Call `use` with a short path of a socket: by way of its folder, since unix(7) limits a path to 107 bytes."""
    folder = os.open(socket_path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        use(f"/proc/self/fd/{folder}/{socket_path.name}")
    finally:
        os.close(folder)


class JobFolder:
    """The files of one job on one host; the logs of its ranks and its launcher are those of one attempt."""

    def __init__(self, path: Path, attempt: int = 1) -> None:
        """Name the folder; nothing is touched."""
        self.path = path
        self.name = path.name
        # A link to the agent that the job was started with: on each host it may lie elsewhere.
        self.agent = path / "agent.pyz"
        self.spec = path / "spec.json"
        self.caller = path / "caller.json"
        self.events = path / "events.jsonl"
        self.lock = path / "lock"
        # The job's number in Slurm, where Slurm keeps the queue.
        self.slurm = path / "slurm.json"
        # What somebody asks of the job's supervisor: it reads them.
        self.stop = path / "stop.json"
        self.suspend = path / "suspend.json"
        self.resize = path / "resize.json"
        self.debug = path / "debug.log"
        # How much of its hosts' hardware the job uses (store/usage_series.py).
        self.usage = path / "usage.json"
        # TensorBoard: where it answers, what it says, and the lock of who keeps it.
        self.board = path / "tensorboard.json"
        self.board_log = path / "tensorboard.log"
        self.board_lock = path / "tensorboard.lock"
        self.reserve = path / "reserve"
        self.roots = path / "roots.json"
        # The code as the ranks of one attempt have it.
        self.code = path / "code"
        # What Open MPI keeps while an attempt runs.
        self.sessions = path / "mpi"  # as core/launch/command_line/env.py names it
        self.logs = path / "logs"
        self.merged = self.logs / "merged"
        self.agent_log = self.logs / "agent"
        self._attempt = attempt
        self.launcher = self._own / "launcher"
        self._socket = path / "guard.sock"

    @property
    def _own(self) -> Path:
        return self.logs if self._attempt <= 1 else self.logs / f"attempt-{self._attempt}"

    @property
    def is_guest(self) -> bool:
        """Whether the job's head is another host, and only its ranks run here."""
        return self.roots.exists() and not self.spec.exists()

    def rank(self, rank: int) -> Path:
        """Return the stem of a rank's log segments."""
        return self._own / f"rank-{rank}"

    def launcher_on(self, host: str) -> Path:
        """Return the stem of the log of another host's launcher, as it is kept on the head."""
        return self._own / f"launcher-{host}"

    def of_attempt(self, attempt: int) -> "JobFolder":
        """Return the same folder with the logs of another attempt, counted from 1; on guests only 1 is ever used."""
        return JobFolder(self.path, attempt)

    def remove_socket(self) -> None:
        """Remove the socket of an earlier guard, which may still live, so that connections only reach the next guard."""
        self._socket.unlink(missing_ok=True)

    def listen(self) -> socket.socket:
        """Open the guard's socket; an earlier guard's is replaced."""
        self.remove_socket()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        at_short_path(self._socket, server.bind)
        server.listen(512)
        return server

    def connect(self) -> socket.socket:
        """Connect to this host's guard of the job.

        Raises:
            OSError: there is none.
        """
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            at_short_path(self._socket, client.connect)
        except OSError:
            client.close()
            raise
        return client


class Jobs:
    """All job folders under one state folder."""

    def __init__(self, state: Path) -> None:
        """Name the folder; nothing is touched."""
        self.path = state / "jobs"
        self.queue = self.path / ".queue"
        # One empty file for each job that may still need somebody: main.sh looks here, too.
        self._pending = self.queue / "pending"

    @contextlib.contextmanager
    def create(self, name: str, *, anywhere: bool = False) -> Iterator[JobFolder]:
        """Make a folder that is not seen by others yet; unless `publish` shows it in the block, it is removed.

        With `anywhere` it may be on a network file system: nothing of the job runs in it.

        Raises:
            UsageError: no job can have this name.
            TacoLaunchError: the disk is not local.
            OSError: nothing can be written there.
        """
        if not is_name(name):
            raise UsageError(f"job {name!r}: this is not a valid job name")
        try:
            make_private(self.path)
            if not anywhere:
                require_local_disk(self.path)
            folder = self.path / f"{_NEW}{name}-{os.urandom(4).hex()}"
            make_private(folder / "logs")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        try:
            yield JobFolder(folder)
        finally:
            _remove(folder, ignore_errors=True)

    def publish(self, folder: JobFolder, name: str) -> JobFolder:
        """Return the folder its name, all at once.

        Raises:
            UsageError: a job of that name already exists.
        """
        target = self.path / name
        try:
            folder.path.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            asks = ", or delete that job through the head that ran its ranks on this host"
            hint = f"choose another --name{asks if JobFolder(target).is_guest else ''}"
            raise UsageError(f"job {name}: the name is taken", hint=hint) from None
        return JobFolder(target)

    def folder(self, name: str) -> JobFolder:
        """Name a job's folder; nothing is touched."""
        return JobFolder(self.path / name)

    def mark(self, name: str) -> None:
        """Note that a job may need somebody: it has not ended, or its record is to be removed some day.

        Raises:
            OSError: nothing can be written there.
        """
        make_private(self._pending)
        os.close(os.open(self._pending / name, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o600))

    def unmark(self, name: str) -> None:
        """Note that a job needs no scheduler any more."""
        with contextlib.suppress(OSError):
            (self._pending / name).unlink()

    def pending(self, names: Optional[Iterable[str]] = None) -> List[str]:
        """Return the names of the jobs that may need a scheduler, of these names or of all."""
        if names is not None:
            return [name for name in names if os.path.lexists(self._pending / name)]
        try:
            return sorted(os.listdir(self._pending))
        except OSError:
            return []

    def forget(self, name: str, now: float) -> None:
        """Take the mark of a job away that there is not, unless it is being made this minute."""
        with contextlib.suppress(OSError):
            if now - (self._pending / name).stat().st_mtime > _MAKE_SECONDS:
                self.unmark(name)

    def get(self, name: str) -> JobFolder:
        """Find a job's folder.

        Raises:
            NoJobError: there is none of that name whose head this host is.
        """
        if is_name(name) and (self.path / name).is_dir():
            found = JobFolder(self.path / name)
            if not found.is_guest:
                return found
            raise NoJobError(
                f"job {name}: this host ran some of its ranks, but another host is its head",
                hint="use an inventory with that `head`",
            )
        raise NoJobError(f"job {name!r} not found", hint=self._instead(name))

    def _instead(self, name: str) -> str:
        """Return what may be meant by the name of no job."""
        numbered = sorted(self.path.glob(f"{name}-[0-9]*")) if is_name(name) else []
        if numbered:
            return f"jobs with this name and a number: {numbered[0].name}, ...; {_WITH_PATTERNS} accept '{name}-*'"
        if "*" in name:
            return f"only {_WITH_PATTERNS} accept a pattern"
        names = [folder.name for folder in self.all()] if is_name(name) else []
        near = [each for each in names if min(len(name), len(each)) >= _LEAST_ALIKE and (name in each or each in name)]
        return f"did you mean {near[0]}? all jobs: taco-launch list" if near else "list all jobs: taco-launch list"

    def all(self) -> List[JobFolder]:
        """Return the folder of every job whose head this host is, by name."""
        try:
            found = sorted(self.path.iterdir())
        except FileNotFoundError:
            return []
        folders = [JobFolder(path) for path in found if not path.name.startswith(".")]
        return [folder for folder in folders if not folder.is_guest]

    def sweep(self, now: float) -> None:
        """Remove what processes that were killed have left: folders that were being made or removed an hour before."""
        with contextlib.suppress(OSError):  # there are none, or they are not ours to remove
            left = [path for path in self.path.iterdir() if path.name.startswith((_NEW, _GONE))]
            for path in left:
                if now - path.stat().st_ctime > _LEFT_SECONDS:
                    _remove(path, ignore_errors=True)

    def remove(self, folder: JobFolder) -> None:
        """Remove a job's folder; from the first moment on nobody finds it any more."""
        gone = self.path / f"{_GONE}{folder.name}-{os.urandom(4).hex()}"
        folder.path.rename(gone)
        self.unmark(folder.name)
        _remove(gone)


def _remove(folder: Path, *, ignore_errors: bool = False) -> None:
    import shutil  # noqa: PLC0415 - every rank imports this file, and only `submit` and `delete` need this

    shutil.rmtree(folder, ignore_errors=ignore_errors)
