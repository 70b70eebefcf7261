"""A job of several attempts on several hosts, made by hand, whose ranks write what a test says and when it says."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taco_launch.agent.logs.merge import LogMerge
from taco_launch.agent.logs.segments import Writer
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from tests.support.agent_calls import Answer, call

START = 1_700_000_000  # 2023-11-14T22:13:20Z
# By attempt: hosts, and how many ranks each has.
SHARES: tuple[dict[str, int], ...] = ({"n1": 2, "n2": 1}, {"n2": 2, "n3": 2})
BIG = 1 << 30


def placed(attempt: int) -> dict[str, Any]:
    shares = SHARES[attempt - 1]
    return {
        "np": sum(shares.values()),
        "hosts": list(shares),
        "line": "mpirun",
        "attempt": attempt,
        "shares": [{"host": host, "ranks": ranks, "slots": []} for host, ranks in shares.items()],
    }


@dataclass
class Made:
    """A job whose ranks write lines, one each 10 ms: `lines` has (attempt, rank, time in microseconds, line)."""

    folder: JobFolder
    limit: int = BIG
    lines: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    attempt: int = 0
    now: int = START * 1_000_000

    def merge_begins(self, attempt: int, suspension: str) -> None:
        self.merge.begin(attempt, suspension)

    def begin(self) -> None:
        """Start the next attempt."""
        self.attempt += 1
        records.Events(self.folder).add(state.PLACED, **placed(self.attempt))
        self.own = self.folder.of_attempt(self.attempt)
        self.own.launcher.parent.mkdir(exist_ok=True)
        self.merge = LogMerge(self.folder.merged, self.limit)
        self.merge_begins(self.attempt, state.suspension(records.record(self.folder), self.attempt))
        self.hosts = [host for host, ranks in SHARES[self.attempt - 1].items() for _rank in range(ranks)]
        self.writers = [Writer(self.own.rank(rank), self.limit) for rank in range(len(self.hosts))]
        for rank, host in enumerate(self.hosts):
            self.merge.add(self.own.rank(rank), f"{host}/{rank}")

    def write(self, rank: int, line: bytes) -> None:
        self.now += 10_000
        self.writers[rank].write(line, self.now)
        self.lines.append((self.attempt, rank, self.now, line))
        while self.merge.step():
            pass

    def end(self, code: int = 0) -> None:
        ended = "FAILED" if code else "SUCCEEDED"
        records.Events(self.folder).add(state.ENDED, state=ended, exit_code=code)

    def label(self, attempt: int, rank: int) -> bytes:
        hosts = [host for host, ranks in SHARES[attempt - 1].items() for _rank in range(ranks)]
        return f"{hosts[rank]}/{rank} | ".encode()


def make(folder: Path) -> Made:
    jobs = Jobs(folder)
    with jobs.create("j") as draft:
        hosts = tuple(Host(name, "10.0.0.1") for name in ("n1", "n2", "n3"))
        records.write_spec(draft, JobSpec("j", ("true",), hosts, head="n1"))
        records.Events(draft).add(state.SUBMITTED, id="1")
        return Made(jobs.publish(draft, "j"))


def lines_of(made: Made, **asked: Any) -> list[bytes]:
    """What `call` has to give for the same words."""
    found = []
    for attempt, rank, at, line in made.lines:
        label = made.label(attempt, rank)
        if asked.get("attempt") not in (None, attempt):
            continue
        if "host" in asked and not label.startswith(f"{asked['host']}/".encode()):
            continue
        if "since" in asked and at < round(asked["since"] * 1_000_000):
            continue
        told = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at // 1_000_000))}.{at // 1000 % 1000:03}Z ".encode()
        found.append((told if asked.get("timestamps") else b"") + label + line)
    return found[max(len(found) - asked.get("tail", len(found)), 0) :]


def asked_for(**request: Any) -> Answer:
    return call("logs", name="j", **{"follow": False, **request})


def shown(**request: Any) -> bytes:
    found = asked_for(**request)
    assert found.code == 0, found.frames
    return found.raw
