"""What a script's shell redirects around a launcher, and the hostfiles and scripts that a script writes: pure."""

import itertools
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.launcher_options import LOGS, STDIN
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.shell_script import expanded, of_document, shown
from taco_launch.jobs.command_lines.shell_words import UNKNOWN
from taco_launch.jobs.command_lines.translation import Row

WRAP = "--wrap"  # of sbatch: the script itself
_NOWHERE = "/dev/null"
_READS = ("<", "0<", "<<", "<<-", "<<<", "|<")
_WRITES = (">", ">>", ">|", "1>", "1>>", "&>", "&>>", ">&")
_MOST_LINES = 20
_EACH_LINE = r"%s\n"


def rows(command: ScriptCommand, variables: Mapping[str, str]) -> Iterator[Row]:
    """Yield what a launcher would read, and where its output would go."""
    for sign, word in command.redirected:
        target = shown(expanded(word, variables))
        if target == _NOWHERE or target.isdecimal():
            continue
        if sign in _READS:
            yield Row(f"{target} |" if sign == "|<" else f"{sign} {target}", "", STDIN)
        elif sign == "|>" or sign in _WRITES:
            yield Row(f"| {target}" if sign == "|>" else f"{sign} {target}", "", LOGS)


def of_no_command(command: ScriptCommand) -> str:
    """Return what a line reads and writes that has no command, "" where it reads nothing."""
    reads = command.redirected[:1] and command.redirected[0][0] == "<"
    return " ".join(word for pair in command.redirected for word in pair) if reads else ""


def written(command: ScriptCommand, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that a command writes."""
    return (
        posixpath.normpath(expanded(word, variables)) for sign, word in command.redirected if sign in _WRITES and word
    )


def makes(command: ScriptCommand, hostfile: str, variables: Mapping[str, str]) -> Row:
    """Return the row of the command that writes a job's hostfile, with what to type instead where its lines are known."""
    lines = of_document(command, variables).split("\n")[command.document_line - 1 :] if command.document else []
    lines = [line for line in lines if line.strip()]
    is_known = lines and len(lines) <= _MOST_LINES and not any(UNKNOWN in line for line in lines)
    how = f": {shell(('printf', _EACH_LINE, *lines))} > {shell((hostfile,))}" if is_known else ""
    original = f"line {command.line}: {shell(tuple(map(shown, command.words)))} > {hostfile}"
    return Row(original, "", f"the script writes this hostfile: make it first{how}")


def of_command(words: Sequence[str]) -> int:
    """Return where the command with a launcher begins that a line submits, as in `bsub -n 8 mpirun a.out`; 0 where it has none."""
    begins = (at for at in range(1, len(words)) if inner(words[at:]) or words[at].rpartition("/")[2] == "blaunch")
    return next(begins, 0)


def submitted(commands: Sequence[ScriptCommand], words: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return the script that a command submits, where it is a part of this one; else "".

    `commands` are the command, and those that wrote the files it names.
    """
    wrapped = [value for word, value in itertools.pairwise((*words, "")) if word == WRAP]
    wrapped += [word.partition("=")[2] for word in words if word.startswith(f"{WRAP}=")]
    if wrapped:
        return "\n" * (commands[0].line - 1) + wrapped[0]
    if begin := of_command(words):
        return "\n" * (commands[0].line - 1) + shell(tuple(map(shown, words[begin:])))
    return next((of_document(each, variables) for each in commands if each.document), "")
