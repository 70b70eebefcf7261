"""Refuse a command that starts ranks itself, or hands them to another system (each rank would do it again), or is no program."""

from pathlib import PurePosixPath

from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line.nested_launcher import (
    CONTAINS,
    clashes,
    elsewhere,
    has_one_rank,
    inner,
    is_open_mpi_twice,
)
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request.caller import Caller

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


class NestedLauncherError(UsageError):
    """The command of a job, which is `spec`, is a launcher itself, or a script that has one: `script` is its text then."""

    def __init__(self, message: str, spec: JobSpec, script: str = "") -> None:
        """Keep the job."""
        super().__init__(message)
        self.spec = spec
        self.script = script


def refuse(spec: JobSpec, caller: Caller) -> None:
    """Check that a job's command is a program for its ranks.

    Raises:
        NestedLauncherError: it is a launcher, or a script that calls one.
        UsageError: it hands work to another system, starts a container, or is a file that PATH does not find.
    """
    if not spec.command[0]:
        raise UsageError(
            "the program is an empty word: ''", hint="a variable in the command may be unset; name a program"
        )
    if spec.command == ("-",):
        raise UsageError("'-' is no program", hint="name a program: -- python3 train.py")
    if spec.command[0] == "-":
        option = f"-{spec.command[1]}"
        raise UsageError(f"'-' is no program: a blank divides the option {option}", hint=f"write {option} as one word")
    _refuse_file(spec, caller)
    each = "host" if spec.per_host else "rank"
    unchanged = f"\n  to run it unchanged in each {each}: sh -c '...'"
    launcher = inner(spec.command)
    if launcher is not None:
        if clashes(spec, launcher):
            raise NestedLauncherError(_launchers_words(spec, each) + unchanged.replace(" it ", " the line "), spec)
        return
    other = elsewhere(spec.command)
    if other is not None and not has_one_rank(spec) and not (spec.per_host and other[1] == CONTAINS):
        name, what = other
        hint = "taco-launch runs the ranks in the inventory's container: --image NAME chooses another image"
        if what != CONTAINS:
            hint = "give the program of the job itself; taco-launch translate FILE reads the script of sbatch, qsub or bsub"
        raise UsageError(f"{name} would {what} in each {each}{unchanged}", hint=hint)
    if not has_one_rank(spec) and not spec.per_host:
        _refuse_script(spec, caller, unchanged)


def _launchers_words(spec: JobSpec, each: str) -> str:
    launcher = inner(spec.command)
    assert launcher is not None
    itself = is_open_mpi_twice(spec, launcher)
    lines = [
        f"the command is a launcher itself: each {each} would start the whole line of {launcher.name}"
        + (", and mpirun refuses to be started by mpirun" if itself else ", a job of its own each time")
    ]
    if launcher.kind == "torch":
        lines.append(
            "to run its line once on each host, with RANK and WORLD_SIZE counting hosts: --launcher env --per-host"
        )
    return "\n  ".join(lines)


def _refuse_file(spec: JobSpec, caller: Caller) -> None:
    """Refuse a file of the folder as a program without a path: only where the ranks run here, with this PATH.

    Raises:
        UsageError: it is one.
    """
    name = spec.command[0]
    local = spec.container is None and all(host.connection == "local" for host in spec.hosts)
    if not local or "/" in name or "PATH" in dict(spec.env):
        return
    if caller.is_file(name) and not caller.is_program(name):
        ways = [f"python3 {name}"] if name.endswith(".py") else []
        if not ways or caller.is_program(f"{caller.folder}/{name}"):
            ways.append(f"./{name}")
        problem = f"{name} is a file in this folder, not a program on PATH"
        raise UsageError(problem, hint=f"write {', or '.join(ways)}")


def _refuse_script(spec: JobSpec, caller: Caller, unchanged: str) -> None:
    path, *_arguments = spec.command
    if PurePosixPath(path).name in _SHELLS:
        path = next(iter(spec.command[1:]), "-")
    text = "" if path.startswith("-") else caller.read_script(path)
    if not text:
        return
    from taco_launch.jobs.command_lines import shell_script  # noqa: PLC0415 - few commands are scripts

    if not shell_script.is_script(text):
        return
    script = shell_script.read(text)
    started = ((command.line, inner(shell_script.assigned(command.words, {})[1])) for command in script.commands)
    line, first = next(((line, launcher) for line, launcher in started if launcher is not None), (0, None))
    if not script.scheduler and first is None:
        return
    kind = f"a script for {script.scheduler}" if script.scheduler else "a script that starts ranks itself"
    calls = f", and so {first.name} of line {line}" if first else ""
    raise NestedLauncherError(f"{path} is {kind}: each rank would run all of it{calls}{unchanged}", spec, text)
