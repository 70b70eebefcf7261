"""The ranks of a host without any launcher: `env` starts the command once per slot, or with --per-host once per host."""

from typing import List, Sequence, Tuple

from taco_launch.launch.env import local_env, rank_env
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import Placement, Token

_WHY = {
    "MASTER_ADDR": "the ranks meet at the host of rank 0",
    "MASTER_PORT": "a port that is free there when the job starts",
    "WORLD_SIZE": "all ranks",
    "LOCAL_WORLD_SIZE": "the ranks of this host",
    "RANK": "the number of this rank",
    "LOCAL_RANK": "its number on this host",
}
_WHY_PER_HOST = {
    "MASTER_PORT": "the one that --per-host always has",
    "WORLD_SIZE": "the job's hosts: --per-host counts those",
    "RANK": "the place of this host among the job's",
}


def argv(wrapper: Sequence[str], ranks: Sequence[int], world_size: int) -> Tuple[str, ...]:
    """Give what starts these ranks of a host, before the job's own command."""
    return (*wrapper[:-1], str(ranks[0]), str(len(ranks)), str(world_size), wrapper[-1])


def settings(spec: JobSpec, placement: Placement, host: str, rank: int, local_rank: int, port: int) -> List[Token]:
    """Give what torch.distributed reads of a rank as NAME=VALUE, but for what the user gives by `-x`."""
    why = {**_WHY, **(_WHY_PER_HOST if spec.per_host else {})}
    given = {name for name, _value in spec.env}
    values = rank_env(rank, local_rank, local_env(spec, placement, port, host))
    return [
        Token(f"{name}={values[name]}", "launcher", text)
        for name, text in why.items()
        if name in values and name not in given
    ]
