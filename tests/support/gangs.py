"""Gangs on two hosts that are folders of this machine, with real guards."""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.gang.gang_allocation import GangAllocation
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import PlacementError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement
from taco_launch.core.protocol.guard_messages import Close, EndJob
from tests.agent.conftest import PYTHON, Family
from tests.support.agent_calls import locked
from tests.support.patience import HANG

ANY_NETWORK = Network()


HOSTS = (Host("n1", "10.0.0.1", slots=2), Host("n2", "10.0.0.2", slots=2))


# Runs the command here; what is below the state folder is another folder on each host, and so are the leases.
SSH = """#!/bin/sh
for word; do
  host=$last
  last=$word
done
[ ! -e "{root}/down-$host" ] || {{ echo "ssh: $host is down" >&2; exit 255; }}
last=$(printf %s "$last" | sed "s#{root}/head/#{root}/$host/#g")
export TACO_LAUNCH_LEASES="{root}/leases-$host"
exec /bin/sh -c "$last"
"""


@dataclass
class Cluster:
    """Two hosts, the first of which is the head."""

    root: Path
    agent: Path
    family: Family
    locks: list[int] = field(default_factory=list)
    gangs: list[GangAllocation] = field(default_factory=list)
    guards: list["subprocess.Popen[bytes]"] = field(default_factory=list)  # the head's

    def gang(
        self,
        name: str,
        np: int | None,
        left_out: tuple[str, ...] = (),
        hosts: tuple[Host, ...] = HOSTS,
        network: Network = ANY_NETWORK,
        **more: Any,
    ) -> GangAllocation:
        folder = JobFolder(self.root / "head" / "jobs" / name)
        folder.logs.mkdir(parents=True)
        spec = JobSpec(name, ("true",), hosts, np=np, head="n1", cluster="hcc", owner="ann", network=network, **more)
        records.write_spec(folder, spec)
        lock = locked(folder)
        self.locks.append(lock)
        env = {"TACO_LAUNCH_LEASES": str(self.root / "leases-n1"), "PATH": os.environ["PATH"]}
        with open(folder.debug, "wb") as debug:
            guard = self.family.start((*PYTHON, str(self.agent), "guard", str(folder.path)), stderr=debug, env=env)
        self.guards.append(guard)
        mark = f"{self.family.job_id}-{name}"
        records.Events(folder).add(state.SUBMITTED, "why", id=mark)
        made = GangAllocation(folder, str(self.agent), spec, mark, lambda: guard.poll() is None, lambda: None, left_out)
        self.gangs.append(made)
        return made

    def end(self, gang: GangAllocation) -> None:
        """Have the guards let go and end."""
        gang.order(EndJob())
        for link in gang.links:
            link.post(Close(remove=True))
        deadline = time.monotonic() + HANG
        while any(link.line is not None for link in gang.links) and time.monotonic() < deadline:
            gang.pump(ignore)
        for link in gang.links:
            link.close()


def ignore(_link: object, _message: object) -> None:
    """Hear what a guard tells."""


@pytest.fixture
def cluster(tmp_path: Path, agent: Path, family: Family, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH.format(root=tmp_path), encoding="ascii")
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("TACO_LAUNCH_LEASES", raising=False)
    monkeypatch.setattr("taco_launch.agent.gang.gang_allocation._BUSY_SECONDS", 0.1)
    monkeypatch.setattr("taco_launch.agent.gang.guard_connection._RETRY_SECONDS", (0.01,))
    made = Cluster(tmp_path, agent, family)
    yield made
    for gang in made.gangs:
        made.end(gang)
    for lock in made.locks:
        os.close(lock)


def assembled(gang: GangAllocation) -> Placement:
    placement, _known = gang.allocate(JobFacts(root=True), ignore)
    return placement


def refused(gang: GangAllocation) -> PlacementError:
    with pytest.raises(PlacementError) as caught:
        assembled(gang)
    return caught.value
