"""A command beside a rank: what it is given, what it gives back, and that it never outlives what it belongs to."""

import contextlib
import itertools
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taco_launch.agent.rank import caller_stream
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.protocol import rank_messages  # noqa: F401 - the messages that a guard reads here
from taco_launch.core.protocol.calls.caller_input import (
    SILENT_SECONDS,
    Alive,
    CallerInput,
    EndOfInput,
    Hangup,
    InputData,
    WindowSize,
)
from taco_launch.core.protocol.connection import JsonConnection
from tests.agent.conftest import PYTHON, Family, Mail, number
from tests.conftest import eventually
from tests.support.patience import HANG, patience

WELCOME = {"environment": {"TACO_LAUNCH_JOB_ID": "id", "X": "it's\n$X"}, "umask": 0o027}


class Visit:
    """A visitor, and the guard that it asks."""

    def __init__(self, folder: JobFolder, agent: Path, family: Family, server: socket.socket) -> None:
        self._folder, self._agent, self._family, self._server = folder, agent, family, server

    def start(self, *command: str, rank: int = 1, how: str = "pipes") -> "subprocess.Popen[bytes]":
        argv = (*PYTHON, str(self._agent), "enter", str(self._folder.path), str(rank), how, "--", *command)
        return self._family.start(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": "/nosuch"})

    def meet(self) -> Mail:
        """Take the visitor's connection."""
        assert select.select([self._server], [], [], HANG)[0]
        connection, _address = self._server.accept()
        return Mail(JsonConnection(connection))

    def welcomed(self, *command: str, **more: Any) -> tuple["subprocess.Popen[bytes]", Mail]:
        """Start a visitor beside a rank, and answer it as a guard does."""
        env = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        env |= {"PMIX_RANK": "1", "PATH": os.environ["PATH"], "X": "the wrapper's"}
        wrapper = self._family.start(("sleep", "60"), env=env, cwd=self._folder.path)
        visitor = self.start(*command, **more)
        mail = self.meet()
        asked = mail.wait("visit")
        assert (asked["rank"], asked["root"]) == (1, list(self._family.root(visitor)))
        mail.send("visited", roots=[self._family.root(wrapper)], **WELCOME)
        return visitor, mail


@pytest.fixture
def visit(folder: JobFolder, agent: Path, family: Family) -> Iterator[Visit]:
    with folder.listen() as server:
        yield Visit(folder, agent, family, server)


def test_it_has_the_ranks_environment_and_folder(visit: Visit, folder: JobFolder) -> None:
    script = (
        'echo "$RANK $LOCAL_RANK $OMPI_COMM_WORLD_SIZE ${PMIX_RANK-none}"; umask; pwd; echo "$X"; echo err >&2; exit 7'
    )
    visitor, _mail = visit.welcomed("sh", "-c", script)
    assert visitor.stdout is not None
    assert visitor.stderr is not None
    out, err = visitor.stdout.read(), visitor.stderr.read()  # `communicate` closes stdin, which ends the command
    assert out.decode() == f"1 0 2 none\n0027\n{folder.path}\nit's\n$X\n"
    assert (err, visitor.wait(HANG)) == (b"err\n", 7)


def test_a_signal_is_told_as_a_shell_does(visit: Visit) -> None:
    visitor, _mail = visit.welcomed("sh", "-c", "kill -SEGV $$")
    assert visitor.wait(HANG) == 139


@pytest.mark.parametrize(("command", "code"), [("nosuchprogram", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run(visit: Visit, command: str, code: int) -> None:
    visitor, _mail = visit.welcomed(command)
    _out, err = visitor.communicate(timeout=HANG)
    assert (visitor.returncode, err.count(b"\n")) == (code, 1)
    assert f"cannot run {command!r}" in err.decode()


def test_a_rank_that_does_not_run(visit: Visit) -> None:
    visitor = visit.start("true")
    mail = visit.meet()
    mail.wait("visit")
    mail.send("visited")
    _out, err = visitor.communicate(timeout=HANG)
    assert (visitor.returncode, err) == (125, b"taco-launch: rank 1 is no longer running\n")


def test_there_is_no_guard(folder: JobFolder, agent: Path, family: Family) -> None:
    argv = (*PYTHON, str(agent), "enter", str(folder.path), "0", "pipes", "--", "true")
    visitor = family.start(argv, stderr=subprocess.PIPE)
    _out, err = visitor.communicate(timeout=HANG)
    assert visitor.returncode == 125
    assert b"no guard of the job answers" in err


def send(visitor: "subprocess.Popen[bytes]", *frames: CallerInput) -> None:
    assert visitor.stdin is not None
    visitor.stdin.write(b"".join(frame.encode() for frame in frames))
    visitor.stdin.flush()


def said(visitor: "subprocess.Popen[bytes]", until: str) -> str:
    """Read a visitor's output up to something."""
    assert visitor.stdout is not None
    found, deadline = b"", time.monotonic() + patience(20)
    while not re.search(until, found.decode("utf-8", "replace")):
        assert select.select([visitor.stdout], [], [], max(0.0, deadline - time.monotonic()))[0], found
        data = os.read(visitor.stdout.fileno(), 1 << 16)
        assert data, found
        found += data
    return found.decode()


ENDS = {"terminate", "guard-gone", "caller-gone", "hangup", "no-frame"}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.nightly] * (how == "hangup")) for how in sorted(ENDS)]
)
@pytest.mark.parametrize("mode", ["pipes", "terminal:xterm:10:40"])
def test_it_ends_with_the_job_and_with_its_caller(visit: Visit, how: str, mode: str) -> None:
    """With all that it has started, also what has made a session of its own."""
    visitor, mail = visit.welcomed("sh", "-c", "setsid sleep 61 & echo $! $$ .; sleep 60 & wait", how=mode)
    away, command = map(int, said(visitor, r"\d+ \d+ \.").split()[:2])
    eventually(lambda: b"sleep" in Path(f"/proc/{away}/cmdline").read_bytes())
    assert visitor.stdin is not None
    if how == "terminate":
        mail.send("terminate")
    elif how == "guard-gone":
        mail.close()
    elif how == "hangup":
        send(visitor, Hangup())
    elif how == "no-frame":
        visitor.stdin.write(b"exit\n")
        visitor.stdin.flush()
    else:
        visitor.stdin.close()
    assert visitor.wait(HANG) == (143 if mode == "pipes" else 129)
    assert not Path(f"/proc/{command}").exists()
    assert not Path(f"/proc/{away}").exists()


