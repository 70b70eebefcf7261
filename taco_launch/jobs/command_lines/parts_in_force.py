"""Which parts of a launcher's line, of its script and of what stands before it count: pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher
from taco_launch.core.launch.knobs.lists import FINE
from taco_launch.hosts.inventory.schema.names import as_word
from taco_launch.hosts.inventory.variable_names import OF_A_RANK, env_fault
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import sizes
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part
from taco_launch.jobs.command_lines.shell_script import shown

# Of two options with one of these uses the later one counts; parameters of Open MPI are joined (mca_base_cmd_line.c).
_SET_ONCE = (*sizes.COUNTED, *table.OF_GPUS, table.HOSTS, table.HOSTFILE, table.ENV, table.OPTION)
_SEVERAL_TIMES = ("-v", "--volume", "-B", "--bind", "--mount", "-V")
# Every rank has these, of the job.
_MEETS_AT = ("MASTER_ADDR", "MASTER_PORT")
_RENAMED = "a job name has only letters, digits, '.', '_' and '-', at most 63 of them, and a letter or digit first"
_SECONDS_OF = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SETS = ("-n", "--nrs")  # of jsrun
_SHARED = f"the tasks of a resource set share them; {table.ONE_GPU_EACH}"
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd]?)")


def before(command: Sequence[str], nested: NestedLauncher) -> Iterator[Part]:
    """Yield what stands before a launcher, and is neither a variable nor for each rank: timeout(1) is --timeout here."""
    words = [
        word for word in command[: nested.begin] if word not in (*nested.env, *nested.around, "env", "/usr/bin/env")
    ]
    names = [word.rpartition("/")[2] for word in words]
    if "timeout" in names:
        at = names.index("timeout")
        found = [each for each in map(_DURATION.fullmatch, words[at:]) if each]
        if found:
            seconds = f"{int(found[-1][1]) * _SECONDS_OF[found[-1][2]]}s"
            yield Part(0, tuple(words[at:]), table.OPTION, "--timeout", seconds)
            words = words[:at]
    if words:
        yield Part(
            0, tuple(words), table.OMITTED, why="it is for the launcher, not for its ranks: put it before taco-launch"
        )
    typed = command[nested.begin]
    folder, _slash, name = typed.rpartition("/")
    if folder and name in _OF_A_FOLDER:
        why = f"the ranks use the torchrun and python3 of their PATH; for those of this folder: -x PATH={folder}:/usr/bin:/bin"
        yield Part(0, (typed,), table.OMITTED, why=why)
    elif folder and nested.kind == "mpirun":
        yield Part(0, (typed,), table.OMITTED, why=f"for this one, write in the inventory: mpirun: {typed}")


# Where each looks for a size besides: its hostfile (deepspeed/launcher/runner.py), the file that it writes when it is configured.
_COUNTS_GPUS = {
    "deepspeed": (("deepspeed",), ", or of all in /job/hostfile where that exists"),
    "accelerate": (("accelerate", "launch"), ", unless `accelerate config` set another number"),
}
_OF_A_FOLDER = ("torchrun", "accelerate", "deepspeed")  # each starts the Python of its own folder
_ON_EACH_GPU = re.compile(r"--nproc[-_]per[-_]node=(?:gpu|auto)")


def without_sizes(directives: Sequence[Part], why: str) -> list[Part]:
    """Return directives, of which those that count ranks or hosts do not count, with the reason."""
    return [
        replace(part, use=table.OMITTED, name="", why=why) if {part.use, part.name} & {*sizes.COUNTED} else part
        for part in directives
        if part.why != table.ONE_TASK
    ]


def without_defaults(directives: Sequence[Part], line: LauncherLine) -> list[Part]:
    """Return directives without what a scheduler assumes where nothing counts the ranks, if the line does."""
    counts = line.last(table.RANKS) or line.last(table.EACH)
    left_out = [
        *([table.BY_DEFAULT] if counts else []),
        *([table.ONE_TASK] if counts or line.kind not in table.OF_MPI else []),
    ]
    return [part for part in directives if part.why not in left_out]


def with_gpus(directives: Sequence[Part], line: LauncherLine) -> LauncherLine:
    """Return a line of a launcher of Python; if it starts a rank on each GPU, these are those that the script requests of each host."""
    given = {part.use: part.value for part in directives}
    every, nodes = given.get(table.ALL_GPUS, "0"), given.get(table.NODES, "1")
    of_host = int(every) // int(nodes) if nodes.isdecimal() and int(every) % int(nodes) == 0 else 0
    gpus = given.get(table.GPUS, str(of_host))
    if sizes.is_uncounted(line) and (gpus != "0" or not line.last(table.NODES)):
        return replace(line, parts=(*line.parts, _on_every_gpu(line.kind, gpus)))
    if gpus == "0" or line.last(table.EACH):
        return line
    each = [_ON_EACH_GPU.fullmatch("=".join(part.words)) for part in line.parts]
    parts = [
        replace(part, use=table.EACH, value=gpus, why="") if is_each else part
        for part, is_each in zip(line.parts, each, strict=True)
    ]
    return replace(line, parts=tuple(parts))


def _on_every_gpu(launcher: str, gpus: str) -> Part:
    """Return the size of a launcher without one, whose script requests `gpus` of each host, "0" where it does not."""
    words, unless = _COUNTS_GPUS[launcher]
    if gpus != "0":
        return Part(0, words, table.RANKS, value=gpus, why="it starts a rank on each GPU that the script requests")
    return Part(0, words, table.NODES, value="1", why=f"it starts a rank on each GPU of one host{unless}")


def read(directives: Sequence[Part], line: LauncherLine) -> Iterator[Part]:
    """Yield the parts of directives and a line; what a later option sets again is left out, for launchers use the last one."""
    parts = (*directives, *(_by_tasks(directives, line.parts) if line.kind == "jsrun" else line.parts))
    last = {(part.use, part.name): part for part in parts if part.use in _SET_ONCE}
    for at, part in enumerate(parts):
        later = last.get((part.use, part.name), part)
        joins = part.use == table.HOSTS and line.kind == "mpirun" and at >= len(directives)
        joins |= part.name == "--data" and later.words[0].partition("=")[0] in _SEVERAL_TIMES
        later = last.get((table.ENV, part.name), later) if part.use == table.BARE else later
        if later.words == part.words or joins:
            yield _allowed(part)
        else:
            yield replace(part, use=table.OMITTED, why=f"{shell(tuple(map(shown, later.words)))} overrides it")


def _by_tasks(directives: Sequence[Part], parts: Sequence[Part]) -> list[Part]:
    """Return the parts of jsrun's line: where -p counts the tasks, -n and -r count the resource sets that they are in."""
    tasks = [
        part for part in parts if table.RANKS in (part.use, part.name) and part.words[0].startswith(("-p", "--np"))
    ]
    if not tasks:
        return list(parts)
    sets = next((part.value for part in reversed(parts) if part.use == table.EACH), "")
    least = _tasks_of_set(tasks[-1].value, sets, directives, parts)
    found = []
    for part in parts:
        if part.use == table.GPUS and not (least and least < int(part.value)):
            found.append(replace(part, use=table.OMITTED, why=_SHARED))
        elif part.use == table.EACH:
            found.append(replace(part, use=table.OMITTED, why="counts resource sets of a host, not tasks"))
        elif part.use == table.RANKS and part not in tasks:
            hosts, rest = divmod(int(part.value), int(sets)) if _are_counts(part.value, sets) else (0, 1)
            less = replace(part, use=table.OMITTED, why="counts resource sets, not tasks")
            found.append(less if rest else replace(less, use=table.NODES, value=str(hosts)))
        else:
            found.append(part)
    return found


