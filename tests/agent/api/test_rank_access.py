"""Calls beside a rank, on the head: what is refused, what goes to and fro, and what happens when the caller is gone."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import CodeSnapshot
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls.caller_input import EndOfInput, Hangup, InputData
from tests.agent.conftest import PYTHON, Family
from tests.conftest import eventually
from tests.support.agent_calls import PLACED, SUCCEEDED, Answer, submitted
from tests.support.patience import HANG

ECHO = """
import os, sys
os.write(2, b"err")
for data in iter(lambda: os.read(0, 100), b""):
    os.write(1, data)
sys.exit(3)
"""


def start(
    agent: Path, family: Family, op: str = "exec", **request: object
) -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
    process = family.start((*PYTHON, str(agent), op), stdin=subprocess.PIPE, env=dict(os.environ))
    assert process.stdin is not None
    process.stdin.write(protocol.dump(protocol.header(op, "")) + protocol.dump(request))
    process.stdin.flush()
    return process, process.stdin


def ended(process: "subprocess.Popen[bytes]") -> Answer:
    assert process.stdout is not None
    said = process.stdout.read()
    return Answer(process.wait(HANG), said)


@pytest.mark.usefixtures("running")
def test_a_rank_that_there_is_not(agent: Path, family: Family) -> None:
    process, _stdin = start(agent, family, name="running", rank=2, command=["true"])
    assert ended(process).error == {
        "message": "job running: it has no rank 2",
        "hint": "its ranks are 0 to 1",
        "kind": "usage",
        "op": "failure",
        "exit_code": 2,
    }


def test_a_job_that_has_ended(jobs: Jobs, agent: Path, family: Family) -> None:
    submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)
    process, _stdin = start(agent, family, name="a", rank=0, command=["true"])
    assert ended(process).error == {
        "message": "job a: it is SUCCEEDED: it has no running rank",
        "hint": None,
        "kind": "failed",
        "op": "failure",
        "exit_code": 125,
    }


@pytest.mark.parametrize(
    ("code", "workdir", "cwd", "found"),
    [
        (CodeSnapshot("1" * 64, "/src"), "", "/elsewhere", "{folder}/code/out"),
        (CodeSnapshot("1" * 64, "/src"), "sub", "", "{folder}/code/sub/out"),
        (CodeSnapshot("1" * 64, "/src"), "/work", "", "/work/out"),
        (CodeSnapshot("1" * 64), "", "/home/me", "/home/me/out"),
        (None, "", "/home/me", "/home/me/out"),
        (None, "", "", None),
    ],
)
def test_files_of_a_job_that_has_ended(
    jobs: Jobs, agent: Path, family: Family, code: CodeSnapshot | None, workdir: str, cwd: str, found: str | None
) -> None:
    folder = submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)
    records.write_spec(folder, replace(records.read_spec(folder), code=code, workdir=workdir, cwd=cwd))
    folder.agent.write_text("import sys\nprint(*sys.argv[1:])\n", encoding="ascii")
    answer = ended(start(agent, family, "read-files", name="a", rank=0, path="out", most=1000)[0])
    if found is None:
        assert answer.error["hint"] == "give an absolute path, such as a:/results"
    else:
        assert answer.raw == f"pack 1000 {found.format(folder=folder.path)}\n".encode()
    beyond = ended(start(agent, family, "read-files", name="a", rank=2, path="/out", most=1000)[0])
    assert beyond.error["hint"] == "its ranks are 0 to 1"


def test_files_of_a_rank_that_has_ended_while_its_job_runs(running: JobFolder, agent: Path, family: Family) -> None:
    records.write_spec(running, replace(records.read_spec(running), cwd="/home/me"))
    words = "import sys\nif sys.argv[1] == 'enter':\n sys.exit('taco-launch: rank 0 is no longer running')\n"
    running.agent.write_text(f"{words}print(*sys.argv[1:])\n", encoding="ascii")
    answer = ended(start(agent, family, "read-files", name="running", rank=0, path="out", most=1000)[0])
    assert answer.raw == b"pack 1000 /home/me/out\n"


@pytest.mark.parametrize(("workdir", "told"), [("", True), ("/work", False)])
def test_that_the_code_was_removed_is_told_where_a_file_is_missing_there(
    jobs: Jobs, agent: Path, family: Family, workdir: str, told: bool
) -> None:
    folder = submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)
    code = CodeSnapshot("1" * 64, "/src")
    records.write_spec(folder, replace(records.read_spec(folder), code=code, workdir=workdir))
    folder.agent.write_text("import sys\nsys.exit('x: No such file or directory')\n", encoding="ascii")
    answer = ended(start(agent, family, "read-files", name="a", rank=0, path="train.py", most=1000)[0])
    assert (b"hint: the files of the code were removed when the job ended; " in answer.raw) == told


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("terminal", [{"kind": "x;y"}, {"kind": "xterm", "rows": -1}, {"kind": "xterm", "rows": 10**9}])
def test_a_terminal_that_is_none(agent: Path, family: Family, terminal: object) -> None:
    process, _stdin = start(agent, family, name="running", rank=0, command=["true"], terminal=terminal)
    assert "cannot read this request" in ended(process).error["message"]


def test_frames_go_to_the_ranks_host_and_its_output_and_code_come_back(
    running: JobFolder, agent: Path, family: Family
) -> None:
    running.agent.write_text(ECHO, encoding="ascii")
    process, stdin = start(agent, family, name="running", rank=1, command=["x"])
    assert process.stdout is not None
    frames = InputData(data=b"abc").encode() + EndOfInput().encode() + InputData(data=b"Z" * 100_000).encode()
    stdin.write(frames)
    stdin.flush()
    said = b""
    while said.count(b"Z") < 100_000:
        said += os.read(process.stdout.fileno(), 1 << 16)
    stdin.write(Hangup().encode())
    stdin.flush()
    found = Answer(0, said + process.stdout.read())
    assert found.frames[-1] == {"op": "exited", "code": 3}
    assert found.raw.replace(b"err", b"") == frames
    assert found.whole


@pytest.mark.parametrize("how", ["closed", "killed", "hangup", "nonsense"])
def test_the_rank_host_hears_that_the_caller_is_gone(
    running: JobFolder, agent: Path, family: Family, tmp_path: Path, how: str
) -> None:
    script = (
        f"import os, sys; os.write(1, b'begun'); sys.stdin.read(); open({str(tmp_path / 'ended')!r}, 'w'); sys.exit(9)"
    )
    running.agent.write_text(script, encoding="ascii")
    process, stdin = start(agent, family, name="running", rank=0, command=["x"])
    assert process.stdout is not None
    seen = b""
    while b"begun" not in seen:
        seen += os.read(process.stdout.fileno(), 1000)
    if how == "closed":
        stdin.close()
    elif how == "killed":
        process.kill()
    else:
        stdin.write(Hangup().encode() if how == "hangup" else b"[]\n")
        stdin.flush()
    eventually((tmp_path / "ended").exists)
