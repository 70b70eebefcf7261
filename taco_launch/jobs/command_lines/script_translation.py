"""A script that starts ranks -> a line of `taco-launch run` for each launcher in it, and what became of the rest: pure."""

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import (
    CONTAINS,
    STARTS,
    SUBMITS,
    NestedLauncher,
    elsewhere,
    inner,
)
from taco_launch.jobs.command_lines import launcher_line, shell_script
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import Part, UnclearError
from taco_launch.jobs.command_lines.shell_script import (
    FIELD,
    UNKNOWN,
    ScriptCommand,
    ShellScript,
    assigned,
    fields,
    shown,
)
from taco_launch.jobs.command_lines.translation import Row, Translation, translate, without_sizes

_PREPARES = frozenset(("module", "ml", "source", ".", "conda", "mamba", "micromamba", "spack", "eval", "pip", "ulimit"))
_SILENT = frozenset(
    [
        "echo",
        "printf",
        "set",
        "shopt",
        "date",
        "hostname",
        "pwd",
        "wait",
        "true",
        "false",
        ":",
        "exit",
        "trap",
        "return",
        "scontrol",
        "squeue",
        "sinfo",
        "nvidia-smi",
        "env",
        "printenv",
        "which",
        "cat",
        "sleep",
        "[",
        "[[",
        "test",
    ]
)
_SUBMITTED_FROM = ("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD")
_INSIDE = "it is in a loop or a condition of the script: run it as often as the script does"
_READS_TO_A_COMMAND = ("Slurm", "PBS")
_BESIDE = "it is started in the background, beside other launchers: a job has only one; translate its line alone"
_SET_INSIDE = "it is in a loop or a condition of the script, and is read as if the script ran it"
# What to do about a command that hands ranks to another system.
INSTEAD = {
    SUBMITS: "give the script that it submits: taco-launch translate FILE",
    STARTS: "give the number of ranks and the program: taco-launch run --np N -- PROGRAM",
    CONTAINS: "give the line that it runs inside: taco-launch translate -- LINE; --image NAME chooses the image of the ranks",
}
_DOES = {SUBMITS: "submits a job", STARTS: "starts ranks, and is not read here", CONTAINS: "starts a container"}
_SETS = ("export", "declare", "typeset", "readonly", "local")
_READS = ("read", "mapfile", "readarray")
# What of a launcher is not the first word of a command: the container that srun or docker would start it in, and the like.
_OF_PYTHON = ("python", "python3", "torchrun")


@dataclass(frozen=True)
class ScriptTranslation:
    """A translated script: its scheduler ("" if none), a job with its line for each launcher, and rows for the rest.

    `launchers` counts those that are known here, with those that are no job.
    """

    scheduler: str
    jobs: tuple[tuple[int, Translation], ...]
    rows: tuple[Row, ...]
    launchers: int = 0


def translate_script(text: str) -> ScriptTranslation:
    """Return the jobs that a script starts."""
    return _Script(shell_script.read(text)).translated()


