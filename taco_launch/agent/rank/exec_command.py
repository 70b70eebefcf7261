"""A command that a visitor runs: its input, and the terminal of its own that it may have; nothing here waits."""

import fcntl
import os
import select
import struct
import subprocess
import termios
from typing import Dict, Mapping, Optional, Sequence

from taco_launch.core.errors import code_of_process

_CHUNK = 1 << 16


class VisitorCommand:
    """The command while it runs. On pipes it has this process's stdout and stderr itself; of a terminal we bring all there."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str, terminal: Sequence[str]
    ) -> None:
        """Start it; `terminal` is its kind and size (rows, columns), empty where it has pipes.

        Raises:
            OSError: it cannot be started.
        """
        self._terminal: Optional[int] = None
        self._shown = bytearray()  # what the terminal showed and has not gone out yet
        self._waiting = bytearray()
        self._ends = False
        # Whether nobody reads what the terminal shows any more.
        self.unread = False
        self._input: Optional[int]
        if terminal:
            self._process = self._on_terminal(command, environment, folder, terminal)
            self._input = self._terminal
        else:
            theirs, self._input = os.pipe()
            try:
                self._process = subprocess.Popen(
                    list(command), env=dict(environment), cwd=folder, stdin=theirs, start_new_session=True
                )
            finally:
                os.close(theirs)
            os.set_blocking(self._input, False)
        self.pid = self._process.pid

    def _on_terminal(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str, terminal: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        kind, rows, columns = terminal
        self._terminal, theirs = os.openpty()
        os.set_blocking(self._terminal, False)
        os.set_blocking(1, False)
        self.resize(int(rows), int(columns))
        try:
            return subprocess.Popen(
                list(command),
                env={**environment, "TERM": kind},
                cwd=folder,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there is one thread
            )
        finally:
            os.close(theirs)

    @property
    def waiting(self) -> int:
        """How many bytes of input have not gone on yet."""
        return len(self._waiting)

    def code(self) -> Optional[int]:
        """Return its exit code, as a shell would report it; None as long as it runs."""
        returned = self._process.poll()
        return None if returned is None else code_of_process(returned)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal; what runs there in front gets SIGWINCH."""
        if self._terminal is not None and rows and columns:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def give(self, data: bytes) -> None:
        """Add to its input; what it does not want any more is dropped."""
        if self._input is not None and not self._ends:
            self._waiting += data

    def end_input(self) -> None:
        """Close its input behind what waits; that of a terminal has no end."""
        self._ends = self._terminal is None

    def pass_on(self) -> None:
        """Send on what waits, as far as that goes at once."""
        try:
            while self._waiting and self._input is not None:
                del self._waiting[: os.write(self._input, self._waiting[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # it has closed its input, or has ended
            self._ends = True
            self._waiting.clear()
        if self._ends and self._input is not None:
            if self._terminal is None:
                os.close(self._input)
            self._input = None

    def listen(self, poll: "select.poll") -> None:
        """Have a poll wait for what is to be done."""
        wanted: Dict[int, int] = {}
        if self._waiting and self._input is not None:
            wanted[self._input] = select.POLLOUT
        if self._terminal is not None and not self._shown:
            wanted[self._terminal] = wanted.get(self._terminal, 0) | select.POLLIN
        if self._shown:
            wanted[1] = select.POLLOUT
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)

    def act(self, events: Mapping[int, int]) -> None:
        """Bring over what the terminal shows, after a poll that gave these events."""
        if self._terminal is not None and not self._shown and events.get(self._terminal, 0) & ~select.POLLOUT:
            self._read()
        self._show()

    def finish(self) -> None:
        """Bring over what the terminal still has when the command has ended."""
        os.set_blocking(1, True)
        self._show()
        while self._terminal is not None and not self.unread:
            self._read()
            if not self._shown:
                return
            self._show()

    def hang_up(self) -> None:
        """Take its terminal or its input away."""
        if self._input is not None and self._terminal is None:
            os.close(self._input)
        if self._terminal is not None:
            os.close(self._terminal)
        self._input = self._terminal = None

    def _read(self) -> None:
        assert self._terminal is not None
        try:
            self._shown += os.read(self._terminal, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # nobody has it any more (EIO)
            if self._input == self._terminal:
                self._input = None
            os.close(self._terminal)
            self._terminal = None

    def _show(self) -> None:
        try:
            while self._shown:
                del self._shown[: os.write(1, self._shown)]
        except BlockingIOError:
            return
        except OSError:
            self.unread = True
