"""Run py-spy, which reads the stack of a process; and what a process of a rank does, with its stack."""

import contextlib
import math
import os
import platform
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.agent.counters import process_trees
from taco_launch.agent.counters.process_trees import RankProcess
from taco_launch.agent.ssh import commands as ssh
from taco_launch.core.model.run.rank_samples import RankStack, Stack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.protocol.stack_messages import WHY_CHARACTERS
from taco_launch.core.stalls import groups
from taco_launch.core.stalls.dumps import main_stack
from taco_launch.core.stalls.waits import place

NAME = "py-spy"
# With native frames it stops a process for up to 0.6 s (measured with py-spy 0.4.3 and torch 2.13).
_SECONDS = 20.0
# Where set-up puts the agent (core/model/host/paths.py); one that was brought along with a job lies elsewhere.
_SET_UP = Path("/var/lib/taco-launch/agent")
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_MISSING = "py-spy is not on this host: run setup again, or install it in the image (pip install py-spy)"
# It needs a core; those that the ranks poll on are theirs.
_AT_ONCE = 4
_NO_PYTHON = "the rank runs no Python program"


class StackReading(NamedTuple):
    """The stack of a process, or why it cannot be read."""

    stack: Optional[Stack]
    why: str = ""
    # It took too long, as where a process cannot be stopped because a driver or a file system does not answer.
    late: bool = False


class PySpy:
    """The program, started from memory: it may lie on a file system from which nothing can be executed, or on none."""

    def __init__(self, program: Optional[bytes], seconds: float = _SECONDS, until: float = math.inf) -> None:
        """Run `program`, or without one what PATH has.

        One reading takes at most so many seconds, and none begins after `until` (monotonic). A process whose reading took
        too long is not read again.
        """
        self._seconds, self._until = seconds, until
        self._late: Dict[int, StackReading] = {}
        self._file: Optional[int] = None
        self._path = ""
        try:
            if program is not None:
                self._file = os.memfd_create(NAME, 0)
                with open(self._file, "wb", closefd=False) as file:
                    file.write(program)
                self._path = f"/proc/self/fd/{self._file}"
        except (OSError, AttributeError):  # a kernel or libc without memfd_create(2)
            self._file = None
        self._path = self._path or shutil.which(NAME) or ""

    def read(self, pid: int) -> StackReading:
        """Return the stack of the main thread of a process, with native frames where they can be read."""
        if not self._path:
            return StackReading(None, _MISSING)
        if time.monotonic() > self._until:
            return StackReading(None, "not read: the stacks of other ranks took too long")
        reading = self._late.get(pid) or self._dump(pid, "--native")
        if reading.late:
            self._late[pid] = reading
        return reading if reading.stack is not None or reading.late else self._dump(pid)

    def _dump(self, pid: int, *options: str) -> StackReading:
        """Run it; a program decides how long its stacks are, so no more is read than a line of ours may hold."""
        keep: Tuple[int, ...] = () if self._file is None else (self._file,)
        try:
            errors = ssh.ErrorOutput()
            process = subprocess.Popen(
                [NAME, "dump", "--json", *options, "--pid", str(pid)],
                executable=self._path,
                pass_fds=keep,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors.file,
                cwd="/",
            )
        except OSError as error:
            return StackReading(None, f"py-spy cannot be started: {error.strerror}")
        errors.limit(process.pid)
        with process:
            said = ssh.output(process, self._seconds)
            process.kill()  # if it has not ended, it is to say no more
        if said is None:
            return StackReading(None, f"py-spy gave no stack within {self._seconds:g} s", late=True)
        stack = main_stack(said.decode("utf-8", "replace"))
        if stack is not None:
            return StackReading(stack)
        return StackReading(None, _why(errors.text()) if process.returncode else "py-spy found no thread of Python")


def installed(agent: str) -> Optional[bytes]:
    """Return the newest program for this kind of processor beside the agent's file, or where set-up puts it; None without one.

    hosts/remote/py_spy.py names the files.
    """
    for folder in (Path(agent).resolve().parent, _SET_UP):
        with contextlib.suppress(OSError):
            files = folder.glob(f"{NAME}-*-{platform.machine()}")
            for newest in sorted(files, key=lambda path: path.stat().st_mtime)[-1:]:
                return newest.read_bytes()
    return None


def _why(errors: str) -> str:
    """Return the first line that py-spy wrote, since a backtrace may follow, or what to set where it may not trace the process."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if "permission" not in errors.lower() and "EPERM" not in errors:
        return lines[0][:400] if lines else "py-spy failed"
    try:
        scope = _YAMA.read_text(encoding="ascii").strip()
    except OSError:
        scope = ""
    if scope not in ("", "0"):
        return (
            f"tracing is not permitted: kernel.yama.ptrace_scope is {scope}; as root: sysctl kernel.yama.ptrace_scope=0"
        )
    return "tracing is not permitted: give the container SYS_PTRACE (set container.sys_ptrace: true in the inventory, then run setup)"


def read_ranks(spy: PySpy, members: Mapping[int, Sequence[RankProcess]]) -> List[RankStack]:
    """Return what each rank does whose processes these are, in the order of their numbers."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda rank: _read(spy, rank, members[rank]), sorted(members)))


def _read(spy: PySpy, rank: int, present: Sequence[RankProcess]) -> RankStack:
    shown, python = process_trees.most_telling(present), process_trees.of_python(present)
    if python is None or (shown is not None and shown.state == "T"):
        look = RankLook(rank) if shown is None else _look(rank, shown)
        return RankStack(look, why=_NO_PYTHON if python is None else "")
    look = _look(rank, python)  # before it is traced, which is a state of its own
    reading = spy.read(python.pid)
    if reading.stack is None:
        return RankStack(look, why=reading.why[:WHY_CHARACTERS])
    where = place(reading.stack)
    told = replace(look, does=groups.describe_activity(where)[:WHY_CHARACTERS], waits=where.waits, gpu=where.gpu)
    return RankStack(told, reading.stack)


def _look(rank: int, shown: RankProcess) -> RankLook:
    pid = shown.pid
    return RankLook(rank, pid, process_trees.word(pid, "comm"), shown.state, process_trees.where(pid))
