"""A launcher's line -> the same job as options of `taco-launch run`, and what became of each part of the line: pure."""

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher, inner
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.jobs.command_lines import containers, mpirun_rsh, parts_in_force, several_parts, shell_script, sizes
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import PASSED_ON, LauncherLine, Part, UnclearError
from taco_launch.jobs.command_lines.shell_script import shown
from taco_launch.jobs.command_lines.shell_words import UNKNOWN
from taco_launch.jobs.command_lines.unfinished import placeholders

LAUNCHER, PER_HOST = "--launcher", "--per-host"
# Whose programs find each other by what torchrun sets, or Hydra; those of the others by what mpirun does.
_OURS = {**dict.fromkeys(table.OF_PYTHON, "torchrun"), **dict.fromkeys(("hydra", "mpirun_rsh"), "hydra")}
_SIZES = frozenset(("--np", "--hosts", "--slots-per-host", "--workers", "--gpus", "--slots-per-worker"))
INSERTS = "a shell would insert a value here: write it"
OF_CALLER = "the ranks have the value in your environment"
_SIZED_ELSEWHERE = "the command line or the job file has the size"
_HOSTS_NOT_KEPT = "this number of hosts does not divide the ranks, and is not kept: --slots-per-host N spreads them"
_OTHER_HOSTS = "the launcher's own ranks, and ranks of each host, make another number of hosts"
_IN_TURN = (
    "gives each host a rank in turn; here the ranks fill one host after the other: --slots-per-host N spreads them"
)
# Launchers that give each program its local rank as an argument, and the switch that has them not do it.
_GIVES_LOCAL_RANK = {
    "deepspeed": ("--local_rank=N", "no-local-rank"),
    "torch.distributed.launch": ("--local-rank=N", "use-env"),
}
# Variables that Slurm gives each rank -> what has the same value in a rank here.
_OF_SLURM = {
    "SLURM_PROCID": "RANK",
    "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NODEID": "GROUP_RANK",
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), "WORLD_SIZE"),
    "SLURM_NTASKS_PER_NODE": "LOCAL_WORLD_SIZE",
}
_INDICES = re.compile(r"\d{1,3}(?:,\d{1,3})*", re.ASCII)
# Of the programs of OpenMMLab (mmengine.dist): it chooses whose variables they read.
_LAUNCHED_BY_SLURM = re.compile(r"(?:.* )?--launcher slurm")
_SLURMS = re.compile(r"\$\{?(SLURM_\w+)", re.ASCII)
# Options of a job that a restart needs as well.
_RESTART = ("--restart", "on-failure")


@dataclass(frozen=True)
class Row:
    """A part of the original, what it is here ("" where it is left out), and why; a remark is about a part that is there."""

    original: str
    here: str = ""
    why: str = ""
    is_remark: bool = False


@dataclass(frozen=True)
class Translation:
    """Options of `taco-launch run`, the program behind them, the hostfile for `-i` ("" if none), and a row for each part."""

    options: tuple[str, ...]
    program: tuple[str, ...]
    hostfile: str
    rows: tuple[Row, ...]

    @property
    def left_out(self) -> tuple[Row, ...]:
        """Return the rows of what the options do not have."""
        return tuple(row for row in self.rows if not row.here)


