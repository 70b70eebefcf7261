"""A command beside a rank: what it is given, what it gives back, and that it never outlives what it belongs to."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taco_launch import state
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.protocol import framing as protocol
from taco_launch.protocol import rank_messages  # noqa: F401 - the messages that a guard reads here
from taco_launch.protocol.connection import JsonConnection
from tests.agent.calls import PLACED, SUCCEEDED, call, submitted
from tests.agent.conftest import PYTHON, Family, Mail, number

WELCOME = {"environment": {"TACO_LAUNCH_JOB_ID": "id", "X": "it's\n$X"}, "umask": 0o027}


class Visit:
    """A visitor, and the guard that it asks."""

    def __init__(self, folder: JobFolder, agent: Path, family: Family, server: socket.socket) -> None:
        self._folder, self._agent, self._family, self._server = folder, agent, family, server

    def start(self, *command: str, rank: int = 1) -> "subprocess.Popen[bytes]":
        argv = (*PYTHON, str(self._agent), "visit", str(self._folder.path), str(rank), "--", *command)
        return self._family.start(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": "/nosuch"})

    def meet(self) -> Mail:
        """Take the visitor's connection."""
        assert select.select([self._server], [], [], 10)[0]
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
    assert (err, visitor.wait(10)) == (b"err\n", 7)


def test_a_signal_is_told_as_a_shell_does(visit: Visit) -> None:
    visitor, _mail = visit.welcomed("sh", "-c", "kill -SEGV $$")
    assert visitor.wait(10) == 139


@pytest.mark.parametrize(("command", "code"), [("nosuchprogram", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run(visit: Visit, command: str, code: int) -> None:
    visitor, _mail = visit.welcomed(command)
    _out, err = visitor.communicate(timeout=10)
    assert (visitor.returncode, err.count(b"\n")) == (code, 1)
    assert f"cannot run {command!r}" in err.decode()


def test_a_rank_that_does_not_run(visit: Visit) -> None:
    visitor = visit.start("true")
    mail = visit.meet()
    mail.wait("visit")
    mail.send("visited")
    _out, err = visitor.communicate(timeout=10)
    assert (visitor.returncode, err) == (125, b"taco-launch: rank 1 does not run any more\n")


def test_there_is_no_guard(folder: JobFolder, agent: Path, family: Family) -> None:
    argv = (*PYTHON, str(agent), "visit", str(folder.path), "0", "--", "true")
    visitor = family.start(argv, stderr=subprocess.PIPE)
    _out, err = visitor.communicate(timeout=10)
    assert visitor.returncode == 125
    assert b"no guard of the job answers" in err


@pytest.mark.parametrize("how", ["terminate", "guard-gone", "caller-gone"])
def test_it_ends_with_the_job_and_with_its_caller(visit: Visit, how: str) -> None:
    visitor, mail = visit.welcomed("sh", "-c", "echo $$; sleep 60 & wait")
    command = number(visitor)
    if how == "terminate":
        mail.send("terminate")
    elif how == "guard-gone":
        mail.close()
    else:
        assert visitor.stdin is not None
        visitor.stdin.close()
    assert visitor.wait(10) == 143
    assert not Path(f"/proc/{command}").exists()


# --- the head's side


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("running")
def test_a_rank_that_there_is_not(jobs: Jobs) -> None:
    assert call("exec", name="running", rank=2, command=["true"], token="a").error == {
        "message": "job running: it has no rank 2",
        "hint": "its ranks are 0 to 1",
        "kind": "usage",
        "op": "failure",
        "exit_code": 2,
    }
    assert not list(jobs.get("running").path.glob("exec-*"))


def test_a_job_that_has_ended(jobs: Jobs) -> None:
    submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)
    assert call("exec", name="a", rank=0, command=["true"], token="a").error["message"] == (
        "job a: it is SUCCEEDED: no command can run beside its ranks"
    )


def test_what_it_says_and_its_exit_code_come_back(running: JobFolder) -> None:
    running.agent.symlink_to("/dev/null")  # an empty script for Python
    found = call("exec", name="running", rank=1, command=["true"], token="a")
    assert found.frames == [{"op": "exited", "code": 0}]
    running.agent.unlink()
    running.agent.write_text("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", encoding="ascii")
    found = call("exec", name="running", rank=1, command=["true"], token="a")
    assert found.frames[-1] == {"op": "exited", "code": 3}
    assert {frame["stream"]: frame["bytes"] for frame in found.frames[:-1]} == {"out": 4, "err": 4}
    assert not list(running.path.glob("exec-*"))


def test_it_can_be_ended_by_another_call(running: JobFolder, agent: Path, family: Family) -> None:
    running.agent.write_text("import sys; print(1, flush=True); sys.stdin.read(); sys.exit(9)", encoding="ascii")
    process = family.start((*PYTHON, str(agent), "exec"), stdin=subprocess.PIPE, env=dict(os.environ))
    assert process.stdin is not None
    request = {"name": "running", "rank": 0, "command": ["x"], "token": "ab"}
    process.stdin.write(protocol.dump(protocol.header("exec", "")) + protocol.dump(request))
    process.stdin.close()
    assert process.stdout is not None
    assert b"1\n" in iter(process.stdout.readline, b"")
    assert call("exec-end", name="running", token="ab").code == 0
    assert process.stdout.readline() == b'{"op":"exited","code":9}\n'
    assert process.wait(10) == 0
    assert call("exec-end", name="running", token="ab").code == 0  # there is nothing to end any more
