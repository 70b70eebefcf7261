"""The commands of a script -> the blocks that each is in, and what decides whether a block runs: pure."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from taco_launch.core.frozen import dataclass
from taco_launch.jobs.command_lines.shell_words import ASSIGNED, Words, computed, counted

_OPENING = frozenset(("if", "while", "until", "for", "case", "select", "{"))
_CLOSING = frozenset(("fi", "done", "esac", "}"))
_BEFORE = frozenset(("then", "do", "else", "elif", "!", "exec", "command", "time", "function"))
# What && follows as a matter of course: it chooses nothing.
_GOES_ON = frozenset(
    (
        *(
            "export",
            "declare",
            "typeset",
            "readonly",
            "local",
            "unset",
            "set",
            "cd",
            "pushd",
            "mkdir",
            "echo",
            "true",
            ":",
        ),
        *("source", ".", "module", "ml", "conda", "mamba", "spack", "eval", "pip", "ulimit"),
    )
)
_PIPES = ("|", "|&")
_ARGUMENTS = ("$@",)  # of a `for` that lists nothing
_MOST_BLOCKS = 50  # one in the other
_KEYWORDS = _BEFORE | _OPENING


@dataclass(frozen=True)
class ScriptCommand:
    """A command of a script: the number of its line, and its words.

    `is_conditional` says that it is in a loop, a condition or a function, `is_background` that & starts the next one beside it.
    `blocks` are the numbers of the branches, loops and functions that it is in, and of the condition that && or || makes;
    `is_chained` says that there is such a one. `document` is the text of << with its line; if it `is_filled`, a shell puts
    values into it. `redirected` is as in Words. `values` are those of a loop, of the command that sets its variable.
    """

    line: int
    words: tuple[str, ...]
    is_conditional: bool = False
    is_background: bool = False
    blocks: tuple[int, ...] = ()
    is_chained: bool = False
    document: str = ""
    document_line: int = 0
    is_filled: bool = False
    redirected: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()


class Test(NamedTuple):
    """What decides whether a block runs: the words of a condition, or `case`, its word and its patterns; () for else.

    `line` is where that begins. `is_met` is false where the block runs if the condition fails. `earlier` are the other
    branches, none of which runs if this one does.
    """

    line: int
    words: tuple[str, ...] = ()
    earlier: tuple[int, ...] = ()
    is_met: bool = True


class Blocks:
    """Follows the blocks of a script, and gives its commands."""

    def __init__(self) -> None:
        """Begin outside of all blocks."""
        self.loops: set[int] = set()
        self.functions: set[int] = set()
        self.names: set[str] = set()
        self.bodies: dict[str, int] = {}  # the block of each function
        self._function = ""
        self.tests: dict[int, Test] = {}
        # The words of a condition that is being read, of `case` with its patterns, and of the list of && and || so far.
        self._condition: list[str] | None = None
        self._cases: list[str] = []
        self._list: list[str] = []
        self._made = 0
        # What opened each block that is open, the numbers of the blocks in it, and whether it is conditional.
        self._open: list[tuple[str, tuple[int, ...], bool]] = []
        self._is_function = self._is_pattern = False
        self._chain: tuple[int, ...] = ()

    def commands(self, words: Iterator[Words]) -> Iterator[ScriptCommand]:
        """Yield the commands."""
        before, last, given = "", [":"], ("", 0, False)
        for found, following in itertools.pairwise([*words, Words(0, [], "")]):
            one = Words(*found[:3], *given, found.redirected) if before == "|" and last == ["cat"] else found
            if before != ")" and not one.words and one.redirected[:1] and one.redirected[0][0] == "<":
                one = one._replace(words=[":"])  # what a shell makes of it: nothing
            self._follow(before, last, found.line)
            piped = [("|<", " ".join(last))] if before in _PIPES else []
            piped += [("|>", " ".join(following.words))] if one.end in _PIPES else []
            yield from self._command(one._replace(redirected=(*one.redirected, *piped)))
            before, last, given = one.end, one.words, one[3:6]
            self._list += [*one.words, one.end]
            if self._condition is not None:
                self._condition.append(one.end)
            if one.end == "()":
                self._is_function = True
            elif one.end == "(" and not self._is_pattern:
                self._enter("(")
            elif one.end == ")" and self._is_pattern:
                self._is_pattern = False
                self._branch(one.line, ("case", *self._cases))
                self._cases = self._cases[:1]
            elif one.end == ")" and self._open and self._open[-1][0] == "(":
                self._open.pop()
            elif one.end.startswith(";"):
                self._is_pattern = one.end != ";" and bool(self._open)

    def _follow(self, operator: str, last: Sequence[str], line: int) -> None:
        """Note whether the next command runs only if those before it succeed, or fail."""
        if operator == "||" or (operator == "&&" and not _goes_on(last)):
            is_else = operator == "||" and self._chain and self.tests[self._chain[0]].is_met
            earlier = self._chain if is_else else ()
            self._chain = self._number()
            words = tuple(itertools.dropwhile(_KEYWORDS.__contains__, self._list[:-1]))
            self.tests[self._chain[0]] = Test(line, words, earlier, operator == "&&")
        elif operator not in ("&&", *_PIPES):
            self._chain = ()
        if operator not in ("&&", "||"):
            self._list = []

    def _command(self, one: Words) -> Iterator[ScriptCommand]:
        words, at = one.words, 0
        if one.end == "()":
            self.names.update(words[-1:])
            self._function = "".join(words[-1:])
            return
        if self._is_pattern and words and words[0] != "esac":
            self._cases += words
            return
        while at < len(words) and words[at] in _BEFORE | _OPENING | _CLOSING and not _is_timed(words[at : at + 2]):
            word = words[at]
            if word in _OPENING:
                self._enter(word)
            elif word in _CLOSING and self._open:
                self._open.pop()
                self._is_pattern = False
            elif word == "function":
                self._is_function = True
                self.names.update(words[at + 1 : at + 2])
                self._function = "".join(words[at + 1 : at + 2])
                at += 1
            self._follow_condition(word, one.line)
            if word in ("for", "select", "case"):
                for name in words[at + 1 : at + 2] if word != "case" else ():
                    values = tuple(words[at + 3 :]) if words[at + 2 : at + 3] == ["in"] else _ARGUMENTS
                    yield replace(self._made_of(one, (computed(name),), is_conditional=True), values=values)
                self._cases = [*words[at + 1 : at + 2], *words[at + 3 :]]
                at = len(words)
                self._is_pattern = word == "case"
            at += 1
        if self._condition is not None:
            self._condition += [*(["!"] if "!" in words[:at] else []), *words[at:]]
        if at < len(words):
            sums = [each for word in words[at + 1 :] for each in counted(word)] if words[at] == "let" else []
            if words[at] == "setenv" and len(words) == at + 3:  # csh(1)
                sums = ["export", f"{words[at + 1]}={words[at + 2]}"]
            yield self._made_of(one, sums or words[at:], is_conditional="!" in words[:at])

    def _follow_condition(self, word: str, line: int) -> None:
        """Begin a branch of a condition, or end the words that it depends on."""
        if word in ("if", "elif", "else") and self._open:
            self._branch(line)
            self._condition = None if word == "else" else []
        elif word == "then" and self._condition is not None:
            block = self._open[-1][1][-1] if self._open and self._open[-1][1] else 0
            if block in self.tests:
                self.tests[block] = self.tests[block]._replace(words=tuple(self._condition))
            self._condition = None

    def _made_of(self, one: Words, words: Sequence[str], *, is_conditional: bool) -> ScriptCommand:
        _kind, blocks, is_inside = self._open[-1] if self._open else ("", (), False)
        return ScriptCommand(
            one.line,
            tuple(words),
            is_inside or is_conditional,
            one.end == "&",
            blocks + self._chain,
            bool(self._chain),
            *one[3:],
        )

    def _enter(self, kind: str) -> None:
        _kind, blocks, is_conditional = self._open[-1] if self._open else ("", (), False)
        number = self._number()
        if kind in ("for", "while", "until", "select"):
            self.loops.update(number)
        if self._is_function:
            self.functions.update(number)
            # of two functions with one name it is not known here which one a call means
            self.bodies[self._function] = 0 if self._function in self.bodies else number[0]
        is_group = kind in ("{", "(") and not self._is_function
        self._is_function = False
        if len(blocks) < _MOST_BLOCKS:
            blocks += self._chain + (() if kind == "{" and is_group else number)
        self._open.append((kind, blocks, is_conditional or not is_group or bool(self._chain)))
        self._chain = ()

    def _branch(self, line: int, words: tuple[str, ...] = ()) -> None:
        """Begin another branch of the last block."""
        kind, blocks, is_conditional = self._open[-1]
        if not blocks or len(blocks) >= _MOST_BLOCKS:
            return
        (number,) = self._number()
        before = self.tests.get(blocks[-1])
        earlier = (*before.earlier, blocks[-1]) if before else ()
        self.tests[number] = Test(line, words, earlier)
        self._open[-1] = (kind, (*blocks[:-1], number), is_conditional)

    def _number(self) -> tuple[int, ...]:
        self._made += 1
        return (self._made,)


def _is_timed(words: Sequence[str]) -> bool:
    """Return whether `time` is before a command, of which it is a part as time(1) is, and not before a block."""
    return words[:1] == ["time"] and not _KEYWORDS & {*words[1:]}


def _goes_on(words: Sequence[str]) -> bool:
    """Return whether what && has after a command runs as a matter of course: the command prepares, and tests nothing."""
    rest = [word for word in words if word not in _BEFORE or word == "!"]
    name = next((word for word in rest if not ASSIGNED.match(word)), "")
    return name.rpartition("/")[2] in _GOES_ON if name else bool(rest) and not rest[0].startswith("_=")