def translate(
    command: Sequence[str],
    nested: NestedLauncher,
    own: Sequence[str] = (),
    *,
    sized: bool = False,
    launcher: str = "mpirun",
    directives: Sequence[Part] = (),
    outside: Sequence[Part] = (),
) -> Translation:
    """Return what the line of a launcher is here.

    `own` are options that are given already: they go before the line's. `sized` says that the size is given elsewhere;
    `launcher` is the job's, as far as that is known; `directives` are those of the script that has the line;
    `outside` are the GPUs and hosts of the launcher that starts this one.

    Raises:
        UnclearError: where the line's program starts is not known; its index is one of `command` without what stands before.
    """
    line = containers.opened(mpirun_rsh.opened(several_parts.read(command[nested.begin :], nested)))
    directives = parts_in_force.without_defaults(directives, line)
    differs = _other_hosts(directives, line, nested.name)
    if line.kind in table.OF_PYTHON:  # these do not know what the script asks for
        line = parts_in_force.with_gpus((*outside, *directives), line)
        directives = parts_in_force.without_sizes(directives, f"{nested.name} counts its ranks by its own options")
    else:
        if line.kind == "flux":
            directives = parts_in_force.without_sizes(directives, "flux run counts its tasks by its own options")
        directives = (*directives, *sizes.of_gpus((*directives, *line.parts)))
    directives = containers.without_shifter(directives, line)
    line = replace(line, parts=tuple(parts_in_force.read((*directives, *parts_in_force.before(command, nested)), line)))
    program = shell_script.started((*line.before, *line.program))
    fitting = _OURS.get(line.kind)
    asked = own, launcher
    if PER_HOST in own or (fitting and LAUNCHERS[launcher].is_open_mpi):
        own, launcher = _without_launcher(own), fitting or "mpirun"
        own = (LAUNCHER, fitting, *own) if fitting else own
    if not sized and not _SIZES & set(own) and inner(program) is None and sizes.is_per_host(line, program):
        own, launcher = (LAUNCHER, "env", PER_HOST, *_without_launcher(own)), "env"
    more, rows = _options(line, own, sized=sized, launcher=launcher)
    hostfile = line.last(table.HOSTFILE)
    _check_program(line, program)
    rows += [*differs, *remarks(line, nested.name)]
    inside = inner(program)
    outcome = Translation(tuple(map(shown, (*own, *more))), program, hostfile.value if hostfile else "", tuple(rows))
    if inside is not None:
        behind = len(command) - nested.begin - len(program)
        own, launcher = asked if inside.kind in table.OF_PYTHON else (own, launcher)
        gpus = [part for part in line.parts if part.use in (table.GPUS, table.ALL_GPUS, table.NODES)]
        return _inside(outcome, inside, own, nested, behind, gpus, sized=sized, launcher=launcher)
    rows = [*_with_gpus(line, outcome), *dict.fromkeys(_missing(program))]
    return replace(outcome, program=tuple(map(shown, program)), rows=tuple(rows))


def _with_gpus(line: LauncherLine, done: Translation) -> Iterator[Row]:
    """Yield the rows of a line; that of all GPUs says so where the ranks have another number of them."""
    part, ranks = line.last(table.ALL_GPUS), sizes.total(done.options)
    for row in done.rows:
        if part and (row.why, row.original) == (table.ONE_GPU_EACH, _typed(part)) and ranks not in (0, int(part.value)):
            yield replace(row, why=f"asks for {part.value} GPUs, and each of the {ranks} ranks has one")
        else:
            yield row


def _other_hosts(directives: Sequence[Part], line: LauncherLine, name: str) -> Iterator[Row]:
    """Yield a remark where a script requests another number of hosts than its launcher counts; sbatch(1): 1 by default."""
    requested, counted = (
        next((part.value for part in reversed(parts) if part.use == table.NODES), "")
        for parts in (directives, line.parts)
    )
    of_script = [part for part in directives if part.words[0].startswith("-")]  # the others are its variables
    if not requested and of_script and not any(part.use == table.RANKS for part in of_script):
        requested = "1"
    if requested and counted not in ("", requested) and line.kind in table.OF_PYTHON:
        yield _differs("the script", requested, name, counted)


def _differs(who: str, requested: str, name: str, counted: str) -> Row:
    why = f"{name} counts {counted} hosts, but {who} requests {requested}: is --hosts right?"
    return Row(f"{counted} hosts", "", why, is_remark=True)


def _typed(part: Part) -> str:
    return shell(tuple(map(shown, part.words)))


def _check_program(line: LauncherLine, program: Sequence[str]) -> None:
    """Refuse a shell's script with a launcher in it.

    Raises:
        UnclearError: it is one.
    """
    in_container = containers.script(program)
    script = in_container or program
    for command in shell_script.read(shell_script.of_line(script)).commands:
        if launcher := inner(command.words):
            problem = f"is a script that starts {launcher.name}, and does more than that"
            if in_container:
                problem = f"starts a container, whose script starts {launcher.name}"
            alone = shell(tuple(map(shown, script)))
            raise UnclearError(
                line.begin, problem, f"translate the script on its own: taco-launch translate -- {alone}"
            )


