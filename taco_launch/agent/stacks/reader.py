"""`agent stacks`: what each rank of a job does on this host, as a line of JSON (HostStacks)."""

import os
import platform
import select
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from taco_launch.agent.counters import process_trees
from taco_launch.agent.counters.process_trees import Key
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import NO_JOB
from taco_launch.core.model.run.rank_samples import RankStack, Stack
from taco_launch.core.model.stalls import RankLook
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.stack_messages import WHY_CHARACTERS, HostStacks
from taco_launch.core.protocol.stall_messages import AskRanks, RunningRanks
from taco_launch.core.stalls import groups
from taco_launch.core.stalls.dumps import main_stack
from taco_launch.core.stalls.waits import place

# py-spy lies beside the agent, where the controller or set-up puts it, or is on PATH. It is started from memory, since it may
# lie on a file system from which nothing can be executed.
NAME = "py-spy"


# With native frames it stops a process for up to 0.6 s (measured with py-spy 0.4.3 and torch 2.13).
_SECONDS = 20.0


# Where set-up puts the agent (core/model/host/paths.py); one that was brought along with a job lies elsewhere.
_SET_UP = Path("/var/lib/taco-launch/agent")


_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


_MISSING = "py-spy is not on this host: run setup again, or install it in the image (pip install py-spy)"


class StackReading(NamedTuple):
    """The stack of a process, or why it cannot be read."""

    stack: Optional[Stack]
    why: str = ""


class PySpy:
    """The program, opened; whatever is found is started under its own name."""

    def __init__(self, agent: str) -> None:
        """Find it beside the agent's file, or on PATH."""
        self._file: Optional[int] = None
        self._path = ""
        try:
            with open(_newest(Path(agent).resolve().parent, _SET_UP), "rb") as file:
                data = file.read()
            self._file = os.memfd_create(NAME, 0)
            with open(self._file, "wb", closefd=False) as file:
                file.write(data)
            self._path = f"/proc/self/fd/{self._file}"
        except (OSError, AttributeError):  # not there; or a kernel or libc without memfd_create(2)
            self._path = shutil.which(NAME) or ""

    def read(self, pid: int) -> StackReading:
        """Return the stack of the main thread of a process, with native frames where they can be read."""
        if not self._path:
            return StackReading(None, _MISSING)
        found = self._dump(pid, "--native")
        return found if found.stack is not None else self._dump(pid)

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
            said = ssh.output(process, _SECONDS)
            process.kill()  # if it has not ended, it is to say no more
        if said is None:
            return StackReading(None, f"py-spy gave no stack within {_SECONDS:g} s")
        stack = main_stack(said.decode("utf-8", "replace"))
        if stack is not None:
            return StackReading(stack)
        return StackReading(None, _why(errors.text()) if process.returncode else "py-spy found no thread of Python")


def _newest(*folders: Path) -> Path:
    """Return the newest program for this kind of processor in the first folder that has one (hosts/remote/py_spy.py).

    Raises:
        OSError: there is none.
    """
    for folder in folders:
        found = sorted(folder.glob(f"{NAME}-*-{platform.machine()}"), key=lambda path: path.stat().st_mtime)
        if found:
            return found[-1]
    raise FileNotFoundError(NAME)


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


_GUARD_SECONDS = 10.0
# py-spy needs a core; those that the ranks poll on are theirs.
_AT_ONCE = 4
_NO_PYTHON = "the rank runs no Python program"


def main(folder: JobFolder, agent: str) -> int:
    """Print what each rank does that the guard of the job on this host knows."""
    roots = _ranks(folder)
    if roots is None:
        sys.stderr.write(f"taco-launch: no guard of the job answers in {folder.path}: has it ended?\n")
        return NO_JOB
    found = process_trees.trees(roots)
    spy = PySpy(agent)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ranks = list(pool.map(lambda rank: _read(spy, rank, found[rank]), sorted(found)))
    sys.stdout.buffer.write(HostStacks(ranks=ranks).encode())
    sys.stdout.buffer.flush()
    return 0


def _read(spy: PySpy, rank: int, keys: List[Key]) -> RankStack:
    present = process_trees.of_rank(keys)
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


def _look(rank: int, shown: process_trees.RankProcess) -> RankLook:
    pid = shown.pid
    return RankLook(rank, pid, process_trees.word(pid, "comm"), shown.state, process_trees.where(pid))


def _ranks(folder: JobFolder) -> Optional[Dict[int, Key]]:
    """Ask the guard; None where it is gone, or hangs."""
    try:
        guard = JsonConnection(folder.connect())
    except OSError:
        return None
    guard.send(AskRanks())
    deadline = time.monotonic() + _GUARD_SECONDS
    while select.select([guard], [], [], max(0.0, deadline - time.monotonic()))[0]:
        messages = guard.receive()
        if messages is None:
            return None
        for message in messages:
            if isinstance(message, RunningRanks):
                return {int(rank): (root[0], root[1]) for rank, root in message.ranks.items()}
    return None
