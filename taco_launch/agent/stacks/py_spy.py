"""py-spy on this host: where it is, and the stack of a process that it reads.

It lies beside the agent, where the controller or set-up puts it, or it is on PATH. It is started from memory, since it may
lie on a file system from which nothing can be executed.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

from taco_launch.agent import ssh
from taco_launch.model.run.looks import Stack
from taco_launch.stalls.dumps import main_stack

NAME = "py-spy"
# With native frames it stops a process for up to 0.6 s (measured with py-spy 0.4.3 and torch 2.13).
_SECONDS = 20.0
# Where set-up puts the agent (setup/paths.py); one that was brought along with a job lies elsewhere.
_SET_UP = Path("/var/lib/taco-launch/agent")
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_MISSING = "py-spy is not on this host: run setup again, or install it in the image (pip install py-spy)"


class Reading(NamedTuple):
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

    def read(self, pid: int) -> Reading:
        """Return the stack of the main thread of a process, with native frames where they can be read."""
        if not self._path:
            return Reading(None, _MISSING)
        found = self._dump(pid, "--native")
        return found if found.stack is not None else self._dump(pid)

    def _dump(self, pid: int, *options: str) -> Reading:
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
            return Reading(None, f"py-spy cannot be started: {error.strerror}")
        errors.limit(process.pid)
        with process:
            said = ssh.output(process, _SECONDS)
            process.kill()  # if it has not ended, it is to say no more
        if said is None:
            return Reading(None, f"py-spy gave no stack within {_SECONDS:g} s")
        stack = main_stack(said.decode("utf-8", "replace"))
        if stack is not None:
            return Reading(stack)
        return Reading(None, _why(errors.text()) if process.returncode else "py-spy found no thread of Python")


def _newest(*folders: Path) -> Path:
    """Return the newest program for this kind of processor in the first folder that has one (remote/py_spy.py).

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
