"""A command that hands work to another system: what to type here for it, with the sizes that it names. Pure."""

import itertools
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import CONTAINS, STARTS, SUBMITS, inner
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import sizes
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError
from taco_launch.jobs.command_lines.scripts.directives import directive
from taco_launch.jobs.command_lines.shell_script import of_line, read, shown
from taco_launch.jobs.command_lines.shell_words import UNKNOWN

DOES = {SUBMITS: "submits a job", STARTS: "starts ranks, and is not read here", CONTAINS: "starts a container"}
OF_CONTAINER = (
    "give the line that it runs inside: taco-launch translate -- LINE; --image NAME chooses the image of the ranks"
)
# Whose options a command that submits a script has.
SCHEDULERS = {
    **dict.fromkeys(("sbatch", "salloc"), "Slurm"),
    **dict.fromkeys(("qsub", "msub"), "PBS"),
    "bsub": "LSF",
    **dict.fromkeys(("flux batch", "flux alloc", "flux submit"), "Flux"),
}
# Options of other systems that count hosts, ranks of each or all ranks, and variables that do.
_COUNTS = {
    **dict.fromkeys(("--num-nodes", "--nnodes", "NNODES", "num_nodes"), "--hosts"),
    **dict.fromkeys(
        ("--gpus", "--nproc_per_node", "NPROC_PER_NODE", "accelerators", "-procs-per-node"), "--slots-per-host"
    ),
    **dict.fromkeys(("--entrypoint-num-gpus", "-procs", "-np", "-n"), "--np"),
}
_FILE = ("-f", "--filename")
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".pbs", ".lsf", ".job", ".yaml", ".yml")


def instead(name: str, what: str, words: Sequence[str], directives: Sequence[Part] = ()) -> str:
    """Return what to type in the place of a command of another system, of that name; `directives` are those of its script."""
    if what == CONTAINS:
        return OF_CONTAINER
    size, rest = _read(name, words, directives)
    if len(rest) == 1 and not rest[0].endswith(_SCRIPTS):
        rest = read(rest[0]).commands[0].words if len(read(rest[0]).commands) == 1 else ("sh", "-c", *rest)
    inside = (
        next((each.words for each in read(shown(of_line(rest))).commands if inner(each.words)), rest) if rest else ()
    )
    if inner(inside):
        return f"translate the command that it starts: taco-launch translate -- {shell(tuple(map(shown, inside)))}"
    if rest and rest[0].endswith(_SCRIPTS):
        also = f", and type {size} for the size in this line" if size else ""
        return f"give the file that it submits: taco-launch translate {shell(rest[:1])}{also}"
    if what == SUBMITS and not rest:
        sized = f", or its program: taco-launch run {size} -- PROGRAM" if size else ""
        return f"give the script that it submits: taco-launch translate FILE{sized}"
    by_env = "--launcher env " if name == "blaunch" else ""
    program = shell(tuple(map(shown, rest))) or "PROGRAM"
    return f"give the number of ranks and the program: taco-launch run {by_env}{size or '--np N'} -- {program}"


def of_variables(env: Mapping[str, str]) -> str:
    """Return the size that variables name, by which programs start torchrun; a part that they do not name is N."""
    size = dict(_counted(env.items()))
    if "--hosts" in size:
        return shell(("--hosts", size["--hosts"], "--slots-per-host", size.get("--slots-per-host", "N")))
    return f"--np {size.get('--slots-per-host', 'N')}"


def _read(name: str, words: Sequence[str], directives: Sequence[Part]) -> tuple[str, tuple[str, ...]]:
    """Return the size that a command names, as options here, and the program or the file behind its options."""
    at = next((at for at, word in enumerate(words) if posixpath.basename(word) == name.partition(" ")[0]), 0)
    words = tuple(words[at + len(name.split()) :])
    if words[-1:] == ("-",):  # in the place of what is redirected
        words = words[:-1]
    if name in SCHEDULERS:
        return _of_scheduler(SCHEDULERS[name], words)
    if name == "blaunch":
        return _size(directives), _behind_options(words, {"-z", "-u"})
    size = dict(_counted(itertools.pairwise(_apart(words))))
    named = [value for option, value in itertools.pairwise(words) if option in _FILE]
    rest = words[words.index("--") + 1 :] if "--" in words else tuple(named) or _files(words)
    return shell(tuple(itertools.chain(*sorted(size.items())))), rest


def _files(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words[-1:] if word.endswith(_SCRIPTS) or any(map(str.isspace, word)))


def _apart(words: Sequence[str]) -> Iterator[str]:
    """Yield words, of which an option with its value is two."""
    for word in words:
        name, equals, value = word.partition("=")
        yield from (name, value) if equals and word.startswith("-") else (word,)


def _counted(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what options and variables count here, with the numbers, as the last in A100:8."""
    for option, value in pairs:
        number = value.rpartition(":")[2]
        if option in _COUNTS and number.isdecimal():
            yield _COUNTS[option], number


def _behind_options(words: Sequence[str], valued: set[str]) -> tuple[str, ...]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return tuple(words[at:])


def _of_scheduler(scheduler: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    script = words[-1:] if words[-1:] and words[-1].endswith(_SCRIPTS) else ()
    try:
        parts = directive(scheduler, words[: len(words) - len(script)])
    except UnclearError:
        return "", script
    behind = [
        part for part in parts if part.use == table.REFUSED and part.words == words[len(words) - len(part.words) :]
    ]
    rest = behind[-1].words if behind and not behind[-1].words[0].startswith("-") else ()
    return _size(parts), script or rest


def _size(parts: Sequence[Part]) -> str:
    """Return the size of a job that directives name."""
    size = tuple(sizes.of_line(LauncherLine("mpirun", tuple(parts), 0, ("-",))))
    return "" if any(UNKNOWN in word for word in size) else shell(size)
