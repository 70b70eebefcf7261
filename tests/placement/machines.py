"""The matrices in cases/machines, as nvidia-smi prints them, ready for choosing."""

import json
from pathlib import Path

from taco_launch.facts.gpus.topology import read
from taco_launch.model.host.hardware import Topology
from taco_launch.placement.bandwidth import figures_of
from taco_launch.placement.mesh import GpuMesh, mesh_of

FOLDER = Path(__file__).parent / "cases" / "machines"
ABOUT: dict[str, dict[str, str]] = json.loads((FOLDER / "machines.json").read_text("utf-8"))


def mesh(name: str) -> GpuMesh:
    topology, figures = read((FOLDER / f"{name}.txt").read_text("utf-8")), figures_of(ABOUT[name]["model"])
    assert isinstance(topology, Topology), topology
    assert figures is not None
    return mesh_of(topology, figures)
