"""The functions of a script, in the place of their calls, with the arguments of each call: pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.shell_script import ShellScript, assigned
from taco_launch.jobs.command_lines.shell_words import QUOTED

_DEEPEST = 4  # functions that call functions
# What calls may make of a script, as large as a script may be: `$@ $@` doubles its words in each function.
_MOST_CHARACTERS = 1 << 20
_OF_A_COMMAND = 100  # what a command costs besides its words, in characters
_ALL = tuple(f"{sign}{text}" for sign in ("$", QUOTED) for text in ("@", "*", "{@}", "{*}"))
_ARGUMENT = re.compile(rf"[${QUOTED}](?:([1-9])|\{{([1-9])(?::?[-=]([^{{}}]*))?\}})")


def inlined(script: ShellScript) -> ShellScript:
    """Return a script with the commands of a function in the place of each call."""
    for _depth in range(_DEEPEST):
        called = {_called(each, script) for each in script.commands if not script.functions & {*each.blocks}} - {0}
        calls = _Calls(script)
        if not called or calls.most_characters(called) > _MOST_CHARACTERS:
            break
        script = calls.replaced(called)
    return script


def _called(command: ScriptCommand, script: ShellScript) -> int:
    """Return the block of the function that a command calls, 0 for any other command."""
    words = assigned(command.words, {})[1]
    return script.bodies.get(words[0], 0) if words else 0


class _Calls:
    def __init__(self, script: ShellScript) -> None:
        self._script = script
        self._bodies: dict[int, list[ScriptCommand]] = {}
        for each in script.commands:
            for block in script.functions & {*each.blocks}:
                self._bodies.setdefault(block, []).append(each)
        self._tests = dict(script.tests)
        self._loops = {*script.loops}
        blocks = (
            *script.tests,
            *script.loops,
            *script.functions,
            *(b for each in script.commands for b in each.blocks),
        )
        self._last = max(blocks, default=0)

    def most_characters(self, called: set[int]) -> int:
        """Return an upper bound for what the calls of these blocks become: each `$` may insert all arguments."""
        sizes: dict[int, tuple[int, int]] = {}
        for block in called:
            words = [word for each in self._bodies.get(block, ()) for word in (*each.words, *each.values)]
            own = _OF_A_COMMAND * len(self._bodies.get(block, ())) + sum(map(len, words))
            sizes[block] = own, sum(word.count("$") + word.count(QUOTED) for word in words)
        total = 0
        for each in self._script.commands:
            own, inserted = sizes.get(_called(each, self._script), (0, 0))
            total += own + inserted * sum(map(len, each.words))
        return total

    def replaced(self, called: set[int]) -> ShellScript:
        """Return the script with the functions of these blocks in the place of their calls, and nowhere else."""
        commands: list[ScriptCommand] = []
        for each in self._script.commands:
            if called & {*each.blocks}:
                continue
            is_outside = not self._script.functions & {*each.blocks}
            block = _called(each, self._script) if is_outside else 0
            commands += self._body(each, block) if block else (each,)
        return replace(
            self._script,
            commands=tuple(commands),
            tests=self._tests,
            loops=frozenset(self._loops),
            bodies={name: block for name, block in self._script.bodies.items() if block not in called},
        )

    def _body(self, call: ScriptCommand, block: int) -> Iterator[ScriptCommand]:
        given, (_name, *arguments) = _split(call.words)
        numbers: dict[int, int] = {}
        for each in self._bodies.get(block, ()):
            blocks = each.blocks[each.blocks.index(block) + 1 :]
            if each.words[0] == "shift" and not blocks:
                arguments, of_script = _shifted(arguments, "".join(each.words[1:2]) or "1")
                if of_script:
                    yield replace(call, words=("shift", str(of_script)))
                continue
            words = _with(each.words, arguments)
            yield replace(
                each,
                words=(*given, *words) if given and inner(words) else words,
                blocks=(*call.blocks, *(self._number(number, numbers, arguments) for number in blocks)),
                is_conditional=call.is_conditional or bool(blocks),
                is_background=each.is_background or call.is_background,
                is_chained=call.is_chained or (each.is_chained and bool(blocks)),
                values=_with(each.values, arguments),
                redirected=(*each.redirected, *call.redirected),
            )

    def _number(self, block: int, numbers: dict[int, int], arguments: Sequence[str]) -> int:
        """Return the number of a block in this call: its test may have another result than in another call."""
        if block not in numbers:
            self._last += 1
            numbers[block] = own = self._last
            if block in self._loops:
                self._loops.add(own)
            if test := self._tests.get(block):
                earlier = tuple(self._number(other, numbers, arguments) for other in test.earlier)
                self._tests[own] = test._replace(words=_with(test.words, arguments), earlier=earlier)
        return numbers[block]


def _split(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the variables that are set before a command, and the command."""
    rest = assigned(words, {})[1]
    return tuple(words[: len(words) - len(rest)]), rest


def _shifted(arguments: Sequence[str], count: str) -> tuple[list[str], int]:
    """Return what `shift` leaves of the arguments of a call, and how many it takes of the script's own among them."""
    own = _own(arguments)
    number = int(count) if count.isdecimal() else 0
    return [*arguments[min(number, own) :]], number - own if own < min(number, len(arguments)) else 0


def _own(arguments: Sequence[str]) -> int:
    """Return how many arguments come before those of the script itself."""
    return next((at for at, word in enumerate(arguments) if word in _ALL), len(arguments))


def _with(words: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """Return words of a function with its arguments; those of the script itself, which it may be given, stay."""
    own = _own(arguments)

    def value(match: re.Match[str]) -> str:
        at = int(match[1] or match[2]) - 1
        if at < own:
            return arguments[at]
        return match[0] if own < len(arguments) else match[3] or ""

    texts: list[str] = []
    for word in words:
        if word in _ALL:
            texts += arguments
        elif (text := _ARGUMENT.sub(value, word)) or word == text or QUOTED in word:
            texts.append(text)
    return tuple(texts) or tuple(words)
