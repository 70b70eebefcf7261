"""Runs `agent stacks` beside the guard, which does not wait for it."""

import contextlib
import os
import signal
import subprocess
from typing import Dict, Optional

from taco_launch.agent import program
from taco_launch.agent.store.folders import JobFolder
from taco_launch.model.run.looks import RankStack
from taco_launch.protocol.framing import LINE_BYTES, parsed
from taco_launch.protocol.stack_messages import HostStacks


class StackReading:
    """The process while it runs; what it prints goes to memory, since nothing reads it before its end."""

    def __init__(self, folder: JobFolder) -> None:
        """Start nothing."""
        self._folder = folder
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._output = -1

    @property
    def runs(self) -> bool:
        """Return whether one was started whose result was not taken yet."""
        return self._process is not None

    def start(self) -> None:
        """Start one; without memory or memfd_create(2) no stack is read."""
        try:
            self._output = os.memfd_create("stacks")
        except (OSError, AttributeError):  # AttributeError: a libc without it
            return
        try:
            self._process = subprocess.Popen(
                program.argv(str(self._folder.agent), "stacks", str(self._folder.path)),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(self._output)

    def take(self) -> Optional[Dict[int, RankStack]]:
        """Return what each rank does once the process has ended; None before."""
        if self._process is None or self._process.poll() is None:
            return None
        self._process = None
        with os.fdopen(self._output, "rb") as file:
            file.seek(0)
            line = parsed(file.read(LINE_BYTES).rstrip())
        try:
            return {told.look.rank: told for told in HostStacks.from_wire(line or {}).ranks}
        except ValueError:  # it was killed
            return {}

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            os.close(self._output)
