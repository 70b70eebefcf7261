"""What people type who come from Arena, and how it is said here."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taco_launch.cli.options import nested_launcher
from taco_launch.command import shell
from taco_launch.launch.nested_launcher import inner

if TYPE_CHECKING:
    from taco_launch.model.job_request import JobRequest

# Arena's types of jobs, and their short names.
_TORCHS = frozenset(("pytorch", "pytorchjob"))
_TYPES = _TORCHS | frozenset(("et", "etjob", "horovod", "horovodjob", "mpi", "mpijob", "tf", "tfjob"))
_EXAMPLE = "python3", "train.py"
_ENV = "--env"
# What is done here in the place of Arena's other options.
_OTHERS = {
    _ENV: "set a variable with -x NAME=VALUE",
}
_PROGRAMS = "is no option here; one of your program goes after --"


def arena_hint(
    verb: str, own: Sequence[str], words: Sequence[str], behind: Sequence[str], *, alone: bool
) -> str | None:
    """Return what is wrong with a job's words as Arena has them, and how to type it here; None where nothing is.

    `own` are the options of `verb` (`taco-launch submit`) before `--`, `words` what else stands there, `behind` what stands
    after it. `alone` says that nothing else was given, so that the only word may be the program.
    """
    given, rest = _read(words)
    if rest and rest[0] in _TYPES and not alone:
        env = [word for option, value in given if option == _ENV for word in ("-x", value)]
        typed = _typed(verb, (*own, *env), behind or rest[-1:], torch=rest[0] in _TORCHS)
        line = f"{rest[0]!r} would be taken for the program: jobs have no type here. Type: {typed}"
        left = [option for option, _value in given if option != _ENV]
        return "\n  ".join((line, *(f"left out: {_advice(option)}" for option in dict.fromkeys(left))))
    lines = [_advice(option) for option in dict.fromkeys(option for option, _value in given) if option in _OTHERS]
    return f"No such option: {lines[0]}" + "".join(f"\n  {line}" for line in lines[1:]) if lines else None


def _read(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Take options, each with its value, out of words; give them and what is left."""
    given: list[tuple[str, str]] = []
    rest: list[str] = []
    left = list(words)
    while left:
        option, is_set, value = left.pop(0).partition("=")
        if not option.startswith("-"):
            rest.append(f"{option}{is_set}{value}")
            continue
        if not is_set and option in _OTHERS and left:
            value = left.pop(0)
        given.append((option, value))
    return given, rest


def _advice(option: str) -> str:
    return f"{option}: {_OTHERS[option]}" if option in _OTHERS else f"{option} {_PROGRAMS}"


def _typed(verb: str, options: Sequence[str], command: Sequence[str], *, torch: bool) -> str:
    """Return a job's line, its command out of the quotes where it is one word of several.

    With `torch`, workers are counted, named and told their ranks as those of a PyTorchJob.
    """
    try:
        program = shlex.split(command[0]) if len(command) == 1 else list(command)
    except ValueError:  # a quote that does not end
        program = []
    runs = tuple(program) if len(program) > 1 else _EXAMPLE
    if not torch or "--launcher" in options:
        return nested_launcher.line(verb, options, runs)
    if inner(runs) is None:
        return nested_launcher.line(verb, ("--launcher", "env", *options), runs)
    # Each worker starts the line once; a shell puts $RANK in, where the line has it.
    once = ("bash", "-c", command[0]) if len(command) == 1 and "$" in command[0] else runs
    return f"{verb} {shell(('--launcher', 'env', '--per-host', *options, '--', *once))}"


def with_arena_source(request: "JobRequest", options: Mapping[str, Any]) -> "JobRequest":
    """Return a request with the code that Arena's options name, if they do.

    Raises:
        UsageError: --sync names some as well, or one of them lacks the other.
    """
    mode, source = options.get("sync_mode"), options.get("sync_source")
    if mode is None and source is None:
        return request
    from taco_launch.errors import UsageError
    from taco_launch.request import code_options as asked

    if mode is None:
        raise UsageError("--sync-source: goes with --sync-mode", hint="add --sync-mode git or --sync-mode rsync")
    if request.sync is not None:
        raise UsageError("--sync and --sync-source: each says where the code comes from", hint="leave one of them out")
    return asked.from_arena(request, mode, source or "")
