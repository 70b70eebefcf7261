"""Find the ranks of any launcher among the processes of a host, by the variables of their environments. Pure.

A process inherits the variables of all launchers above it. The one whose variables begin nearest to it has given it its
number: under torchrun in a step of Slurm that is torchrun, under mpirun in the pod of a PyTorchJob that is Open MPI.
"""

import re
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.model.run.host_jobs import MOST_RANKS, NO_LAUNCHER

# A batch script has its step's number, too, but is no rank (slurm.h, SLURM_BATCH_SCRIPT and those above it).
_SLURM_SPECIAL_STEPS = 0xFFFFFFF0
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")
# What programs start beside themselves: it has the variables that its program has set for itself, and is no rank.
_HELPER = re.compile(
    r"from multiprocessing\.|_inductor[/.]compile_worker|\bwandb[-_ ](?:core|service)|torch_shm_manager|\btensorboard\b"
)
_INIT = 1


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
# The variables of a process that are kept.
VARIABLES = frozenset((RAS_ADDRESS, *(name for each in _LAUNCHERS for name in (each.rank, each.size, *each.job))))


# Launcher, job, size and parent, as of a RankRoot.
_Job = Tuple[str, str, int, int]


class ProcessSeen(NamedTuple):
    """A process: its parent, when it started, those of VARIABLES that it has, and its command line.

    `network` is its network namespace with the name of the host, which tell two loopback addresses apart.
    """

    parent: int
    start: int
    variables: Mapping[str, str]
    command: str
    network: str = ""


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
    # The launcher that this process is part of, where it has no ranks yet.
    starting: str = ""


def rank_roots(processes: Mapping[int, ProcessSeen]) -> List[RankRoot]:
    """Return the ranks among a host's processes, one for each number of a job."""
    roots: Dict[int, RankRoot] = {}
    for pid in processes:
        root = _innermost(processes, pid)
        if root is not None:
            roots.setdefault(root.pid, root)
    above = {pid: next((up for up in _above(processes, pid) if up in roots), 0) for pid in roots}
    # A program that tells its children the number that it has itself is the rank; one that gives them others launches them.
    launching = {up for pid, up in above.items() if up and _number(roots[pid]) != _number(roots[up])}
    own = {pid: root for pid, root in roots.items() if not above[pid] or above[pid] in launching}
    jobs: Dict[_Job, List[RankRoot]] = {}
    for root in own.values():
        jobs.setdefault((root.launcher, root.job, root.size, root.parent), []).append(root)
    found: List[RankRoot] = []
    for members in jobs.values():
        # What has ranks below it has launched them, as torchrun has in a step of Slurm. Where only some ranks have, they
        # run another job beside their own.
        if any(root.pid not in launching for root in members):
            found += _one_for_each_number(processes, members)
    return sorted(found, key=lambda root: (root.launcher, root.job, root.size, root.parent, root.rank))


def _number(root: RankRoot) -> Tuple[int, int]:
    return root.rank, root.size


def _one_for_each_number(processes: Mapping[int, ProcessSeen], members: Sequence[RankRoot]) -> Iterable[RankRoot]:
    """Return the roots of a job without processes that a rank of this run, or of an earlier one, has left behind."""
    first: Dict[int, RankRoot] = {}
    for root in sorted(members, key=lambda one: (processes[one.pid].parent == _INIT, processes[one.pid].start)):
        first.setdefault(root.rank, root)
    return first.values()


def matching_roots(processes: Mapping[int, ProcessSeen], text: str) -> List[RankRoot]:
    """Return the uppermost processes whose command line has a text, numbered, as ranks of a job without a launcher."""
    chosen = {pid for pid, seen in processes.items() if text in seen.command}
    uppermost = [pid for pid in chosen if not any(above in chosen for above in _above(processes, pid))]
    uppermost.sort(key=lambda pid: processes[pid].start)
    return [RankRoot(pid, NO_LAUNCHER, text, number, 0) for number, pid in enumerate(uppermost)]


def _innermost(processes: Mapping[int, ProcessSeen], pid: int) -> Optional[RankRoot]:
    """Return the root of the rank that a process is part of, None where it is part of none."""
    nearest: Optional[Tuple[int, RankRoot]] = None
    for launcher in _LAUNCHERS:
        place = _place(launcher, processes[pid].variables)
        if place is None:
            continue
        root, steps, is_helper = pid, 0, False
        for above in _above(processes, pid):
            if _place(launcher, processes[above].variables) != place:
                if is_helper or not _HELPER.search(processes[root].command):
                    break
                is_helper = True
            root, steps = above, steps + 1
        if nearest is None or steps < nearest[0]:
            rank, size, *job = place
            if launcher.title == "torch.distributed" and job[0] in _LOOPBACK:
                # The same address on another host, or in another container, is another job's.
                job.append(processes[pid].network)
            name = ":".join(job)
            parent = 0 if name else processes[root].parent
            nearest = steps, RankRoot(root, launcher.title, name, int(rank), int(size), parent)
    return None if nearest is None else nearest[1]


def _place(launcher: _Launcher, variables: Mapping[str, str]) -> Optional[Tuple[str, ...]]:
    """Return rank, size and job as a launcher has told them; None where it has not started this process."""
    rank, size = variables.get(launcher.rank, ""), variables.get(launcher.size, "")
    if not all(text.isascii() and text.isdecimal() and len(text) < 8 for text in (rank, size)):
        return None
    if not int(rank) < int(size) <= MOST_RANKS:
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
