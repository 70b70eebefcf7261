"""What the commands of a script set: its variables, those that it exports, and its parameters."""

import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines import shell_script
from taco_launch.jobs.command_lines.scripts import parts_of_hosts, rounds, script_values
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.shell_script import READS, ShellScript, assigned, computes, fields, shown
from taco_launch.jobs.command_lines.shell_words import EMPTY, FIELD, ITS_FOLDER, UNKNOWN
from taco_launch.jobs.command_lines.translation import OF_CALLER, Row, Translation

_SUBMITTED_FROM = ("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD")
_GLOB = re.compile(r"[*?\[{~]")
# $1, or ${1:?why}: the script gives it a name of its own.
_PARAMETER = re.compile(rf"{UNKNOWN}(?:\d|\{{\d+(?::?\?[^{{}}]*)?\}})")
_SET_INSIDE = "it is in a loop or a condition of the script, and is read as if the script ran it"
_SET_WHERE = "the script runs it only if {} holds; otherwise remove what it adds to the command"
_LEFT_OUT = "the command lacks what it adds: the script runs it only if {} holds"
_OF_ARGUMENTS = "the command has the values that are set before; arguments of the script may change them"
_A_CONDITION = "a condition"
_NOT_EXPORTED = "the script does not export it: -x {} if the ranks are to have its value"
_ONLY_IF = "the script runs it only if this {}: {}"
_IN_ANOTHER_BRANCH = "the condition in line {} decides whether it runs, and its first branch is read, which this is not"


