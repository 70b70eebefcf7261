"""Which processes of this host belong to a job, and how they are ended: nothing is ever found by its name.

A process belongs to a job when its environment holds the job's mark, or it descends from a registered root (a rank,
the launcher or its daemon), or it is in the session of one. The mark alone is not enough, since a program that sets
its title overwrites its environment; descent alone is not, since a parent may be gone.
"""

import contextlib
import ctypes
import os
import signal
import time
from typing import Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from taco_launch.core.launch.command_line.env import JOB_ID, SERVICE

# A rank may submit another job. What looks after that one is started with this, and outlives the job that it was started in.
_SERVICE = f"{SERVICE}=1".encode()
# What it is: these words of the agent (agent_program.py).
_OF_AGENT, _SERVICES = (b"-I", b"-S"), (b"keep-queue", b"schedule", b"run", b"guard")
_PR_SET_PDEATHSIG = 1  # prctl(2)
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_PR_SET_PTRACER = 0x59616D61
_SETTLE_SECONDS = 1.0
# In the middle of execve(2) a process has no environment for a moment, and one that ends may have forked just before:
# where there was such a process, nothing found has to be so twice.
_LOOKS = 2
_PAUSE_SECONDS = 0.01
_ROUNDS = 10
# Of an environment: what most have in all, and what execve(2) takes at most.
_USUAL_BYTES, _MOST_BYTES = 1 << 17, 1 << 23


class Process(NamedTuple):
    """One entry of /proc; (`pid`, `start`) never names two processes. `start` is in clock ticks since boot."""

    pid: int
    start: int
    parent: int
    group: int
    session: int
    state: str


class ProcessScan(NamedTuple):
    """The processes found to belong to a job, and why there may be more (empty when all of /proc could be read).

    `groups` are the process groups that hold no other process. `unsure` says that a process had an
    empty environment, or was gone when it was looked at.
    """

    found: Tuple[Process, ...]
    unknown: str = ""
    groups: FrozenSet[int] = frozenset()
    unsure: bool = False


def become_subreaper() -> None:
    """Make orphans among this process's descendants its children, so that they stay its descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Have this process sent TERM when the one that started it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def allow_tracing() -> None:
    """Let any process of this user trace this one, and what it executes next."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)


