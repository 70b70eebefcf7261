"""What a request asks of Slurm, and the options that are Slurm's own affair."""

import re

from taco_launch.core.errors import UsageError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import SlurmOptions
from taco_launch.hosts import slurm_inventory

ENGINE = "slurm"
_ASKED = ("partition", "account", "qos", "constraint", "reservation", "dependency")
# A value becomes a line of the batch script: no blanks, no quotes.
_VALUE = re.compile(r"[A-Za-z0-9_.,:;&|*+@/\[\](){}?=-]{1,200}")
# What Slurm decides, and what to use instead.
_REFUSED = {
    "priority": "Slurm orders its queue itself: use --qos or --partition",
    "no_wait": "Slurm decides when a job starts: use --queue-timeout",
    "gpu_ids": "Slurm chooses the GPUs of a host",
    "gpu_models": "Slurm chooses the hosts: use --constraint",
    "selectors": "Slurm chooses the hosts: use --constraint or --partition",
    "gpu_topology": "Slurm chooses the GPUs of a host",
}


def nodes_of(inventory: Inventory) -> tuple[Host, ...]:
    """Return the hosts of an inventory that can run jobs: all, except a login node where Slurm has the queue."""
    if inventory.engine != ENGINE:
        return inventory.hosts
    return tuple(host for host in inventory.hosts if slurm_inventory.is_node(host)) or inventory.hosts


def slurm_options(request: JobRequest, inventory: Inventory, hosts: tuple[Host, ...]) -> SlurmOptions | None:
    """Return what a job asks of Slurm; None where Slurm does not keep the queue. `hosts` are those that it may have.

    Raises:
        UsageError: an option belongs to Slurm and there is none, or Slurm decides what it says; or the size is missing.
    """
    given = {name: getattr(request, name) or "" for name in _ASKED}
    if inventory.engine != ENGINE:
        first = next((name for name, value in given.items() if value), None)
        if first is not None:
            raise UsageError(
                f"{request.called(first)} requires Slurm", hint="use -i slurm: on a login node, or -i slurm:USER@LOGIN"
            )
        return None
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
    others = tuple(host.name for host in nodes_of(inventory) if host.name not in chosen)
    gpus = any(dict(host.labels).get("gpus", "0") != "0" for host in hosts)
    return SlurmOptions(**given, exclude=others, gpus=gpus)
