"""Hosts of every simulated machine: one each for all who only read, one of their own for those who change it."""

import fcntl
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.lab.hardware.hosts import Host, make


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave these tests out of the fast ones: each runs many programs of a simulated machine, which takes its time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("lab") is None:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Host]:
    """Return the host of a machine as it was booted, once for all workers of pytest; it must stay so."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "booted"
    shared.mkdir(exist_ok=True)

    @cache
    def booted(machine: str) -> Host:
        ready = shared / f"{machine}.ready"
        with open(shared / f"{machine}.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():
                make(shared / machine, machine)
                ready.touch()
        return Host(shared / machine)

    return booted


@pytest.fixture
def own(untouched: Callable[[str], Host], tmp_path: Path) -> Callable[[str], Host]:
    """Return a host of the test's own."""

    def copied(machine: str) -> Host:
        root = tmp_path / machine
        subprocess.run(["cp", "-a", str(untouched(machine).root), str(root)], check=True)
        return Host(root)

    return copied
