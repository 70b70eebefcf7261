"""A directive of a scheduler in a script (`#SBATCH --nodes=2`) -> its parts, each with what it is here."""

from collections.abc import Sequence

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import Part, Reader


def directive(scheduler: str, words: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of the words of a directive of a scheduler.

    Raises:
        UnclearError: an option lacks its value.
    """
    if scheduler not in table.DIRECTIVES:
        return (Part(0, tuple(words), table.REFUSED, why=f"directives of {scheduler} are not read"),)
    reader = Reader(scheduler, words, {})
    between = table.OF_RESOURCES.get(scheduler, "")
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if between and words[at].startswith("-l") and len("".join(words[at : at + 2])) > 2:
            at = reader.resources(at, between)
        else:
            at = reader.option(at)
    rest = tuple(words[at:])
    parts = [*reader.parts]
    if any(part.use == table.NODES and "select=" in part.words[-1] for part in parts) and not any(
        part.use == table.EACH for part in parts
    ):
        parts.append(Part(0, ("mpiprocs=1",), table.EACH, value="1", why=table.BY_DEFAULT))
    return (*parts, *((Part(at, rest, table.REFUSED, why="is no option, and is not read"),) if rest else ()))
