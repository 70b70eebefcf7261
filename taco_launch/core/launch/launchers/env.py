"""The variables that `env` sets: it starts the command once per slot, or with --per-host once per host."""

from typing import List, Sequence, Tuple

from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, local_env, process_words, rank_env
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement, Token

_WHY = {
    "MASTER_ADDR": "the ranks meet at the host of rank 0",
    "MASTER_PORT": "a port that is free there when the job starts",
    "WORLD_SIZE": "all ranks",
    "LOCAL_WORLD_SIZE": "the ranks of this host",
    "GROUP_RANK": "the number of this host",
    "NODE_RANK": "the number of this host, as Lightning reads it",
    "RANK": "the number of this rank",
    "LOCAL_RANK": "the number of this rank on this host",
}
_WHY_SHARED = {
    "WORLD_SIZE": "all slots",
    "LOCAL_WORLD_SIZE": "with --procs-per-gpu, each process sees one slot",
    "GROUP_RANK": "the number of this slot, which counts as a host",
    "NODE_RANK": "the number of this slot, which counts as a host",
    "RANK": "the number of this slot",
    "LOCAL_RANK": "with --procs-per-gpu, each process sees one slot",
    "PROCESS_INDEX": "the number of this process on its slot",
    "PROCESS_NUM": "--procs-per-gpu",
}
_WHY_PER_HOST = {
    "MASTER_PORT": "the port that --per-host always uses",
    "WORLD_SIZE": "the number of hosts of the job, because --per-host counts hosts",
    "RANK": "the position of this host among the job's hosts",
}


def argv(spec: JobSpec, wrapper: Sequence[str], ranks: Sequence[int], world_size: int, gpus: str) -> Tuple[str, ...]:
    """Return what starts these ranks of a host, before the job's own command; `gpus` as for `settings`."""
    numbers = ranks[0], len(ranks), world_size, spec.procs_per_gpu
    return (*wrapper[:-1], *map(str, numbers), gpus if spec.mps else "", wrapper[-1])


def behind(spec: JobSpec, local_rank: int) -> List[Token]:
    """Return what stands behind the job's own command."""
    return [Token(word, "user", "--procs-per-gpu") for word in process_words(local_rank, spec.procs_per_gpu)]


def settings(
    spec: JobSpec, placement: Placement, host: str, rank: int, local_rank: int, port: int, gpus: str
) -> List[Token]:
    """Return what torch.distributed reads of a rank as NAME=VALUE, but for what the user gives by `-x`.

    `gpus` are those that the job has on the host, "" where it has none, or they are not known yet.
    """
    why = {**_WHY, **(_WHY_PER_HOST if spec.per_host else _WHY_SHARED if spec.procs_per_gpu > 1 else {})}
    given = {name for name, _value in spec.env}
    shared = local_env(spec, placement, port, host)
    if gpus and spec.procs_per_gpu > 1:
        why[VISIBLE_GPUS] = "the one GPU of this slot"
        shared.setdefault(VISIBLE_GPUS, gpus)
        given.discard(VISIBLE_GPUS)
    values = rank_env(rank, local_rank, shared, spec.procs_per_gpu)
    return [
        Token(f"{name}={values[name]}", "launcher", text)
        for name, text in why.items()
        if name in values and name not in given
    ]
