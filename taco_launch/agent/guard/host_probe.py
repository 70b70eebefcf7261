"""The probe of this host as a guard runs it: beside the guard's other work, which does not wait for it."""

import contextlib
import os
import pkgutil
import selectors
import socket
import subprocess
import time
from typing import Callable, List, Optional, Sequence

from taco_launch.core.protocol.guard_messages import Probed, ProbeHost
from taco_launch.core.protocol.message import Message

_SECONDS = 60.0
# Nothing is known, as where a tool is missing; the line's remarks say what that means.
_NOT_PROBED = ""


class ProbeOnce:
    """The probe of a guard's host: it runs once, and what was found is told at the end of it."""

    def __init__(self, selector: selectors.BaseSelector, tell: Callable[[Message], None]) -> None:
        """Start nothing yet; what it says will wake the selector."""
        self._selector, self._tell = selector, tell
        self._begun = False
        self._probe: Optional[Probe] = None

    def start(self, order: ProbeHost) -> None:
        """Have the host looked at, the first time that this is ordered."""
        if self._begun:
            return
        self._begun = True
        try:
            self._probe = Probe(order.subjects, order.address)
        except OSError:
            self._tell(Probed(text=_NOT_PROBED))
        else:
            self._selector.register(self._probe, selectors.EVENT_READ, self._probe)

    def follow(self) -> None:
        """Read what it says; tell it where that is all."""
        text = None if self._probe is None else self._probe.read()
        if self._probe is not None and text is not None:
            self._selector.unregister(self._probe)
            self._probe.close()
            self._probe = None
            self._tell(Probed(text=text))

    def close(self) -> None:
        """End it, unless it has ended."""
        if self._probe is not None:
            self._probe.close()


class Probe:
    """A probe that runs; its descriptor can be read when it has said something."""

    def __init__(self, subjects: Sequence[str], address: str) -> None:
        """Start it as if somebody had come to `address`.

        Raises:
            OSError: it cannot be run.
        """
        script = pkgutil.get_data("taco_launch.core.facts", "probe.sh")
        assert script is not None
        with contextlib.suppress(OSError):
            address = socket.gethostbyname(address)
        self._process = subprocess.Popen(
            ["/bin/sh", "-s", "--", f"taco-{os.urandom(8).hex()}", *subjects],
            env={**os.environ, "SSH_CONNECTION": f"{address} 0 {address} 0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._until = time.monotonic() + _SECONDS
        self._told: List[bytes] = []
        os.set_blocking(self.fileno(), False)
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(script)  # it fits into the pipe

    def fileno(self) -> int:
        """For selectors."""
        return self._output.fileno()

    def read(self) -> Optional[str]:
        """Return what it has said, for `facts.parse`, None as long as it continues; nothing of one that takes too long."""
        try:
            data = os.read(self.fileno(), 1 << 16)
        except BlockingIOError:
            return "" if time.monotonic() > self._until else None
        if data:
            self._told.append(data)
            return None
        return b"".join(self._told).decode("utf-8", "surrogateescape")

    def close(self) -> None:
        """End it, unless it has ended."""
        self._process.kill()
        self._process.wait()
        self._output.close()
