"""A line of mpirun, horovodrun, torch's launchers or their like -> what of it is said in options here, and its program."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher
from taco_launch.jobs.command_lines import hydra_line, mpirun_line
from taco_launch.jobs.command_lines.mpirun_line import UnclearError

# Every job's line has these where they are needed.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
_HOSTS = ("H", "host", "hosts")
_HOSTFILES = ("hostfile", "machinefile", "default-hostfile")
# horovodrun(1), without what tunes Horovod; and torch/distributed/run.py, with - for _: the options without a value.
_HOROVODS = {**dict.fromkeys(("gloo", "mpi", "verbose", "disable-cache"), 1)}
_HOROVODS |= dict.fromkeys(("np", "n", "num-proc", "p", "ssh-port", "i", "ssh-identity-file", *_HOSTS, *_HOSTFILES), 2)
_HOROVODS |= dict.fromkeys(("network-interface", "network-interfaces", "start-timeout", "timeline-filename"), 2)
# Launchers of which only the options that count ranks and hosts are read, and those that say how they meet: how many words each is.
_COUNTED = {
    "srun": {
        **dict.fromkeys(("n", "ntasks", "N", "nodes", "ntasks-per-node", "mpi", "cpu-bind"), 2),
        "l": 1,
        "label": 1,
    },
    "deepspeed": dict.fromkeys(
        ("num-gpus", "num-nodes", *_HOSTFILES, "H", "master-addr", "master-port", "node-rank"), 2
    ),
    "accelerate": {
        **dict.fromkeys(("num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port"), 2),
        **dict.fromkeys(("multi-gpu", "cpu"), 1),
    },
    "composer": {
        **dict.fromkeys(("n", "nproc", "world-size", "node-rank", "base-rank", "master-addr", "master-port"), 2),
        **dict.fromkeys(("v", "verbose"), 1),
    },
    "colossalai": dict.fromkeys(("nproc-per-node", "num-nodes", "hostfile", "host", "master-addr", "master-port"), 2),
}
_TORCHS_FLAGS = ("standalone", "no-python", "run-path", "use-env", "m", "module")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class LauncherLine:
    """The content of a line: `size` as options of taco-launch, `hosts` in the form of -H, and `hostfile`, "" if missing.

    `env` is what -x takes, `mca` (name, value), `more` (option, value), `program` the program with its arguments.
    """

    size: tuple[str, ...]
    program: tuple[str, ...]
    hosts: str = ""
    hostfile: str = ""
    env: tuple[str, ...] = ()
    mca: tuple[tuple[str, str], ...] = ()
    more: tuple[tuple[str, str], ...] = ()


def read(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    """Read a launcher's line, without what stands before it.

    Raises:
        UnclearError: where its program starts, or what an option asks for, is not known beyond doubt.
    """
    kinds = {"mpirun": _mpirun, "hydra": _mpirun, "horovodrun": _horovodrun, "torch": _torch}
    line = kinds.get(inner.kind, _counted)(words, inner)
    return replace(line, program=(*inner.around, *line.program), env=(*inner.env, *line.env))


def _mpirun(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    line = (hydra_line if inner.kind == "hydra" else mpirun_line).read(("mpirun", *words[1:]), {})
    unused = [text.partition(" ") for text in line.unused]
    told = {option.lstrip("-"): value for option, _space, value in unused}
    bare = [name for name in line.bare if name not in _PASSED_ON]
    sizes = ("--np", line.np), ("--slots-per-host", line.per_host)
    return LauncherLine(
        tuple(word for option, size in sizes if size is not None for word in (option, str(size[0]))),
        tuple(words[line.program :]),
        _hosts(told, words),
        _first(told, (*_HOSTFILES, "f")),
        (*(f"{name}={value}" for name, value, _at in line.env), *bare),
        tuple((name, value) for name, value, _at in line.mca),
        tuple(
            (option, f"{word[0]}{unit}")
            for option, word, unit in (("--timeout", line.timeout, "s"), ("--workdir", line.workdir, ""))
            if word is not None
        ),
    )


def _horovodrun(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    told: dict[str, str] = {}
    at = inner.words
    while words[at].startswith("-"):
        option, is_set, value = words[at].lstrip("-").partition("=")
        count = _HOROVODS.get(option)
        if count is None:
            raise UnclearError(at, "is not a known option of horovodrun")
        at += 1 if is_set else count
        if at >= len(words):
            raise UnclearError(len(words) - 1, "is the last word, and no program comes after it")
        told[option] = value if is_set else words[at - 1]
    count_text = _first(told, ("np", "n", "num-proc"))
    size = ("--np", count_text) if _COUNT.fullmatch(count_text) else ()
    return LauncherLine(size, tuple(words[at:]), _hosts(told, words), _first(told, _HOSTFILES))


def _counted(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    told: dict[str, str] = {}
    at = inner.words
    while words[at].startswith("-"):
        option, is_set, value = words[at].lstrip("-").replace("_", "-").partition("=")
        count = _COUNTED[inner.kind].get(option)
        if count is None:
            raise UnclearError(at, f"is an option of {inner.name} that has no counterpart in a job")
        at += 1 if is_set else count
        if at >= len(words):
            raise UnclearError(len(words) - 1, "is the last word, and no program comes after it")
        told[option] = value if is_set else words[at - 1]
    python = () if inner.kind == "srun" or not words[at].endswith(".py") else ("python3",)
    hostfile = _first(told, ("H", *_HOSTFILES) if inner.kind == "deepspeed" else _HOSTFILES)
    return LauncherLine(tuple(_size(told)), (*python, *words[at:]), _first(told, ("host",)), hostfile)


def _size(told: dict[str, str]) -> Iterator[str]:
    ranks, hosts = (
        _first(told, ("world-size", "n", "nproc", "ntasks", "num-processes")),
        _first(told, ("N", "nodes", "num-nodes", "num-machines")),
    )
    each = _first(told, ("ntasks-per-node", "num-gpus", "nproc-per-node"))
    if _COUNT.fullmatch(ranks):
        yield from ("--np", ranks)
    elif _COUNT.fullmatch(each) and _COUNT.fullmatch(hosts or "1"):
        yield from ("--hosts", hosts, "--slots-per-host", each) if hosts else ("--np", each)


def _torch(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    told: dict[str, str] = {}
    at = inner.words
    while words[at].startswith("-"):
        option, is_set, value = words[at].lstrip("-").replace("_", "-").partition("=")
        at += 1 if is_set or option in _TORCHS_FLAGS else 2
        if at >= len(words):
            raise UnclearError(len(words) - 1, "is the last word, and no program comes after it")
        told[option] = value if is_set else words[at - 1]
    python = words[:1] if inner.words > 1 else ("python3",)
    begin = () if "no-python" in told else (*python, "-m") if told.keys() & {"m", "module"} else tuple(python)
    return LauncherLine(tuple(_torchs_size(told)), (*begin, *words[at:]))


def _torchs_size(told: dict[str, str]) -> Iterator[str]:
    hosts, ranks = told.get("nnodes", "1"), told.get("nproc-per-node", "1")
    if not _COUNT.fullmatch(ranks) or not _COUNT.fullmatch(hosts):
        return
    yield from ("--np", ranks) if hosts == "1" else ("--hosts", hosts, "--slots-per-host", ranks)


def _hosts(told: dict[str, str], words: Sequence[str]) -> str:
    hosts = _first(told, _HOSTS)
    if hosts.startswith("-"):  # no host name does (RFC 1123, 2.1): the option's value was forgotten
        at = next(at for at, word in enumerate(words) if word.endswith(hosts))
        raise UnclearError(at, "stands where the hosts are expected")
    return hosts


def _first(told: dict[str, str], options: Sequence[str]) -> str:
    return next((told[option] for option in options if option in told), "")
