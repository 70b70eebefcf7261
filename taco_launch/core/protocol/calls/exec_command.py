"""The call about a command that runs beside a rank: exec. The caller's input follows the request (caller_input.py)."""

import re
from typing import Optional, Sequence

from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.caller_input import check_size
from taco_launch.core.protocol.message import Message

_MOST_EXIT = 255
_TERMINAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}")


class Terminal(Message):
    """The caller's terminal: its kind, as TERM names it, and its size in characters."""

    kind: str
    rows: int = 0
    columns: int = 0

    def check(self) -> None:
        """Check that its kind is a word, and its size one."""
        if not _TERMINAL.fullmatch(self.kind):
            raise ValueError(f"kind is {self.kind!r:.80}")
        check_size(self.rows, self.columns)


class Exec(Request):
    """Run a command beside a rank, on a terminal of its own with `terminal`. Replies: Output as it comes, Exited."""

    op = "exec"
    takes_input = True
    name: str
    rank: int
    command: Sequence[str]
    terminal: Optional[Terminal] = None


class Output(Reply):
    """What the command writes; `stream` is "out" or "err"."""

    op = "output"
    stream: str
    data: bytes = b""

    def check(self) -> None:
        """Check the stream's name."""
        if self.stream not in ("out", "err"):
            raise ValueError(f"stream is {self.stream!r:.40}")


class Exited(Reply):
    """The command's exit code."""

    op = "exited"
    code: int

    def check(self) -> None:
        """Check that it is an exit code."""
        if not 0 <= self.code <= _MOST_EXIT:
            raise ValueError(f"code is {self.code}")
