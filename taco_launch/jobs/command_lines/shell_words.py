"""The text of a shell script -> its words, command by command, as the grammar of sh(1) has them, and its arithmetic: pure."""

import operator
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from taco_launch.jobs.command_lines.unfinished.placeholders import placeholder

# In the place of a dollar sign whose value is not known, of one that the shell would leave alone, of one between double
# quotes; between the words that a shell makes of one; and in the place of an element of an array that is empty.
UNKNOWN, LITERAL, QUOTED, FIELD, EMPTY = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
BLANK = "\ue006"  # in the place of a blank in ${...} whose value is not known: no shell splits there
OPEN, CLOSE = "\ue007", "\ue008"  # in the place of parentheses within $(...), whose text is kept
SUM = "\ue005"  # in the place of the dollar sign of $((...)), which with_sums computes
MARKS = {UNKNOWN: "$", LITERAL: "$", QUOTED: "$", FIELD: " ", EMPTY: "", SUM: "$", BLANK: " ", OPEN: "(", CLOSE: ")"}
NAMED = "[A-Za-z_][A-Za-z0-9_]*"
ASSIGNED = re.compile(rf"(?P<name>{NAMED})(?P<index>\[[^\]]*\])?(?P<adds>\+?)=")
COUNTED = re.compile(rf"({NAMED})\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)\s*({NAMED})")
_PLAIN = re.compile(r"[\w./:=,@%+-]+", re.ASCII)
_AT_HOME = re.compile(r"~(?=[/\s:;&|<>()]|$)")
_ASSIGNS = re.compile(rf"{NAMED}\+?=")
_ARITHMETIC = re.compile(r"\(\([^\n]{0,160}?\)\)(?!\))")
# What only looks for a program: the shell that starts the ranks would find the same one.
# The folder that the script is in, as people write it; a variable of this name stands for it.
ITS_FOLDER = "FOLDER_OF_SCRIPT"
_DIRNAME = r"dirname\s+(?:--\s+)?\"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?\"?\s*[`)]"
_ITS_FOLDER = re.compile(
    rf"[`(]\s*(?:{_DIRNAME}|cd\s+(?:--\s+)?\"?\$\(\s*{_DIRNAME}\"?(?:\s*&?>\s*/dev/null(?:\s+2>&1)?)?\s*(?:&&|;)\s*pwd(?:\s+-P)?\s*\))"
)
_PWD = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_SUM = re.compile(r"\$\(\([^\n]{1,160}?\)\)(?!\))")
# A backslash with blanks or a comment behind it, where the next line continues the command: to a shell the command ends there.
_BLANK_AT_END = re.compile(r"\\[ \t]+(?:#[^\n]*)?\n(?=[ \t]*[^\s#])")
_BROKEN = (
    "has a blank behind the backslash at its end: to a shell, its command ends there",
    "remove what is behind the backslash",
)
_CHECKS = "bash -n FILE checks a script"
_UNCLOSED = ("has a quote that is never closed", _CHECKS)
_OPEN = ("has a ${ that is never closed", _CHECKS)
# What opens or closes ${...}, or hides that by a backslash.
_BRACE = re.compile(r"\\.|\$\{|\}", re.DOTALL)
_WHICH = re.compile(r"[`(]\s*(?:which|command\s+-v|type\s+-p)\s+([\w.+-]+)\s*[`)]")
# What ends a command; () makes a function of the word before it.
_OPERATOR = re.compile(r"&&|\|\||;;&?|;&|\|&|\(\s*\)|[\n;|&()]")
_WITHIN_TEST = re.compile(r"&&|\|\||[()<>|&]")  # what ends no command between [[ and ]]
_SETS = re.compile(rf"\s*({NAMED})\s*=(?!=)([^=]*)")
_EXPRESSION = re.compile(rf"{SUM}\(\((?P<inside>(?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*)\)\)")
_NAME = re.compile(rf"[${QUOTED}]?(?:\{{({NAMED})\}}|({NAMED}))")
_PRODUCT = re.compile(r"(?<![\d*/%])(-?\d{1,9})\s*([*/%])\s*(-?\d{1,9})(?!\d)")
_ADDITION = re.compile(r"(?<![\d*/%+-])(-?\d{1,9})\s*([+-])\s*(\d{1,9})(?!\s*[\d*/%])")
_IN_PARENTHESES = re.compile(r"\(\s*(-?\d{1,9})\s*\)")
_BLANKS = re.compile(r"\s+")
_OCTAL = re.compile(r"(?<![\d.])0\d")
_DOES = {"*": operator.mul, "/": operator.floordiv, "%": operator.mod, "+": operator.add, "-": operator.sub}
_MOST_STEPS = 40
_KEPT = str.maketrans({"(": OPEN, ")": CLOSE, "$": LITERAL, **dict.fromkeys(" \t\r\n", BLANK)})


