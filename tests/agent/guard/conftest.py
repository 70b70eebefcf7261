"""A guard as a process of its own, and connections to it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.agent.store.folders import LEASES_VARIABLE, JobFolder
from taco_launch.core.protocol.connection import JsonConnection
from tests.agent.conftest import PYTHON, Family, Mail
from tests.conftest import eventually
from tests.support.agent_calls import locked
from tests.support.gangs import cluster
from tests.support.guards import Connect, supervise

__all__ = ["cluster"]


@pytest.fixture
def lock(folder: JobFolder) -> Iterator[list[int]]:
    """The lock that tells the guard that a supervisor is alive; a test takes it out of the list to let it go."""
    held = locked(folder)
    locks = [held]
    yield locks
    for descriptor in locks:
        os.close(descriptor)


@pytest.fixture
def guard(folder: JobFolder, agent: Path, family: Family, lock: list[int]) -> "subprocess.Popen[bytes]":
    assert lock
    argv = (*PYTHON, str(agent), "guard", str(folder.path))
    with open(folder.debug, "wb") as debug:
        return family.start(argv, stderr=debug, env={LEASES_VARIABLE: f"{folder.path}/leases"})


@pytest.fixture
def connect(folder: JobFolder, guard: "subprocess.Popen[bytes]") -> Iterator[Connect]:
    """Gives connections to the guard; at the end, what it complained about is shown."""
    opened: list[Mail] = []

    def line() -> JsonConnection | None:
        try:
            return JsonConnection(folder.connect())
        except OSError:
            assert guard.poll() is None, folder.debug.read_text(encoding="utf-8")
            return None

    def connected() -> Mail:
        mail = Mail(eventually(line, 10, "the guard to listen"))
        opened.append(mail)
        return mail

    yield connected
    for mail in opened:
        mail.close()


@pytest.fixture
def supervisor(connect: Connect, family: Family) -> Mail:
    return supervise(connect(), family)
