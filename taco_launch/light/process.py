"""Look at this rank's process and machine, and print what is in use."""

import gc
import os
import socket
from pathlib import Path
from typing import Any, List, Optional

import torch
from torch import Tensor

from taco_launch.light.config import LightError
from taco_launch.light.engine import Engine, pieces, say
from taco_launch.light.grid import Place

# torch 2.3 moved it
_SCALER: Any = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler


def announce(engine: Engine, parameters: List[torch.nn.Parameter], backend: str) -> None:
    """Print one line with what is in use, and others with what is not as configured: rank 0 does."""
    sizes = [one.numel() * one.element_size() for one in reversed(parameters)]  # the order of the backward pass
    buckets: List[int] = []
    for count in pieces(sizes, engine.config.bucket_bytes):
        buckets.append(sum(sizes[:count]))
        sizes = sizes[count:]
    predicted = engine.bytes_per_step(buckets, parameters[0].element_size() if parameters else 4)
    ranks = engine.ranks / engine.grid.hosts
    line = (
        f"{backend}, {engine.grid.hosts} hosts x {ranks:g} ranks, groups {engine.grid.outer_size} x "
        f"{engine.grid.inner_size}; {engine.config.describe()}; a host sends about {predicted['light'] / 1e6:.1f} MB a "
        f"step, without compression {predicted['dense'] / 1e6:.1f}"
    )
    remark = engine.grid.remark
    if not engine.config.is_on:
        remark = "neither LIGHT_2D_ALLREDUCE nor LIGHT_TOPK_ALLREDUCE is 1: gradients are reduced as usual"
    if engine.rank == 0:
        say(line, *([remark] if remark else []))


def place(local_rank: int) -> Place:
    """Return where this rank runs, by LOCAL_RANK if it is set; machines or containers may have equal names."""
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    parts = (boot.read_text("ascii").strip() if boot.exists() else "", os.readlink(network) if network.exists() else "")
    return Place("/".join((socket.gethostname(), *parts)), int(os.environ.get("LOCAL_RANK", local_rank)))


def refused(what: str, fix: str) -> LightError:
    """Return the error for gradients that are not supported."""
    return LightError(f"LIGHT_* works on the dense gradients of data-parallel training, not on {what}: {fix}.")


def grad_scaler() -> Any:
    """Return the process's GradScaler, or None: residuals have to be free of its scale, which changes.

    Raises:
        LightError: there are several.

    """
    scalers = [one for one in gc.get_objects() if issubclass(type(one), _SCALER) and scale_of(one) is not None]
    if len(scalers) > 1:
        raise refused("the gradients of several GradScalers", "use one, or bfloat16, which requires none")
    return scalers[0] if scalers else None


def scale_of(scaler: Any) -> Optional[Tensor]:
    """Return the scale of a GradScaler in use, otherwise None. Its own `get_scale` makes the host wait for the GPU."""
    return scaler._scale if scaler is not None and scaler.is_enabled() else None  # noqa: SLF001
