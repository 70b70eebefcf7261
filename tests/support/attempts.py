"""A job of several attempts on several hosts, made by hand, whose ranks write what a test says and when it says."""

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
