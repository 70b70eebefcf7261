"""The matrices in cases/machines, as nvidia-smi prints them, ready for choosing."""

import json

from taco_launch.core.facts.gpus.topology import read
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.placement.bandwidth import figures_of
from taco_launch.core.placement.mesh import GpuMesh, mesh_of
from tests.support.paths import TESTS

FOLDER = TESTS / "core/placement/cases/machines"
ABOUT: dict[str, dict[str, str]] = json.loads((FOLDER / "machines.json").read_text("utf-8"))


def mesh(name: str) -> GpuMesh:
    topology, figures = read((FOLDER / f"{name}.txt").read_text("utf-8")), figures_of(ABOUT[name]["model"])
    assert isinstance(topology, Topology), topology
    assert figures is not None
    return mesh_of(topology, figures)
