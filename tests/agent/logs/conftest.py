"""A job whose logs are asked for."""

import pytest

from taco_launch.agent.store.folders import Jobs
from tests.support.attempts import Made, make


@pytest.fixture
def made(jobs: Jobs) -> Made:
    """A job of two attempts with some lines of every rank."""
    found = make(jobs.path.parent)
    for attempt in (1, 2):
        found.begin()
        for number in range(3):
            for rank in range(len(found.hosts)):
                found.write(rank, b"%d: line %d of %d\n" % (attempt, number, rank))
    found.end()
    return found
