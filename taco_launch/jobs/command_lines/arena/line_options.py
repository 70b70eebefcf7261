"""Turn the options of the launcher's line in an Arena command into options of a job: pure."""

from collections.abc import Sequence

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.jobs.command_lines import launcher_line
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import PASSED_ON, LauncherLine


def carried(line: LauncherLine, own: Sequence[str], launcher: str, notes: list[str]) -> list[str]:
    """Return the options of a job with those of its launcher's line, and note what changes nothing.

    `launcher` is the launcher's name.

    Raises:
        UsageError: a job cannot have an option.
    """
    for part in line.of(table.REFUSED):
        raise UsageError(f"{shell(part.words)} of {launcher}: {part.why}", launcher_line.HINT)
    options = [*own]
    for part in line.of(table.OPTION):
        if part.name not in options or part.name == "--workdir":  # the folder that mpirun names wins over its own
            options = [*without(options, (part.name,)), part.name, *filter(None, (part.value,))]
    for part in line.of(table.ENV, table.MCA):
        options += ["-x", f"{part.name}={part.value}"] if part.use == table.ENV else ["--mca", part.name, part.value]
    options += [word for part in line.of(table.BARE) if part.name not in PASSED_ON for word in ("-x", part.name)]
    notes += [f"{shell(part.words)} of {launcher}: {part.why}" for part in line.of(table.OMITTED)]
    return options


def without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return words without some options and their values."""
    return [word for at, word in enumerate(words) if word not in options and words[at - 1] not in options]
