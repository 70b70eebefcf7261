"""A script that starts ranks -> a line of `taco-launch run` for each launcher in it, and what became of the rest: pure."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import NestedLauncher, bare, elsewhere, inner
from taco_launch.jobs.command_lines import containers, launcher_line, launcher_options, shell_line, shell_script
from taco_launch.jobs.command_lines.arena import arena_line
from taco_launch.jobs.command_lines.launcher_line import Part, UnclearError
from taco_launch.jobs.command_lines.parts_in_force import without_sizes
from taco_launch.jobs.command_lines.scripts import (
    checks,
    conditions,
    directives,
    function_calls,
    other_systems,
    parts_of_hosts,
    redirections,
    rounds,
    script_values,
    unread_launchers,
)
from taco_launch.jobs.command_lines.scripts.script_settings import Settings, row_of
from taco_launch.jobs.command_lines.scripts.unread_launchers import HINT, not_read
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.shell_script import SETS, ShellScript, assigned, fields, shown
from taco_launch.jobs.command_lines.translation import Row, Translation, translate

_PREPARED = "prepare it in the image, or on the hosts"
_EXPORTED = "with `set -a` the ranks have the variables that it sets: -x NAME=VALUE for each that they need"
_INSTEAD = "a condition of the script decides whether it runs in the place of the launcher in line {}"
_NO_COMMAND = "redirects, but no command is before it: does it continue the line above?"
_BESIDE = "the script starts it beside others, and does not wait for its end: submit in the place of run does so here"


@dataclass(frozen=True)
class ScriptTranslation:
    """A translated script: its scheduler ("" if none), a job with its line for each launcher, and rows for the rest.

    `launchers` counts those that are known here, with those that are no job.
    """

    scheduler: str
    jobs: tuple[tuple[int, Translation], ...]
    rows: tuple[Row, ...]
    launchers: int = 0


def translate_script(text: str, home: str = "", folder: str = "") -> ScriptTranslation:
    """Return the jobs that a script starts; `home` is the folder that a shell puts in for ~ and $HOME, "" leaves them.

    `folder` is the one that the script is in, "" where it is not known.

    Raises:
        UnclearError: a shell makes something else of it than it looks like; its index is the line.
    """
    mark = next((at for at, line in enumerate(text.split("\n"), 1) if line.startswith("<<<<<<< ")), None)
    if mark is not None:
        raise UnclearError(mark, "has marks of an unresolved merge conflict", "resolve it")
    script = shell_script.read(text)
    if script.unreadable is not None:
        raise UnclearError(*script.unreadable)
    script = function_calls.inlined(script)
    each = _Script(script, {}, home=home, folder=folder)
    done = each.translated()
    jobs = done.jobs
    for name, values in each.rounds():
        others = (_Script(script, {}, home=home, folder=folder, chosen={name: value}) for value in values)
        jobs = tuple(rounds.in_turn(jobs, name, values, [other.translated().jobs for other in others]))
    return replace(done, jobs=jobs)


class Launched(NamedTuple):
    """A launcher in a script: its words, the variables that it has and its folder, "" for the script's; rows for the rest."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    rows: tuple[Row, ...] = ()


def launched(
    script: ShellScript, exported: Mapping[str, str], scheduler: str, *, home: str, line: int
) -> Launched | None:
    """Return the one launcher of a script that is a part of a line, and was given variables; None for another number of them."""
    script = replace(script, commands=tuple(replace(each, line=line) for each in script.commands))
    if not any(inner(each.words) for each in script.commands):
        return None
    inside = _Script(script, exported, scheduler, home=home, is_inside=True)
    inside.lines = []
    rows = inside.translated().rows
    return inside.lines[0]._replace(rows=rows) if len(inside.lines) == 1 else None


