"""A shell's line that starts one program, as manifests have it -> that program's words."""

import re
import shlex
from collections.abc import Mapping, Sequence

from taco_launch.core.launch.command_line.nested_launcher import bare
from taco_launch.hosts.inventory.schema.faults import Loc
from taco_launch.jobs.command_lines.launcher_line import UnclearError

_HINT = "write the line of mpirun alone, or the job as a job file (`taco-launch submit --schema`)"
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_FLAGS = re.compile(r"-[ceilux]+|--login|-o|pipefail")
OWN_USER = "the ranks run as the user who starts the job"
# Programs that run a command as another user: options whose value is the next word.
_AS_USER = "-s --shell -g --group -G --supp-group -w --whitelist-environment -u --user"
# A line that a backslash continues.
_CONTINUED = re.compile(r"[ \t]*\\\r?\n[ \t]*")
_COMMAND = re.compile(r"-[a-zA-Z]*c|--(?:session-)?command(?:=(?P<script>.*))?", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")


def read(words: Sequence[str]) -> tuple[tuple[str, ...], Mapping[str, str]] | None:
    """Return the words of the one plain command in `bash -c 'VAR=value exec COMMAND'`, and those variables.

    None where the words are no such line of a shell.

    Raises:
        UnclearError: the shell would do more than start one program.
    """
    script = script_at(words)
    if not script:
        return None
    if len(words) > script + 1:
        raise UnclearError(script + 1, "is an argument of the shell's script")
    text = words[script].replace("\\\n", " ").strip()
    text = _without_comment(text)
    if special := _special(text):
        raise UnclearError(script, f"a shell would do more here than start one program: {special!r}", _HINT)
    found = shlex.split(text)
    variables: dict[str, str] = {}
    while found and (assigned := _ASSIGNED.match(found[0])):
        variables[assigned[1]] = found.pop(0)[assigned.end() :]
    if found[:1] == ["exec"]:
        del found[0]
    if not found:
        raise UnclearError(script, "starts no program")
    return tuple(found), variables


def script_at(words: Sequence[str]) -> int:
    """Return where the script of a shell's line is, 0 where the words are no such line."""
    script = next((at for at, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    flags = words[1:script]
    is_shell = words[0].rpartition("/")[2] in _SHELLS and bool(flags)
    return script if is_shell and all(map(_FLAGS.fullmatch, flags)) and "c" in flags[-1] else 0


def as_user(words: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return the command that su, runuser or the like runs as another user, each word with its place; () for other words."""
    begin = len(words) - len(bare(words)[2])
    name = "".join(words[begin : begin + 1]).rpartition("/")[2]
    before = tuple(enumerate(words[:begin]))
    if name in ("gosu", "su-exec"):
        return (*before, *((at, words[at]) for at in range(begin + 2, len(words))))
    if name not in ("su", "runuser"):
        return ()
    at, is_program = begin + 1, False
    while at < len(words) and (words[at].startswith("-") or not is_program):
        if command := _COMMAND.fullmatch(words[at]):
            script = at if command["script"] is not None else at + 1
            text = command["script"] or "".join(words[script : script + 1])
            return (*before, (begin, "bash"), (at, "-c"), (min(script, len(words) - 1), text))
        is_program |= words[at] in ("-u", "--user")
        at += 2 if words[at] in _AS_USER.split() else 1
    return (*before, *((place, words[place]) for place in range(at, len(words)))) if is_program else ()


def joined(command: list[str], notes: list[str]) -> list[str]:
    """Return a command of one text, whose other lines continue the first, as one line, and note that; else as it is.

    They do if all begin with options, or if the first is a program's name alone and an option follows.
    """
    if len(command) > 1:
        return command
    text = _CONTINUED.sub(" ", command[0].strip())
    first, *others = re.split(r"[ \t]*\n\s*", text)
    if not others:
        return [text]
    is_name_alone = len(first.split()) == 1 and others[0].startswith("-")
    if not is_name_alone and not all(line.startswith("-") for line in others):
        return command
    notes.append(f"the line end before {others[0].split()[0]}: ends the command of a shell; the lines are read as one")
    return [" ".join((first, *others))]


def _without_comment(text: str) -> str:
    """Return a line without what stands behind an unquoted # that starts a word; several lines as they are."""
    if "\n" in text:
        return text
    quote = ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "\\":
            return text
        elif char == "#" and (at == 0 or text[at - 1] in " \t"):
            return text[:at].rstrip()
    return text


def _special(text: str) -> str:
    """Return the first thing in a script that a shell does not take as it stands, "" where there is none."""
    quote = ""
    for at, char in enumerate(text):
        if quote == "'":
            quote = "" if char == quote else quote
        elif char in "$`\\" or (
            not quote and (char in "|&;<>(){}*?[#!\n" or (char == "~" and text[at - 1 : at].isspace()))
        ):
            return char
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
    return quote


def without_a_shell(places: list[tuple[Loc, str]]) -> tuple[list[tuple[Loc, str]], Mapping[str, str]]:
    """Return the words of the program that a shell's line starts, with the line's place, and the variables that it sets.

    Words that are not a line of a shell are given as they are.

    Raises:
        UnclearError: the shell would do more than that.
    """
    found = read([word for _place, word in places])
    if found is None:
        return places, {}
    script = next(place for place, word in places[1:] if not word.startswith("-"))
    return [(script, word) for word in found[0]], found[1]
