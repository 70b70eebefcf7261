"""A shell script, such as people give to sbatch or qsub -> its directives, and its commands as far as they can be read: pure.

It is not a shell: what a shell would compute stays a mark in the words, and the reader of a word can tell.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.shell_blocks import Blocks, ScriptCommand, Test
from taco_launch.jobs.command_lines.shell_words import (
    ASSIGNED,
    BLANK,
    EMPTY,
    FIELD,
    LITERAL,
    MARKS,
    NAMED,
    QUOTED,
    SUM,
    UNKNOWN,
    Tokens,
    with_sums,
)

_SHOWN = str.maketrans(MARKS)
_SCHEDULERS = {
    "SBATCH": "Slurm",
    "MSUB": "PBS",
    "BSUB": "LSF",
    "$": "SGE",
    "FLUX": "Flux",
    "flux": "Flux",
    "COBALT": "Cobalt",
}
_DIRECTIVE = re.compile(r"#((?:SBATCH|PBS|MSUB|BSUB|COBALT|OAR|PJM)(?=\s)| ?(?:flux|FLUX)(?=:)|\$(?=\s*-)):?\s*(\S.*)")
# A variable that a shell in the script puts in, and what is no text to a shell.
_LITERAL = re.compile(rf"{LITERAL}(?:({NAMED})|\{{({NAMED})\}})")
_SPECIAL = re.compile(rf"['\"\\;|&<>*?#~`\[\]]|(?<!{UNKNOWN})\{{")
_COMMENT = re.compile(r"\s(?:#|//(?=\s))")
_MOST_CHARACTERS = 1 << 20
_MOST_ELEMENTS = 16  # of arrays in a word
_LONGEST_VALUE = 1 << 16  # A=$A$A doubles it
_INSIDE = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"  # of braces, which may hold others
_EXPANDED = re.compile(
    rf"(?P<sign>[${QUOTED}])(?:({NAMED})|\{{({NAMED}|[0-9]+)(\[[@*]\])?(?::?[-=](?P<default>{_INSIDE}))?\}})"
)
_ELEMENT = re.compile(rf"(?P<sign>[${QUOTED}])\{{(?P<name>{NAMED})\[(?P<index>(?:[^\[\]{{}}@*]|\{{{NAMED}\}})+)\]\}}")
_NAMED = re.compile(rf"{UNKNOWN}{NAMED}")
_IN_A_NAME = re.compile(r"\w", re.ASCII)
_PUT_IN = re.compile(rf"{QUOTED}(?=[A-Za-z_{{@*0-9])")
_COMPUTED = re.compile(rf"{UNKNOWN}(?=\()")
_LENGTH = re.compile(rf"[${QUOTED}]\{{#({NAMED})\[[@*]\]\}}")
_UNKNOWN = re.compile(
    rf"{UNKNOWN}(?:\{{{_INSIDE}\}}|\([^()]*\)|\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|\w+|[@*#?])"
)
_WITH_BLANKS = re.compile(rf"{UNKNOWN}\{{{_INSIDE}\}}")
SETS = ("export", "declare", "typeset", "readonly", "local")
READS = ("read", "mapfile", "readarray")
MOVES = ("cd", "pushd", "popd")
# The folder that a script is started in, at the beginning of a path.
PWD = re.compile(rf"(?:^|(?<==)){UNKNOWN}(?:PWD|\{{PWD\}})(?=/)")
_GIVEN = re.compile(rf"({NAMED})\+?=")


@dataclass(frozen=True)
class ShellScript:
    """A script: its `scheduler` ("" if it has no directives), each directive with its line and scheduler, and its commands.

    `loops` and `functions` are numbers of blocks: what they hold may run later than where it stands; `names` are those of
    the functions, `bodies` their blocks. `tests` are what decides whether a block runs. `unreadable` is as in Tokens.
    """

    scheduler: str
    directives: tuple[tuple[int, str, str], ...]
    commands: tuple[ScriptCommand, ...]
    loops: frozenset[int]
    functions: frozenset[int]
    tests: Mapping[int, Test]
    names: frozenset[str]
    unreadable: tuple[int, str, str] | None = None
    bodies: Mapping[str, int] = field(default_factory=dict)


def shown(text: str) -> str:
    """Return a word as a script has it: with its dollar signs."""
    return text.translate(_SHOWN)


def unknown(word: str) -> tuple[str, ...]:
    """Return what of a word is not known, as the script has it."""
    return tuple(dict.fromkeys(shown(each) for each in _UNKNOWN.findall(word)))


def is_unknown(word: str) -> bool:
    """Return whether nothing of a word is known: it may stand for any number of words."""
    return UNKNOWN in word and not _UNKNOWN.sub("", word)


def is_script(text: str) -> bool:
    """Return whether a text begins as a script of a shell does, or has directives of a scheduler."""
    first = text.partition("\n")[0]
    return (first.startswith("#!") and "sh" in first.rpartition("/")[2]) or _DIRECTIVE.search(text) is not None


def of_line(words: Sequence[str]) -> str:
    """Return the script of `bash -lc SCRIPT`; "" for any other line."""
    is_shell = words[0].rpartition("/")[2] in ("sh", "bash", "dash", "zsh", "ksh")
    return words[2] if is_shell and len(words) > 2 and words[1].startswith("-") and words[1].endswith("c") else ""


def shell_at(words: Sequence[str], begin: int = 0) -> int:
    """Return where `bash -c SCRIPT` is in a line, from a place on; the number of words where it is not."""
    return next((at for at in range(begin, len(words)) if of_line(words[at : at + 3])), len(words))


def with_computed(words: Sequence[str]) -> tuple[str, ...]:
    """Return a line with marks for what a shell would compute in it; what `bash -c` is given is left to that shell."""
    script = shell_at(words) + 2
    return tuple(word if at == script else _marked(word) for at, word in enumerate(words))


def _marked(word: str) -> str:
    text = Tokens(word).filled() if "`" in word or "$(" in word else word.replace("$", QUOTED)
    return _PUT_IN.sub(UNKNOWN, text).replace(QUOTED, "$")


def started(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the launcher that is all that `bash -c SCRIPT` starts, with marks; any others as they are."""
    tokens = Tokens(shown(of_line(words)))
    commands = [*Blocks().commands(tokens.commands())]
    if len(commands) != 1 or len(words) != 3 or commands[0].is_conditional or tokens.does_more:
        return tuple(words)
    only = fields(commands[0].words, {})
    return tuple(words) if inner(only) is None else only


