"""Join the parts of a line that starts one program several times (`mpirun PART : PART`): together they are one job."""

import contextlib
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
_COUNTS = (table.RANKS, table.EACH, table.HOSTS)


def read(words: Sequence[str], nested: NestedLauncher) -> LauncherLine:
    """Read a line; parts that start the same program are one.

    Raises:
        UnclearError: where its program starts is not known, or it has several.
    """
    ends = [at for at, word in enumerate(words) if word == ":"]
    if ends and nested.kind in ("mpirun", "hydra"):
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
    return launcher_line.read(words, nested)


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
    if all(hosts):
        slots: Counter[str] = Counter()
        for host, count in zip(hosts, ranks, strict=True):
            slots[host] += count
        listed = ",".join(f"{host}:{count}" for host, count in slots.items())
        parts.append(Part(0, ("-H", listed), table.HOSTS, value=listed))
    seen = [
        replace(part, use=table.OMITTED, why=_ITS_GPU if _is_gpus(part) else _COUNTED)
        for line in lines
        for part in line.parts
        if _is_gpus(part) or part.use == table.EACH
    ]
    parts += [part for part in first.parts if part.use not in _COUNTS and not _is_gpus(part)]
    return replace(first, parts=(*parts, *seen))


def _ranks(line: LauncherLine) -> int:
    """Return how many ranks a part starts, 0 where it does not say: Hydra starts one then, Open MPI fills the hosts of -H."""
    part, each = line.last(table.RANKS), line.last(table.EACH)
    if part is not None:
        return int(part.value)
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


def _is_gpus(part: Part) -> bool:
    return part.use == table.ENV and part.name == VISIBLE_GPUS


def _settings(line: LauncherLine) -> set[tuple[str, str, str]]:
    """Return what changes a part besides its ranks, hosts and GPUs; parameters of Open MPI are those of the whole line."""
    outside = (*_COUNTS, table.OMITTED, table.MCA)
    return {(part.use, part.name, part.value) for part in line.parts if part.use not in outside and not _is_gpus(part)}