class Words(NamedTuple):
    """The words of a command, the line that it starts in, what ends it, and the text that << gives to it, with its line.

    Of a text whose values the shell puts in, `is_filled` is true. `redirected` are signs with their targets: `2>` and a
    file, `|<` and the command before a pipe, `|>` and the one behind it.
    """

    line: int
    words: list[str]
    end: str
    document: str = ""
    document_line: int = 0
    is_filled: bool = False
    redirected: tuple[tuple[str, str], ...] = ()


def counted(expressions: str) -> list[str]:
    """Return the assignments that arithmetic makes; a mark is the value of a variable that it only counts up or down."""
    assignments: list[str] = []
    for each in expressions.split(","):
        sets = _SETS.fullmatch(each)
        names = [one[1] or one[2] for one in COUNTED.finditer(each)]
        assignments += [f"{sets[1]}={SUM}(({sets[2]}))"] if sets and len(names) == 1 else map(computed, names)
    return assignments


def computed(name: str) -> str:
    """Return an assignment of a value that is not known; one as it is."""
    return name if "=" in name else f"{name}={UNKNOWN}{name}"


class Tokens:
    """Splits a script into commands, as the grammar of sh(1) has them."""

    def __init__(self, text: str) -> None:
        """Begin at the first character."""
        self._text = text
        self._at = 0
        self._line = 1
        self._word: str | None = None
        self._words: list[str] = []
        self._brackets: set[str] = set()  # those of a test, among the words
        self._next = {"]]": -1, "\n": -1}  # where each comes next, as far as that was looked up
        self._is_target = False
        self._sign = ""
        self._redirected: list[tuple[str, str]] = []
        self._heredocs: list[tuple[int, str, str]] = []
        self._pending: list[Words] = []
        self._braces = 0  # of ${...} that are open
        self._closed = 0  # where the last one ends
        self.document_lines: set[int] = set()
        # The first line of which a shell makes something else than it looks like, what is wrong, and what to do.
        self.unreadable: tuple[int, str, str] | None = None
        # Whether a shell redirects something, or makes other words of those that stand there: names of files for *.
        self.does_more = False

    def commands(self) -> Iterator[Words]:
        """Yield all commands; of two operators in a row the second one has no words."""
        begun = 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if not self._words and self._word is None:
                begun = self._line
            if self._braces and char != "\n":
                self._part(char)
            elif char == "(" and (self._word or "").endswith("=") and ASSIGNED.fullmatch(self._word or ""):
                self._array()
            elif char == "(" and self._is_target and self._word is None:
                self._computed()
                self._is_target = False
            elif char == "(" and self._word is None and (assigned := self._arithmetic()):
                self._words += assigned
            elif self._is_in_test() and (operator := _WITHIN_TEST.match(self._text, self._at)):
                self._end_word()
                self._words.append(operator[0])
                self._at = operator.end()
            elif char in "\n;|&()" and self._text[self._at : self._at + 2] != "&>":
                yield from self._end(begun)
            else:
                self._within(char)
        yield from self._end(begun)

    def _is_in_test(self) -> bool:
        """Return whether a [[ is open, which the same line closes."""
        if "[[" not in self._brackets or "]]" in self._brackets:
            return False
        for text, at in self._next.items():
            if at < self._at:
                found = self._text.find(text, self._at)
                self._next[text] = found if found >= 0 else len(self._text)
        return self._next["]]"] < self._next["\n"]

    def _end(self, begun: int) -> Iterator[Words]:
        """End a command; with a line yield its commands, for a text of << comes below it."""
        operator = _OPERATOR.match(self._text, self._at)
        end = operator[0] if operator else ""
        self._end_word()
        self._pending.append(Words(begun, self._words, end, redirected=tuple(self._redirected)))
        self._words, self._redirected, self._brackets = [], [], set()
        self._at += len(end)
        self._line += end.count("\n")
        if end in ("\n", ""):
            for index, mark, quote in self._heredocs:
                line, begin = self._line, self._at
                text = self._text[begin : self._skip_heredoc(mark)]
                self.document_lines.update(range(line, self._line))
                given = self._pending[index]._replace(document=text, document_line=line, is_filled=not quote)
                self._pending[index] = given
            self._heredocs = []
            yield from self._pending
            self._pending = []

    def _within(self, char: str) -> None:
        """Take what does not end a command."""
        if self._braces and char != "\n":
            self._part(char)
        elif char in " \t\r\n":
            self._end_word()
            self._line += char == "\n"
            self._at += 1
        elif char == "#" and self._word is None:
            self._at = self._end_of_line()
        elif match := placeholder(self._text, self._at, self._word or "".join(self._words[-1:])):
            self._word = (self._word or "") + match[0]
            self._at = match.end()
        elif char in "<>" or self._text.startswith("&>", self._at):
            self._redirect()
        else:
            self._part(char)

    def _array(self) -> None:
        """Take the elements of an array into the word that assigns it."""
        before, self._words, begin, brackets = self._words, [], self._word, self._brackets
        self._word = None
        self._at += 1
        while self._at < len(self._text) and (self._braces or self._text[self._at] not in "();|&"):
            self._within(self._text[self._at])
        self._at += self._text[self._at : self._at + 1] == ")"  # the others would be an error of the shell
        self._end_word()
        self._word = f"{begin}{FIELD}{FIELD.join(word or EMPTY for word in self._words)}"
        self._words, self._brackets = before, brackets

    def _arithmetic(self) -> list[str]:
        """Pass over `((...))`, and return assignments of what it may set, or of nothing; [] where it is none."""
        match = _ARITHMETIC.match(self._text, self._at)
        if match is None:
            return []
        self._at = match.end()
        return counted(match[0][2:-2]) or [f"_={UNKNOWN}{match[0]}"]

    def _check_braces(self) -> None:
        """Note a ${ that the rest of the script does not close."""
        if self._at < self._closed or not self._text.startswith("${", self._at):
            return
        depth = 0
        for match in _BRACE.finditer(self._text, self._at):
            depth += {"${": 1, "}": -1}.get(match[0], 0)
            self._closed = match.end()
            if not depth:
                return
        self.unreadable = self.unreadable or (self._line, *_OPEN)
        self._closed = len(self._text)

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _skip_heredoc(self, mark: str) -> int:
        """Pass over a text up to its mark, and return where the text ends."""
        while self._at < len(self._text):
            begin, end = self._at, self._end_of_line()
            self._at, self._line = min(end + 1, len(self._text)), self._line + 1
            if self._text[begin:end].strip() == mark:
                return begin
        return self._at

    def _end_word(self) -> None:
        self._braces = 0
        if self._word is None:
            return
        if self._is_target:
            self._is_target = False
            self._redirected.append((self._sign, self._word))
        else:
            self._words.append(self._word)
            self._brackets = self._brackets | ({self._word} & {"[[", "]]"})
        self._word = None

    def _redirect(self) -> None:
        """Leave out a redirection: its number, its sign and its target."""
        self.does_more = True
        self._sign = ""
        if self._word is not None and self._word.isdecimal():
            self._sign, self._word = self._word, None
        self._end_word()
        match = re.compile(r"&?[<>]+[&|-]?").match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        self._sign += match[0]
        if match[0].startswith("<<") and match[0] != "<<<":
            mark = re.compile(r"[ \t]*(['\"\\\\]?)([A-Za-z0-9_.!-]+)['\"]?").match(self._text, self._at)
            if mark is not None:
                self._heredocs.append((len(self._pending), mark[2], mark[1]))
                self._redirected.append((self._sign, mark[2]))
                self._at = mark.end()
            return
        self._is_target = True

    def _part(self, char: str) -> None:
        """Take one character, or what belongs together, into the word."""
        word = self._word or ""
        self._check_braces()
        if char == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            if self.unreadable is None and _BLANK_AT_END.match(self._text, self._at):
                self.unreadable = (self._line, *_BROKEN)
            self._line += following == "\n"
            self._at += 2
            if following in ("\n", ""):
                return
            word += LITERAL if following == "$" else following
        elif char == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                self.unreadable, end = self.unreadable or (self._line, *_UNCLOSED), len(self._text)
            quoted = self._text[self._at + 1 : end]
            self._line += quoted.count("\n")
            word += quoted.replace("$", LITERAL)
            self._at = end + 1
        elif char == '"':
            word += self._double_quoted()
        elif char == "`" or self._text.startswith("$(", self._at):
            word += self._computed()
        else:
            self._braces += self._text.startswith("${", self._at) - (char == "}" and self._braces > 0)
            self.does_more |= char in "*?[~" or (char == "{" and not word.endswith("$"))
            if char == "~" and _AT_HOME.match(self._text, self._at) and (not word or _ASSIGNS.fullmatch(word)):
                char = f"{QUOTED}HOME"
            plain = _PLAIN.match(self._text, self._at)
            word += plain[0] if plain else char
            self._at += len(plain[0]) if plain else 1
        self._word = word

    def _double_quoted(self) -> str:
        self._at += 1
        begun, quoted = self._line, self.filled('"')
        if self._at >= len(self._text):
            self.unreadable = self.unreadable or (begun, *_UNCLOSED)
        self._at += 1
        return quoted

    def filled(self, end: str = "") -> str:
        """Take what a shell puts values into, up to a character: between double quotes, or in a text of << up to its end."""
        quoted = ""
        while self._at < len(self._text) and self._text[self._at] != end:
            char = self._text[self._at]
            self._check_braces()
            if char == "\\" and self._at + 1 < len(self._text):
                following = self._text[self._at + 1]
                self._line += following == "\n"
                inside = "" if following == "\n" else following if following in f"{end}\\`" else f"\\{following}"
                quoted += LITERAL if following == "$" else inside
                self._at += 2
            elif char == "`" or self._text.startswith("$(", self._at):
                quoted += self._computed()
            else:
                self._line += char == "\n"
                quoted += QUOTED if char == "$" else char
                self._at += 1
        return quoted

    def _computed(self) -> str:
        """Pass over what the shell would compute, and return a mark for it."""
        begin = self._at
        if self._text[begin] == "`":
            end = self._text.find("`", begin + 1)
            self._at = len(self._text) if end < 0 else end + 1
        else:
            depth, at = 0, begin + (self._text[begin] == "$")
            while at < len(self._text):
                depth += (self._text[at] == "(") - (self._text[at] == ")")
                at += 1
                if depth == 0:
                    break
            self._at = at
        self._line += self._text.count("\n", begin, self._at)
        if _PWD.fullmatch(self._text, begin, self._at):
            return f"{QUOTED}{{PWD}}"
        if _ITS_FOLDER.fullmatch(self._text, begin + (self._text[begin] == "$"), self._at):
            return f"{QUOTED}{{{ITS_FOLDER}}}"
        if _SUM.fullmatch(self._text, begin, self._at):
            return f"{SUM}{self._text[begin + 1 : self._at]}"
        program = _WHICH.fullmatch(self._text[begin : self._at].lstrip("$"))
        inside = self._text[begin : self._at].removeprefix("$")[1:-1]
        return program[1] if program else f"{UNKNOWN}({inside.translate(_KEPT)})"


