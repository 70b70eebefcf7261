"""What people type who come from Arena, and how it is said here."""

import shlex
from collections.abc import Sequence

from taco_launch.command import shell

# Arena's types of jobs, and their short names.
_TYPES = frozenset(("et", "etjob", "horovod", "horovodjob", "mpi", "mpijob", "pytorch", "pytorchjob", "tf", "tfjob"))
_EXAMPLE = "python3", "train.py"


def slip(verb: str, kept: Sequence[str], words: Sequence[str], behind: Sequence[str], *, alone: bool) -> str | None:
    """Say what is wrong with a job's words as Arena has them, and how to type it here; None where nothing is.

    `words` are those before `--` that are no option of `verb` (`taco-launch submit`), nor the value of one, `behind` those
    after it. `alone` says that nothing else was given, so that the only word may be the program. `kept` is what of the
    options stays as it is.
    """
    kind = next((word for word in words if not word.startswith("-")), "")
    if kind in _TYPES and not alone:
        typed = _typed(verb, kept, behind or words[-1:])
        return f"{kind!r} would be taken for the program: jobs have no type here. Type: {typed}"
    return None


def _typed(verb: str, kept: Sequence[str], command: Sequence[str]) -> str:
    """Give a job's line, its command out of the quotes where it is one word of several."""
    try:
        program = shlex.split(command[0]) if len(command) == 1 else list(command)
    except ValueError:  # a quote that does not end
        program = []
    runs = program if len(program) > 1 else _EXAMPLE
    return f"{verb} {shell((*kept, '--', *runs))}"
