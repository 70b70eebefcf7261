"""A script that starts ranks -> a line of `taco-launch run` for each launcher in it, and what became of the rest: pure."""

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher, inner
from taco_launch.jobs.command_lines import launcher_line, shell_script
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import Part, UnclearError
from taco_launch.jobs.command_lines.shell_script import ScriptCommand, ShellScript, assigned, expanded, shown
from taco_launch.jobs.command_lines.translation import Row, Translation, translate

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
        "local",
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
# What of a launcher is not the first word of a command: the container that srun or docker would start it in, and the like.
_OF_PYTHON = ("python", "python3", "torchrun")


@dataclass(frozen=True)
class ScriptTranslation:
    """What a script is here: its scheduler ("" if none), a job for each launcher, with its line, and rows for the rest."""

    scheduler: str
    jobs: tuple[tuple[int, Translation], ...]
    rows: tuple[Row, ...]


def translate_script(text: str) -> ScriptTranslation:
    """Return the jobs that a script starts."""
    return _Script(shell_script.read(text)).translated()


class _Script:
    """Follows a script from its first command to its last one."""

    def __init__(self, script: ShellScript) -> None:
        self._script = script
        self._rows: list[Row] = []
        self._jobs: list[tuple[int, Translation]] = []
        self._exported: dict[str, str] = {}
        self._variables: dict[str, str] = dict.fromkeys(_SUBMITTED_FROM, ".")
        self._folder = ""
        self._directives: list[Part] = []
        self._others: list[ScriptCommand] = []

    def translated(self) -> ScriptTranslation:
        """Return all that was found."""
        for number, text in self._script.directives:
            self._directive(number, text)
        self._variables |= _set_by_scheduler(self._directives)
        for command in self._script.commands:
            self._command(command)
        alone = not self._jobs
        for command in self._others:
            if alone and command.words[0].rpartition("/")[2].startswith(_OF_PYTHON):
                self._job(command, ("mpirun", "-np", "1", *command.words), {})
            else:
                self._left(command, "it runs once, on the first host: run it yourself, or in the program")
        return ScriptTranslation(self._script.scheduler, tuple(self._jobs), tuple(self._rows))

    def _directive(self, number: int, text: str) -> None:
        try:
            parts = launcher_line.directive(self._script.scheduler, tuple(shlex.split(text)))
        except (UnclearError, ValueError) as error:
            self._rows.append(Row(f"line {number}: {text}", "", f"cannot be read: {error}"))
            return
        self._directives += parts

    def _command(self, command: ScriptCommand) -> None:
        values, words = assigned(command.words)
        values = {name: expanded(value, self._variables) for name, value in values.items()}
        words = tuple(expanded(word, self._variables) for word in words)
        name = words[0].rpartition("/")[2] if words else ""
        if not words:
            self._variables |= values
        elif name == ":":
            self._variables = {**shell_script.defaults(command.words), **self._variables}
        elif name in ("export", "declare", "readonly"):
            self._export(command, words[1:])
        elif inner(words) is not None:
            self._job(command, words, values)
        elif name == "cd" and len(words) == 2 and not command.is_conditional:
            self._cd(command, words[1])
        elif name in _PREPARES:
            self._left(command, "prepare it in the image, or on the hosts")
        elif name not in _SILENT:
            self._others.append(ScriptCommand(command.line, words, command.is_conditional))

    def _export(self, command: ScriptCommand, words: Sequence[str]) -> None:
        if command.is_conditional:
            self._left(
                replace(command, words=("export", *words)), "it is in a loop or a condition of the script: add -x"
            )
            return
        for word in words:
            name, equals, value = word.partition("=")
            if equals or name in self._variables:
                value = value if equals else self._variables[name]
                self._variables[name] = self._exported[name] = value

    def _cd(self, command: ScriptCommand, folder: str) -> None:
        if shell_script.UNKNOWN in folder:
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
        self._jobs.append((command.line, done))

    def _left(self, command: ScriptCommand, why: str) -> None:
        self._rows.append(_row(command, shell(tuple(map(shown, command.words))), why))


def _row(command: ScriptCommand, text: str, why: str) -> Row:
    return Row(f"line {command.line}: {shown(text)}", "", why)


def _variables(env: Mapping[str, str]) -> Iterator[Part]:
    """Yield the variables that the script exports: the ranks have them where its launcher passes all on, as Slurm's does."""
    for name, value in env.items():
        unknown = shell_script.UNKNOWN in value
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
    known |= {"SLURM_NTASKS_PER_NODE": each, "PBS_NUM_NODES": nodes, "PBS_NUM_PPN": each, "LSB_DJOB_NUMPROC": ranks}
    return {name: value for name, value in known.items() if value}
