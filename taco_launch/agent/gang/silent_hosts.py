"""Tell a host that is cut off from one that is slow: a second ssh to it, which only has to connect.

The ssh of a guard cannot tell: once it is connected, it waits in silence for a login that takes long, as for a host that
no packet reaches any more. The kernel of a busy host still accepts connections.
"""

import contextlib
import subprocess
import time
from typing import Dict, Optional, Sequence, Tuple

from taco_launch.agent.gang.guard_connection import RemoteGuardConnection
from taco_launch.agent.ssh import commands as ssh

# A host is asked a second time after so many seconds of silence; a guard sends a heartbeat every 5 seconds at the latest.
# With ssh's ConnectTimeout of 10 seconds, a host that is cut off is given up after 20 seconds.
QUIET_SECONDS = 10.0
# Of what ssh prints where it gets no connection at all: not where the host is too busy for the handshake that follows,
# nor where a jump host is in the way.
_NO_CONNECTION = "ssh: connect to host "


class SilentHosts:
    """The hosts of a job that are silent while it starts, and the ssh that asks each of them."""

    def __init__(self) -> None:
        """Ask none yet."""
        self._asked: Dict[RemoteGuardConnection, _SecondConnection] = {}

    def step(self, links: Sequence[RemoteGuardConnection]) -> Tuple[Tuple[str, str], ...]:
        """Ask hosts that are silent, and give up those that are cut off; return those that are waited for: (host, why)."""
        silent = [link for link in links if not link.gone and link.silence() > QUIET_SECONDS]
        for link in self._asked.keys() - set(silent):
            self._asked.pop(link).close()
        for link in silent:
            second = self._asked.get(link)
            if second is None:
                self._asked[link] = _SecondConnection(link.name)
            elif problem := second.problem():
                self._asked.pop(link).close()
                link.cut_off(problem)
        told = f"no answer for {QUIET_SECONDS:g} s while the job starts; it is asked by a second ssh"
        return tuple((link.name, told) for link in silent if not link.gone)

    def close(self) -> None:
        """End what still asks."""
        for second in self._asked.values():
            second.close()
        self._asked.clear()


class _SecondConnection:
    """An ssh that runs nothing of ours; it is begun again after a while where the host let it connect."""

    def __init__(self, host: str) -> None:
        """Start it, unless there is no ssh, which the first connection reports."""
        self._host = host
        self._start()

    def problem(self) -> str:
        """Return why the host cannot be connected to; "" where it can be, or this is not known yet."""
        if self._process is None or self._process.poll() is None:
            return ""
        words = self._errors.last_line() if self._process.returncode == ssh.NOT_CONNECTED else ""
        if words.startswith(_NO_CONNECTION):
            return words
        if time.monotonic() - self._begun > QUIET_SECONDS:
            self.close()
            self._start()
        return ""

    def close(self) -> None:
        """End it, unless it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        self._begun = time.monotonic()
        self._errors = ssh.ErrorOutput()
        self._process: Optional[subprocess.Popen[bytes]] = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ssh.connection_only(self._host),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors.file,
                start_new_session=True,
            )
            self._errors.limit(self._process.pid)
