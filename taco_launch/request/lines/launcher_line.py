"""A line of mpirun, horovodrun or torch's launchers -> what of it is said in options here, and its program."""

import re
from collections.abc import Iterator, Sequence

from taco_launch.frozen import dataclass
from taco_launch.launch.nested_launcher import NestedLauncher
from taco_launch.request.lines import mpirun_line
from taco_launch.request.lines.mpirun_line import UnclearError

# Every job's line has these where they are needed.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
_HOSTS = ("H", "host", "hosts")
_HOSTFILES = ("hostfile", "machinefile", "default-hostfile")
# horovodrun(1), without what tunes Horovod; and torch/distributed/run.py, with - for _: the options without a value.
_HOROVODS = {**dict.fromkeys(("gloo", "mpi", "verbose", "disable-cache"), 1)}
_HOROVODS |= dict.fromkeys(("np", "n", "num-proc", "p", "ssh-port", "i", "ssh-identity-file", *_HOSTS, *_HOSTFILES), 2)
_TORCHS_FLAGS = ("standalone", "no-python", "run-path", "use-env", "m", "module")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class LauncherLine:
    """What a line says: `size` as options here, `hosts` as -H takes them and `hostfile`, each "" where it has none.

    `env` is what -x takes, `mca` (name, value), `program` the program with its arguments.
    """

    size: tuple[str, ...]
    program: tuple[str, ...]
    hosts: str = ""
    hostfile: str = ""
    env: tuple[str, ...] = ()
    mca: tuple[tuple[str, str], ...] = ()


def read(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    """Read a line that starts with that launcher.

    Raises:
        UnclearError: where its program starts, or what an option asks for, is not known beyond doubt.
    """
    return {"mpirun": _mpirun, "horovodrun": _horovodrun, "torch": _torch}[inner.kind](words, inner)


def _mpirun(words: Sequence[str], _inner: NestedLauncher) -> LauncherLine:
    line = mpirun_line.read(words, {})
    unused = [text.partition(" ") for text in line.unused]
    told = {option.lstrip("-"): value for option, _space, value in unused}
    bare = [value for option, _space, value in unused if option == "-x" and value not in _PASSED_ON]
    sizes = ("--np", line.np), ("--slots-per-host", line.per_host)
    return LauncherLine(
        tuple(word for option, size in sizes if size is not None for word in (option, str(size[0]))),
        tuple(words[line.program :]),
        _hosts(told, words),
        _first(told, _HOSTFILES),
        (*(f"{name}={value}" for name, value, _at in line.env), *bare),
        tuple((name, value) for name, value, _at in line.mca),
    )


def _horovodrun(words: Sequence[str], inner: NestedLauncher) -> LauncherLine:
    told: dict[str, str] = {}
    at = inner.words
    while words[at].startswith("-"):
        option, is_set, value = words[at].lstrip("-").partition("=")
        count = _HOROVODS.get(option)
        if count is None:
            raise UnclearError(at, "is an option of horovodrun that is not known here")
        at += 1 if is_set else count
        if at >= len(words):
            raise UnclearError(len(words) - 1, "is the last word, and no program comes after it")
        told[option] = value if is_set else words[at - 1]
    count_text = _first(told, ("np", "n", "num-proc"))
    size = ("--np", count_text) if _COUNT.fullmatch(count_text) else ()
    return LauncherLine(size, tuple(words[at:]), _hosts(told, words), _first(told, _HOSTFILES))


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