def identify(pid: int) -> Optional[Process]:
    """Read one process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, so what follows the last one counts (proc(5)).
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[2]), int(fields[3]), fields[0].decode())


def lives(pid: int, start: int) -> bool:
    """Return whether the process that (`pid`, `start`) names still runs."""
    entry = identify(pid)
    return entry is not None and entry.start == start and not _gone(entry)


def children(pid: int) -> List[Process]:
    """Return the children of a process."""
    return [entry for entry in map(identify, pids()) if entry is not None and entry.parent == pid]


def descendants(pid: int) -> List[Process]:
    """Return the living processes below one; of a subreaper, those whose own parents have ended too."""
    present = [entry for entry in map(identify, pids()) if entry is not None]
    found, level = [], {pid}
    while level:
        below = [entry for entry in present if entry.parent in level]
        found += [entry for entry in below if not _gone(entry)]
        level = {entry.pid for entry in below}
    return found


def scan(job_id: str, roots: Iterable[Tuple[int, int]] = (), user: Optional[int] = None) -> ProcessScan:
    """Find what belongs to a job; `roots` are the (pid, start) of registered processes, alive or not.

    A mark is believed of processes of `user`, by default this one's: any user can write one.
    """
    roots, user = tuple(roots), os.geteuid() if user is None else user
    needle = f"{JOB_ID}={job_id}".encode()
    claims: Set[int] = set()
    begin = min((start for _pid, start in roots), default=0)
    present: Dict[int, Process] = {}
    members: Set[int] = set()
    unreadable, unsure = 0, False
    for pid in _newest_first():
        entry = identify(pid)
        try:
            variables = [] if entry is None else environment(pid, user)
        except OSError:  # gone meanwhile, all or all but its other threads
            entry, variables = identify(pid), []
        if entry is None:
            unsure = True
            continue
        present[pid] = entry
        if variables is None:
            unreadable += bool(job_id) and entry.start >= begin and not _gone(entry) and not _is_of_a_login(entry)
        elif variables == [b""]:
            unsure = unsure or (entry.start >= begin and not _gone(entry))
        elif _SERVICE in variables:
            claims.add(pid)
        elif job_id and needle in variables and owner(pid) == user:
            members.add(pid)
    alive_roots = {pid for pid, start in roots if pid in present and present[pid].start == start}
    own = _line_of_descent(os.getpid(), present)
    # Of other jobs alone: orphans of this one are children of its supervisor.
    services = set(filter(_is_service, claims - own))
    own |= services | {pid for pid in claims if present[pid].parent in services}
    found = _closure((members | alive_roots) - own, present, own)
    # A dead root's session is the job's where it holds another of its processes; its number alone may be a stranger's.
    dead = {pid for pid, _start in roots if pid not in present} & {entry.session for entry in found}
    if dead:
        more = {entry.pid for entry in present.values() if entry.session in dead}
        found = _closure(({entry.pid for entry in found} | more) - own, present, own)
    others = {entry.group for entry in present.values() if entry not in found and not _gone(entry)}
    alive = tuple(entry for entry in sorted(found) if not _gone(entry))
    return ProcessScan(alive, _why_unknown(unreadable), frozenset(entry.group for entry in alive) - others, unsure)


def of_user(uid: int) -> List[Process]:
    """Return the living processes of a user."""
    found = (identify(pid) for pid in list(pids()) if owner(pid) == uid)
    return [entry for entry in found if entry is not None and not _gone(entry)]


def why_hidden() -> str:
    """Return why this user may not see all processes of the host, nothing where all are to be seen."""
    if os.geteuid() == 0:
        return ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        hidden = any(" - proc " in line and "hidepid=" in line and "hidepid=0" not in line for line in lines)
    return "/proc hides the processes of other users (hidepid)" if hidden else ""


def end(job_id: str, roots: Iterable[Tuple[int, int]], seconds: float = 10.0) -> ProcessScan:
    """Kill all that belongs to a job and prove it gone: give what is left after at most `seconds` (nothing, if right).

    Everything is stopped before it is killed, so that nothing forks away between two looks. Whole process groups are
    signalled besides: the kernel lets no fork escape that, however short a process lives.
    """
    roots = tuple(roots)
    begin = time.monotonic()
    deadline = begin + seconds
    groups = {pid for pid, start in roots if _start(pid) == start and not _serves(pid)}
    _signal_groups(groups, signal.SIGSTOP)
    looks = 0
    killed: Set[Tuple[int, int]] = set()
    while True:
        stopped: FrozenSet[Tuple[int, int]] = frozenset()
        while True:
            left = scan(job_id, roots)
            now = frozenset((entry.pid, entry.start) for entry in left.found)
            if now <= stopped or time.monotonic() > deadline:
                break
            groups |= left.groups
            _signal(now - stopped, signal.SIGSTOP)
            _signal_groups(groups, signal.SIGSTOP)
            stopped |= now
        # One that was killed has no environment any more before its files are closed: no scan finds it then.
        found = tuple(sorted({*left.found, *_not_gone(killed)}))
        # A process on its way out cannot be read either: what stays unknown for longer is something else.
        looks = looks + 1 if not found else 0
        known = not left.unknown or time.monotonic() - begin > _SETTLE_SECONDS
        if (looks >= (_LOOKS if left.unsure else 1) and known) or time.monotonic() > deadline:
            return ProcessScan(found, left.unknown, left.groups)
        looks = min(looks, _LOOKS - 1)
        killed |= now
        _signal(now, signal.SIGKILL)
        _signal_groups(groups, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def _not_gone(those: Iterable[Tuple[int, int]]) -> Iterator[Process]:
    for pid, start in those:
        entry = identify(pid)
        if entry is not None and entry.start == start and not _gone(entry):
            yield entry


def _start(pid: int) -> Optional[int]:
    present = identify(pid)
    return None if present is None else present.start


def _signal_groups(groups: Iterable[int], number: int) -> None:
    for group in groups:
        if group not in (0, 1, os.getpgrp()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def _signal(targets: Iterable[Tuple[int, int]], number: int) -> None:
    for pid, start in targets:
        if _start(pid) == start:
            # Gone meanwhile, or not ours to end: the next scan tells which.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _closure(members: Set[int], present: Dict[int, Process], own: FrozenSet[int]) -> Set[Process]:
    """Add descendants, and the sessions of their leaders, until nothing more comes."""
    found = set(members)
    while True:
        sessions = {pid for pid in found if present[pid].session == pid}
        more = {
            pid
            for pid, entry in present.items()
            if pid not in found and pid not in own and (entry.parent in found or entry.session in sessions)
        }
        if not more:
            return {present[pid] for pid in found}
        found |= more


def _line_of_descent(pid: int, present: Dict[int, Process]) -> FrozenSet[int]:
    line = set()
    while pid in present and pid not in line:
        line.add(pid)
        pid = present[pid].parent
    return frozenset(line)


def _newest_first() -> Iterator[int]:
    """Yield every process, and those that come while they are looked at: a fork may outrun a single look at /proc."""
    seen: Set[int] = set()
    for _round in range(_ROUNDS):
        new = sorted(set(pids()) - seen, reverse=True)
        if not new:
            return
        seen.update(new)
        yield from new


def pids() -> Iterable[int]:
    """Return the numbers of all processes that can be seen here."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def environment(pid: int, user: int) -> Optional[List[bytes]]:
    """Read the variables of a process; None where that cannot be, though it may be ours.

    Raises:
        OSError: it is gone.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            data = file.read(_USUAL_BYTES)
            # Anybody may have one of any size, without memory for it (prctl(2), PR_SET_MM_MAP): it is read on if it is that user's.
            if len(data) == _USUAL_BYTES and owner(pid) != user:
                return []
            while len(data) < _MOST_BYTES:
                piece = file.read(_USUAL_BYTES)
                if not piece:
                    break
                data += piece
            return data.split(b"\0")
    except PermissionError:
        # Another user's process cannot be ours; one of our own may be, when it hides its environment.
        return None if owner(pid) == os.geteuid() else []


def _serves(pid: int) -> bool:
    try:
        return _SERVICE in (environment(pid, os.geteuid()) or ()) and _is_service(pid)
    except OSError:
        return False


def _is_service(pid: int) -> bool:
    """Return whether a process that says it is a service of ours runs the agent as one."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = tuple(file.read(_USUAL_BYTES).split(b"\0"))
    except OSError:
        return False
    return len(words) > 4 and words[1:3] == _OF_AGENT and words[4] in _SERVICES


def owner(pid: int) -> Optional[int]:
    """Return the real user id of a process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            uids = next(line for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return None
    return int(uids.split()[1])


def _gone(entry: Process) -> bool:
    """Return whether a process is dead but for its entry: a zombie without a thread that still runs."""
    if entry.state not in "ZX":
        return False
    try:
        return len(os.listdir(f"/proc/{entry.pid}/task")) <= 1
    except OSError:
        return True


def _is_of_a_login(entry: Process) -> bool:
    """Return whether a process that cannot be read is sshd's half of a session, or the helper of the user's own systemd."""
    parent = identify(entry.parent)
    with contextlib.suppress(OSError):
        if parent is not None and owner(parent.pid) == 0:
            with open(f"/proc/{parent.pid}/comm", "rb") as name:
                return name.read().startswith(b"sshd")
        with open(f"/proc/{entry.pid}/cgroup", "rb") as groups:
            return any(b"/user@" in line and line.endswith(b"/init.scope\n") for line in groups)
    return False


def _why_unknown(unreadable: int) -> str:
    hidden = why_hidden()
    if unreadable and not hidden and os.geteuid() != 0:
        return f"processes of this user whose environment cannot be read: {unreadable}"
    return hidden
