"""What people type who come from Arena, and how it is said here."""

import shlex
from collections.abc import Sequence

from taco_launch.command import shell

# Arena's types of jobs, and their short names.
_TYPES = frozenset(("et", "etjob", "horovod", "horovodjob", "mpi", "mpijob", "pytorch", "pytorchjob", "tf", "tfjob"))
_SIZES = "--workers", "--gpus"
_THREE = "--hosts", "3", "--slots-per-host", "1"
_EXAMPLE = "python3", "train.py"


def slip(verb: str, name: str | None, words: Sequence[str], behind: Sequence[str], *, alone: bool) -> str | None:
    """Say what is wrong with a job's words as Arena has them, and how to type it here; None where nothing is.

    `words` are those before `--` that are no option of `verb` (`taco-launch submit`), nor the value of one, `behind` those
    after it. `alone` says that nothing else was given, so that the only word may be the program. `name` is the job's.
    """
    size = next((word.partition("=")[0] for word in words if word.partition("=")[0] in _SIZES), "")
    kind = next((word for word in words if not word.startswith("-")), "")
    if kind in _TYPES and not alone:
        typed = _typed(verb, name, behind or words[-1:], _THREE if size else ())
        return f"{kind!r} would be taken for the program: jobs have no type here. Type: {typed}"
    if size:
        return (
            f"No such option: {size}. How many ranks there are is said with --np N, or with {shell(_THREE)}: "
            "one on each of three hosts. An option of your program stands behind --."
        )
    return None


def _typed(verb: str, name: str | None, command: Sequence[str], sizes: Sequence[str]) -> str:
    """Give a job's line, its command out of the quotes where it is one word of several."""
    try:
        program = shlex.split(command[0]) if len(command) == 1 else list(command)
    except ValueError:  # a quote that does not end
        program = []
    named = () if name is None else ("--name", name)
    runs = program if len(program) > 1 else _EXAMPLE
    return f"{verb} {shell((*named, *sizes, '--', *runs))}"
