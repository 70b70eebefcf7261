"""A script that starts ranks -> a line of `taco-launch run` for each launcher in it, and what became of the rest: pure."""

import itertools
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import (
    CONTAINS,
    STARTS,
    SUBMITS,
    NestedLauncher,
    elsewhere,
    inner,
)
from taco_launch.jobs.command_lines import arena_line, launcher_line, redirections, script_values, shell_script
from taco_launch.jobs.command_lines.launcher_line import Part, UnclearError
from taco_launch.jobs.command_lines.shell_script import (
    READS,
    SETS,
    ScriptCommand,
    ShellScript,
    assigned,
    computes,
    fields,
    shown,
)
from taco_launch.jobs.command_lines.shell_words import FIELD, NAMED, QUOTED, UNKNOWN
from taco_launch.jobs.command_lines.translation import Row, Translation, translate, without_sizes
from taco_launch.jobs.command_lines.unread_launchers import HINT, not_read

_PREPARES = frozenset(("module", "ml", "source", ".", "conda", "mamba", "micromamba", "spack", "pip", "ulimit"))
_SILENT = frozenset(
    (
        *("echo", "printf", "set", "shopt", "date", "hostname", "pwd", "wait", "true"),
        *("false", ":", "exit", "trap", "return", "shift", "break", "continue", "tee"),
        *("scontrol", "squeue", "sinfo", "nvidia-smi", "env", "printenv", "which", "cat", "sleep", "[", "[[", "test"),
    )
)
_PREPARED = "prepare it in the image, or on the hosts"
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
_SUBMITS_TO = {"sbatch": "Slurm", "qsub": "PBS", "msub": "PBS", "bsub": "LSF"}
_TESTED = re.compile(rf"[{QUOTED}$](?:({NAMED})|\{{({NAMED})[^{{}}]*\}})")
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


def translate_script(text: str, home: str = "") -> ScriptTranslation:
    """Return the jobs that a script starts; `home` is the folder that a shell puts in for ~ and $HOME, "" leaves them.

    Raises:
        UnclearError: it has marks of a merge conflict; its index is the line.
    """
    mark = next((at for at, line in enumerate(text.split("\n"), 1) if line.startswith("<<<<<<< ")), None)
    if mark is not None:
        raise UnclearError(
            mark, "has marks of an unresolved merge conflict: which of its lines are meant?", "resolve it"
        )
    return _Script(shell_script.read(text), {}, home=home).translated()


