"""What starts a job's ranks on this host where there is no mpirun: torchrun, or our own starter, a child of the guard."""

import contextlib
import os
import selectors
import signal
import subprocess
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple

from taco_launch.agent import leases, logs, processes
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.launcher import drain, spawn, wake_on_child
from taco_launch.errors import NOT_FOUND, HostError
from taco_launch.launch.env import SERVICE


class HostLauncher:
    """The process while it runs, and its log."""

    def __init__(self, folder: JobFolder, order: Mapping[str, Any], selector: selectors.BaseSelector) -> None:
        """Start it; what there is to read of it wakes the selector. Where it cannot be started, it has ended.

        `folder` is that of the attempt, `order` what the supervisor says of the command.
        """
        self._selector = selector
        self._log = logs.Writer(folder.launcher, int(order["log_max_bytes"]))
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._told = False
        self._wakeup = wake_on_child()
        selector.register(self._wakeup, selectors.EVENT_READ, self)
        with contextlib.suppress(OSError):  # as for the log itself: the ranks go on without it
            folder.launcher.parent.mkdir(mode=0o700, exist_ok=True)
        program = order["argv"][0]
        try:
            self._process = spawn(order["argv"], self._folder(order["cwd"]), _environment(order), order["umask"])
        except HostError as error:
            why = error.message.rpartition(": ")[2]
            self._say(
                f"cannot run {program!r}: {why} (install it where the ranks run, or hand on the PATH that has it: -x PATH)"
            )
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        selector.register(self._process.stdout, selectors.EVENT_READ, self)

    @property
    def root(self) -> Optional[Tuple[int, int]]:
        """The process, (pid, start)."""
        found = None if self._process is None else processes.identify(self._process.pid)
        return None if found is None else (found.pid, found.start)

    def read(self, file: object) -> None:
        """Read what wakes the selector: its output, or that a child has ended."""
        if file == self._wakeup:
            os.read(self._wakeup, 4096)
        elif (
            self._process is not None
            and self._process.stdout is not None
            and not drain(self._process.stdout, self._log)
        ):
            self._selector.unregister(self._process.stdout)

    def ended(self) -> Optional[int]:
        """Give its exit code, -n for signal n, once: when it has ended since it was last asked for."""
        code = NOT_FOUND if self._process is None else self._process.poll()
        if code is None or self._told:
            return None
        self._told = True
        self.close()
        return code

    def terminate(self) -> None:
        """End it before it has started any rank."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Bring what it has said into its log."""
        if self._process is not None and self._process.stdout is not None:
            drain(self._process.stdout, self._log)
        self._log.close()

    def _folder(self, wanted: str) -> str:
        """Give the caller's folder, or the user's own where that is not there, as mpirun does."""
        if Path(wanted).is_dir():
            return wanted
        home = os.environ.get("HOME", "/")
        self._say(f"there is no folder {wanted} here: the ranks start in {home}")
        return home

    def _say(self, words: str) -> None:
        self._log.write(f"taco-launch: {words}\n".encode("utf-8", "backslashreplace"))


def _environment(order: Mapping[str, Any]) -> Mapping[str, str]:
    """Give the caller's environment, or on another host than the head that of who comes there by ssh."""
    own = order["caller"]
    if own is None:
        own = {name: value for name, value in os.environ.items() if name not in (SERVICE, leases.VARIABLE)}
    return {**own, **order["environment"]}
