"""Commands that are no launcher that is read here: those that start ranks all the same are named, never run as if they were programs."""

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import CONTAINS, bare, elsewhere, inner
from taco_launch.jobs.command_lines import containers
from taco_launch.jobs.command_lines.launcher_line import Part
from taco_launch.jobs.command_lines.scripts import other_systems
from taco_launch.jobs.command_lines.scripts.other_systems import DOES, OF_CONTAINER
from taco_launch.jobs.command_lines.shell_script import of_line, read, shown
from taco_launch.jobs.command_lines.shell_words import UNKNOWN

_MODULES = frozenset(
    (
        *("paddle.distributed.launch", "paddle.distributed.fleet.launch", "paddle.distributed.run"),
        *(
            "oneflow.distributed.launch",
            "torch_xla.distributed.xla_dist",
            "bagua.distributed.launch",
            "torch_npu.launch",
        ),
    )
)
# Launchers of other MPIs, and wrappers of sites: mympirun, mpiexec.lam.
_LIKE_MPIRUN = re.compile(r"\w*mpi(?:run|exec)(?:[._-]\w+)*(?<!sh)(?<!py)|yhrun|charmrun|oshrun|shmemrun|upcxx-run")
_PROGRAMS = frozenset(("fleetrun", "msrun", "bpslaunch", "dmlc-submit", "xla_dist"))
# Programs that start torchrun themselves where NPROC_PER_NODE is set, or FORCE_TORCHRUN.
_START_TORCHRUN = ("swift", "xtuner")
# Programs that run a command on several hosts, and the options by which GNU parallel does.
_ON_HOSTS = ("pdsh", "clush", "parallel-ssh", "pssh", "dsh", "mpssh")
_OF_PARALLEL = ("--sshlogin", "--sshloginfile", "--slf", "-S", "--nonall", "--onall")
_REMOTE = ("ssh", "pdsh", "clush", "parallel-ssh", "pssh", "kubectl", "oc", "docker", "podman", "nerdctl")
# How many words may come before the command: options of ssh and the host, or of tmux.
_MOST_BEFORE = 9
_MOST_OPTIONS = 40  # of the launcher that starts another one
_DEEPEST = 4  # ssh HOST 'tmux new-session -d "bash -c ..."'
_EACH = "nproc-per-node"
_OF_TORCHRUN = frozenset(
    (
        *(_EACH, "nnodes", "node-rank", "master-addr", "master-port", "standalone", "max-restarts"),
        *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
    )
)
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh")
# What a command gives the process of one host, where people start one on each by hand.
_ITS_RANK = re.compile(r"\$\{?(?:(?:NODE_|MACHINE_|GLOBAL_|WORLD_)?RANK|(?:NODE|HOST|MACHINE)_(?:ID|INDEX))\b")
_MOST_HOSTS = 64  # a larger number counts the nodes of a graph
_HOSTS = re.compile(r"--(?:num|n)[-_]?(?:nodes|hosts|machines)")
PREPARES = frozenset(("module", "ml", "source", ".", "conda", "mamba", "micromamba", "spack", "pip", "ulimit"))
SILENT = frozenset(
    (
        *("echo", "printf", "set", "shopt", "date", "hostname", "pwd", "wait", "true"),
        *("false", ":", "type", "hash", "exit", "trap", "return", "shift", "break", "continue", "tee"),
        *("scontrol", "squeue", "sinfo", "nvidia-smi", "env", "printenv", "which", "cat", "sleep", "[", "[[", "test"),
    )
)
HINT = "give the number of ranks and the program: taco-launch run --np N -- PROGRAM"


