"""A scheduler and its jobs, stepped by tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.store.folders import Jobs
from tests.agent.conftest import write_agent
from tests.support.queues import AGENT, Queue


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    agent = tmp_path / "agent.pyz"
    write_agent(agent, AGENT)
    yield Queue(Jobs(tmp_path / "state"), agent)
    for path in tmp_path.glob("state/jobs/*/hold"):
        path.unlink()