class _Script:
    """Follows a script from its first command to its last one."""

    def __init__(
        self,
        script: ShellScript,
        exported: Mapping[str, str],
        scheduler: str = "",
        *,
        home: str = "",
        is_inside: bool = False,
    ) -> None:
        self._script = script
        self._scheduler = scheduler or script.scheduler
        self._is_inside = is_inside  # of another script: one in it is not read
        self._rows: list[Row] = []
        self._jobs: list[tuple[ScriptCommand, Translation]] = []
        self._launchers = 0
        self._exported = {**exported}
        self._variables = {**dict.fromkeys(_SUBMITTED_FROM, "."), **({"HOME": home} if home else {}), **exported}
        self._writes: dict[str, ScriptCommand] = {}  # files, with the first command that writes each
        # The blocks that the command is in, and what each of them has changed: a variable, and its value before.
        self._blocks: tuple[int, ...] = ()
        self._changed: list[dict[str, str | None]] = []
        self._sets_at = [shell_script.sets(command.words) for command in script.commands]
        self._last_set = {name: at for at, names in enumerate(self._sets_at) for name in names}
        self._has_default: set[str] = set()
        self._folder = ""
        self._directives: list[Part] = []
        self._others: list[ScriptCommand] = []

    def translated(self, options: Sequence[str] = ()) -> ScriptTranslation:
        """Return all that was found; `options` are those of the command that submits the script."""
        for number, text, scheduler in self._script.directives:
            self._directive(number, text, scheduler)
        if options:
            self._directives += launcher_line.directive(self._scheduler, options)
        self._variables |= script_values.of_scheduler(self._directives)
        for at, command in enumerate(self._script.commands):
            self._move(at, command.blocks)
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
        return ScriptTranslation(self._scheduler, jobs, tuple(self._rows), self._launchers)

    def _is_beside(self, command: ScriptCommand) -> bool:
        """Return whether a launcher runs beside another one, or beside itself in another round of a loop."""
        return command.is_background and (command.is_conditional or self._launchers > 1)

    def _directive(self, number: int, text: str, scheduler: str) -> None:
        begun = min((command.line for command in self._script.commands), default=number)
        why = ""
        if scheduler != self._scheduler:
            why = f"is of {scheduler}, and the script is one for {self._scheduler}"
        elif begun < number and scheduler in _READS_TO_A_COMMAND:
            why = f"comes after the first command, in line {begun}, where {scheduler} reads no directives"
        if why:
            self._rows.append(Row(shown(f"line {number}: {text}"), "", why))
            return
        try:
            parts = launcher_line.directive(scheduler, tuple(shlex.split(text)))
        except (UnclearError, ValueError) as error:
            self._rows.append(Row(shown(f"line {number}: {text}"), "", f"cannot be read: {error}"))
            return
        self._directives += parts

    def _command(self, command: ScriptCommand) -> None:
        values, words = assigned(command.words, self._variables)
        if words[:1] and words[0] in SETS:
            self._declare(command, words)
            return
        typed, words = words, fields(words, self._variables)
        command = replace(command, words=words or command.words)
        self._note(command, typed)
        if self._sets(command, typed, words, values):
            return
        name = words[0].rpartition("/")[2]
        other = elsewhere((*words, "-"))  # what is submitted may be redirected
        if other is not None and not self._is_inside and (script := self._script_of(command, words)):
            self._submitted(command, words, script)
        elif name in self._script.names:
            self._left(command, "is a function of the script: what it starts is read where it stands")
        elif inner(words) is not None:
            self._launchers += 1
            self._job(command, words, values)
        elif shell_script.is_unknown(words[0]) or name == "eval":
            self._unknown(command, words)
        elif other is not None and other[0] == arena_line.SUBMIT:
            self._arena(command, words)
        elif other is not None:
            self._left(command, f"{other[0]} {_DOES[other[1]]}: {INSTEAD[other[1]]}")
        else:
            self._other(command, words, name)

    def _other(self, command: ScriptCommand, words: Sequence[str], name: str) -> None:
        """Follow a command that starts no ranks by a launcher that is read."""
        if why := not_read(words):
            self._left(command, f"{why}: {HINT}" if why.endswith("here") else why)
        elif name == "cd" and len(words) == 2:
            self._cd(command, words[1])
        elif name in _PREPARES:
            self._left(command, _PREPARED)
        elif name not in _SILENT:
            self._others.append(command)

    def _sets(
        self, command: ScriptCommand, typed: Sequence[str], words: Sequence[str], values: Mapping[str, str]
    ) -> bool:
        """Keep what a command gives variables; return whether it does nothing else."""
        if not words:
            self._set(command, values)
            return True
        if words[0] == ":":
            given = shell_script.defaults(typed, self._variables)
            self._set(command, {name: value for name, value in given.items() if not self._variables.get(name)})
        elif words[0] == "unset":
            self._set(command, dict.fromkeys(words[1:], ""))
            self._exported = {name: value for name, value in self._exported.items() if name not in words}
        else:
            self._set(command, {name: f"{UNKNOWN}{name}" for name in computes(words)})
        return words[0] in (":", "unset", "let", "getopts", *READS)

    def _set(self, command: ScriptCommand, values: Mapping[str, str]) -> None:
        """Keep the values of variables; of two that a condition chooses from none is known."""
        for name, value in values.items():
            before = self._variables.get(name, "")
            if command.blocks and UNKNOWN not in before and _is_added(before, value):
                self._left(command, _SET_INSIDE)
            self._change(name, value)

    def _change(self, name: str, value: str) -> None:
        for changed in self._changed[-1:]:
            changed.setdefault(name, self._variables.get(name))
        self._variables[name] = value

    def _move(self, at: int, blocks: tuple[int, ...]) -> None:
        """Leave blocks and enter others: what one changed is not known behind it, nor in one that may run again, or later."""
        same = next(
            (depth for depth, (one, other) in enumerate(zip(self._blocks, blocks, strict=False)) if one != other), None
        )
        same = min(len(self._blocks), len(blocks)) if same is None else same
        while len(self._changed) > same:
            for name, before in self._changed.pop().items():
                is_default = before is None and name in self._has_default
                if (
                    self._variables[name] != before
                    and not is_default
                    and not _is_added(before or "", self._variables[name])
                ):
                    self._change(name, f"{UNKNOWN}{name}")
                elif self._changed:
                    self._changed[-1].setdefault(name, before)
        for block in blocks[same:]:
            self._changed.append({})
            for name in self._set_later(at, block):
                self._change(name, f"{UNKNOWN}{name}")
        self._blocks = blocks

    def _set_later(self, at: int, block: int) -> list[str]:
        """Return the variables that have another value when a block runs again, or a function is called."""
        if block in self._script.functions:
            return [name for name in self._variables if self._last_set.get(name, -1) >= at]
        if block not in self._script.loops:
            return []
        commands = self._script.commands
        end = next((end for end in range(at, len(commands)) if block not in commands[end].blocks), len(commands))
        return [name for name in set().union(*self._sets_at[at:end]) if name in self._variables]

    def _note(self, command: ScriptCommand, words: Sequence[str]) -> None:
        """Note the files that a command writes, and what it gives a default to: `[ -z "$NAME" ]`, of a variable that is not set."""
        for path in redirections.written(command, self._variables):
            self._writes.setdefault(path, command)
        for option, word in itertools.pairwise(words):
            tested = _TESTED.fullmatch(word) if option == "-z" else None
            if tested and (name := tested[1] or tested[2]) not in self._variables:
                self._has_default.add(name)

    def _script_of(self, command: ScriptCommand, words: Sequence[str]) -> str:
        written = [self._writes[name] for each in words[1:] if (name := posixpath.normpath(each)) in self._writes]
        return redirections.submitted((command, *written), words, self._variables)

    def _submitted(self, command: ScriptCommand, words: Sequence[str], text: str) -> None:
        """Translate the script that a command is given, as << or --wrap has it."""
        name = words[0].rpartition("/")[2]
        script = shell_script.read(text)
        scheduler = script.scheduler or _SUBMITS_TO.get(name, "")
        inside = _Script(
            script,
            self._exported if name == "sbatch" else {},
            scheduler,
            home=self._variables.get("HOME", ""),
            is_inside=True,
        )
        at = next((at for at, word in enumerate(words) if word.startswith(redirections.WRAP)), len(words))
        rest = (*words[1:at], *words[at + (1 if "=" in "".join(words[at : at + 1]) else 2) :])
        try:
            done = inside.translated(rest)
        except UnclearError as error:
            self._left(command, f"{shown(rest[error.index])!r} {error.problem}")
            return
        self._scheduler = self._scheduler or done.scheduler
        self._launchers += done.launchers
        self._rows += done.rows
        for line, job in done.jobs:
            row = [_row(command, name, _INSIDE)] if command.is_conditional else []
            place = replace(command, line=line, is_background=False)
            self._jobs.append((place, replace(job, rows=(*job.rows, *row))))

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
        elif command.is_conditional or command.is_chained:
            self._left(command, "it is in a loop or a condition of the script: add -x")
        else:
            self._set(command, values)
            names = [word for word in given if word in self._variables]
            exported = values | {name: self._variables[name] for name in names}
            arrays = [name for name, value in exported.items() if value.startswith(FIELD)]
            self._exported |= {name: value for name, value in exported.items() if name not in arrays}
            if arrays:
                self._left(command, f"a shell exports no arrays: {', '.join(arrays)}")

    def _cd(self, command: ScriptCommand, folder: str) -> None:
        if command.is_conditional or command.is_chained:
            self._left(command, "the folder depends on a condition of the script: --workdir PATH")
        elif UNKNOWN in folder:
            self._left(command, "the folder is computed where the script runs: --workdir PATH")
        elif folder not in (".", "./"):
            self._folder = folder if folder.startswith("~") else posixpath.join(self._folder, folder)

    def _job(self, command: ScriptCommand, words: tuple[str, ...], values: Mapping[str, str]) -> None:
        launcher = inner(words)
        assert isinstance(launcher, NestedLauncher)
        env = {**self._exported, **values}
        own = ["--workdir", self._folder] if self._folder else []
        try:
            done = translate(words, launcher, own, directives=(*self._directives, *script_values.exported(env)))
        except UnclearError as error:
            self._left(command, f"{shown(words[launcher.begin + error.index])!r} {error.problem}")
            return
        if command.is_conditional:
            row = _row(command, shell(tuple(map(shown, words[:2]))), _INSIDE)
            done = replace(done, rows=(*done.rows, row))
        rows = [*redirections.rows(command, self._variables)]
        if (makes := self._writes.get(posixpath.normpath(done.hostfile))) is not None:
            rows.append(redirections.makes(makes, done.hostfile, self._variables))
        self._jobs.append((command, replace(done, rows=(*done.rows, *rows))))

    def _unknown(self, command: ScriptCommand, words: Sequence[str]) -> None:
        """Follow eval; where its text is not known, or a command, name the variables that a launcher is in."""
        is_eval = words[0] == "eval"
        inside = shell_script.read(shown(" ".join(words[1:]))).commands if is_eval else ()
        if any(inner(each.words) for each in inside):
            for each in inside:
                self._command(replace(command, words=each.words))
            return
        named = [name for name, value in self._variables.items() if inner(value.split()) is not None]
        if is_eval and not named:
            self._left(command, _PREPARED)
            return
        which = f" ({', '.join(named)} may be it)" if named else ""
        why = f"what it starts is computed where the script runs{which}: write it, and translate the script again"
        self._left(command, why)

    def _arena(self, command: ScriptCommand, words: Sequence[str]) -> None:
        self._launchers += 1
        try:
            self._jobs.append((command, arena_line.translation(words[1:])))
        except UsageError as error:
            self._left(command, f"{error}{f' ({error.hint})' if error.hint else ''}")

    def _left(self, command: ScriptCommand, why: str) -> None:
        self._rows.append(_row(command, shell(tuple(map(shown, command.words))), why))


def _is_added(before: str, value: str) -> bool:
    """Return whether a value is the one before, and more words."""
    return bool(before) and value.startswith((f"{before} ", f"{before}{FIELD}"))


def _row(command: ScriptCommand, text: str, why: str) -> Row:
    return Row(f"line {command.line}: {shown(text)}", "", why)
