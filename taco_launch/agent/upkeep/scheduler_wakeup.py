"""Wakes the scheduler of a state folder, or starts one: there is at most one, by a lock, and none where nothing waits."""

import contextlib
import os
import socket
import subprocess
import time
from typing import Dict, Optional, Set

from taco_launch.agent.host import containers
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import (
    VARIANT_VARIABLE,
    JobFolder,
    Jobs,
    at_short_path,
    is_name,
    make_private,
    state_folder,
)
from taco_launch.core.errors import OK, TacoLaunchError
from taco_launch.core.launch.command_line.env import JOB_ID, JOB_NAME, SERVICE
from taco_launch.core.lifecycle import waits
from taco_launch.core.model.jobs import JobRecord, JobState

# What is due later is not waited for: that is the next call's business, or main.sh's.
AHEAD_SECONDS = 3600.0
_LOG_BYTES = 1 << 20
# A message names the jobs that have changed; a longer one would be lost where the buffers are small.
_MESSAGE_BYTES = 1 << 12
# The kernel's default limit of messages that wait (net.unix.max_dgram_qlen): beyond it, messages are lost.
_MOST_MESSAGES = 10
LOCK, _SOCKET, _LOG = "lock", "sock", "log"


def try_lock(jobs: Jobs) -> Optional[int]:
    """Take the scheduler's lock; None when somebody has it."""
    make_private(jobs.queue)
    return untrusted.try_lock(jobs.queue / LOCK)


def listen(jobs: Jobs) -> socket.socket:
    """Open the scheduler's socket, on which any datagram wakes it (see `changed_jobs`); an earlier one's is replaced."""
    with contextlib.suppress(FileNotFoundError):
        (jobs.queue / _SOCKET).unlink()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    at_short_path(jobs.queue / _SOCKET, server.bind)
    server.setblocking(False)
    return server


def notify(jobs: Jobs, *names: str) -> None:
    """Have the scheduler look at these jobs at once, at all of them if none is named; where there is one."""
    message = " ".join(names).encode()
    message = message if len(message) <= _MESSAGE_BYTES else b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        at_short_path(jobs.queue / _SOCKET, lambda path: client.sendto(message, path))


def changed_jobs(server: socket.socket) -> Optional[Set[str]]:
    """Empty the socket, and return the jobs that messages name; None if any job may have changed.

    So it is where a message names none, as those of earlier versions do, and where messages may have been lost.
    """
    names: Set[str] = set()
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            words = server.recv(_MESSAGE_BYTES).decode(errors="replace").split()
            names.update(words or ("",))
            count += 1
    return names if count < _MOST_MESSAGES and all(map(is_name, names)) else None


def wake(jobs: Jobs, agent: str, *names: str) -> None:
    """Have a scheduler look at once, as `notify` does; where there is none, one is started."""
    lock = try_lock(jobs)
    if lock is None:
        # It has the lock until after its last look, and looks again without it: nothing that was there before is missed.
        notify(jobs, *names)
    else:
        start(jobs, agent, lock)


def main(agent: str) -> int:
    """Have a scheduler look at once, or start one: for who is in another container."""
    wake(Jobs(state_folder(os.environ, os.geteuid())), agent)
    return OK


def start(jobs: Jobs, agent: str, lock: int) -> None:
    """Start a scheduler, and hand its lock over to it; from a variant, have the cluster's own container start it."""
    if os.environ.get(VARIANT_VARIABLE):
        os.close(lock)
        _start_in_own_container(agent)
        return
    try:
        path = jobs.queue / _LOG
        long = path.exists() and path.stat().st_size > _LOG_BYTES
        with open(path, "wb" if long else "ab", opener=untrusted.opener) as log:
            subprocess.Popen(
                agent_program.argv(agent, "keep-queue", str(lock)),
                cwd="/",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
            )
    finally:
        os.close(lock)


def _start_in_own_container(agent: str) -> None:
    with contextlib.suppress(OSError, TacoLaunchError):  # main.sh looks once a minute
        subprocess.Popen(
            containers.argv("", agent, "wake"),
            cwd="/",
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def ensure(jobs: Jobs, agent: str) -> None:
    """Start a scheduler where a job needs one and there is none; an agent that has one only reads a job or two."""
    if any(needs_one(jobs.folder(name)) for name in jobs.pending()):
        lock = try_lock(jobs)
        if lock is not None:
            start(jobs, agent, lock)


def needs_one(folder: JobFolder) -> bool:
    """Return whether a job waits, and is not being tried at this moment, or its record is to be removed."""
    try:
        record = records.record(folder)
        if record.state.is_terminal:
            due = waits.removal(records.read_spec(folder).policy, record)
            return due is not None and due < time.time() + AHEAD_SECONDS
    except (TacoLaunchError, OSError):
        return False
    return awaits_its_turn(record) and not is_locked(folder)


def awaits_its_turn(record: JobRecord) -> bool:
    """Return whether a job waits for slots or a time, and not for somebody's word."""
    return bool(record.id) and record.state.waits and record.state is not JobState.SUSPENDED


def is_locked(folder: JobFolder) -> bool:
    """Return whether somebody has a job's lock: its supervisor, or who writes its events for a moment."""
    return untrusted.is_locked(folder.lock)


def environment() -> Dict[str, str]:
    """Return what a process of ours is started with that outlives this one, which may be a job's."""
    return {**{name: value for name, value in os.environ.items() if name not in (JOB_ID, JOB_NAME)}, SERVICE: "1"}
