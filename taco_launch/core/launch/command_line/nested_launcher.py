"""A launcher in a job's command, first or behind what only prepares its start: which one, and whether it can run inside of ours."""

import re
from typing import Container, Optional, Sequence, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of

_KINDS = {
    **dict.fromkeys(
        ("mpirun", "mpiexec", "orterun", "mpirun.real", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.lsf"), "mpirun"
    ),
    **dict.fromkeys(("mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich", "mpiexec.mpirun_rsh"), "hydra"),
    "horovodrun": "horovodrun",
    "srun": "srun",
    **dict.fromkeys(("prun", "prterun"), "mpirun"),
    **{name: name for name in ("jsrun", "lrun", "aprun", "ibrun", "mpirun_rsh", "mpiexec_mpt", "mpprun")},
    "flux run": "flux",
    "torchrun": "torch",
    "deepspeed": "deepspeed",
    "composer": "composer",
    "accelerate launch": "accelerate",
    "colossalai run": "colossalai",
}
# Those that are made to be started once on each host.
_ONCE_PER_HOST = ("torch", "deepspeed", "accelerate", "composer", "colossalai")
_MODULES = {
    **dict.fromkeys(("torch.distributed.launch", "torch.distributed.run"), "torch"),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "deepspeed"),
    **dict.fromkeys(("accelerate", "accelerate.commands.launch"), "accelerate"),
}
# Commands that hand work to another scheduler, start ranks by another system's launcher, or start a container: what each
# rank would do.
SUBMITS, STARTS, CONTAINS = "submit a job", "start the whole line", "start a container"
_ELSEWHERE = {
    **dict.fromkeys(("sbatch", "salloc", "qsub", "bsub", "msub", "condor_submit", "oarsub"), SUBMITS),
    **dict.fromkeys(
        ("flux submit", "flux batch", "flux alloc", "ray submit", "ray job", "sky launch", "sky exec"), SUBMITS
    ),
    **dict.fromkeys(
        ("kubectl apply", "kubectl create", "kubectl run", "arena submit", "argo submit", "oc apply"), SUBMITS
    ),
    **dict.fromkeys(("helm install", "helm upgrade", "torchx run", "dstack apply", "sky jobs"), SUBMITS),
    **dict.fromkeys(("ccc_mprun", "poe", "pbsdsh", "blaunch"), STARTS),
    **dict.fromkeys(("docker run", "podman run", "nerdctl run", "docker compose", "docker-compose"), CONTAINS),
}
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
# Programs that start another one, some by a verb: the options whose value is the next word, and how many words come
# between the options and that program.
_OF_APPTAINER = "-B --bind -H --home -W --workdir --pwd --env --env-file --overlay -S --scratch --app --network"
_OF_CONDA = "-n --name -p --prefix --cwd"
_WRAPPERS = {
    "env": ("-u --unset -C --chdir -S --split-string", 0),
    "nohup": ("", 0),
    "in-container": ("", 0),  # ours, of a job on Slurm
    "setsid": ("", 0),
    "time": ("-f --format -o --output", 0),
    "sudo": ("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -T -r -t -U", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c --class -n --classdata", 0),
    "stdbuf": ("-i --input -o --output -e --error", 0),
    "timeout": ("-k --kill-after -s --signal", 1),
    "taskset": ("", 1),
    "chrt": ("", 1),
    "numactl": ("-i -N -C -m -p --interleave --cpunodebind --physcpubind --membind --preferred", 0),
    "uv run": ("--with --with-requirements -p --python --extra --group --project --directory --env-file --package", 0),
    "poetry run": ("", 0),
    "pipenv run": ("", 0),
    "pixi run": ("-e --environment --manifest-path", 0),
    **dict.fromkeys(("conda run", "mamba run", "micromamba run"), (_OF_CONDA, 0)),
    "nsys profile": ("-o --output -t --trace -s --sample -c --capture-range -f --force-overwrite -w -x -d -e -b", 0),
    **dict.fromkeys(("apptainer exec", "singularity exec", "apptainer run", "singularity run"), (_OF_APPTAINER, 1)),
}
# These prepare the launcher's start alone: a job has its own way for it, or needs none.
_NOT_OF_RANKS = ("env", "nohup", "setsid", "time", "sudo", "timeout")


@dataclass(frozen=True)
class NestedLauncher:
    """A launcher: its `name` as people say it, its `kind` (a value of _KINDS), how many `words` name it.

    It stands behind `begin` words, that set the variables `env` and hold `around`, what each rank is to be started by, too.
    """

    name: str
    kind: str
    words: int
    begin: int = 0
    env: Tuple[str, ...] = ()
    around: Tuple[str, ...] = ()


def inner(command: Sequence[str]) -> Optional[NestedLauncher]:
    """Return the launcher that a command starts; None where there is none, or nothing for it to start (--version).

    What a shell is given (`sh -c '...'`) is not looked into.
    """
    begin, env, around = _peeled(tuple(command))
    words = tuple(command[begin:])
    name, kind, count = _named(words)
    rest = words[count:]
    if not kind or not (len(rest) > 1 or any(not word.startswith("-") for word in rest)):
        return None
    return NestedLauncher(name, kind, count, begin, env, around)


def bare(command: Sequence[str]) -> Tuple[Tuple[str, ...], Tuple[str, ...], Tuple[str, ...]]:
    """Return the variables that a command sets, what each of its ranks is to be started by, and the program behind these."""
    begin, env, around = _peeled(tuple(command))
    return env, around, tuple(command[begin:])


def elsewhere(command: Sequence[str]) -> Optional[Tuple[str, str]]:
    """Return the name of a command that hands work to another system, and what each rank would do; None for others."""
    begin, _env, _around = _peeled(tuple(command))
    name, count = _program(command[begin:], _ELSEWHERE)
    if name not in _ELSEWHERE or len(command) <= begin + count:
        return None
    return name, _ELSEWHERE[name]


def _named(words: Sequence[str]) -> Tuple[str, str, int]:
    """Return the name and kind of the launcher that a line starts with, and how many words name it; the kind "" for none."""
    name, count = _program(words, _KINDS)
    if name in _KINDS:
        return name, _KINDS[name], count
    if name.startswith("python") and "-m" in words[1:-1]:
        at = words.index("-m")
        module = words[at + 1]
        if module in _MODULES and all(word.startswith("-") for word in words[1:at]):
            return module, _MODULES[module], at + 2
    return name, "", count


def _program(words: Sequence[str], known: Container[str]) -> Tuple[str, int]:
    """Return the name of a line's program without its folder, with its verb where `known` has it so, and the number of its words."""
    name = words[0].rpartition("/")[2] if words else ""
    verbal = f"{name} {words[1]}" if len(words) > 1 else ""
    return (verbal, 2) if verbal in known else (name, 1)


def _peeled(words: Tuple[str, ...]) -> Tuple[int, Tuple[str, ...], Tuple[str, ...]]:
    """Return how many words come before the program that a line is about, the variables they set, and those for each rank."""
    env: Tuple[str, ...] = ()
    around: Tuple[str, ...] = ()
    begin = 0
    while begin < len(words):
        if _ASSIGNED.match(words[begin]):
            env += (words[begin],)
            begin += 1
            continue
        name, count = _program(words[begin:], _WRAPPERS)
        if name not in _WRAPPERS:
            break
        valued, between = _WRAPPERS[name]
        end = begin + count
        while end < len(words) and words[end].startswith("-"):
            end = min(end + (2 if words[end] in valued.split() else 1), len(words))
            if words[end - 1] == "--":
                break
        end += between
        if name not in _NOT_OF_RANKS:
            around += words[begin:end]
        begin = end
    return begin, env, around


def is_open_mpi_twice(spec: JobSpec, found: NestedLauncher) -> bool:
    """Return whether a job would start Open MPI within Open MPI, which refuses that."""
    return launcher_of(spec).is_open_mpi and found.kind == "mpirun"


def clashes(spec: JobSpec, found: NestedLauncher) -> bool:
    """Return whether a job that starts that launcher can only fail, or be as many jobs as it has ranks.

    Open MPI refuses to be started by itself. Those of torch, DeepSpeed and Accelerate may be started once on each host; the
    others start ranks on all hosts by themselves, and are right where there is one.
    """
    if is_open_mpi_twice(spec, found):
        return True
    if spec.per_host:
        return found.kind not in _ONCE_PER_HOST and not _is_on_one_host(spec)
    return not has_one_rank(spec)


def has_one_rank(spec: JobSpec) -> bool:
    """Return whether a job has a single rank."""
    alone = spec.np == 1 or (_is_on_one_host(spec) and spec.slots_per_host == 1)
    return alone and spec.procs_per_gpu <= 1


def _is_on_one_host(spec: JobSpec) -> bool:
    return len(spec.hosts) == 1 or spec.host_count == 1
