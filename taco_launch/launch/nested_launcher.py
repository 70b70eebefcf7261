"""A launcher as the first words of a job's command: which one it is, and whether it can run inside of ours."""

from typing import Optional, Sequence

from taco_launch.frozen import dataclass
from taco_launch.model.jobs import JobSpec

_KINDS = {
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "orterun": "mpirun",
    "horovodrun": "horovodrun",
    "srun": "srun",
    "torchrun": "torch",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
}
# Those that are made to be started once on each host.
_ONCE_PER_HOST = ("torch", "deepspeed", "accelerate")
_MODULES = ("torch.distributed.launch", "torch.distributed.run")


@dataclass(frozen=True)
class NestedLauncher:
    """A launcher: its `name` as people say it, its `kind` (a value of _KINDS), how many `words` name it."""

    name: str
    kind: str
    words: int


def inner(command: Sequence[str]) -> Optional[NestedLauncher]:
    """Return the launcher that a command starts with; None where there is none, or nothing for it to start (--version).

    What a shell is given (`sh -c '...'`) is not looked into.
    """
    name = command[0].rpartition("/")[2]
    if name == "accelerate":
        if command[1:2] != ("launch",):
            return None
        found = NestedLauncher("accelerate launch", _KINDS[name], 2)
    elif name in _KINDS:
        found = NestedLauncher(name, _KINDS[name], 1)
    elif name.startswith("python") and "-m" in command[1:-1]:
        at = list(command).index("-m")
        if command[at + 1] not in _MODULES or any(not word.startswith("-") for word in command[1:at]):
            return None
        found = NestedLauncher(command[at + 1], "torch", at + 2)
    else:
        return None
    rest = command[found.words :]
    return found if len(rest) > 1 or any(not word.startswith("-") for word in rest) else None


def clashes(spec: JobSpec, found: NestedLauncher) -> bool:
    """Return whether a job that starts that launcher can only fail, or be as many jobs as it has ranks.

    Open MPI refuses to be started by itself. Those of torch, DeepSpeed and Accelerate may be started once on each host; the
    others start ranks on all hosts by themselves, and are right where there is one.
    """
    if spec.launcher == "mpirun" and found.kind == "mpirun":
        return True
    one_host = len(spec.hosts) == 1 or spec.host_count == 1
    if spec.per_host:
        return found.kind not in _ONCE_PER_HOST and not one_host
    return not (spec.np == 1 or (one_host and spec.slots_per_host == 1)) or spec.procs_per_gpu > 1
