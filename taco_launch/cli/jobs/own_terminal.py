"""The terminal that somebody types at, as the input of a command elsewhere: every key goes there, its size too."""

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from types import TracebackType

from taco_launch.core.protocol.calls.caller_input import CallerInput, InputData, WindowSize
from taco_launch.core.protocol.calls.exec_command import Terminal

_CHUNK = 1 << 16
# Typed at the beginning of a line, as in ssh: leaves, and stands for itself.
_ESCAPE, _LEAVE = ord("~"), ord(".")
_LINE_ENDS = b"\r\n"
# What a program that did not end by itself may have left: another screen, no cursor, a mouse that types, pasted text in
# brackets, a style (xterm's control sequences).
_CLEAR = b"\x1b[?1049l\x1b[?25h\x1b[?1000;1002;1003;1006l\x1b[?2004l\x1b[0m"
_KIND = "dumb"


class Escapes:
    """Finds `~.` at the beginning of a line in what is typed; `~~` is one `~`."""

    def __init__(self) -> None:
        """Start at the beginning of a line."""
        self._at_begin = True
        self._held = False
        # Whether it was typed; nothing behind it counts.
        self.left = False

    def passed(self, data: bytes) -> bytes:
        """Return what of the next bytes is meant for the command; a `~` waits for what follows it."""
        found = bytearray()
        for byte in b"" if self.left else data:
            if self._held:
                self._held = False
                if byte == _LEAVE:
                    self.left = True
                    return bytes(found)
                if byte != _ESCAPE:
                    found.append(_ESCAPE)
            elif self._at_begin and byte == _ESCAPE:
                self._held, self._at_begin = True, False
                continue
            found.append(byte)
            self._at_begin = byte in _LINE_ENDS
        return bytes(found)


def piped(descriptor: int) -> Iterator[CallerInput]:
    """Yield what comes from a file or a pipe until its end."""
    with contextlib.suppress(OSError):
        while data := os.read(descriptor, _CHUNK):
            yield InputData(data=data)


def terminal() -> Terminal:
    """Return the kind and the size of this process's terminal."""
    kind = os.environ.get("TERM", "")
    rows, columns = _size()
    try:
        found = Terminal(kind=kind, rows=rows, columns=columns)
        found.check()
    except ValueError:  # nobody would know it
        found = Terminal(kind=_KIND, rows=0, columns=0)
    return found


def _size() -> tuple[int, int]:
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(descriptor)
            return size.lines, size.columns
    return 0, 0


class OwnTerminal:
    """This process's terminal while a command has it; a context manager that gives it back as it was, whatever happens."""

    def __init__(self, *, typed: bool) -> None:
        """With `typed`, what is typed is the command's; otherwise only the size is, and Ctrl-C is ours."""
        self._typed = typed
        self._before = termios.tcgetattr(0) if typed else None
        self._woken, self._wake = os.pipe()
        self._escapes = Escapes()

    def __enter__(self) -> "OwnTerminal":  # noqa: PYI034 - typing.Self is of Python 3.11
        """Take it: keys are not echoed, and no key is a signal here."""
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGWINCH, signal.SIGCONT):
            signal.signal(number, lambda _number, _frame: None)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Restore its settings."""
        if self._before is not None:
            with contextlib.suppress(termios.error):  # it is gone
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGWINCH, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        if kind is not None and sys.stdout.isatty():
            with contextlib.suppress(OSError):
                sys.stdout.buffer.write(_CLEAR)
                sys.stdout.buffer.flush()

    def frames(self) -> Iterator[CallerInput]:
        """Yield what is typed, and each new size; after `~.` this process is told to leave (SIGHUP)."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._typed:
            poll.register(0, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._woken in ready:
                yield from self._heard()
            if 0 not in ready:
                continue
            try:
                data = os.read(0, _CHUNK)
            except OSError:
                data = b""
            passed = self._escapes.passed(data)
            if passed:
                yield InputData(data=passed)
            if self._escapes.left or not data:
                os.kill(os.getpid(), signal.SIGHUP)
                return

    def _heard(self) -> Iterator[CallerInput]:
        numbers = os.read(self._woken, 4096)
        if signal.SIGCONT in numbers:  # the shell has given it its own settings meanwhile
            self._take()
        if signal.SIGCONT in numbers or signal.SIGWINCH in numbers:
            rows, columns = _size()
            yield WindowSize(rows=rows, columns=columns)

    def _take(self) -> None:
        if self._typed:
            with contextlib.suppress(termios.error):
                tty.setraw(0, termios.TCSADRAIN)