def _inside(
    outer: Translation,
    nested: NestedLauncher,
    own: Sequence[str],
    outside: NestedLauncher,
    behind: int,
    gpus: Sequence[Part],
    *,
    sized: bool,
    launcher: str,
) -> Translation:
    """Translate a launcher that a launcher starts: it starts the ranks, and what the outer one says of the job holds.

    `behind` is how many words of the outer one come before the program, `gpus` its GPUs and hosts.

    Raises:
        UnclearError: where the program of the inner one starts is not known.
    """
    why = f"{outside.name} starts {nested.name}, which starts the ranks itself"
    rows = [row if _is_of_job(row) else Row(row.original, "", row.why or why) for row in outer.rows]
    own = [*own, *(word for row in rows for word in shlex.split(row.here))]
    try:
        inside = translate(outer.program, nested, own, sized=sized, launcher=launcher, outside=gpus)
    except RecursionError:
        raise UnclearError(behind, "starts a launcher that starts a launcher, again and again") from None
    except UnclearError as error:  # of a script that a shell is given it is the last word
        raise UnclearError(max(0, behind + nested.begin + error.index), error.problem, error.hint) from None
    (requested, counted) = (dict(itertools.pairwise(each.options)).get("--hosts", "") for each in (outer, inside))
    if requested and counted and requested != counted:
        rows.append(_differs(outside.name, requested, nested.name, counted))
    if why := sizes.alone(outer.options, inside.options, nested.kind):
        rows.append(Row(nested.name, "", f"{outside.name} {why}", is_remark=True))
    return Translation(inside.options, inside.program, inside.hostfile or outer.hostfile, (*rows, *inside.rows))


def _is_of_job(row: Row) -> bool:
    """Return whether a part of a launcher holds for another one that it starts: not what it says of its own ranks."""
    return bool(row.here) and row.here.split()[0] not in (*sizes.COUNTED.values(), "--mca", "-i")


# Parts whose options those of the size are, which stand first.
_SIZING = (table.TIMES, table.SPREAD, table.LEAST, table.MOST)


def _options(line: LauncherLine, own: Sequence[str], *, sized: bool, launcher: str) -> tuple[list[str], list[Row]]:
    options: list[str] = []
    rows: list[Row] = []
    requested = sizes.of_hosts(line) if PER_HOST in own else sizes.of_line(line)
    given = {value.partition("=")[0] for option, value in itertools.pairwise(own) if option in ("-x", "--mca")}
    size = () if sized or _SIZES & set(own) else tuple(requested)
    options += size
    for part in line.parts:
        here = _here(part, own, given, size=size, launcher=launcher, hosts=_with_slots(line, part))
        if here and part.use not in (*sizes.COUNTED, *table.OF_GPUS, *_SIZING, table.HOSTFILE):
            options += here
            if here[0] == "--backoff-limit" and "--restart" not in own:
                options += _RESTART
        why = part.why if here or part.why else _why_not(part, launcher, size)
        why = OF_CALLER if here and part.use == table.BARE else why
        if part.use == table.REFUSED and part.name == table.RANKS and sizes.total(size):
            why = f"{why}; {shell(size)} is what the script asks for"
        elif part.use == table.REFUSED and part.name == table.RANKS and "--hosts" in size:  # --np would be another size
            why = why.replace(table.SET_BY[table.RANKS], f"{table.SET_BY[table.EACH]}, the ranks of each host")
        rows.append(Row(_typed(part), shell(tuple(map(shown, here))) if here else "", why))
    return options, rows


