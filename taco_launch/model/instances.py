"""The parts of a job by the names that Arena and the MPI Operator give them: launcher, master, workers."""

import re
from dataclasses import dataclass
from typing import List, Tuple

from taco_launch.model.jobs import JobRecord, JobSpec

_NAME = re.compile(r"[^/]+-(?:launcher|master-0|worker-\d+)")


@dataclass(frozen=True)
class Instance:
    """One part of a job: the host that it is on, "" where none is known, and its ranks (none of the launcher's)."""

    name: str
    host: str
    ranks: Tuple[int, ...] = ()


def instances(spec: JobSpec, record: JobRecord) -> Tuple[Instance, ...]:
    """Name the parts of a job, as far as it has a place or had one.

    For mpirun NAME-launcher is on the head, and NAME-worker-N has all ranks on the N-th host, counted from 0 (MPI
    Operator). For other launchers NAME-master-0 is rank 0 and NAME-worker-N rank N + 1 (Arena's PyTorch jobs).
    """
    ranks_of = _ranks(record)
    if spec.launcher == "mpirun":
        workers = [Instance(f"{spec.name}-worker-{index}", *share) for index, share in enumerate(ranks_of)]
        return (Instance(f"{spec.name}-launcher", spec.head or spec.hosts[0].name), *workers) if workers else ()
    single = [(host, (rank,)) for host, ranks in ranks_of for rank in ranks]
    names = ["master-0", *(f"worker-{index}" for index in range(len(single) - 1))]
    return tuple(Instance(f"{spec.name}-{name}", *share) for name, share in zip(names, single))


def is_name(text: str) -> bool:
    """Say whether a text may be the name of a job's instance."""
    return _NAME.fullmatch(text) is not None


def _ranks(record: JobRecord) -> List[Tuple[str, Tuple[int, ...]]]:
    """Give each host with its ranks, which are numbered in the order of the shares."""
    found: List[Tuple[str, Tuple[int, ...]]] = []
    first = 0
    for share in record.shares:
        found.append((share.host, tuple(range(first, first + share.ranks))))
        first += share.ranks
    return found or [(host, ()) for host in record.hosts]
