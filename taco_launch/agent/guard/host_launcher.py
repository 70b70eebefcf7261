"""What starts a job's ranks on this host where there is no mpirun: torchrun, or our own starter, a child of the guard."""

import contextlib
import os
import selectors
import signal
import subprocess
from pathlib import Path
from typing import List, Mapping, Optional, Tuple

from taco_launch.agent.host import processes
from taco_launch.agent.host.launcher_process import drain, spawn, wake_on_child
from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import LEASES_VARIABLE, JobFolder
from taco_launch.core.errors import NOT_FOUND, HostError
from taco_launch.core.launch.command_line.env import SERVICE
from taco_launch.core.protocol.guard_messages import Launch


class HostLauncher:
    """The process once it is started, and its log."""

    def __init__(self, folder: JobFolder, selector: selectors.BaseSelector) -> None:
        """Start nothing yet; what there is to read of it later will wake the selector."""
        self._folder, self._selector = folder, selector
        self._log: Optional[segments.Writer] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._wakeup = -1
        self._told = False

    def start(self, order: Launch) -> List[Tuple[int, int]]:
        """Start it as the supervisor orders, the first time that it does; give the process as (pid, start).

        Where it cannot be started, it has ended.
        """
        if self._log is not None:
            return []
        stem = self._folder.of_attempt(order.attempt).launcher
        with contextlib.suppress(OSError):  # as for the log itself: the ranks continue without it
            stem.parent.mkdir(mode=0o700, exist_ok=True)
        self._log = segments.Writer(stem, order.log_max_bytes)
        self._wakeup = wake_on_child()
        self._selector.register(self._wakeup, selectors.EVENT_READ, self)
        try:
            self._process = spawn(order.argv, self._cwd(order.cwd), _environment(order), order.umask)
        except HostError as error:
            why = error.message.rpartition(": ")[2]
            hint = "install it where the ranks run. If it is on your PATH, pass that PATH to the ranks: -x PATH"
            self._say(f"cannot run {order.argv[0]!r}: {why} ({hint})")
            return []
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ, self)
        entry = processes.identify(self._process.pid)
        return [] if entry is None else [(entry.pid, entry.start)]

    def read(self, file: object) -> None:
        """Read what wakes the selector: its output, or that a child has ended."""
        if file == self._wakeup:
            os.read(self._wakeup, 4096)
        elif not self._drain():
            self._selector.unregister(file)  # type: ignore[arg-type]

    def ended(self) -> Optional[int]:
        """Return its exit code, -n for signal n, once: if it has ended since the last call."""
        if self._told or self._log is None:
            return None
        code = NOT_FOUND if self._process is None else self._process.poll()
        if code is not None:
            self._told = True
            self.close()
        return code

    def terminate(self) -> None:
        """End it before it has started any rank."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Bring what it has said into its log."""
        self._drain()
        if self._log is not None:
            self._log.close()

    def _drain(self) -> bool:
        """Bring what it has said into its log; False when there will be no more."""
        if self._process is None or self._process.stdout is None or self._log is None:
            return False
        return drain(self._process.stdout, self._log)

    def _cwd(self, wanted: str) -> str:
        """Return the caller's folder, or the user's own where that does not exist, as mpirun does."""
        if Path(wanted).is_dir():
            return wanted
        home = os.environ.get("HOME", "/")
        self._say(f"the folder {wanted} does not exist here, so the ranks start in {home}")
        return home

    def _say(self, words: str) -> None:
        if self._log is not None:
            self._log.write(f"taco-launch: {words}\n".encode("utf-8", "backslashreplace"))


def _environment(order: Launch) -> Mapping[str, str]:
    """Return the caller's environment, or on another host than the head that of who comes there by ssh."""
    own = order.caller
    if own is None:
        own = {name: value for name, value in os.environ.items() if name not in (SERVICE, LEASES_VARIABLE)}
    return {**own, **order.environment}
