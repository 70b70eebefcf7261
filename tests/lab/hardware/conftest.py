"""Hosts of every simulated machine: one each for all who only read, one of their own for those who change it."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.lab.hardware.hosts import Host, make


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Host]:
    """Give the host of a machine as it was booted; it must stay so."""

    @cache
    def booted(machine: str) -> Host:
        return make(tmp_path_factory.mktemp(machine), machine)

    return booted


@pytest.fixture
def own(untouched: Callable[[str], Host], tmp_path: Path) -> Callable[[str], Host]:
    """Give a host of the test's own."""

    def copied(machine: str) -> Host:
        root = tmp_path / machine
        subprocess.run(["cp", "-a", str(untouched(machine).root), str(root)], check=True)
        return Host(root)

    return copied
