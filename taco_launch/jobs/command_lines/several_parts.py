"""Join the parts of a line that starts one program several times (`mpirun PART : PART`), and those of one line in another."""

import contextlib
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from taco_launch.core.launch.command_line.env import VISIBLE_GPUS
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher
from taco_launch.jobs.command_lines import launcher_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError

_ITS_GPU = "each rank has a GPU of its own"
_COUNTED = "the parts of the line count the ranks"
_COUNTS = (table.RANKS, table.EACH, table.HOSTS, table.NODES)
_COUNTS_RANKS = (table.RANKS, table.EACH, table.NODES, table.SPREAD)
_HAVE_ARGUMENTS = ("--launcher-args", "--mpi-args", "--binding-args")
_ITS_HOSTS = "the parts of the line are one job here, whose hosts may be of one kind or of several"


def read(words: Sequence[str], nested: NestedLauncher) -> LauncherLine:
    """Read a line; parts that start the same program are one.

    Raises:
        UnclearError: where its program starts is not known, or it has several.
    """
    ends = [at for at, word in enumerate(words) if word == ":"]
    if ends and nested.kind in ("mpirun", "hydra", "srun"):
        starts = [nested.words, *(end + 1 for end in ends)]
        parts = [words[begin:end] for begin, end in zip(starts, (*ends, len(words)), strict=True)]
        with contextlib.suppress(UnclearError):
            first = launcher_line.read((*words[: nested.words], *parts[0]), nested)
            others = [
                launcher_line.read((*words[: nested.words], *part), replace(nested, kind=first.kind))
                for part in parts[1:]
            ]
            if one := joined((first, *others)):
                return one
    line = launcher_line.read(words, nested)
    return replace(line, parts=_with_arguments(line)) if line.kind in ("deepspeed", "horovodrun") else line


def _with_arguments(line: LauncherLine) -> tuple[Part, ...]:
    """Return the parts of a line, with those of the launcher that it starts in the place of the option that has them.

    Raises:
        UnclearError: the launcher that it starts does not have such an argument.
    """
    options = [(part.words[0].partition("=")[0].replace("_", "-"), part) for part in line.parts]
    by = next((_value(part) for name, part in reversed(options) if name == "--launcher"), "")
    kind = "mpirun" if line.kind == "horovodrun" else table.STARTERS.get(by.lower())
    parts: list[Part] = []
    for name, part in options:
        if name not in _HAVE_ARGUMENTS or kind is None:
            parts.append(part)
            continue
        at, value_at = 0, part.index + len(part.words) - 1
        try:
            words = tuple(shlex.split(_value(part)))
            reader = launcher_line.Reader(kind, words, {})
            while at < len(words):
                at = reader.option(at)
        except UnclearError as error:
            raise UnclearError(value_at, error.problem, error.hint) from None
        except ValueError as error:
            raise UnclearError(value_at, f"cannot be read: {error}") from None
        for each in reader.parts:
            is_count = each.use in _COUNTS_RANKS
            inside = (
                replace(each, use=table.OMITTED, why=f"{line.kind} counts its ranks by its own options")
                if is_count
                else each
            )
            parts.append(replace(inside, index=part.index))
    return tuple(parts)


def _value(part: Part) -> str:
    """Return the value of an option, as it is typed."""
    return part.words[1] if len(part.words) > 1 else part.words[0].partition("=")[2]


def joined(lines: Sequence[LauncherLine]) -> LauncherLine | None:
    """Return the line of one job, None where the parts differ in more than their ranks, their hosts and the GPUs they see."""
    first = lines[0]
    ranks = [_ranks(line) for line in lines]
    hosts = [_host(line) for line in lines]
    same = _settings(first)
    if (
        any(line.program != first.program or line.before != first.before for line in lines)
        or not all(ranks)
        or (any(hosts) and not all(hosts))
        or any(_settings(line) != same for line in lines)
    ):
        return None
    parts = [Part(0, ("-np", str(sum(ranks))), table.RANKS, value=str(sum(ranks)))]
    if first.kind == "srun" and not any(hosts):
        nodes = sum(int(part.value) if (part := line.last(table.NODES)) else 1 for line in lines)
        parts.append(Part(0, ("-N", str(nodes)), table.NODES, value=str(nodes)))
    if all(hosts):
        slots: Counter[str] = Counter()
        for host, count in zip(hosts, ranks, strict=True):
            slots[host] += count
        listed = ",".join(f"{host}:{count}" for host, count in slots.items())
        parts.append(Part(0, ("-H", listed), table.HOSTS, value=listed))
    seen = [
        replace(
            part, use=table.OMITTED, why=_ITS_GPU if _is_gpus(part) else _ITS_HOSTS if _is_group(part) else _COUNTED
        )
        for line in lines
        for part in line.parts
        if _is_gpus(part) or _is_group(part) or part.use == table.EACH
    ]
    shown = {part.words for part in seen}
    parts += [part for part in first.parts if part.use not in _COUNTS and part.words not in shown]
    return replace(first, parts=(*parts, *seen))


def _ranks(line: LauncherLine) -> int:
    """Return how many ranks a part starts, 0 where it does not say: Hydra starts one then, Open MPI fills the hosts of -H."""
    part, each = line.last(table.RANKS), line.last(table.EACH)
    if part is not None:
        return int(part.value)
    nodes = line.last(table.NODES)
    if line.kind == "srun":  # srun(1): a node has one task by default
        counts = [int(found.value) if found.value.isdecimal() else 0 for found in (each, nodes) if found]
        return math.prod(counts)
    if line.kind == "hydra":
        return 1
    named = [word for hosts in line.of(table.HOSTS) for word in hosts.value.split(",")]
    if each is not None:
        return int(each.value) * len({word.partition(":")[0] for word in named})
    slots = [word.partition(":")[2] or "1" for word in named]
    return sum(int(count) for count in slots if count.isdecimal())


def _host(line: LauncherLine) -> str:
    """Return the host of a part, "" where it has none, or several."""
    named = {word.partition(":")[0] for part in line.of(table.HOSTS) for word in part.value.split(",")}
    return named.pop() if len(named) == 1 else ""


def _is_group(part: Part) -> bool:
    return part.words[0].startswith(("--het-group", "--pack-group"))


def _is_gpus(part: Part) -> bool:
    return part.use == table.ENV and part.name == VISIBLE_GPUS


def _settings(line: LauncherLine) -> set[tuple[str, str, str]]:
    """Return what changes a part besides its ranks, hosts and GPUs; parameters of Open MPI are those of the whole line."""
    outside = (*_COUNTS, table.OMITTED, table.MCA)
    return {(part.use, part.name, part.value) for part in line.parts if part.use not in outside and not _is_gpus(part)}
