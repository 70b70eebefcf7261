"""A directive of a scheduler in a script (`#SBATCH --nodes=2`) -> its parts, each with what it is here."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import Part, Reader, UnclearError
from taco_launch.jobs.command_lines.shell_script import ShellScript, shown
from taco_launch.jobs.command_lines.shell_words import BLANK
from taco_launch.jobs.command_lines.translation import Row
from taco_launch.jobs.command_lines.unfinished.placeholders import LIKE_PLACEHOLDER

_PACKED = "place=pack has all chunks on one host"
# With these Slurm counts the tasks of a node by something else, or gives a job all CPUs of its nodes.
_COUNT_TASKS = {table.RANKS, table.EACH, *table.OF_GPUS, "--exclusive"}
_READS_TO_A_COMMAND = ("Slurm", "PBS")


def of_script(script: ShellScript, scheduler: str) -> tuple[list[Part], list[Row]]:
    """Return the parts of a script's directives, and a row for each directive that does not count, or cannot be read."""
    parts: list[Part] = []
    rows: list[Row] = []
    for number, text, own in script.directives:
        begun = min((command.line for command in script.commands), default=number)
        why = ""
        if own != scheduler:
            why = f"is of {own}, and the script is one for {scheduler}"
        elif begun < number and own in _READS_TO_A_COMMAND:
            why = f"comes after the first command, in line {begun}, where {own} reads no directives"
        else:
            try:
                parts += directive(own, tuple(shlex.split(LIKE_PLACEHOLDER.sub(_in_one_word, text))))
            except (UnclearError, ValueError) as error:
                why = f"cannot be read: {error}"
        rows += [Row(shown(f"line {number}: {text}"), "", why)] if why else []
    uses = {each for part in parts for each in (part.use, part.name)}
    if scheduler == "Slurm" and table.NODES in uses and not uses & _COUNT_TASKS:
        parts.append(Part(0, ("--ntasks-per-node=1",), table.EACH, value="1", why=table.ONE_TASK))
    return parts, rows


def packed(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of directives, of which PBS's `place=pack` has all chunks on one host (pbs_resources(7))."""
    places = [part.words[-1].partition("=")[2].split(":") for part in parts if part.words[-1].startswith("place=")]
    chunks = next(
        (int(part.value) for part in reversed(parts) if part.use == table.NODES and part.value.isdecimal()), 1
    )
    if chunks == 1 or "pack" not in "".join(each[0] for each in places[-1:]):
        return list(parts)
    of_one: dict[str, Callable[[str], str]] = {
        table.NODES: lambda _value: "1",
        table.EACH: lambda value: str(chunks * int(value)),
    }
    return [
        replace(part, value=of_one[part.use](part.value), why=part.why or _PACKED) if part.use in of_one else part
        for part in parts
    ]


def _in_one_word(placeholder: re.Match[str]) -> str:
    return placeholder[0].replace(" ", BLANK)


def directive(scheduler: str, words: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of the words of a directive of a scheduler.

    Raises:
        UnclearError: an option lacks its value.
    """
    if scheduler not in table.DIRECTIVES:
        return (Part(0, tuple(words), table.REFUSED, why=f"directives of {scheduler} are not read"),)
    reader = Reader(scheduler, words, {})
    options, between = table.OF_RESOURCES.get(scheduler, ((), ""))
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option = next((each for each in options if words[at].startswith(each)), "")
        if option and len("".join(words[at : at + 2])) > len(option):
            at = reader.resources(at, option, between)
        else:
            at = reader.option(at)
    rest = tuple(words[at:])
    parts = [*reader.parts]
    if any(part.use == table.NODES and "select=" in part.words[-1] for part in parts) and not any(
        table.EACH in (part.use, part.name) for part in parts
    ):
        parts.append(Part(0, ("mpiprocs=1",), table.EACH, value="1", why=table.BY_DEFAULT))
    return (*parts, *((Part(at, rest, table.REFUSED, why="is no option, and is not read"),) if rest else ()))
