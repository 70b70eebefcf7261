"""The agent comes whole to another host, or not at all; an `ssh` of the test's own stands first on PATH."""

import os
from pathlib import Path

import pytest

from taco_launch.agent.ssh import commands as ssh
from taco_launch.core.protocol.relay_messages import Cleared
from tests.conftest import eventually

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent that is there until the other host, which is this one, is asked to take it."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    found = tmp_path / "there" / "agent.pyz"
    found.parent.mkdir()
    found.write_bytes(CONTENT)
    return found


def way(agent: Path, through: str) -> None:
    """Make the ssh whose connection is `through`."""
    script = agent.parents[1] / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nrm "{agent}"\nfor last; do :; done\n{through} | sh -c "$last"\n')
    script.chmod(0o755)


def put(agent: Path) -> str | None:
    """Put it there, and give what is said of it in the end."""
    bringing = ssh.AgentUpload("n2", str(agent))
    eventually(lambda: bringing.problem() is not None)
    bringing.close()
    return bringing.problem()


def test_a_host_whose_key_is_not_known_is_not_set_up(agent: Path) -> None:
    script = agent.parents[1] / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho Host key verification failed. >&2\nexit 255\n")
    script.chmod(0o755)
    ((host, told),) = ssh.ask(["n2"], str(agent), Cleared, "clear", seconds=20)
    assert host == "n2"
    assert str(told).startswith("it is not set up with this head, which does not know its host key: run setup;")


def test_the_agent_is_put(agent: Path) -> None:
    way(agent, "cat")
    assert put(agent) == ""
    there = agent.parents[1] / "jobs" / ".agents" / agent.name
    assert there.read_bytes() == CONTENT
    assert there.stat().st_mode & 0o777 == 0o600
    assert list(there.parent.iterdir()) == [there]


@pytest.mark.parametrize("arrived", [0, 1, len(CONTENT) - 1])
def test_a_part_of_the_agent_is_not_kept(agent: Path, arrived: int) -> None:
    way(agent, f"head -c {arrived}")
    assert put(agent) == "only a part arrived"
    assert list((agent.parents[1] / "jobs" / ".agents").iterdir()) == []