def test_what_ignores_term_is_killed(visit: Visit) -> None:
    visitor, _mail = visit.welcomed("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done")
    command = number(visitor)
    send(visitor, Hangup())
    assert visitor.wait(patience(20)) == 137
    assert not Path(f"/proc/{command}").exists()


def test_a_caller_that_is_silent_for_too_long_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection may have been lost without anybody being told."""
    clock = itertools.count(step=SILENT_SECONDS / 10)
    monkeypatch.setattr(caller_stream, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stdin, os.fdopen(write, "wb", buffering=0) as caller:
        stream = caller_stream.CallerStream(stdin)
        for _ in range(30):
            caller.write(Alive().encode())
            assert stream.receive(select.POLLIN, wanted=True) == [Alive()]
        assert not stream.gone
        for _ in range(30):
            next(clock)
        stream.receive(0, wanted=False)  # nobody listened: that was no silence
        assert not stream.gone
        for _ in range(30):
            next(clock)
        stream.receive(0, wanted=True)
        assert stream.gone


def test_its_input_is_what_the_caller_sends(visit: Visit) -> None:
    visitor, _mail = visit.welcomed("sh", "-c", "md5sum; echo done")
    data = os.urandom(1 << 20)
    for begin in range(0, len(data), 1 << 16):
        send(visitor, InputData(data=data[begin : begin + (1 << 16)]), Alive())
    send(visitor, EndOfInput(), InputData(data=b"behind the end"))
    assert "  -\ndone\n" in said(visitor, "done")
    assert visitor.wait(HANG) == 0


def test_input_that_nobody_wants_keeps_nobody_waiting(visit: Visit) -> None:
    visitor, _mail = visit.welcomed("sh", "-c", "exec <&-; echo closed; sleep 0.3; echo end")
    said(visitor, "closed")
    with contextlib.suppress(BrokenPipeError):  # on a busy machine the command ends first
        for _piece in range(64):
            send(visitor, InputData(data=b"x" * (1 << 16)))
    assert said(visitor, "end")
    assert visitor.wait(HANG) == 0


def test_a_command_that_reads_slowly_has_its_caller_wait(visit: Visit) -> None:
    """And the end of the caller is seen all the same."""
    visitor, _mail = visit.welcomed("sh", "-c", "echo $$; exec sleep 60")
    number(visitor)
    assert visitor.stdin is not None
    os.set_blocking(visitor.stdin.fileno(), False)
    frames, sent = InputData(data=b"x" * (1 << 15)).encode() * 100, 0
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            sent += os.write(visitor.stdin.fileno(), frames[sent:])
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 1 << 21
    visitor.stdin.close()
    assert visitor.wait(HANG) == 143


def test_a_terminal_of_its_own(visit: Visit) -> None:
    script = 'tty; stty size; echo "$TERM $RANK"; trap "stty size; echo resized" WINCH; trap "echo INT; exit 9" INT; echo ready; while :; do sleep 0.05; done'
    visitor, _mail = visit.welcomed("sh", "-c", script, how="terminal:vt100:24:80")
    told = said(visitor, "ready")
    assert re.match(r"/dev/pts/\d+\r\n24 80\r\nvt100 1\r\nready", told), told
    send(visitor, WindowSize(rows=33, columns=111))
    assert "33 111" in said(visitor, "resized")
    send(visitor, InputData(data=b"\x03"))
    assert "^C" in said(visitor, "INT")
    assert visitor.wait(HANG) == 9


def test_all_that_a_terminal_shows_arrives(visit: Visit) -> None:
    visitor, _mail = visit.welcomed("seq", "1", "30000", how="terminal:dumb:0:0")
    assert visitor.stdout is not None
    assert visitor.stdout.read().decode().split() == [str(each) for each in range(1, 30001)]
    assert visitor.wait(HANG) == 0


def test_the_end_of_what_has_a_terminal_does_not_wait_for_what_it_leaves(visit: Visit) -> None:
    script = "setsid sh -c 'echo $$; trap \"\" HUP; exec sleep 30' & sleep 0.3; exit 4"
    visitor, _mail = visit.welcomed("sh", "-c", script, how="terminal:dumb:24:80")
    left = int(said(visitor, r"\d+\r\n"))
    assert visitor.wait(HANG) == 4
    os.kill(left, signal.SIGKILL)
