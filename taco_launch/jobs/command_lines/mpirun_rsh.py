"""Read what mpirun_rsh has before its program: the host of each rank where no file lists them, and variables; pure."""

import itertools
import re
from collections import Counter
from dataclasses import replace

from taco_launch.core.launch.command_line.nested_launcher import bare
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import LauncherLine, Part, UnclearError, variable

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_CLEARLY_HOST = re.compile(r"localhost|(?!python)[A-Za-z][A-Za-z-]*\d+(?:\.[A-Za-z].*)?|\d+(?:\.\d+){3}")
_PROGRAM = re.compile(r"python[\d.]*|.*\.(?:py|sh|exe|out|x)")


def opened(line: LauncherLine) -> LauncherLine:
    """Return a line, of which the hosts and the variables before the program are parts.

    Raises:
        UnclearError: it is not known whether hosts come before the program, or no program comes behind them.
    """
    if line.kind != "mpirun_rsh":
        return line
    hosts = _hosts(line)
    behind = line.program[len(hosts) :]
    given = tuple(itertools.takewhile(lambda word: re.match(r"[A-Za-z_]\w*=", word), behind))
    if len(given) == len(behind):
        raise UnclearError(line.begin, "is no program, and none comes behind it")
    parts = [variable(line.begin, (word,), word) for word in given]
    if hosts:
        listed = ",".join(f"{name}:{count}" for name, count in Counter(hosts).items())
        parts.insert(0, Part(line.begin, hosts, table.HOSTS, value=listed))
    begin = line.begin + len(hosts) + len(given)
    return replace(line, parts=(*line.parts, *parts), begin=begin, program=behind[len(given) :])


def _hosts(line: LauncherLine) -> tuple[str, ...]:
    """Return the words before the program that are hosts, one for each rank.

    Raises:
        UnclearError: they may be.
    """
    ranks = line.last(table.RANKS)
    count = int(ranks.value) if ranks else 0
    words = line.program[:count]
    if any(line.of(table.HOSTS, table.HOSTFILE)) or table.HOSTFILE in {part.name for part in line.parts}:
        return ()
    if not 0 < count < len(line.program) or not all(map(_HOST.fullmatch, words)) or any(map(_PROGRAM.fullmatch, words)):
        return ()
    if bare(words)[1]:
        return ()
    if not all(map(_CLEARLY_HOST.fullmatch, words)):
        problem = "may be the program, or the first of the hosts, which mpirun_rsh has before it"
        raise UnclearError(line.begin, problem, "list the hosts with -hosts HOST,HOST")
    return words
