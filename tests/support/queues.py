"""A scheduler and its jobs, with agents and hosts that do as they are told."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taco_launch.agent.scheduler import scheduler
from taco_launch.agent.scheduler.slot_watch import HERE, SlotQuery, SlotWatchers
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobRecord, JobSpec, Policy
from taco_launch.core.model.slots import Occupancy, SlotHolder, SlotState
from tests.conftest import eventually

HOST = Host("me", "127.0.0.1", slots=2, connection="local")


# `run FOLDER LOCK`: keeps the lock for as long as a file `hold` is there, then writes the lines of a file `events`.
AGENT = """
import os, sys, time
folder = sys.argv[2]
with open(folder + "/runs", "a") as runs:
    runs.write("run\\n")
print("KeyError: what", file=sys.stderr)
while os.path.exists(folder + "/hold"):
    time.sleep(0.01)
if os.path.exists(folder + "/says"):
    with open(folder + "/events.jsonl", "a") as events:
        events.write(open(folder + "/says").read())
"""


class Hosts(SlotWatchers):
    """Hosts that tell what the test says."""

    def __init__(self) -> None:
        super().__init__("")
        self.slots: dict[str, Occupancy] = {}
        self.silent: dict[str, str] = {}
        self.wanted: set[SlotQuery] = set()
        self.nudged = 0

    def want(self, wishes: Any, now: float) -> None:
        assert now >= 0
        self.wanted = set(wishes)

    def occupancies(self) -> dict[SlotQuery, Occupancy]:
        return {wish: self.slots[wish.host] for wish in self.wanted if wish.host in self.slots}

    def down(self) -> dict[str, str]:
        return self.silent

    def nudge(self) -> None:
        self.nudged += 1

    def tell(self, *holders: str, host: str = HERE) -> None:
        """Have a host tell who has each of its slots, "" for nobody."""
        slots = (SlotHolder(holder, f"id-{holder}", 0.0, owner="bob") if holder else None for holder in holders)
        self.slots[host] = Occupancy("me", tuple(SlotState(f"slot-{n}", holder) for n, holder in enumerate(slots)))


class Queue:
    """A scheduler and its jobs."""

    def __init__(self, jobs: Jobs, agent: Path) -> None:
        self.jobs, self.agent, self.hosts = jobs, agent, Hosts()
        self.scheduler = scheduler.Scheduler(jobs, str(agent), self.hosts)
        self.now = time.time()

    def job(
        self, name: str, *, np: int = 1, says: dict[str, Any] | None = None, job_id: str = "", **policy: Any
    ) -> JobFolder:
        """Make a job that waits; its supervisor writes the event `says`, or nothing."""
        with self.jobs.create(name) as draft:
            draft.agent.symlink_to(self.agent)
            spec = JobSpec(name=name, command=("true",), hosts=(HOST,), np=np, policy=Policy(**policy))
            records.write_spec(draft, spec)
            records.write_json(draft.caller, {})
            records.Events(draft).add(state.SUBMITTED, "why", id=job_id or f"id-{name}")
            if says is not None:
                event = {"schema": 1, "time": self.now, "reason": "the agent says so", "data": {}, **says}
                (draft.path / "says").write_text(json.dumps(event) + "\n", encoding="ascii")
            self.jobs.mark(name)
            return self.jobs.publish(draft, name)

    def step(self, seconds: float = 0.0, told: set[str] | None = None) -> float | None:
        """Have it look after so many seconds; where `told` is not None, others have told it of these jobs alone."""
        self.now += seconds
        return self.scheduler.step(self.now, told)

    def record(self, name: str) -> JobRecord:
        return records.record(self.jobs.get(name))

    def runs(self, name: str) -> int:
        """Return how often its supervisor was started, once all that were have come to that."""
        file = self.jobs.path / name / "runs"
        return len(file.read_text(encoding="ascii").splitlines()) if file.exists() else 0

    def refused(self, name: str) -> None:
        """Step on until it is known to wait, and its supervisor is gone: that takes as long as the machine takes."""
        self.until(lambda: self.record(name).waiting and not self.scheduler._pending.entries[name].is_starting, 0.1)

    def until(self, check: Callable[[], Any], seconds: float = 0.0) -> None:
        """Step on until something holds, of which each step takes some `seconds` of the scheduler's clock."""

        def done() -> Any:
            self.step(seconds)
            return check()

        eventually(done, 10)
