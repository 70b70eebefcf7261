"""Calls of the agent's operations in this process, and folders of jobs made by hand."""

import io
from typing import Any

from taco_launch.agent.api.serve import serve
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol import framing as protocol

HOSTS = (Host("me", "127.0.0.1", slots=2, connection="local"),)
SHARES = [{"host": "me", "ranks": 2, "slots": ["slot-0", "slot-1"]}]
PLACED: dict[str, Any] = {"np": 2, "hosts": ["me"], "line": "mpirun -np 2 true", "shares": SHARES}
SUCCEEDED = (state.ENDED, {"state": "SUCCEEDED", "exit_code": 0})


class Answer:
    """What the agent replied: each reply as its line says, the data behind them, and its exit code."""

    def __init__(self, code: int, output: bytes) -> None:
        stream = io.BytesIO(output)
        self.code, self.header, self.raw = code, protocol.read(stream), b""
        self.frames: list[dict[str, Any]] = []
        self.whole = False
        while frame := protocol.read(stream):
            assert not self.whole
            if frame == {"op": "end"}:
                self.whole = True
                continue
            self.frames.append(frame)
            raw = stream.read(frame.get("bytes", 0))
            assert len(raw) == frame.get("bytes", 0)
            self.raw += raw

    @property
    def error(self) -> dict[str, Any]:
        found = self.frames[-1]
        if found["op"] == "not-done":
            return dict(found["failure"])
        assert self.code != 0
        assert (found["op"], found["exit_code"]) == ("failure", self.code)
        return found


def call(op: str, **request: Any) -> Answer:
    stdin = protocol.dump(protocol.header(op, "")) + protocol.dump(request)
    return answer(op, stdin)


def answer(op: str, stdin: bytes) -> Answer:
    out = io.BytesIO()
    return Answer(serve(op, "/agent.pyz", io.BytesIO(stdin), out), out.getvalue())


def submitted(jobs: Jobs, name: str, *events: tuple[str, dict[str, Any]]) -> JobFolder:
    """Make the folder of a job with some events behind it."""
    with jobs.create(name) as draft:
        records.write_spec(draft, JobSpec(name=name, command=("true",), hosts=HOSTS))
        writer = records.Events(draft)
        for kind, data in ((state.SUBMITTED, {"id": f"id-{name}"}), *events):
            writer.add(kind, f"why {kind}", **data)
        return jobs.publish(draft, name)


def locked(folder: JobFolder) -> int:
    """Take the lock of a job, as its supervisor does."""
    lock = records.try_lock(folder)
    assert lock is not None
    return lock