class _Script:
    """Follows a script from its first command to its last one."""

    def __init__(self, script: ShellScript) -> None:
        self._script = script
        self._rows: list[Row] = []
        self._jobs: list[tuple[ScriptCommand, Translation]] = []
        self._launchers = 0
        self._exported: dict[str, str] = {}
        self._variables: dict[str, str] = dict.fromkeys(_SUBMITTED_FROM, ".")
        self._folder = ""
        self._directives: list[Part] = []
        self._others: list[ScriptCommand] = []

    def translated(self) -> ScriptTranslation:
        """Return all that was found."""
        for number, text, scheduler in self._script.directives:
            self._directive(number, text, scheduler)
        self._variables |= _set_by_scheduler(self._directives)
        for command in self._script.commands:
            self._command(command)
        for command, _done in self._jobs:
            if self._is_beside(command):
                self._left(command, _BESIDE)
        for command in self._others:
            if not self._launchers and command.words[0].rpartition("/")[2].startswith(_OF_PYTHON):
                name = command.words[0].rpartition("/")[2]
                self._directives = without_sizes(
                    self._directives, f"{name} is started once, whatever the script asks for"
                )
                self._job(command, ("mpirun", "-np", "1", *command.words), {})
            else:
                self._left(command, "it runs once, on the first host: run it yourself, or in the program")
        jobs = tuple((command.line, done) for command, done in self._jobs if not self._is_beside(command))
        return ScriptTranslation(self._script.scheduler, jobs, tuple(self._rows), self._launchers)

    def _is_beside(self, command: ScriptCommand) -> bool:
        """Return whether a launcher runs beside another one, or beside itself in another round of a loop."""
        return command.is_background and (command.is_conditional or self._launchers > 1)

    def _directive(self, number: int, text: str, scheduler: str) -> None:
        begun = min((command.line for command in self._script.commands), default=number)
        why = ""
        if scheduler != self._script.scheduler:
            why = f"is of {scheduler}, and the script begins as one for {self._script.scheduler}"
        elif begun < number and scheduler in _READS_TO_A_COMMAND:
            why = f"comes after the first command, in line {begun}, where {scheduler} reads no directives"
        if why:
            self._rows.append(Row(f"line {number}: {text}", "", why))
            return
        try:
            parts = launcher_line.directive(self._script.scheduler, tuple(shlex.split(text)))
        except (UnclearError, ValueError) as error:
            self._rows.append(Row(f"line {number}: {text}", "", f"cannot be read: {error}"))
            return
        self._directives += parts

    def _command(self, command: ScriptCommand) -> None:
        values, words = assigned(command.words, self._variables)
        if words[:1] and words[0] in _SETS:
            self._declare(command, words)
            return
        typed, words = words, fields(words, self._variables)
        command = replace(command, words=words or command.words)
        name = words[0].rpartition("/")[2] if words else ""
        other = elsewhere(words)
        if not words:
            self._set(command, values)
        elif name == ":":
            self._variables = {**shell_script.defaults(typed, self._variables), **self._variables}
        elif name in _READS:
            self._variables |= {word: f"{UNKNOWN}{word}" for word in words[1:] if word.isidentifier()}
        elif inner(words) is not None:
            self._launchers += 1
            self._job(command, words, values)
        elif shell_script.is_unknown(words[0]):
            self._left(
                command, "what it starts is computed where the script runs: write it, and translate the script again"
            )
        elif other is not None:
            self._left(command, f"{other[0]} {_DOES[other[1]]}: {INSTEAD[other[1]]}")
        elif name == "cd" and len(words) == 2 and not command.is_conditional:
            self._cd(command, words[1])
        elif name in _PREPARES:
            self._left(command, "prepare it in the image, or on the hosts")
        elif name not in _SILENT:
            self._others.append(command)

    def _set(self, command: ScriptCommand, values: Mapping[str, str]) -> None:
        """Keep the values of variables; of two that a condition chooses from none is known."""
        for name, value in values.items():
            before = self._variables.get(name, "")
            if command.is_conditional and before and value.startswith((f"{before} ", f"{before}{FIELD}")):
                self._left(command, _SET_INSIDE)
            elif command.is_conditional and before not in ("", value):
                value = f"{UNKNOWN}{name}"  # noqa: PLW2901 - it is what a shell would have to choose
            self._variables[name] = value

    def _declare(self, command: ScriptCommand, words: Sequence[str]) -> None:
        flags = [word for word in words[1:] if word.startswith("-")]
        given = words[1 + len(flags) :]
        values: dict[str, str] = {}
        all_values = dict(self._variables)
        for word in given:
            new = assigned((word,), all_values)[0]
            values |= new
            all_values |= new
        if words[0] != "export" and not any("x" in flag for flag in flags):
            self._set(command, values)
        elif command.is_conditional:
            self._left(command, "it is in a loop or a condition of the script: add -x")
        else:
            self._variables |= values
            names = [word for word in given if word in self._variables]
            exported = values | {name: self._variables[name] for name in names}
            arrays = [name for name, value in exported.items() if value.startswith(FIELD)]
            self._exported |= {name: value for name, value in exported.items() if name not in arrays}
            if arrays:
                self._left(command, f"a shell exports no arrays: {', '.join(arrays)}")

    def _cd(self, command: ScriptCommand, folder: str) -> None:
        if UNKNOWN in folder:
            self._left(command, "the folder is computed where the script runs: --workdir PATH")
        elif folder not in (".", "./"):
            self._folder = folder if folder.startswith("~") else posixpath.join(self._folder, folder)

    def _job(self, command: ScriptCommand, words: tuple[str, ...], values: Mapping[str, str]) -> None:
        launcher = inner(words)
        assert isinstance(launcher, NestedLauncher)
        env = {**self._exported, **values}
        own = ["--workdir", self._folder] if self._folder else []
        try:
            done = translate(words, launcher, own, directives=(*self._directives, *_variables(env)))
        except UnclearError as error:
            self._left(command, f"{shown(words[launcher.begin + error.index])!r} {error.problem}")
            return
        if command.is_conditional:
            row = _row(command, shell(tuple(map(shown, words[:2]))), _INSIDE)
            done = replace(done, rows=(*done.rows, row))
        self._jobs.append((command, done))

    def _left(self, command: ScriptCommand, why: str) -> None:
        self._rows.append(_row(command, shell(tuple(map(shown, command.words))), why))


def _row(command: ScriptCommand, text: str, why: str) -> Row:
    return Row(f"line {command.line}: {shown(text)}", "", why)


def _variables(env: Mapping[str, str]) -> Iterator[Part]:
    """Yield the variables that the script exports: the ranks have them where its launcher passes all on, as Slurm's does."""
    for name, value in env.items():
        unknown = UNKNOWN in value
        use = table.REFUSED if unknown else table.ENV
        yield Part(
            0, (f"{name}={value}",), use, name, value, "its value is computed where the script runs" if unknown else ""
        )


def _set_by_scheduler(directives: Sequence[Part]) -> dict[str, str]:
    """Return the variables that Slurm sets from what its directives ask for (sbatch(1), output environment variables)."""
    counts = {part.use: part.value for part in directives}
    nodes, each, ranks = (counts.get(use, "") for use in (table.NODES, table.EACH, table.RANKS))
    if not ranks and nodes.isdecimal():
        ranks = str(int(nodes) * int(each or "1"))
    known = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": ranks, "SLURM_NPROCS": ranks}
    known |= {
        "SLURM_NTASKS_PER_NODE": each,
        "PBS_NUM_NODES": nodes,
        "PBS_NUM_PPN": each,
        "LSB_DJOB_NUMPROC": ranks,
        "NSLOTS": ranks,
    }
    return {name: value for name, value in known.items() if value}
