"""The conditions of a script -> whether a branch runs, as far as the values are known: pure."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from taco_launch.core.launch.command_line.nested_launcher import elsewhere, inner
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand, Test
from taco_launch.jobs.command_lines.shell_script import ShellScript, expanded, sets
from taco_launch.jobs.command_lines.shell_words import ASSIGNED, NAMED, QUOTED, UNKNOWN

_SEPARATORS = (";", "\n", "")
_BRACKETS = ("[", "[[", "test")
_NUMBERS = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
_SIGNS = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
# ((N > 1)), as Tokens has it.
_ARITHMETIC = re.compile(
    rf"_={UNKNOWN}\(\(\s*\$?\{{?(\w+)\}}?\s*(?:([=!<>]=|[<>])\s*\$?\{{?(\w+)\}}?\s*)?\)\)", re.ASCII
)
_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
# ${NAME:-}: it is there for `set -u`, and says nothing about the value.
_TESTED = re.compile(rf"[{QUOTED}$](?:({NAMED})|\{{({NAMED})[^{{}}]*\}})")
_EMPTY_DEFAULT = re.compile(r"\{\w+:?-\}")
_TAKES_ARGUMENTS = ("shift", "getopts")
_ALL_ARGUMENTS = re.compile(rf"[{QUOTED}$](?:[@*]|\{{[@*]\}})")


class Branches:
    """Decides which branches of a script run."""

    def __init__(self, script: ShellScript, variables: Mapping[str, str]) -> None:
        """Start with no branch decided; the variables change while the script is followed."""
        self._tests = script.tests
        self._variables = variables
        # The blocks that read the script's own arguments, with what they set: without arguments none of them runs.
        self.of_arguments = _of_arguments(script)
        self._runs: dict[int, bool | None] = dict.fromkeys(self.of_arguments, False)
        launching = {block for each in script.commands if _launches(each.words) for block in each.blocks}
        ending = {block for each in script.commands if each.words[0] == "exit" for block in each.blocks[-1:]}
        self._ending = ending - launching

    def runs(self, block: int) -> bool | None:
        """Return whether a block runs; None where that is not known. What would end the script is taken not to run."""
        if block not in self._runs:
            if block not in self._tests:
                return None
            runs = self._decided(self._tests[block])
            self._runs[block] = False if runs is None and block in self._ending else runs
        return self._runs[block]

    def is_decided(self, block: int) -> bool:
        """Return whether a block has been decided already, or depends on no test."""
        return block in self._runs or block not in self._tests

    def family(self, block: int) -> int:
        """Return the first branch of the condition that a block is a branch of."""
        return (*self._tests[block].earlier, block)[0] if block in self._tests else block

    def rival(self, blocks: Iterable[int]) -> int:
        """Return the line of a branch that may run in the place of one of these blocks, and is read first; 0 for none."""
        earlier = (other for block in blocks if block in self._tests for other in self._tests[block].earlier)
        return next((self._tests[other].line for other in earlier if self.runs(other) is None), 0)

    def is_optional(self, block: int) -> bool:
        """Return whether only a shell would know if a block runs, and no other one runs in its place where it does not."""
        if block not in self._tests or self.runs(block) is not None:
            return False
        family = self.family(block)
        return not any(_is_else(test) for other, test in self._tests.items() if family in (other, *test.earlier[:1]))

    def unknown_test(self, blocks: Sequence[int]) -> str:
        """Return the condition of the innermost of these blocks of which only a shell would know it; "" for none, or of `case`."""
        tests = [self._tests[block] for block in blocks if block in self._tests and self.runs(block) is None]
        if not tests or not tests[-1].words or tests[-1].words[0] == "case":
            return ""
        return f"{'' if tests[-1].is_met else 'not '}{' '.join(tests[-1].words).rstrip('; ')}"

    def _decided(self, test: Test) -> bool | None:
        earlier = [self.runs(block) for block in test.earlier]
        if True in earlier:
            return False
        met = truth(test.words, self._variables) if test.words else True
        met = met if met is None or test.is_met else not met
        return None if met and None in earlier else met


def _of_arguments(script: ShellScript) -> dict[int, tuple[str, ...]]:
    """Return the loops that read the arguments of the script, and the conditions that shift them, with the variables they set.

    One that starts something for each argument is none of them.
    """
    reading = {block for each in script.commands if (block := _reads_arguments(each, script))}
    starting = {block for each in script.commands if _starts(each.words) for block in each.blocks}
    inside = {block: [each.words for each in script.commands if block in each.blocks] for block in reading - starting}
    return {
        block: tuple(dict.fromkeys(name for words in lines for name in sorted(sets(words))))
        for block, lines in inside.items()
    }


def _reads_arguments(command: ScriptCommand, script: ShellScript) -> int:
    """Return the block that a command shows to read the arguments of the script, 0 for none."""
    loop = next((block for block in command.blocks if block in script.loops), 0)
    if any(map(_ALL_ARGUMENTS.fullmatch, command.values)):
        return loop
    if loop and command.words[0] in _TAKES_ARGUMENTS:  # in `for NAME in VALUES` it does not decide the rounds
        return 0 if any(each.values and loop in each.blocks[-1:] for each in script.commands) else loop
    test = script.tests.get(command.blocks[-1]) if command.blocks and command.words[0] == "shift" else None
    if test is None or not test.words or test.earlier:
        return 0
    block = command.blocks[-1]
    return 0 if any(block in other.earlier for other in script.tests.values()) else block


def _starts(words: Sequence[str]) -> bool:
    name = words[0].rpartition("/")[2]
    return _launches(words) or elsewhere((*words, "-")) is not None or name.startswith("python") or name == "arena"


def _launches(words: Sequence[str]) -> bool:
    """Return whether a command starts a launcher; a variable before it may be `python`, or a wrapper."""
    is_variable = words[0].startswith(("$", QUOTED))
    lines = (words, ("python", *words[1:]), words[1:]) if is_variable else (words,)
    return any(map(inner, lines))


def empty_if(words: Sequence[str]) -> Iterator[str]:
    """Yield the variables that a test has without a value: `-z "$NAME"`, `! $NAME`, `"$NAME" = ""`, `"x$NAME" = "x"`."""
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        pairs = ((before, after), (after, before)) if word in ("=", "==") else ()
        compared = [one.removeprefix(other) for one, other in pairs if one.startswith(other)]
        compared += [after] if word in ("-z", "!") else []
        names = [match[1] or match[2] for match in map(_TESTED.fullmatch, compared) if match]
        yield from names


def truth(words: Sequence[str], variables: Mapping[str, str]) -> bool | None:
    """Return whether a condition holds, or a word of `case` fits; None where a shell alone would know."""
    if words[:1] == ("case",):
        return _any(_fits(words[1], pattern, variables) for pattern in words[2:])
    groups: list[list[str]] = [[]]
    operators = ["||"]
    depth = 0
    for word in words:
        depth += (word == "[[") - (word == "]]")
        if depth == 0 and word in ("&&", "||", *_SEPARATORS):
            operators.append(word)
            groups.append([])
        else:
            groups[-1].append(word)
    value: bool | None = False
    for operator, group in zip(operators, groups, strict=True):
        if not group:
            continue
        one = _command(group, variables)
        value = one if operator in _SEPARATORS else _all((value, one)) if operator == "&&" else _any((value, one))
    return value


def _is_else(test: Test) -> bool:
    """Return whether a branch runs where no other one does."""
    if test.words[:1] == ("case",):
        return "*" in test.words[2:]
    return not test.words or (bool(test.earlier) and not test.is_met)


def _command(words: Sequence[str], variables: Mapping[str, str]) -> bool | None:
    if words[0] == "!":
        value = _command(words[1:], variables) if words[1:] else None
        return None if value is None else not value
    if words[0] in _BRACKETS:
        inside = words[1:] if words[0] == "test" or words[-1] not in ("]", "]]") else words[1:-1]
        return _any(
            _all(_test(each, variables) for each in _split(some, "&&", "-a")) for some in _split(inside, "||", "-o")
        )
    if arithmetic := _ARITHMETIC.fullmatch(words[0]):
        numbers = [
            each if each.isdecimal() else variables.get(each, "") for each in (arithmetic[1], arithmetic[3] or "0")
        ]
        return _compared(numbers[0], _SIGNS[arithmetic[2] or "!="], numbers[1])
    if all(ASSIGNED.match(word) for word in words):
        return None if UNKNOWN in "".join(words) else True
    return {"true": True, ":": True, "false": False}.get(words[0])


def _split(words: Sequence[str], *operators: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word in operators:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _test(words: Sequence[str], variables: Mapping[str, str]) -> bool | None:
    if words[:1] == ["!"]:
        value = _test(words[1:], variables)
        return None if value is None else not value
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        fits = _fits(words[0], words[2], variables)
        return fits if fits is None or words[1] != "!=" else not fits
    if len(words) == 3 and words[1] in _NUMBERS:
        first, second = (_value(word, variables) or "" for word in (words[0], words[2]))
        return _compared(first, words[1], second)
    if len(words) == 1 or (len(words) == 2 and words[0] in ("-n", "-z")):
        text = _value(words[-1], variables)
        return None if text is None else (not text) == (words[0] == "-z")
    return None


def _compared(first: str, operator: str, second: str) -> bool | None:
    are_numbers = _NUMBER.fullmatch(first) and _NUMBER.fullmatch(second)
    return _NUMBERS[operator](int(first), int(second)) if are_numbers else None


def _fits(word: str, pattern: str, variables: Mapping[str, str]) -> bool | None:
    if pattern == "*":
        return True
    text, wanted = _value(word, variables), _value(pattern, variables)
    return None if text is None or wanted is None else fnmatch.fnmatchcase(text, wanted)


def _value(word: str, variables: Mapping[str, str]) -> str | None:
    text = expanded(word, variables)
    return None if UNKNOWN in text or _EMPTY_DEFAULT.search(word) else text


def _all(values: Iterable[bool | None]) -> bool | None:
    every = [*values]
    return False if False in every else None if None in every else True


def _any(values: Iterable[bool | None]) -> bool | None:
    every = [*values]
    return True if True in every else None if None in every else False
