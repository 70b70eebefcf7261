"""The probe of this host as a guard runs it: beside the guard's other work, which does not wait for it."""

import contextlib
import os
import pkgutil
import socket
import subprocess
import time
from typing import List, Optional, Sequence

_SECONDS = 60.0


class Probe:
    """A probe that runs; its descriptor can be read when it has said something."""

    def __init__(self, subjects: Sequence[str], address: str) -> None:
        """Start it as if somebody had come to `address`.

        Raises:
            OSError: it cannot be run.
        """
        script = pkgutil.get_data("taco_launch.facts", "probe.sh")
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
