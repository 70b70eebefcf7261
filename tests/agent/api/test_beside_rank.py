"""Calls beside a rank, on the head: what is refused, what goes to and fro, and what happens when the caller is gone."""

import os
import subprocess
from pathlib import Path
from typing import IO

import pytest

from taco_launch import state
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.protocol import framing as protocol
from taco_launch.protocol.calls.caller_input import EndOfInput, Hangup, InputData
from tests.agent.calls import PLACED, SUCCEEDED, Answer, submitted
from tests.agent.conftest import PYTHON, Family
from tests.conftest import eventually
from tests.patience import HANG

ECHO = """
import os, sys
os.write(2, b"err")
for data in iter(lambda: os.read(0, 100), b""):
    os.write(1, data)
sys.exit(3)
"""


def start(agent: Path, family: Family, **request: object) -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
    process = family.start((*PYTHON, str(agent), "exec"), stdin=subprocess.PIPE, env=dict(os.environ))
    assert process.stdin is not None
    process.stdin.write(protocol.dump(protocol.header("exec", "")) + protocol.dump(request))
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
    assert ended(process).error["message"] == "job a: it is SUCCEEDED: nothing can run beside its ranks"


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("terminal", [{"kind": "x;y"}, {"kind": "xterm", "rows": -1}, {"kind": "xterm", "rows": 10**9}])
def test_a_terminal_that_is_none(agent: Path, family: Family, terminal: object) -> None:
    process, _stdin = start(agent, family, name="running", rank=0, command=["true"], terminal=terminal)
    assert "not a request of taco-launch" in ended(process).error["message"]


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
