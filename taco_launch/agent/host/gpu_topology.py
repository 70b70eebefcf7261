"""How the GPUs of this host are linked: asked of nvidia-smi when it matters for the first time after a boot, and kept."""

import contextlib
from pathlib import Path
from typing import Optional, Sequence, Tuple

from taco_launch.agent.host import facts, gpus
from taco_launch.agent.store import records
from taco_launch.core.errors import HostError
from taco_launch.core.facts.gpus.topology import read
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.placement.bandwidth import DEFAULT, figures_of
from taco_launch.core.placement.mesh import GpuMesh, mesh_of


def mesh(state: Path, uuids: Sequence[str], models: Sequence[str], *, ask: bool = True) -> Optional[GpuMesh]:
    """Return the links of the GPUs, None where nvidia-smi does not tell them; `state` is the folder where they are kept.

    Without `ask` only what is kept already.
    """
    found = _topology(state, uuids, ask=ask)
    return None if found is None else mesh_of(found, figures_of(models[0] if models else "") or DEFAULT)


def read_topology(state: Path) -> Tuple[Tuple[str, ...], Optional[Topology]]:
    """Return the models of the GPUs, and how they are linked as far as nvidia-smi tells."""
    listed = gpus.found(needed=False) or ()
    found = _topology(state, [gpu.uuid for gpu in listed]) if listed else None
    return tuple(gpu.model for gpu in listed), found


def _topology(state: Path, uuids: Sequence[str], *, ask: bool = True) -> Optional[Topology]:
    found = read(_matrix(state, uuids, ask=ask))
    return found if isinstance(found, Topology) and len(found.gpus) == len(uuids) else None


def _matrix(state: Path, uuids: Sequence[str], *, ask: bool) -> str:
    path = state / "topology.json"
    of = {"boot": facts.boot_id(), "gpus": list(uuids)}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        kept = records.read_json(path) or {}
        if {name: kept.get(name) for name in of} == of:
            return str(kept["matrix"])
    if not ask:
        return ""
    try:
        told = gpus.matrix()
    except HostError:
        return ""
    with contextlib.suppress(OSError):  # it is asked again
        records.write_json(path, {**of, "matrix": told})
    return told
