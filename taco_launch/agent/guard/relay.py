"""What the supervisor has done on another host by ssh: a guard started, reached, a job cleared away.

`guard-start` and `attach` answer one line and then join ssh's stdin and stdout to the guard's socket, until either ends.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
import time
from typing import Iterator, Optional, Tuple

from taco_launch.agent.host import facts, process_registry, processes
from taco_launch.agent.processes import agent_program
from taco_launch.agent.snapshots.placed_links import PlacedLinks
from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import LEASES_VARIABLE, JobFolder, make_private, require_local_disk
from taco_launch.core.errors import FAILED, OK, TacoLaunchError
from taco_launch.core.lifecycle import state
from taco_launch.core.protocol.framing import dump
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.relay_messages import Attached, Cleared, FolderRemoved, NoGuard, Refused

_GUARD_SECONDS = 15.0
# A guard that was just started, and lives, is waited for as long as the supervisor does: a busy host starts it slowly.
_START_SECONDS = 45.0


def clear(folder: JobFolder, job_id: str) -> int:
    """End what the job has on this host, and its guard; answer with Cleared."""
    return _say(_cleared(folder, job_id))


def remove(folder: JobFolder, job_id: str) -> int:
    """Clear, and remove the job's folder; answer with FolderRemoved."""
    return _say(_removed(folder, job_id))


def start_guard(folder: JobFolder, job_id: str, agent: str, leases: str = "") -> int:
    """Start the job's guard, unless it runs, and join it; answer with Attached, NoGuard or Refused."""
    guard = None
    try:
        connection = _prepare(folder, job_id, agent)
        if connection is None:
            guard = _start(folder, job_id, agent, leases)
    except TacoLaunchError as error:
        return _say(Refused(reason=error.message))
    except OSError as error:
        return _say(Refused(reason=f"{error.filename or folder.path}: {error.strerror or error}"))
    return _attach(folder, connection or _connect(folder, _START_SECONDS if guard else 0.0, guard))


def attach(folder: JobFolder, job_id: str) -> int:  # noqa: ARG001 - all operations on a host's job have its id
    """Join the job's guard; answer with Attached or NoGuard."""
    return _attach(folder, _connect(folder, 0.0))


def _attach(folder: JobFolder, connection: Optional[socket.socket]) -> int:
    if connection is None:
        _say(NoGuard(boot=facts.boot_id(), debug=str(folder.debug)))
        return FAILED
    _say(Attached())
    _join(connection)
    return OK


def _prepare(folder: JobFolder, job_id: str, agent: str) -> Optional[socket.socket]:
    """Make the job's folder; what an earlier job of that name has left is ended and removed.

    Where the connection that had the job's guard started broke before it could tell, gives another to that guard.

    Raises:
        TacoLaunchError: the name is taken, or jobs cannot be kept there.
        OSError: nothing can be written there.
    """
    if folder.path.exists():
        earlier = process_registry.read_registry(folder)
        if folder.spec.exists():
            raise TacoLaunchError(f"it is the head of another job with the name {folder.name}: choose another --name")
        ours = earlier is not None and earlier.job_id == job_id
        starts = ours and (earlier is None or earlier.guard is None or _runs(earlier.guard))
        connection = _connect(folder, _GUARD_SECONDS if starts else 0.0)
        if connection is not None and ours:
            return connection
        if connection is not None and earlier is not None and state.marks_same_job(earlier.job_id, job_id):
            connection.close()  # it still waits for its supervisor, who has started anew without it
            connection = None
            _cleared(folder, earlier.job_id)
        if connection is not None:
            raise TacoLaunchError(
                f"another head already runs a job with the name {folder.name} on this host: choose another --name"
            )
        if earlier is not None and earlier.job_id != job_id:
            left = process_registry.end(folder, earlier.job_id)
            if left.found or left.unknown:
                pids = ", ".join(str(entry.pid) for entry in left.found)
                raise TacoLaunchError(
                    f"processes of an earlier job with the name {folder.name} may still be running: {pids or left.unknown}"
                )
        shutil.rmtree(folder.path)
    with _whole(folder):
        make_private(folder.logs)
        require_local_disk(folder.path)
        folder.agent.symlink_to(agent)
        process_registry.keep(folder, job_id)
    return None


def _start(folder: JobFolder, job_id: str, agent: str, leases_folder: str) -> agent_program.Process:
    environment = {**os.environ, LEASES_VARIABLE: leases_folder} if leases_folder else None
    with _whole(folder), open(folder.debug, "ab", opener=untrusted.opener) as debug:
        return agent_program.start(agent, "guard", str(folder.path), job_id, stderr=debug, environment=environment)


@contextlib.contextmanager
def _whole(folder: JobFolder) -> Iterator[None]:
    """Remove a folder that cannot be made in full, as on a full disk: no guard would, and the head may forget it."""
    try:
        yield
    except (OSError, TacoLaunchError):
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _cleared(folder: JobFolder, job_id: str) -> Cleared:
    """End the job and its guard, which may hang."""
    kept = process_registry.read_registry(folder)
    if kept is not None and kept.job_id == job_id and kept.guard is not None and _runs(kept.guard):
        os.kill(kept.guard[0], signal.SIGKILL)
    left = process_registry.end(folder, job_id)
    PlacedLinks(folder).remove()
    return Cleared(left=[entry.pid for entry in left.found], unknown=left.unknown)


def _runs(guard: Tuple[int, int]) -> bool:
    """Return whether a guard's process, (pid, start), is still there."""
    entry = processes.identify(guard[0])
    return entry is not None and entry.start == guard[1]


def _removed(folder: JobFolder, job_id: str) -> FolderRemoved:
    """Remove the folder, unless it is another job's by now."""
    earlier = process_registry.read_registry(folder)
    if earlier is None or earlier.job_id != job_id:
        return FolderRemoved()
    left = _cleared(folder, job_id)
    shutil.rmtree(folder.path, ignore_errors=True)
    return FolderRemoved(left=left.left, unknown=left.unknown)


def _connect(
    folder: JobFolder, seconds: float, guard: Optional[agent_program.Process] = None
) -> Optional[socket.socket]:
    """Connect to the guard within so many seconds; None where it does not listen by then, or `guard` has ended."""
    deadline = time.monotonic() + seconds
    while True:
        ended = guard is not None and guard.poll() is not None
        try:
            return folder.connect()
        except OSError:
            if ended or time.monotonic() >= deadline:
                return None
            time.sleep(0.005)


def _say(message: Message) -> int:
    sys.stdout.buffer.write(dump(message.to_wire()))
    sys.stdout.buffer.flush()
    return OK


def _join(connection: socket.socket) -> None:
    """Carry bytes both ways; when one side ends, this process does."""

    def inwards() -> None:
        while True:
            data = os.read(0, 1 << 16)
            if not data:
                os._exit(OK)
            connection.sendall(data)

    threading.Thread(target=inwards, daemon=True).start()
    try:
        while True:
            data = connection.recv(1 << 16)
            if not data:
                return
            while data:
                data = data[os.write(1, data) :]
    except OSError:
        return
