"""The parts of a job by the names that Arena and the MPI Operator give them: launcher, master, workers."""

import re
from typing import List, Sequence, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.jobs import JobRecord, JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import numbered

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
    Operator). For other launchers NAME-master-0 is rank 0 and NAME-worker-N rank N + 1 (Arena's PyTorch jobs); processes
    that share a slot are one part. Where a job counts workers, each worker is such a part, with all its ranks.
    """
    shares = _ranks(record)
    if launcher_of(spec).is_mpi:
        shares = shares if spec.slots_per_worker is None else _cut(shares, spec.slots_per_worker)
        workers = [Instance(f"{spec.name}-worker-{index}", *share) for index, share in enumerate(shares)]
        return (Instance(f"{spec.name}-launcher", spec.head or spec.hosts[0].name), *workers) if workers else ()
    parts = _cut(shares, (spec.slots_per_worker or 1) * spec.procs_per_gpu)
    names = ["master-0", *(f"worker-{index}" for index in range(len(parts) - 1))]
    return tuple(Instance(f"{spec.name}-{name}", *share) for name, share in zip(names, parts))


def is_name(text: str) -> bool:
    """Return whether a text may be the name of a job's instance."""
    return _NAME.fullmatch(text) is not None


def _cut(shares: Sequence[Tuple[str, Tuple[int, ...]]], size: int) -> List[Tuple[str, Tuple[int, ...]]]:
    """Return the ranks of each host in parts of that size."""
    return [(host, ranks[at : at + size]) for host, ranks in shares for at in range(0, len(ranks), size)]


def _ranks(record: JobRecord) -> List[Tuple[str, Tuple[int, ...]]]:
    """Return each host with its ranks."""
    return [(share.host, ranks) for share, ranks in numbered(record.shares)] or [(host, ()) for host in record.hosts]
