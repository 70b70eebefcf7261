"""The probe of a host beside a guard's other work: its `ip` waits until the test lets it continue."""

import os
from pathlib import Path

import pytest

from taco_launch.agent.guard import host_probe
from taco_launch.agent.store.folders import LEASES_VARIABLE, JobFolder
from taco_launch.core.protocol.connection import JsonConnection
from tests.agent.conftest import PYTHON, Family, Mail, connected
from tests.conftest import eventually
from tests.support.patience import HANG


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that `ip` waits for."""
    found, tool = tmp_path / "gate", tmp_path / "bin/ip"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nuntil [ -e {found} ]; do sleep 0.02; done\necho through the gate\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return found


def test_a_guard_takes_slots_while_it_goes_on(gate: Path, folder: JobFolder, agent: Path, family: Family) -> None:
    env = {"PATH": os.environ["PATH"], LEASES_VARIABLE: f"{folder.path}/leases"}
    with open(folder.debug, "wb") as debug:
        argv = (*PYTHON, str(agent), "guard", str(folder.path), family.job_id)
        guard = family.start(argv, stderr=debug, env=env)
    mail = Mail(JsonConnection(eventually(lambda: connected(folder), 10, "the guard to listen")))
    more = {"look": False, "size": "2", "gpus": "none", "ports": None}
    mail.send("supervise", job_id=family.job_id, host_loss_timeout=30, **more)
    for _time in range(2):  # given again, as over a connection that was made again
        mail.send("probe", subjects=["network"], address="127.0.0.1")
    mail.send(
        "lease", count=1, ports=[], cluster="c", owner="ann", constraints={}, whole=False, rendezvous=None, allowed=None
    )
    assert mail.wait("leased")["slots"] == ["slot-0"]
    assert not any(message["op"] == "probed" for message in mail.box)
    gate.touch()
    assert "through the gate" in mail.wait("probed")["text"]
    mail.send("probe", subjects=["network"], address="127.0.0.1")
    mail.send("close", remove=False)
    mail.wait_for_end()
    assert guard.wait(HANG) == 0
    assert not any(message["op"] == "probed" for message in mail.box)


def test_one_that_takes_too_long_has_found_nothing(gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_probe, "_SECONDS", 0.3)
    monkeypatch.setattr("socket.gethostbyname", lambda address: address)
    probe = host_probe.Probe(("network",), "127.0.0.1")
    try:
        assert eventually(lambda: [told for told in (probe.read(),) if told is not None], 5, "its end") == [""]
    finally:
        probe.close()
        gate.touch()