def with_exported(words: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Put exported variables into the script of `bash -c` in a launcher's line, if it starts another launcher.

    Return the words, and the names of these variables where one of them has that launcher.
    """
    at = shell_at(words)
    script = "".join(words[at + 2 : at + 3])
    used = frozenset(match[1] or match[2] for match in _LITERAL.finditer(script)) & {*env}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return _SPECIAL.sub(r"\\\g<0>", " ".join(env[name].split())) if name in used else match[0]

    filled = _LITERAL.sub(value, script)
    starts, started = (any(inner(each.words) for each in read(shown(text)).commands) for text in (filled, script))
    if not starts:
        return words, frozenset()
    return (*words[: at + 2], filled, *words[at + 3 :]), frozenset() if started else used


def read(text: str) -> ShellScript:
    """Read a script."""
    text = text[:_MOST_CHARACTERS]
    directives = []
    blocks, tokens = Blocks(), Tokens(text)
    commands = tuple(blocks.commands(tokens.commands()))
    for number, line in enumerate(text.split("\n"), 1):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is not None and line.startswith("#") and number not in tokens.document_lines:
            name = match[1].strip()
            directives.append((number, _COMMENT.split(match[2], maxsplit=1)[0].rstrip(), _SCHEDULERS.get(name, name)))
    scheduler = directives[0][2] if directives else ""
    later = frozenset(blocks.loops), frozenset(blocks.functions), blocks.tests
    return ShellScript(
        scheduler, tuple(directives), commands, *later, frozenset(blocks.names), tokens.unreadable, blocks.bodies
    )


def of_document(command: ScriptCommand, variables: Mapping[str, str]) -> str:
    """Return the script that << gives to a command, in its own lines."""
    text = command.document
    if command.is_filled:
        text = _COMPUTED.sub("$", _put_in(Tokens(text).filled(), variables)).replace(LITERAL, "$")
    return "\n" * (command.document_line - 1) + text


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """Put in the variables that are known, as in an assignment; the dollar sign of any other becomes a mark."""
    text = _put_in(word, variables)
    return text.replace(FIELD, " ").replace(EMPTY, "").strip() if FIELD in text else text


def fields(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that a shell makes of some: a variable without quotes is split, an array is a word for each element."""
    split: list[str] = []
    room = _LONGEST_VALUE
    for word in words:
        text = _put_in(word, variables if room > 0 else {}, is_split=True)
        room -= len(text)
        parts = [part for part in text.split(FIELD) if part]
        is_kept = not word or (QUOTED in word and FIELD not in text)
        split += [part.replace(EMPTY, "") for part in parts] or ([""] if is_kept else [])
    return tuple(split)


def _put_in(word: str, variables: Mapping[str, str], *, is_split: bool = False) -> str:
    room = _LONGEST_VALUE  # a word that has a variable again and again is as long as one value at most

    def value(match: re.Match[str]) -> str:
        nonlocal room
        name, default = match[2] or match[3], match["default"]
        text = variables.get(name)
        room -= len(text or "")
        if room < 0:
            return UNKNOWN + match[0][1:]
        if default is not None and not text:
            text = _put_in(default, variables)
        if text is None:
            return UNKNOWN + match[0][1:]
        is_quoted = match["sign"] == QUOTED
        if _NAMED.fullmatch(text) and _IN_A_NAME.match(match.string, match.end()):
            return f"{UNKNOWN}{{{text[1:]}}}"
        if match[4] and text.startswith(UNKNOWN):
            return UNKNOWN + match[0][1:]
        if text.startswith(FIELD) and match[4]:
            text = text[1:] or FIELD
            if is_quoted and "*" in match[4]:
                return text.replace(FIELD, " ").replace(EMPTY, "")
        elif text.startswith(FIELD):  # of an array without [@] a shell takes the first element
            text = text.split(FIELD)[1]
        if is_quoted or not is_split:
            return text if match[4] else text.replace(EMPTY, "")
        return re.sub(r"\s+", FIELD, text.replace(EMPTY, ""))

    text = _with_elements(word, variables, is_split=is_split)
    text = _EXPANDED.sub(value, text).replace("$", UNKNOWN).replace(QUOTED, UNKNOWN)
    return _WITH_BLANKS.sub(lambda match: re.sub(r"\s", BLANK, match[0]), text)


def _with_elements(word: str, variables: Mapping[str, str], *, is_split: bool) -> str:
    """Put in the lengths of arrays, the values of arithmetic, and those elements whose number is known."""

    def length(match: re.Match[str]) -> str:
        elements = variables.get(match[1], "")
        return str(elements.count(FIELD)) if elements.startswith(FIELD) and UNKNOWN not in elements else match[0]

    def element(match: re.Match[str]) -> str:
        elements = variables.get(match["name"], "").split(FIELD)[1:]
        number = with_sums(f"{SUM}(({match['index']}))", variables)
        if not elements or not number.isdecimal() or UNKNOWN in "".join(elements[: int(number) + 1]):
            return match[0]  # an element that is not known may be several
        text = "".join(elements[int(number) : int(number) + 1]).replace(EMPTY, "")
        return re.sub(r"\s+", FIELD, text) if is_split and match["sign"] != QUOTED else text

    text = with_sums(_LENGTH.sub(length, word), variables)
    return _ELEMENT.sub(element, text, count=_MOST_ELEMENTS)


def defaults(words: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `: ${NAME:=VALUE}` sets where they are not set."""
    values: dict[str, str] = {}
    for match in (each for word in words for each in _EXPANDED.finditer(word)):
        if match[3] and match["default"]:
            values[match[3]] = expanded(match["default"], {**values, **variables})
    return values


def assigned(words: Sequence[str], variables: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that a command begins with, and the rest of its words; an array is a FIELD before each element."""
    values: dict[str, str] = {}
    at = 0
    while at < len(words) and (match := ASSIGNED.match(words[at])):
        name, text = match["name"], words[at][match.end() :]
        if text.startswith(FIELD):
            elements = fields([element for element in text.split(FIELD) if element], variables)
            before = variables.get(name, "")
            value = FIELD + FIELD.join(element or EMPTY for element in elements)
        else:
            before, value = variables.get(name, UNKNOWN + name), expanded(text, {**variables, **values})
        value = UNKNOWN + name if match["index"] else before + value if match["adds"] else value
        values[name] = value if len(value) <= _LONGEST_VALUE else UNKNOWN + name
        at += 1
    return values, tuple(words[at:])


def computes(words: Sequence[str]) -> tuple[str, ...]:
    """Return the variables that a command gives a value that is not known."""
    name, rest = words[0], words[1:]
    if name in READS:
        return tuple(word for word in rest if word.isidentifier())
    if name == "getopts":
        return (*rest[1:2], "OPTARG")
    if name == "printf" and rest[:1] == ("-v",):
        return tuple(word.partition("[")[0] for word in rest[1:2])
    return tuple(each[1] for each in _GIVEN.finditer(" ".join(rest))) if name == "eval" else ()


def sets(words: tuple[str, ...]) -> set[str]:
    """Return the variables that a command gives another value."""
    values, rest = assigned(words, {})
    if not rest:
        return {*values}
    if rest[0] in SETS:
        return {name for word in rest[1:] for name in assigned((word,), {})[0]}
    return {*rest[1:]} if rest[0] == "unset" else {*computes(rest)}
