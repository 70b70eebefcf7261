"""A home and a state folder of the test's own, and a job that is attacked."""

import os
from collections.abc import Iterator

import pytest

from tests.agent.conftest import Family
from tests.hosts.conftest import home

__all__ = ["home"]


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family(f"victim-{os.getpid()}")
    yield made
    for process in made.started:
        process.kill()
        process.wait()