class _Script(Settings):
    """Follows a script from its first command to its last one."""

    def __init__(
        self,
        script: ShellScript,
        exported: Mapping[str, str],
        scheduler: str = "",
        *,
        home: str = "",
        folder: str = "",
        is_inside: bool = False,
        chosen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        its_folder = folder if not (scheduler or script.scheduler) else ""
        super().__init__(script, exported, home=home, folder=its_folder, chosen=chosen)
        self._scheduler = scheduler or script.scheduler
        self._is_inside = is_inside  # of another script: one in it is not read
        # Of a script whose launcher is a part of another line: the launchers, with their variables and folders.
        self.lines: list[Launched] | None = None
        self._jobs: list[tuple[ScriptCommand, Translation]] = []
        self._launchers = 0
        self._writes: dict[str, ScriptCommand] = {}  # files, with the first command that writes each
        self._read: set[str] = set()  # those of them that a launcher, or what submits a script, reads
        self._left_folders: list[str] = []  # by pushd
        self._directives: list[Part] = []
        self._others: list[tuple[ScriptCommand, Mapping[str, str]]] = []

    def translated(self, options: Sequence[str] = ()) -> ScriptTranslation:
        """Return all that was found; `options` are those of the command that submits the script."""
        self._directives, self._rows = directives.of_script(self._script, self._scheduler)
        if options:
            self._directives += directives.directive(self._scheduler, options)
        self._directives = directives.packed(self._directives)
        self._rows += rounds.remarks(self._scheduler, self._directives)
        self._variables |= script_values.of_scheduler(self._directives)
        for at, each in enumerate(self._script.commands):
            command, runs = self._follows.follow(at, each)
            if not runs:
                self._skipped(command)
                continue
            if command.words[0] == "exit" and not (each.blocks or each.is_conditional):
                if any(inner(each.words) for each in self._script.commands[at + 1 :]):
                    self._left(command, "the script ends here: no launcher below it is started")
                break
            self._command(command)
        # launchers that start the parts of several hosts are one job
        self._jobs, joined = parts_of_hosts.joined(self._jobs, script_values.counters(self._script))
        self._launchers -= len(joined)
        self._rows += joined
        self._leave_checks()
        beside = dict.fromkeys(str(command.line) for command, _done in self._jobs if self._is_beside(command))
        if beside:
            self._rows.append(Row(f"line{'s' * (len(beside) > 1)} {', '.join(beside)}: &", "", _BESIDE))
        for command, values in self._others:
            self._alone(command, values)
        for path, command in self._writes.items():
            if command.document and path not in self._read and command.words[0] == "cat":
                self._left(
                    command, f"the script writes {path} with its own lines: write that file before the job starts"
                )
        jobs = tuple((command.line, done) for command, done in self._jobs)
        return ScriptTranslation(self._scheduler, jobs, tuple(self._rows), self._launchers)

    def _leave_checks(self) -> None:
        """Leave out what only looks at the hosts, or prepares them, where the script starts something else, too."""
        left_out = [(command, why) for command, done in self._jobs if (why := checks.why_none(done.program))]
        has_others = any(checks.is_of_python(command.words) for command, _values in self._others)
        if not left_out or (self._launchers == len(left_out) and not has_others):
            return
        self._launchers -= len(left_out)
        self._jobs = [each for each in self._jobs if not checks.why_none(each[1].program)]
        for command, why in left_out:
            self._left(command, why)
        behind = checks.behind_pipes(self._script.commands, [command.line for command, _why in left_out])
        self._others = [(command, values) for command, values in self._others if command.redirected not in behind]

    def rounds(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield what counts the rounds of the script that was followed, or of its loops, with all its values."""
        of_array = rounds.of_array(self._scheduler, self._directives)
        counted = dict(self._loops if self._jobs else {}) | dict(of_array)
        return ((name, values) for name, values in counted.items() if len(values) <= rounds.MOST)

    def _alone(self, command: ScriptCommand, values: Mapping[str, str]) -> None:
        """Follow a command beside the launchers, or where there is none: then a program of Python is a job of one rank."""
        env, around, program = bare(command.words)
        name = program[0].rpartition("/")[2] if program else ""
        script = unread_launchers.script_of(program) if program else ""
        if self._launchers or not checks.is_of_python(command.words):
            runs_once = "it runs once, on the first host: run it yourself, or in the program"
            runs_once = _INSTEAD.format(line) if (line := self._rival(command, self._jobs)) else runs_once
            may_start = f"it may start ranks itself: taco-launch translate {shell((script,))}"
            self._left(command, may_start if script else runs_once)
        elif why := unread_launchers.by_hand(program):
            self._left(command, why)
        else:
            self._directives = without_sizes(self._directives, f"{name} is started once, whatever the script asks for")
            given = dict(each.split("=", 1) for each in env)
            self._job(command, ("mpirun", "-np", "1", *around, *program), {**values, **given})

    def _is_beside(self, command: ScriptCommand) -> bool:
        """Return whether a launcher runs beside another one, or beside itself in another round of a loop."""
        return command.is_background and (command.is_conditional or self._launchers > 1)

    def _command(self, command: ScriptCommand) -> None:
        if command.values:
            command = self._first_of_loop(command)
        values, words = assigned(command.words, self._variables)
        if words[:1] and words[0] in SETS:
            self._declare(command, words)
            return
        typed, words = words, fields(words, self._variables)
        if as_user := shell_line.as_user(words):
            self._rows.append(row_of(command, shell(tuple(map(shown, words[:2]))), shell_line.OWN_USER))
            words = tuple(word for _at, word in as_user)
        words, around, folder = self._unfolded(command, words)
        words, outside = containers.outside(words)
        words, guessed = unread_launchers.as_torchrun(words)
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
            before = self._folder
            self._folder = posixpath.join(before, folder) if folder else before
            self._job(command, words, values, guessed, (*around, *outside))
            self._folder = before
        elif shell_script.is_unknown(words[0]) or name == "eval":
            self._unknown(command, words)
        elif name == "arena" and "submit" in words:
            self._arena(command, words)
        elif why := unread_launchers.of_another_system(words, self._directives):
            self._left(command, why)
        else:
            self._other(command, words, values)

    def _unfolded(
        self, command: ScriptCommand, words: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[Part, ...], str]:
        """Return words with the one launcher of `sh -c SCRIPT` in the place of that, the variables that it has, and its folder.

        What the script does beside it has a row. Words without such a script are as they are.
        """
        at = shell_script.shell_at(words)
        before, script = words[:at], shell_script.read(shown("".join(words[at + 2 :])))
        starts = not bare(before)[2] or containers.starter(words)[0] or inner((*before, "-"))
        least = 2 if bare(before)[2] else 1
        if at + 3 != len(words) or len(script.commands) < least or not starts or self.lines is not None:
            return words, (), ""
        home = self._variables.get("HOME", "")
        inside = launched(script, self._exported, self._scheduler or "-", home=home, line=command.line)
        if inside is None:
            return words, (), ""
        self._rows += inside.rows
        new = {name: value for name, value in inside.env.items() if self._exported.get(name) != value}
        return (*before, *inside.words), tuple(script_values.exported(new)), inside.folder

    def _other(self, command: ScriptCommand, words: Sequence[str], values: Mapping[str, str]) -> None:
        """Follow a command that starts no ranks by a launcher that is read."""
        name = (bare(words)[2] or words)[0].rpartition("/")[2]
        if why := not_read(words, {**self._exported, **values}) or unread_launchers.on_each_host(
            words, is_loop=command.is_conditional
        ):
            self._left(command, f"{why}: {HINT}" if why.endswith("here") else why)
        elif name in ("cd", "pushd") and len(words) == 2:
            self._left_folders += [self._folder] if name == "pushd" else []
            self._cd(command, words[1])
        elif name == "popd" and self._left_folders:
            self._folder = self._left_folders.pop()
        elif name in unread_launchers.PREPARES:
            is_exported = self._exports_all and name in ("source", ".")
            self._left(command, _EXPORTED if is_exported else _PREPARED)
        elif name not in unread_launchers.SILENT:
            self._others.append((command, values))

    def _note(self, command: ScriptCommand, words: Sequence[str]) -> None:
        """Note the files that a command writes, and what it gives a default to: `[ -z "$NAME" ]`, of a variable that is not set.

        What its scheduler gives mpirun has a row.
        """
        for name in script_values.OF_MPIRUN:
            if name in " ".join(words) and inner(command.words):
                self._left(
                    replace(command, words=(f"${name}",)), "the hosts of the scheduler's job: taco-launch chooses them"
                )
        if words == (":",) and (typed := redirections.of_no_command(command)):
            self._rows.append(row_of(command, typed, _NO_COMMAND))
        for path in redirections.written(command, self._variables):
            self._writes.setdefault(path, command)
        self._follows.has_default.update({*conditions.empty_if(words)} - {*self._variables})

    def _script_of(self, command: ScriptCommand, words: Sequence[str]) -> str:
        files = [word for sign, word in command.redirected if sign == "<"]
        names = [name for each in (*words[1:], *files) if (name := posixpath.normpath(each)) in self._writes]
        self._read.update(names)
        return redirections.submitted((command, *map(self._writes.__getitem__, names)), words, self._variables)

    def _submitted(self, command: ScriptCommand, words: Sequence[str], text: str) -> None:
        """Translate the script that a command is given, as << or --wrap has it."""
        name = words[0].rpartition("/")[2]
        script = shell_script.read(text)
        scheduler = script.scheduler or other_systems.SCHEDULERS.get(name, "")
        exported, home = self._exported if name == "sbatch" else {}, self._variables.get("HOME", "")
        inside = _Script(script, exported, scheduler, home=home, is_inside=True)
        begin = redirections.of_command(words) or len(words)
        at = next((at for at, word in enumerate(words) if word.startswith(redirections.WRAP)), begin)
        behind = at + (1 if "=" in "".join(words[at : at + 1]) else 2) if at < begin else len(words)
        rest = (*words[1:at], *words[behind:])
        try:
            done = inside.translated(rest)
        except UnclearError as error:
            self._left(command, f"{shown(rest[error.index])!r} {error.problem}")
            return
        self._scheduler = self._scheduler or done.scheduler
        self._launchers += done.launchers
        self._rows += done.rows
        row = [row_of(command, name, parts_of_hosts.INSIDE)] if command.is_conditional else []
        places = ((replace(command, line=line, is_background=False), job) for line, job in done.jobs)
        self._jobs += ((place, replace(job, rows=(*job.rows, *row))) for place, job in places)

    def _job(
        self,
        command: ScriptCommand,
        words: tuple[str, ...],
        values: Mapping[str, str],
        guessed: str = "",
        outside: Sequence[Part] = (),
    ) -> None:
        """Keep the job that a launcher starts; `guessed` is a word of it that was read by its options, `outside` its container."""
        if not any(each.words[0] in shell_script.MOVES for each in self._script.commands):
            words = tuple(shell_script.PWD.sub(".", word) for word in words)
        env = {**self._exported, **values}
        if self.lines is not None:
            self._rows += redirections.rows(command, self._variables)
            self.lines.append(Launched(words, env, self._folder))
            return
        words, used = shell_script.with_exported(words, env)
        launcher = inner(words)
        assert isinstance(launcher, NestedLauncher)
        modules = script_values.modules(self._script, command.line)
        if launcher.kind == "mpirun" and launcher_options.names_hydra(words[launcher.begin :], env, modules):
            launcher = replace(launcher, kind="hydra")
        own = ["--workdir", self._folder] if self._folder else []
        try:
            done = translate(
                words, launcher, own, directives=(*self._directives, *outside, *script_values.exported(env, used))
            )
        except UnclearError as error:
            instead = f": {error.hint}" if error.hint != launcher_line.HINT else ""
            self._left(command, f"{shown(words[launcher.begin + error.index])!r} {error.problem}{instead}")
            return
        if guessed:
            row = Row(shown(guessed), "", "is read as torchrun, whose options follow it", is_remark=True)
            done = replace(done, rows=(*done.rows, row))
        if when := self._when(command, words):
            done = replace(done, rows=(*done.rows, row_of(command, shell(tuple(map(shown, words[:2]))), when)))
        if why := unread_launchers.of_another_system(done.program):
            self._left(command, why)
            return
        rows = [*redirections.rows(command, self._variables)]
        if (makes := self._writes.get(posixpath.normpath(done.hostfile))) is not None:
            self._read.add(posixpath.normpath(done.hostfile))
            rows.append(redirections.makes(makes, done.hostfile, self._variables))
        self._jobs.append((command, replace(done, rows=(*map(self._unexported, done.rows), *rows))))

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
            self._jobs.append((command, arena_line.of_script(words[1:])))
        except UsageError as error:
            self._left(command, f"{error}{f' ({error.hint})' if error.hint else ''}")
