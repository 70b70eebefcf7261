"""What a request asks of Slurm, and the options that are Slurm's own affair."""

import re
from typing import Any, Dict, Tuple

from taco_launch.core.errors import UsageError
from taco_launch.core.model.engines import SlurmOptions
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_request import OF_SLURM, JobRequest
from taco_launch.core.slurm import nodes

# A value becomes a line of the batch script: no blanks, no quotes.
_VALUE = re.compile(r"[A-Za-z0-9_.,:;&|*+@/\[\](){}?=-]{1,200}")
# What Slurm decides, and what to use instead.
_REFUSED = {
    "priority": "Slurm orders its queue itself: use --qos or --partition",
    "no_wait": "Slurm decides when a job starts: use --queue-timeout",
    "gpu_ids": "Slurm chooses the GPUs of a host",
    "gpu_models": "Slurm chooses the hosts: use --constraint",
    "selectors": "Slurm chooses the hosts: use --constraint or --partition",
    "elastic": "an allocation keeps its nodes: omit it",
    "gpu_topology": "Slurm chooses the GPUs of a host",
    "tensorboard": "start it on the login node: tensorboard --logdir FOLDER, with the folder that the job writes to",
}


def options(request: JobRequest, inventory: Inventory, hosts: Tuple[Host, ...]) -> SlurmOptions:
    """Return what a job asks of Slurm. `hosts` are those that it may have.

    Raises:
        UsageError: Slurm decides what an option says, a value is not valid, or the size is missing.
    """
    given: Dict[str, Any] = {name: getattr(request, name) or "" for name in OF_SLURM}
    for name, why in _REFUSED.items():
        if getattr(request, name) not in (None, False, ()):
            raise UsageError(f"{request.called(name)} does not apply to Slurm", hint=why)
    for name, value in given.items():
        if value and not _VALUE.fullmatch(value):
            raise UsageError(f"{request.called(name)}: {value!r} is not a valid value for Slurm")
    if all(getattr(request, name) is None for name in ("np", "slots_per_host", "workers", "gpus", "slots_per_worker")):
        raise UsageError(
            "the size of the job is missing: Slurm has to know how many ranks to make room for",
            hint="add --np N, or --hosts N with --slots-per-host N",
        )
    chosen = {host.name for host in hosts}
    others = tuple(host.name for host in inventory.job_hosts if host.name not in chosen)
    gpus = any(dict(host.labels).get(nodes.GPUS, "0") != "0" for host in hosts)
    return SlurmOptions(**given, exclude=others, gpus=gpus, array=request.array)
