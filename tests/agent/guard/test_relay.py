"""A guard on another host than the head: started once for a job, however often the connection to it has to be made."""

import errno
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.gang.guard_pool import GUARD_SECONDS
from taco_launch.agent.guard import relay
from taco_launch.agent.host import process_registry, processes
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.protocol.framing import dump, parsed
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.relay_messages import Refused
from tests.agent.conftest import PYTHON, Family
from tests.conftest import eventually
from tests.support.patience import HANG


class Ssh:
    """`guard-start`, as the supervisor has it done over ssh."""

    def __init__(self, agent: Path, folder: JobFolder, family: Family, job_id: str) -> None:
        argv = (*PYTHON, str(agent), "guard-start", str(folder.path), job_id, str(folder.path.parent / "leases"))
        self.process = family.start(argv, stdin=subprocess.PIPE)
        self.job_id = job_id

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found = parsed(self.process.stdout.readline())
        assert found is not None
        return found

    def say(self, op: str, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(dump({"op": op, **message}))
        self.process.stdin.flush()

    def supervise(self) -> None:
        more = {"look": False, "size": "1", "gpus": "none", "ports": [40000, 65000]}
        self.say("supervise", job_id=self.job_id, host_loss_timeout=30, **more)
        assert self.hear()["op"] == "facts"


@pytest.fixture
def kept(folder: JobFolder) -> JobFolder:
    """A folder that a guard-start of the job `ours` has made."""
    process_registry.keep(folder, "ours")
    return folder


def test_a_guard_whose_first_connection_broke_is_joined(agent: Path, tmp_path: Path, family: Family) -> None:
    folder = JobFolder(tmp_path / "remote")
    first = Ssh(agent, folder, family, family.job_id)
    assert first.hear() == {"op": "attached"}
    first.supervise()
    started = process_registry.read_registry(folder)
    first.process.kill()
    again = Ssh(agent, folder, family, family.job_id)
    assert again.hear() == {"op": "attached"}
    again.supervise()
    assert started is not None
    assert started.guard is not None
    assert process_registry.read_registry(folder) == started
    other = Ssh(agent, folder, family, "another")
    refused = other.hear()
    assert (refused["op"], "another head already runs a job" in refused["reason"]) == (
        "refused",
        True,
    )
    again.say("close", remove=True)
    eventually(lambda: not folder.path.exists(), 10, "the guard to end")


def test_the_guard_of_an_attempt_before_is_ended(agent: Path, tmp_path: Path, family: Family) -> None:
    folder = JobFolder(tmp_path / "jobs" / "again")
    first = Ssh(agent, folder, family, family.job_id)
    assert first.hear() == {"op": "attached"}
    first.supervise()
    before = process_registry.read_registry(folder)
    first.process.kill()  # its host was cut off, and the head gave it up
    second = Ssh(agent, folder, family, f"{family.job_id}.2")
    assert second.hear() == {"op": "attached"}
    second.supervise()
    assert before is not None
    assert before.guard is not None
    entry = processes.identify(before.guard[0])
    assert entry is None or entry.state in "ZX"
    now = process_registry.read_registry(folder)
    assert now is not None
    assert now.job_id == f"{family.job_id}.2"
    second.say("close", remove=True)
    eventually(lambda: not folder.path.exists(), 10, "the guard to end")


def test_a_guard_that_starts_still_is_waited_for(kept: JobFolder) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(relay._prepare(kept, "ours", "/agent.pyz")))
    thread.start()
    time.sleep(0.1)
    with kept.listen():
        thread.join(HANG)
    assert found[0] is not None
    found[0].close()


def test_a_guard_that_has_ended_is_not_waited_for(folder: JobFolder, family: Family) -> None:
    process = family.start("true")
    process.wait()
    process_registry.keep(folder, "ours", (), (process.pid, 1))
    begin = time.monotonic()
    assert relay._prepare(folder, "ours", "/agent.pyz") is None
    assert time.monotonic() - begin < relay._GUARD_SECONDS / 2


def test_a_guard_that_never_came_is_started_anew(kept: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_GUARD_SECONDS", 0.05)
    kept.debug.write_text("its last output")
    assert relay._prepare(kept, "ours", "/agent.pyz") is None
    assert not kept.debug.exists()


def test_a_guard_is_waited_for_as_long_as_the_supervisor_waits_unless_it_ends(folder: JobFolder) -> None:
    assert relay._START_SECONDS >= GUARD_SECONDS
    with subprocess.Popen(["true"]) as guard:
        assert relay._connect(folder, 2 * HANG, guard) is None


def test_the_guard_of_another_job_is_not_joined(kept: JobFolder) -> None:
    with (
        kept.listen(),
        pytest.raises(TacoLaunchError, match="another head already runs a job"),
    ):
        relay._prepare(kept, "theirs", "/agent.pyz")


@pytest.mark.parametrize("full", ["host.process_registry.keep", "processes.agent_program.start"])
def test_a_folder_that_cannot_be_made_in_full_is_removed(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk a folder may be made, but no file in it; the head removes its own, and nobody asks for ours."""
    folder = JobFolder(tmp_path / "jobs" / "nofit")
    said: list[Message] = []

    def fails(*_arguments: object, **_more: object) -> None:
        assert folder.path.is_dir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write has it: without a path

    monkeypatch.setattr(f"taco_launch.agent.{full}", fails)
    monkeypatch.setattr(relay, "_say", said.append)
    relay.start_guard(folder, "ours", "/agent.pyz", str(tmp_path / "leases"))
    assert said == [Refused(reason=f"{folder.path}: No space left on device")]
    assert not folder.path.exists()
