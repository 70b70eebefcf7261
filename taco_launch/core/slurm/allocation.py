"""What Slurm tells a batch script of its allocation -> the hosts of the job. Pure."""

import re
from dataclasses import replace
from typing import Dict, List, Mapping, Sequence, Tuple

from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.slurm import container_lines

_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")
# Of `scontrol show job -d`: the nodes of one line have the same share.
_SHARE = re.compile(r"Nodes=(\S+) .*?GRES=(\S*)")
_INDICES = re.compile(r"gpu[^(,]*\(IDX:([0-9,-]+)\)")


def tasks_per_node(text: str) -> List[int]:
    """Return the numbers that SLURM_TASKS_PER_NODE has, such as `2(x3),1`.

    Raises:
        HostError: it is no such list.
    """
    counts: List[int] = []
    for part in text.split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise HostError(f"Slurm's list of tasks per node cannot be read: {text[:80]!r}")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def gpus_by_nodes(text: str) -> Dict[str, Tuple[int, ...]]:
    """Return the indices of the granted GPUs by Slurm's list of nodes, out of `scontrol show job -d -o`."""
    indices_of = {}
    for nodes, gres in _SHARE.findall(text):
        parts = [part for kind in _INDICES.findall(gres) for part in kind.split(",")]
        if parts:
            indices_of[nodes] = tuple(sorted(index for part in parts for index in _range(part)))
    return indices_of


def _range(text: str) -> range:
    first, _dash, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def granted(
    spec: JobSpec,
    tasks: Sequence[Tuple[str, str, int]],
    gpus: Mapping[str, Tuple[int, ...]],
    first: str,
    entry: str = "",
) -> JobSpec:
    """Return a job on the hosts that Slurm granted: (name, address, ranks) each.

    `gpus` are the indices of their GPUs, empty where jobs see only their own, or have none; the job is started on `first`.
    `entry` is the program that enters the container of pyxis on a node.
    """
    hosts = []
    for name, address, count in tasks:
        only = gpus.get(name, ())
        uses_gpus = spec.slurm is not None and spec.slurm.gpus
        hosts.append(
            Host(
                name,
                address,
                connection="local" if name == first else "ssh",
                slots=count,
                has=0 if uses_gpus else None,
                gpus="auto" if uses_gpus else "none",
                constraints=GpuConstraints(only=only),
            )
        )
    # Slurm has counted hosts and ranks; the policy of waiting and retries on other hosts is over.
    policy = replace(spec.policy, suspend=False, queue_timeout=None)
    return replace(
        spec,
        command=(*container_lines.prefix(spec, entry), *spec.command),
        hosts=tuple(hosts),
        head=first,
        host_count=None,
        least_hosts=None,
        slots_per_host=None,
        most_per_host=None,
        exclusive=False,
        policy=policy,
        slurm=None,
    )
