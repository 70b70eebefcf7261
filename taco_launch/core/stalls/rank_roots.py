"""Which processes of a host are the ranks of a job, of any launcher: read from their environments. Pure.

A process inherits the variables of all launchers above it. The one whose variables begin nearest to it has given it its
number: under torchrun in a step of Slurm that is torchrun, under mpirun in the pod of a PyTorchJob that is Open MPI.
"""

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from taco_launch.core.model.run.host_jobs import NO_LAUNCHER

_MOST_RANKS = 1 << 20
# A batch script has its step's number, too, but is no rank (slurm.h, SLURM_BATCH_SCRIPT and those above it).
_SLURM_SPECIAL_STEPS = 0xFFFFFFF0
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")


class _Launcher(NamedTuple):
    """The variables of a launcher: a rank's number, how many there are, and what tells its jobs apart."""

    title: str
    rank: str
    size: str
    job: Tuple[str, ...] = ()


# Where two begin at the same process, the first counts. MPICH and Intel MPI give their ranks nothing that tells jobs apart.
_LAUNCHERS = (
    _Launcher("torch.distributed", "RANK", "WORLD_SIZE", ("MASTER_ADDR", "MASTER_PORT")),
    _Launcher(
        "Horovod", "HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
    ),
    _Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
    _Launcher("MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE"),
    _Launcher("Slurm", "SLURM_PROCID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
# Where NCCL's RAS listens (agent/stacks/ras.py).
RAS_ADDRESS = "NCCL_RAS_ADDR"
# What a look at a process has to keep of its environment.
VARIABLES = frozenset((RAS_ADDRESS, *(name for each in _LAUNCHERS for name in (each.rank, each.size, *each.job))))


class ProcessSeen(NamedTuple):
    """A process: the number of its parent, when it started, those of VARIABLES that it has, and its command line."""

    parent: int
    start: int
    variables: Mapping[str, str]
    command: str


class RankRoot(NamedTuple):
    """The uppermost process of a rank, and of which job the rank is (see HostJob)."""

    pid: int
    launcher: str
    job: str
    rank: int
    size: int
    # The process above it where `job` is "", which tells two runs of a line apart on one host; of a program without a
    # launcher the uppermost process of its tree.
    parent: int = 0


def rank_roots(processes: Mapping[int, ProcessSeen], host: str) -> List[RankRoot]:
    """Return the ranks among a host's processes, one for each number of a job.

    `host` tells jobs apart whose rendezvous is on the host itself.
    """
    roots = {root.pid: root for pid in processes for root in _innermost(processes, pid, host)}
    launchers = {above for pid in roots for above in _above(processes, pid)}
    first: Dict[Tuple[str, str, int, int], RankRoot] = {}
    for root in sorted(roots.values(), key=lambda root: processes[root.pid].start):
        if root.pid not in launchers:  # those below it are ranks, it started them
            # What a rank has left behind, such as a daemon, is no second rank.
            first.setdefault((root.launcher, root.job, root.parent, root.rank), root)
    return sorted(first.values(), key=lambda root: (root.launcher, root.job, root.rank))


def matching_roots(processes: Mapping[int, ProcessSeen], text: str) -> List[RankRoot]:
    """Return the uppermost processes whose command line has a text, numbered, as ranks of a job without a launcher."""
    chosen = [pid for pid, seen in processes.items() if text in seen.command]
    uppermost = [pid for pid in chosen if not any(above in chosen for above in _above(processes, pid))]
    uppermost.sort(key=lambda pid: processes[pid].start)
    return [RankRoot(pid, NO_LAUNCHER, text, number, 0) for number, pid in enumerate(uppermost)]


def _innermost(processes: Mapping[int, ProcessSeen], pid: int, host: str) -> Iterator[RankRoot]:
    """Yield the root of the rank that a process is part of, if it is part of one."""
    nearest: Optional[Tuple[int, RankRoot]] = None
    for launcher in _LAUNCHERS:
        place = _place(launcher, processes[pid].variables)
        if place is None:
            continue
        root, steps = pid, 0
        for above in _above(processes, pid):
            if _place(launcher, processes[above].variables) != place:
                break
            root, steps = above, steps + 1
        if nearest is None or steps < nearest[0]:
            rank, size, *job = place
            if launcher.title == "torch.distributed" and job[0] in _LOOPBACK:
                job.insert(0, host)
            name = ":".join(job)
            parent = 0 if name else processes[root].parent
            nearest = steps, RankRoot(root, launcher.title, name, int(rank), int(size), parent)
    if nearest is not None:
        yield nearest[1]


def _place(launcher: _Launcher, variables: Mapping[str, str]) -> Optional[Tuple[str, ...]]:
    """Return rank, size and job as a launcher has told them; None where it has not started this process."""
    rank, size = variables.get(launcher.rank, ""), variables.get(launcher.size, "")
    if not all(text.isascii() and text.isdecimal() and len(text) < 8 for text in (rank, size)):
        return None
    if not int(rank) < int(size) <= _MOST_RANKS:
        return None
    job = [variables.get(name, "") for name in launcher.job]
    if launcher.title == "Slurm":
        step = job[1]
        if not step.isdecimal() or int(step) >= _SLURM_SPECIAL_STEPS:
            return None
    return (rank, size, *job)


def _above(processes: Mapping[int, ProcessSeen], pid: int) -> Iterator[int]:
    """Yield the processes above one, the nearest first."""
    seen = {pid}
    while pid in processes and processes[pid].parent in processes and processes[pid].parent not in seen:
        pid = processes[pid].parent
        seen.add(pid)
        yield pid
