"""Calls about a command that runs beside a rank: exec, and exec-end, which ends it."""

from typing import Sequence

from taco_launch.protocol.calls import Reply, Request

_MOST_EXIT = 255


class Exec(Request):
    """Run a command beside a rank. Replies: Output as it comes, Exited."""

    op = "exec"
    name: str
    rank: int
    command: Sequence[str]
    # by which `exec-end` names it: hexadecimal digits
    token: str


class ExecEnd(Request):
    """End that command: the agent in a container outlives the connection to it. No reply."""

    op = "exec-end"
    name: str
    token: str


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
