"""The first line that `stacks` shows of a job of another launcher."""

import pytest

from taco_launch.cli.jobs import stacks
from taco_launch.core.model.run.rank_samples import Life, LifeVerdict, RankStack
from taco_launch.core.model.stalls import RankLook
from taco_launch.jobs.any_ranks import AnyJob

SEEN = (RankStack(RankLook(0, 7, "mpirun", "S", "", host="gpu1"), why="the rank runs no Python program"),)


@pytest.mark.parametrize(
    ("launcher", "size", "ranks", "is_starting", "title"),
    [
        ("Open MPI", 2, SEEN, False, "Open MPI, 2 ranks on gpu1: a"),
        ("Open MPI", 1, (), False, "Open MPI, 1 rank: a"),
        ("", 0, SEEN, False, "No launcher, processes without a rank, numbered here, on gpu1: a"),
        ("", 0, (), False, "No launcher, processes without a rank: a"),
        ("mpirun", 0, SEEN, True, "mpirun, no ranks yet, its own processes, numbered here, on gpu1: a"),
    ],
)
def test_a_title(launcher: str, size: int, ranks: tuple[RankStack, ...], *, is_starting: bool, title: str) -> None:
    verdict = LifeVerdict(Life.UNKNOWN, "why")
    parts = list(stacks._job(AnyJob(launcher, size, "a", verdict, ranks, 0, (), is_starting), None))
    assert parts[0].splitlines()[0] == title
    assert len(parts) == (2 if ranks and not is_starting else 1)