def with_sums(word: str, variables: Mapping[str, str]) -> str:
    """Return a word with the value of each `$((...))` in it; a mark stands for one that is not known."""
    return _EXPRESSION.sub(lambda match: _value(match["inside"], variables), word) if SUM in word else word


def _value(expression: str, variables: Mapping[str, str]) -> str:
    """Return the number that an arithmetic expression is; its text behind a mark where that is not known."""
    unknown = f"{UNKNOWN}(({_BLANKS.sub(BLANK, expression.strip())}))"

    def number(match: re.Match[str]) -> str:
        text = variables.get(match[1] or match[2], "")
        return text if text.isdecimal() else UNKNOWN

    text = _NAME.sub(number, expression).strip()
    if _OCTAL.search(text):
        return unknown
    for _step in range(_MOST_STEPS):
        simpler = text
        for pattern in (_IN_PARENTHESES, _PRODUCT, _ADDITION):
            simpler = pattern.sub(_step_of, text, count=1)
            if simpler != text:
                break
        if simpler == text:
            break
        text = simpler
    return text if re.fullmatch(r"\d{1,9}", text) else unknown


def _step_of(match: re.Match[str]) -> str:
    """Return the value of one operation; a mark where a shell refuses it, or rounds in another way than Python does."""
    if match.re is _IN_PARENTHESES:
        return match[1]
    left, right = int(match[1]), int(match[3])
    if match[2] in "/%" and (right <= 0 or left < 0):
        return UNKNOWN
    return str(_DOES[match[2]](left, right))
