"""Hosts that have torch, for jobs of torch's launchers."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.support.paths import TESTS


@pytest.fixture(scope="module")
def kept() -> tuple[Path, ...]:
    """torch and the Python that has it."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        pytest.skip("cannot: there is no torch")
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(found.origin).parents[1], TESTS / "e2e"}
    return tuple(one for one in folders if not any(one.is_relative_to(other) for other in folders - {one}))


@pytest.fixture
def path(cluster: Cluster) -> dict[str, str]:
    """An environment that has torchrun."""
    programs = cluster.made.folder / "bin"
    (programs / "torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    (programs / "torchrun").chmod(0o755)
    return {"PATH": cluster.env["PATH"]}