def not_read(words: Sequence[str], env: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return why a command is not read, although it starts ranks; "" for any other command. `env` are variables that it has."""
    given, _around, program = bare(words)
    size = other_systems.of_variables({**env, **dict(each.split("=", 1) for each in given)})
    words = program or words
    name = posixpath.basename(words[0])
    if name.startswith("python"):
        named = [*words[1:]]
        if "-m" in named[:-1]:
            name = named[named.index("-m") + 1]
        elif posixpath.basename(named[0] if named else "") == "launch.py" and "--launcher" in named:  # dmlc_tracker's
            return "launch.py starts the workers of a parameter server, and is not read here"
    if name in _MODULES or name in _PROGRAMS or _LIKE_MPIRUN.fullmatch(name):
        return f"{name} starts ranks, and is not read here"
    if name in ("lightning", "fabric") and words[1:2] == ("run",) and words[2:3] != ("app",):
        return (
            f"{name} run starts the ranks of Lightning Fabric, and gives them its options as variables: taco-launch run --launcher "
            "torchrun --hosts N --slots-per-host N -x LT_CLI_USED=1 -x LT_NUM_NODES=N -x LT_DEVICES=N -- SCRIPT ... "
            "(--accelerator, --strategy, --precision: -x LT_ACCELERATOR=..., and so on)"
        )
    if name in _START_TORCHRUN:
        return (
            f"{name} starts torchrun itself where NPROC_PER_NODE or FORCE_TORCHRUN is set: start its ranks here, without "
            f"these variables: taco-launch run --launcher torchrun {size} -- {shell(tuple(map(shown, words)))}"
        )
    if name == "llamafactory-cli" and [*words[1:2]] == [
        "train"
    ]:  # llamafactory/cli.py: with several GPUs, or FORCE_TORCHRUN
        return (
            "llamafactory-cli starts torchrun itself where a host has several GPUs: start what torchrun starts: "
            f"taco-launch run --launcher torchrun {size} -- python3 -m llamafactory.launcher {shell(tuple(map(shown, words[2:])))}"
        )
    if name in _REMOTE and (line := next(_launchers(words[1:]), ())):
        return (
            f"{name} starts a command elsewhere: translate that command alone, and list the hosts with -H: "
            f"taco-launch translate -- {shell(tuple(map(shown, itertools.chain(*bare(line)))))}"
        )
    return ""


def of_another_system(words: Sequence[str], directives: Sequence[Part] = ()) -> str:
    """Return why a command, or one of the shell's script that it is, starts no ranks of ours; "" for any other.

    `directives` are those of the script that has it.
    """
    if started := containers.script(words):
        inside = shell(tuple(map(shown, started)))
        return f"{containers.starter(words)[0]} {DOES[CONTAINS]}: {OF_CONTAINER.replace('LINE', inside)}"
    for line in (words, *(each.words for each in read(shown(of_line(words))).commands)):
        other, program = elsewhere((*line, "-")), bare(line)[2]  # what is submitted may be redirected
        if other is not None and other[1] == CONTAINS and (here := containers.typed(line)):
            return f"{other[0]} {DOES[CONTAINS]}: give the number of ranks, and what runs inside: {here}"
        if other is not None:
            return f"{other[0]} {DOES[other[1]]}: {other_systems.instead(*other, line, directives)}"
        if [posixpath.basename(word) for word in program[:2]] == ["ray", "start"]:
            return "ray start makes a cluster of Ray, which starts its own workers: taco-launch does not start it"
    return ""


def on_each_host(words: Sequence[str], *, is_loop: bool = False) -> str:
    """Return what to do with a command that runs another one on several hosts, as ssh does in a loop over them; "" for others."""
    name = posixpath.basename((bare(words)[2] or words)[0])
    options = {word.partition("=")[0] for word in words[1:]}
    has_host = any(UNKNOWN in word and not any(map(str.isspace, word)) for word in words[1:_MOST_BEFORE])
    is_parallel = name == "parallel" and bool(options.intersection(_OF_PARALLEL))
    if name not in _ON_HOSTS and not is_parallel and not (name == "ssh" and is_loop and has_host):
        return ""
    run = "taco-launch run --launcher env --hosts N --slots-per-host 1 -- sh -c 'COMMAND'"
    return (
        f"{name} runs a command on each of several hosts. If that command is a rank of a job: {run}, where it has $RANK, "
        "$WORLD_SIZE and $MASTER_ADDR. If it prepares or cleans up the hosts, run it yourself"
    )


def _launchers(words: Sequence[str], depth: int = 0) -> Iterator[Sequence[str]]:
    """Yield the lines of launchers behind the options and the host of ssh, or in a command line that is one of its words.

    Such a line may start another shell, nohup or tmux, which is given the next one.
    """
    lines = [" ".join(words[at:]) for at in range(min(len(words), _MOST_BEFORE))]
    lines += [word for word in words if any(char.isspace() for char in word)]
    commands = [each.words for line in lines for each in read(shown(line)).commands]
    yield from (each for each in commands if inner(each))
    if depth < _DEEPEST:
        for each in commands:
            inside = [word for word in each if any(char.isspace() for char in word)]
            if inside and inside != list(words):
                yield from _launchers(inside, depth + 1)


def as_torchrun(words: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Read a launcher whose path is not known by its options, or its module; return the words, and the one read so, "" for none."""
    for at, word in enumerate(words[:_MOST_OPTIONS]):
        before = words[at - 1] if at else ""
        rest = words[at + 1 :]
        is_program = not before or "=" in before or not before.startswith("-")
        is_like = word.rpartition("/")[2].startswith("torchrun") and not word.endswith(("torchrun", ".sh"))
        if not (UNKNOWN in word or is_like) or word.startswith("-") or not is_program:
            continue
        launcher = inner((*words[:at], "x")) if at else None
        if at and (launcher is None or launcher.kind not in ("srun", "mpirun", "hydra")):
            continue
        if rest[:1] == ("-m",) and inner(("python", *rest)):
            return (*words[:at], "python", *rest), word
        names = [each.lstrip("-").replace("_", "-").partition("=")[0] for each in rest if each.startswith("--")]
        if names and rest[0].startswith("--") and names[0] in _OF_TORCHRUN and _EACH in names:
            return (*words[:at], "torchrun", *rest), word
    return words, ""


def script_of(words: Sequence[str]) -> str:
    """Return the script's file that a command runs, which may start ranks itself; "" for other commands."""
    name, rest = posixpath.basename(words[0]), words[1:]
    if name in _SHELLS:
        file = next((word for word in rest if not word.startswith("-")), "")
        return "" if "c" in "".join(word for word in rest[:1] if word.startswith("-")) else shown(file)
    return shown(words[0]) if name.endswith((".sh", ".bash", ".csh")) else ""


def by_hand(words: Sequence[str]) -> str:
    """Return what to do with a command that is started on each host by hand, with a rank of its own; "" for others."""
    line = shell(tuple(map(shown, words)))
    counted = [
        (word, word.partition("=")[2] or following)
        for word, following in zip(words, (*words[1:], ""), strict=True)
        if _HOSTS.fullmatch(word.partition("=")[0])
    ]
    option, hosts = counted[-1] if counted else ("", "")
    is_ranked = _ITS_RANK.search(line) is not None
    is_count = hosts.isdecimal() and 1 < int(hosts) <= _MOST_HOSTS
    if not is_ranked and not is_count:
        return ""
    by_shell = ("--", "sh", "-c", " ".join(map(shown, words)))
    run = shell(("--launcher", "env", "--hosts", hosts if is_count else "N", "--slots-per-host", "1", *by_shell))
    each = "with $RANK, $WORLD_SIZE and $MASTER_ADDR in the place of its own values: taco-launch run " + run
    if is_ranked:
        return f"it is started on each host, and its arguments give it a rank of its own: {each}"
    return f"{shown(option).partition('=')[0]} counts hosts. If each of them starts it, {each}. If not: taco-launch run --np 1 -- {line}"