class Settings:
    """Follows what a script sets, from its first command to its last one."""

    def __init__(
        self,
        script: ShellScript,
        exported: Mapping[str, str],
        *,
        home: str,
        folder: str,
        chosen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Begin with the variables that are exported to the script; `home` and `folder` are "" where they are not known.

        `chosen` are variables that count rounds, with the value of the only round that is followed.
        """
        self._script = script
        self._chosen = chosen
        self._rows: list[Row] = []
        self._exported = {**exported}
        self._exports_all = False  # `set -a`
        its_folder = folder or f"{UNKNOWN}(...)"
        values = {
            **dict.fromkeys(_SUBMITTED_FROM, "."),
            ITS_FOLDER: its_folder,
            **({"HOME": home} if home else {}),
            **chosen,
        }
        self._follows = script_values.ScriptVariables(script, {**values, **exported})
        self._variables = self._follows.values
        self._folder = ""
        self._required: Sequence[str] = ()  # `LAUNCHER || exit`
        self._named: set[int] = set()  # the loops over the script's arguments whose defaults have a row
        self._loops: dict[str, tuple[str, ...]] = {}  # their variables, with the values that the script lists

    def _sets(
        self, command: ScriptCommand, typed: Sequence[str], words: Sequence[str], values: Mapping[str, str]
    ) -> bool:
        """Keep what a command gives variables; return whether it does nothing else."""
        if not words:
            self._set(command, values)
            if self._exports_all and not command.is_conditional:
                self._export(command, values)
            return True
        if words[0] == "set":
            self._exports_all = _exports_all(words, default=self._exports_all)
        elif words[0] == "shift" and not (command.blocks or command.is_conditional):
            self._follows.shift("".join(words[1:2]) or "1")
        elif words[0] == ":":
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
        for name, given in values.items():
            value = f"{UNKNOWN}{name}" if _PARAMETER.fullmatch(given) else given
            before = self._variables.get(name)
            if before is None and command.blocks and name not in self._follows.has_default:
                value, before = self._begun(name, value)
            if command.blocks and not shell_script.is_unknown(before or "") and script_values.is_added(before, value):
                self._left(command, self._why_added(command.blocks))
            self._follows.change(name, value)

    def _when(self, command: ScriptCommand, words: Sequence[str]) -> str:
        """Return when the script runs a launcher, "" for always; values of a loop's variable are named where the script lists them."""
        if not command.is_conditional:
            test = self._follows.branches.unknown_test(command.blocks) if command.is_chained else ""
            if test.startswith("not "):
                return _ONLY_IF.format("fails", test.removeprefix("not "))
            required = test or " ".join(self._required)
            return _ONLY_IF.format("succeeds", required) if required else ""
        line = " ".join(words)
        named = [name for name in self._loops if f"{UNKNOWN}{name}" in line]
        used = [f"{name} is {rounds.shown(self._loops[name])} in turn" for name in named]
        return f"{parts_of_hosts.INSIDE}: {', '.join(used)}" if used else parts_of_hosts.INSIDE

    def _begun(self, name: str, value: str) -> tuple[str, str | None]:
        """Return a value that a block gives to a variable without one, and what it is before: empty where the block adds options.

        `-n 2` alone may count ranks: it is not left out.
        """
        added = re.sub(rf"^{UNKNOWN}(?:{name}|\{{{name}\}})(?=\s)", "", value).lstrip()
        if not added.lstrip(FIELD).startswith("-" if added != value else "--"):
            return value, None
        self._variables[name] = before = FIELD if added.startswith(FIELD) else ""
        return before + added, before

    def _why_added(self, blocks: tuple[int, ...]) -> str:
        """Return when the script adds to a value in these blocks, and whether the command has it."""
        branches = self._follows.branches
        optional = next((at for at, block in enumerate(blocks) if branches.is_optional(block)), None)
        if optional is not None:
            return _LEFT_OUT.format(branches.unknown_test(blocks[: optional + 1]) or _A_CONDITION)
        line, test = branches.rival(blocks), branches.unknown_test(blocks)
        return _IN_ANOTHER_BRANCH.format(line) if line else _SET_WHERE.format(test) if test else _SET_INSIDE

    def _rival(self, command: ScriptCommand, jobs: Iterable[tuple[ScriptCommand, Translation]]) -> int:
        """Return the line of a launcher that another branch of a condition than the command's has, 0 for none."""
        family = self._follows.branches.family
        own = {family(block): block for block in command.blocks}
        others = (
            (other.line, own.get(family(block), block) != block) for other, _job in jobs for block in other.blocks
        )
        return next((line for line, is_rival in others if is_rival), 0)

    def _skipped(self, command: ScriptCommand) -> None:
        """Name a launcher in a branch that does not run; note the one without whose success the script ends."""
        self._keep_defaults(command)
        tests = [self._script.tests[block] for block in command.blocks[-1:] if block in self._script.tests]
        if command.words[0] == "exit" and tests and not tests[0].is_met and inner(tests[0].words):
            self._required = tests[0].words
        if inner(fields(command.words, self._variables)) is not None:
            self._left(command, "is in a branch that does not run with the values in the script")

    def _keep_defaults(self, command: ScriptCommand) -> None:
        """Name the values that a loop over the script's arguments may change, at its first command; an empty one is not known."""
        of_arguments = self._follows.branches.of_arguments
        block = next((block for block in command.blocks if block in of_arguments), 0)
        names = () if block in self._named else of_arguments.get(block, ())
        self._named.add(block)
        given = {name: value for name in names if (value := self._variables.get(name, "").strip(FIELD + EMPTY))}
        for name in {*names} - {*given}:
            self._variables.pop(name, None)
        if given:
            text = shell(tuple(f"{name}={value.replace(FIELD, ' ')}" for name, value in given.items()))
            self._rows.append(row_of(command, text, _OF_ARGUMENTS))

    def _first_of_loop(self, command: ScriptCommand) -> ScriptCommand:
        """Note the values that a loop's variable has one after the other; return the command that sets it, to the only one if there is one."""
        name = command.words[0].partition("=")[0]
        values = fields(command.values, self._variables)
        self._loops.pop(name, None)
        if name in self._chosen:
            return replace(command, words=(f"{name}={self._chosen[name]}",))
        if any(UNKNOWN in value or _GLOB.search(value) for value in values):
            return command
        if len(values) == 1:
            return replace(command, words=(f"{name}={values[0]}",))
        self._loops[name] = values
        return command

    def _unexported(self, row: Row) -> Row:
        """Return a row, which names the value where the script gives the variable one, and does not export it."""
        name = row.here.removeprefix("-x ")
        value = self._variables.get(name, UNKNOWN)
        if row.why != OF_CALLER or UNKNOWN in value:
            return row
        return replace(row, why=_NOT_EXPORTED.format(shell((f"{name}={value}",))))

    def _cd(self, command: ScriptCommand, folder: str) -> None:
        if command.is_conditional or command.is_chained:
            self._left(command, "the folder depends on a condition of the script: --workdir PATH")
        elif UNKNOWN in folder:
            self._left(command, "the folder is computed where the script runs: --workdir PATH")
        elif folder not in (".", "./"):
            self._folder = folder if folder.startswith("~") else posixpath.join(self._folder, folder)

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
            self._export(command, values | {name: self._variables[name] for name in names})

    def _export(self, command: ScriptCommand, values: Mapping[str, str]) -> None:
        arrays = [name for name, value in values.items() if value.startswith(FIELD)]
        self._exported = {**self._exported, **{name: value for name, value in values.items() if name not in arrays}}
        if arrays:
            self._left(command, f"a shell exports no arrays: {', '.join(arrays)}")

    def _left(self, command: ScriptCommand, why: str) -> None:
        self._rows.append(row_of(command, shell(tuple(map(shown, command.words))), why))


def _exports_all(words: Sequence[str], *, default: bool) -> bool:
    """Return whether a shell exports what it sets behind a `set` (sh(1)): with -a, or -o allexport; not with + in their place."""
    for before, word in itertools.pairwise(words):
        if word[:1] in "+-" and "a" in word[1:] and not word.startswith("--"):
            default = word[0] == "-"
        elif word == "allexport" and before[:1] in "+-" and before.endswith("o"):
            default = before[0] == "-"
    return default


def row_of(command: ScriptCommand, text: str, why: str) -> Row:
    """Return the row of a command: its line, a text for it, and why it is left out."""
    return Row(f"line {command.line}: {shown(text)}", "", shown(why))