def _with_slots(line: LauncherLine, part: Part) -> str:
    """Return hosts with the slots that mpirun and Hydra give to a name alone: one for each time that it is named.

    More ranks than names are given out in turn, as Hydra does (Open MPI refuses such a line).
    """
    listed = part.value.split(",")
    ranks = line.last(table.RANKS)
    named = [each for others in line.of(table.HOSTS) for each in others.value.split(",")]
    is_counted = line.last(table.EACH) is not None or any(each.name == table.RANKS for each in line.of(table.REFUSED))
    if part.use != table.HOSTS or line.kind not in ("mpirun", "hydra", "mpirun_rsh") or is_counted:
        return part.value
    counted = Counter(listed)
    if ranks is None:
        if line.kind == "hydra":  # it starts one rank
            return part.value
        # mpirun(1): as many ranks as there are slots
        return ",".join(name if ":" in name else f"{name}:{counted[name]}" for name in dict.fromkeys(listed))
    if not ranks.value.isdecimal() or any(":" in each for each in named):
        return part.value
    if int(ranks.value) > len(named):
        counted = Counter(named[rank % len(named)] for rank in range(int(ranks.value)))
    return ",".join(f"{name}:{counted[name]}" for name in dict.fromkeys(listed))


def _here(
    part: Part, own: Sequence[str], given: set[str], *, size: Sequence[str], launcher: str, hosts: str
) -> tuple[str, ...]:
    """Return what a part is here, () where it is left out; `hosts` is its value as -H takes it."""
    if PER_HOST in own and part.use in (table.EACH, table.GPUS, table.ALL_GPUS):
        return (
            (PER_HOST,)
            if part.use == table.EACH
            else (
                "--slots-per-host",
                dict(itertools.pairwise((*size, *own))).get("--slots-per-host", part.value),
            )
        )
    if part.use in (*sizes.COUNTED, table.SPREAD, table.TIMES):
        option = "" if part.use == table.TIMES else sizes.COUNTED[table.EACH if part.use == table.SPREAD else part.use]
        counted = (option, size[size.index(option) + 1]) if option in size else ()
        if option == "--hosts" and "--np" in size and not _fits(part.value, size):
            return ()
        if option == "--hosts" and "--elastic" in size:
            counted = ("--elastic", *counted)
        return counted or (() if part.use == table.SPREAD else tuple(size))
    if part.use in (table.HOSTS, table.HOSTFILE):
        option = "-H" if part.use == table.HOSTS else "-i"
        return () if {"-H", option} & set(own) else (option, part.value if part.use == table.HOSTFILE else hosts)
    if part.use in (table.ENV, table.BARE):
        return _variable(part, own, given, size)
    if part.use == table.MCA:
        can = LAUNCHERS[launcher].is_open_mpi and part.name not in given
        return ("--mca", part.name, part.value) if can else ()
    if part.use == table.OPTION:
        return () if part.name in own else (part.name, *filter(None, (part.value,)))
    # the launcher, --elastic and its range: the ranks of each host stand with their own part
    return tuple(size[:5]) if part.use in (table.LEAST, table.MOST) and "--elastic" in size else ()