def _tasks_of_set(tasks: str, sets: str, directives: Sequence[Part], parts: Sequence[Part]) -> int:
    """Return how many of jsrun's tasks a resource set has, 0 if that is not known; `sets` are those of a host."""
    counted = next((part.value for part in parts if part.use == table.RANKS and part.words[0].startswith(_SETS)), "")
    hosts = next((part.value for part in reversed(directives) if part.use == table.NODES), "")
    if not counted and _are_counts(hosts, sets):
        counted = str(int(hosts) * int(sets))
    return -(-int(tasks) // int(counted)) if _are_counts(tasks, counted) else 0


def _are_counts(*texts: str) -> bool:
    return all(text.isdecimal() and int(text) > 0 for text in texts)


def _allowed(part: Part) -> Part:
    """Return a part, which is left out where it is a variable that `run -x` refuses, or that every rank has of its job."""
    if part.use in (table.ENV, table.BARE, table.REFUSED) and part.name in (*OF_A_RANK, *_MEETS_AT):
        return replace(part, use=table.OMITTED, why=table.MEETS)
    if part.use == table.BARE and not part.name.isidentifier():
        return replace(part, use=table.OMITTED, why="is no name of one variable: -x NAME for each that the ranks need")
    if part.use == table.OPTION and part.name == "--name" and (name := as_word(part.value)) != part.value:
        return replace(part, value=name, why=_RENAMED) if name else replace(part, use=table.OMITTED, why=_RENAMED)
    problem, hint = env_fault(part.name, part.value) if part.use == table.ENV else FINE
    return replace(part, use=table.REFUSED, why=f"{problem}: {hint}" if hint else problem) if problem else part
