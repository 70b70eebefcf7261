"""What the supervisor knows of ranks: the words for how they ended."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.logs.merge import LogMerge
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks, restarts
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, Policy, Restart
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.plans import Placement, Share
from taco_launch.core.protocol.guard_messages import RankStarted
from taco_launch.core.protocol.rank_messages import Exit


@pytest.mark.parametrize(
    ("launcher", "starter"),
    [("mpirun", "mpirun's daemon"), ("torchrun", "torchrun"), ("env", "what starts the ranks of --launcher env")],
)
def test_a_rank_whose_starter_was_gone_names_that_of_its_launcher(tmp_path: Path, launcher: str, starter: str) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.logs.mkdir(parents=True)
    ranks = Ranks(folder, records.Events(folder), 1 << 20)
    here, there = (
        GuardConnection(Host("n1", "10.0.0.1"), folder),
        RemoteGuardConnection(Host("n2", "10.0.0.2"), folder, "agent", [], 1.0),
    )
    ranks.place(Placement((Share("n1", 1), Share("n2", 1)), "so"), here, 1, LAUNCHERS[launcher], "")
    for rank, link in enumerate((here, there)):
        ranks.note(link, Exit(rank=rank, exit_code=1, orphan=True), blame=True)
    assert [end.reason for end in ranks.failures] == ["", f"exited with code 1, and {starter} had already ended there"]


def test_what_the_merged_log_lacks_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.logs.mkdir(parents=True)
    ranks, here = Ranks(folder, records.Events(folder), 1 << 20), GuardConnection(Host("n1", "10.0.0.1"), folder)
    ranks.place(Placement((Share("n1", 1),), "so"), here, 1, LAUNCHERS["mpirun"], "")
    ranks.note(here, Exit(rank=0, exit_code=0, lost=7), blame=True)
    monkeypatch.setattr(LogMerge, "close", lambda _merge: 4)
    lost, unmerged = ranks.close().split("; ")
    assert lost == "7 bytes of its logs were lost on a full disk"
    assert unmerged == "4 bytes are only in the logs of its ranks (logs --rank), as the disk was full"


class Elastic:
    """A job of torchrun with a rank on each of three hosts, which restarts its ranks when a host comes or goes."""

    def __init__(self, path: Path, restarts: int = 3) -> None:
        folder = JobFolder(path / "job")
        folder.logs.mkdir(parents=True)
        self.ranks = Ranks(folder, records.Events(folder), 1 << 20)
        self.links = {
            "n1": GuardConnection(Host("n1", "10.0.0.1"), folder),
            **{
                name: RemoteGuardConnection(Host(name, "10.0.0.2"), folder, "agent", [], 1.0)
                for name in ("n2", "n3", "n4")
            },
        }
        self.shares = (Share("n1", 1), Share("n2", 1), Share("n3", 1))
        placement = Placement(self.shares, "so")
        self.ranks.place(placement, self.links["n1"], 1, LAUNCHERS["torchrun"], "", restarts=restarts)
        self.pid = 100
        self.folder = folder

    def events(self) -> list[str]:
        return [event.kind for event in records.read_events(self.folder)]

    def start(self, **ranks: int) -> None:
        for host, rank in ranks.items():
            self.pid += 1
            self.ranks.note(self.links[host], RankStarted(rank=rank, roots=[[self.pid, 1], [9, 1]]), blame=True)

    def end(self, code: int, **ranks: int) -> None:
        for host, rank in ranks.items():
            self.ranks.note(self.links[host], Exit(rank=rank, exit_code=code), blame=True)


def test_ranks_that_restart_because_a_host_left_have_not_failed(tmp_path: Path) -> None:
    job = Elastic(tmp_path)
    job.start(n1=0, n2=1, n3=2)
    job.ranks.leave("n2")
    assert (job.ranks.np, sorted(job.ranks.started)) == (2, [0, 2])
    job.end(1, n1=0, n3=2)
    assert (job.ranks.failures, job.ranks.fatal, job.ranks.all_ended) == ([], None, False)
    job.start(n1=0, n3=2)
    assert job.events() == [state.RUNNING, state.RUNNING]


def test_a_host_that_joins_has_new_numbers(tmp_path: Path) -> None:
    job = Elastic(tmp_path)
    job.start(n1=0, n2=1, n3=2)
    job.ranks.leave("n2")
    stays = (replace(job.shares[0], first=0), replace(job.shares[2], first=2))
    job.ranks.join(Placement((*stays, Share("n4", 1, first=3)), "so"))
    job.start(n4=1)  # not one of its own
    assert (job.ranks.np, job.ranks.missing()) == (3, "rank 3 on n4")
    job.end(143, n1=0, n3=2)
    job.start(n1=0, n3=2, n4=3)
    assert (job.ranks.missing(), job.ranks.fatal) == ("", None)


@pytest.mark.parametrize(("restart", "limit", "most"), [("never", 0, 3), ("on-failure", 2, 2), ("on-failure", 0, 0)])
def test_a_program_may_fail_as_often_as_the_job_may_be_tried_again(
    tmp_path: Path, restart: str, limit: int, most: int
) -> None:
    policy = Policy(restart=Restart(restart), backoff_limit=limit)
    assert restarts(JobSpec("a", ("b",), (), policy=policy, elastic=True)) == most
    assert restarts(JobSpec("a", ("b",), (), policy=policy)) is None
    job = Elastic(tmp_path, most)
    for _start in range(most + 1):
        assert (job.ranks.fatal, job.ranks.restarted) == (None, 0)
        job.start(n1=0, n2=1, n3=2)
        job.end(7, n2=1)
    assert job.ranks.fatal is not None
    assert (job.ranks.fatal.host, job.ranks.fatal.exit_code, job.ranks.restarted) == ("n2", 7, most)


def test_only_ranks_that_have_started_before_a_host_was_lost_are_interrupted(tmp_path: Path) -> None:
    job = Elastic(tmp_path)
    job.start(n1=0, n3=2)
    between = time.monotonic()
    job.start(n2=1)
    assert job.ranks.wrappers(between) == [[101, 1], [102, 1]]