def _fits(hosts: str, size: Sequence[str]) -> bool:
    """Return whether so many hosts are what --np and --slots-per-host make."""
    ranks, each = (dict(itertools.pairwise(size)).get(option, "") for option in ("--np", "--slots-per-host"))
    if not each or not hosts.isdecimal():
        return hosts == "1"
    return -(-int(ranks) // int(each)) == int(hosts)


def _variable(part: Part, own: Sequence[str], given: set[str], size: Sequence[str]) -> tuple[str, ...]:
    """Return what a variable is here: of the GPUs that ranks see the job's own choice, if there is one for each rank."""
    if part.use == table.BARE:
        return () if part.name in (*given, *PASSED_ON) else ("-x", part.name)
    ranks = size[size.index("--np") + 1] if "--np" in size else "1"
    enough = ranks.isdecimal() and int(ranks) <= len(part.value.split(","))
    if part.name == VISIBLE_GPUS and _INDICES.fullmatch(part.value) and enough:
        return () if "--gpu-ids" in own else ("--gpu-ids", part.value)
    return () if part.name in given else ("-x", f"{part.name}={part.value}")


# The model in gpu:a100:8 and a100:8.
_MODEL = re.compile(r"(?:^|[:=])(?!gpu[:=])([A-Za-z][\w.-]*):[0-9]")
_WHY_NOT = {
    **dict.fromkeys((table.LEAST, table.MOST), table.ELASTIC),
    table.SPREAD: _IN_TURN,
    table.MODULE: "python3 -m comes before the program",
    table.NO_PYTHON: "the program is started as it is",
}


def _why_not(part: Part, launcher: str, size: Sequence[str]) -> str:
    if part.use == table.MCA and not LAUNCHERS[launcher].is_open_mpi:
        return f"--launcher {launcher} has no parameters of Open MPI"
    if part.use in sizes.COUNTED:
        if part.use == table.NODES and "--np" in size:
            return _OTHER_HOSTS if "--slots-per-host" in size else _HOSTS_NOT_KEPT
        return _SIZED_ELSEWHERE
    if part.use in table.OF_GPUS:
        model = _MODEL.search(part.words[-1])
        return f"{table.ONE_GPU_EACH}; for that model only: --gpu-model {model[1]}" if model else table.ONE_GPU_EACH
    return _WHY_NOT.get(part.use, "it is given already")


def _missing(program: Sequence[str]) -> Iterator[Row]:
    """Yield what in a program's words only a shell, or Slurm, would know."""
    for before, word in zip(("", *program), program, strict=False):
        for name in _SLURMS.findall(shown(word)):
            same = f": the ranks have {_OF_SLURM[name]}" if name in _OF_SLURM else ": write the value"
            yield Row(f"${name}", "", f"SLURM_* are not set here{same}")
        if _LAUNCHED_BY_SLURM.fullmatch(f"{before} {word}".replace("=", " ").strip()):
            why = "has the program read SLURM_*, which are not set here: --launcher pytorch reads RANK and WORLD_SIZE"
            yield Row("--launcher slurm", "", why, is_remark=True)
        unknown = [each for each in shell_script.unknown(word) if not _SLURMS.match(each)]
        unknown = unknown or [shown(word)] * (UNKNOWN in word and not _SLURMS.search(shown(word)))
        is_script = any(char.isspace() for char in word)
        for each in placeholders.within(word):
            yield Row(each, "", placeholders.WRITE)
        for each in unknown if is_script else [shown(word)] if unknown else []:
            yield Row(each, "", INSERTS)


def remarks(line: LauncherLine, name: str) -> Iterator[Row]:
    """Yield what a launcher does that no option says."""
    options = table.OPTIONS[line.kind]
    if line.kind in table.OF_MPI and (gpus := sizes.gpus_of_test(line.program)):
        why = f"asks for {gpus} GPUs in each rank, but a rank has one slot, which is one GPU: -g 1, and {gpus} times the ranks"
        yield Row(f"-g {gpus}", "", why, is_remark=True)
    if line.kind in table.OF_PYTHON and not line.program[0].endswith((".py", ".sh")) and line.before[-1:] != ("-m",):
        behind = [word for word in line.program[1:] if word.lstrip("-").replace("_", "-").partition("=")[0] in options]
        if behind and not line.program[0].startswith("-"):
            why = f"is where the program starts, although {behind[0]} follows it: is a value missing before it?"
            yield Row(line.program[0], "", why, is_remark=True)
    for word in sizes.misplaced(line):
        why = f"is behind the program, which reads it and {name} does not: is it meant to be before the program?"
        yield Row(shown(word), "", why, is_remark=True)
    if any(part.words[0] == "--standalone" for part in line.parts):
        nodes = next((part for part in reversed(line.parts) if table.NODES in (part.use, part.name)), None)
        if nodes is not None and nodes.value != "1":
            why = f"has each host start alone, but {_typed(nodes)} counts several: which of the two is meant?"
            yield Row("--standalone", "", why, is_remark=True)
    argument, switch = _GIVES_LOCAL_RANK.get(name, ("", ""))
    if switch and not any(switch in part.words[0].replace("_", "-") for part in line.parts):
        yield Row(argument, "", f"{name} adds this argument; here the program must read the variable LOCAL_RANK")


def _without_launcher(own: Sequence[str]) -> tuple[str, ...]:
    """Leave out --launcher with its value, and --per-host."""
    at = own.index(LAUNCHER) if LAUNCHER in own else len(own)
    return tuple(word for index, word in enumerate(own) if index not in (at, at + 1) and word != PER_HOST)
