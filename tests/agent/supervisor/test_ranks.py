"""What the supervisor knows of ranks: the words for how they ended."""

from pathlib import Path

import pytest

from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.plans import Placement, Share
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
