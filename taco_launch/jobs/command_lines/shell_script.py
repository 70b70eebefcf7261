"""A shell script, such as people give to sbatch or qsub -> its directives, and its commands as far as they can be read: pure.

It is not a shell: what a shell would compute stays a mark in the words, and the reader of a word can tell.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import inner

# In the place of a dollar sign whose value is not known, of one that the shell would leave alone, of one between double
# quotes; and between the words that a shell makes of one.
UNKNOWN, LITERAL, QUOTED, FIELD = "\ue000", "\ue001", "\ue002", "\ue003"
MARKS = {UNKNOWN: "$", LITERAL: "$", QUOTED: "$", FIELD: " "}
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
_MOST_CHARACTERS = 1 << 20
_LONGEST_VALUE = 1 << 16  # A=$A$A doubles it
_NAMED = "[A-Za-z_][A-Za-z0-9_]*"
_PLAIN = re.compile(r"[\w./:=,@%+-]+", re.ASCII)
_ASSIGNED = re.compile(rf"({_NAMED})(\+?)=")
_EXPANDED = re.compile(
    rf"(?P<sign>[${QUOTED}])(?:({_NAMED})|\{{({_NAMED}|[0-9]+)(\[[@*]\])?(?::?[-=](?P<default>[^{{}}]*))?\}})"
)
_UNKNOWN = re.compile(rf"{UNKNOWN}(?:\{{[^{{}}]*\}}|\(\.\.\.\)|\w+|[@*#?])")
_COUNTED = re.compile(rf"({_NAMED})\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)\s*({_NAMED})")
_ARITHMETIC = re.compile(r"\(\([^\n]{0,160}?\)\)(?!\))")
# What only looks for a program: the shell that starts the ranks would find the same one.
_WHICH = re.compile(r"[`(]\s*(?:which|command\s+-v|type\s+-p)\s+([\w.+-]+)\s*[`)]")
_OPENING = frozenset(("if", "while", "until", "for", "case"))
_CLOSING = frozenset(("fi", "done", "esac"))
_BEFORE = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "exec", "command", "time"))


@dataclass(frozen=True)
class ScriptCommand:
    """A command of a script: the number of its line, and its words.

    `is_conditional` says that it is in a loop, a condition or a function, `is_background` that & starts the next one beside it.
    """

    line: int
    words: tuple[str, ...]
    is_conditional: bool = False
    is_background: bool = False


@dataclass(frozen=True)
class ShellScript:
    """A script: its `scheduler` ("" if it has no directives), each directive with its line and scheduler, and its commands."""

    scheduler: str
    directives: tuple[tuple[int, str, str], ...]
    commands: tuple[ScriptCommand, ...]


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


def started(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the launcher that is all that `bash -c SCRIPT` starts, with marks; any others as they are."""
    tokens = _Tokens(shown(of_line(words)))
    commands = [*_commands(tokens)]
    if len(commands) != 1 or len(words) != 3 or commands[0].is_conditional or tokens.does_more:
        return tuple(words)
    only = fields(commands[0].words, {})
    return tuple(words) if inner(only) is None else only


def read(text: str) -> ShellScript:
    """Read a script."""
    text = text[:_MOST_CHARACTERS]
    directives = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is not None and line.startswith("#"):
            name = match[1].strip()
            directives.append((number, re.sub(r"\s+#.*$", "", match[2]), _SCHEDULERS.get(name, name)))
    scheduler = directives[0][2] if directives else ""
    return ShellScript(scheduler, tuple(directives), tuple(_commands(_Tokens(text))))


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """Put in the variables that are known, as in an assignment; the dollar sign of any other becomes a mark."""
    text = _put_in(word, variables)
    return text.replace(FIELD, " ").strip() if FIELD in text else text


def fields(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that a shell makes of some: a variable without quotes is split, an array is a word for each element."""
    split: list[str] = []
    room = _LONGEST_VALUE
    for word in words:
        text = _put_in(word, variables if room > 0 else {}, is_split=True)
        room -= len(text)
        parts = [part for part in text.split(FIELD) if part]
        is_kept = not word or (QUOTED in word and FIELD not in text)
        split += parts or ([""] if is_kept else [])
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
        if match[4]:
            return text
        if text.startswith(FIELD):  # of an array without [@] a shell takes the first element
            text = text.split(FIELD)[1]
        return re.sub(r"\s+", FIELD, text) if is_split and match["sign"] == "$" else text

    return _EXPANDED.sub(value, word).replace("$", UNKNOWN).replace(QUOTED, UNKNOWN)


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
    while at < len(words) and (match := _ASSIGNED.match(words[at])):
        name, text = match[1], words[at][match.end() :]
        if text.startswith(FIELD):
            elements = fields([element for element in text.split(FIELD) if element], variables)
            before, value = variables.get(name, ""), FIELD + FIELD.join(elements)
        else:
            before, value = variables.get(name, UNKNOWN + name), expanded(text, variables)
        value = before + value if match[2] else value
        values[name] = value if len(value) <= _LONGEST_VALUE else UNKNOWN + name
        at += 1
    return values, tuple(words[at:])


def _commands(tokens: "_Tokens") -> Iterator[ScriptCommand]:
    depth = 0
    for line, words, is_background in tokens.commands():
        at = 0
        while at < len(words) and words[at] in _BEFORE | _OPENING | _CLOSING:
            depth += (words[at] in _OPENING) - (words[at] in _CLOSING)
            if words[at] in ("for", "case"):
                for name in words[at + 1 : at + 2] if words[at] == "for" else ():
                    yield ScriptCommand(line, (_computed(name),), is_conditional=True)
                at = len(words)
            at += 1
        if at < len(words):
            yield ScriptCommand(line, tuple(words[at:]), depth > 0 or "!" in words[:at], is_background)


def _computed(name: str) -> str:
    """Return an assignment of a value that is not known; one as it is."""
    return name if "=" in name else f"{name}={UNKNOWN}{name}"


class _Tokens:
    """Splits a script into commands, as the grammar of sh(1) has them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._word: str | None = None
        self._words: list[str] = []
        self._is_target = False
        self._heredocs: list[str] = []
        # Whether a shell redirects something, or makes other words of those that stand there: names of files for *.
        self.does_more = False

    def commands(self) -> Iterator[tuple[int, list[str], bool]]:
        """Yield the number of the line that a command starts in, its words, and whether & ends it."""
        begun = 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if not self._words and self._word is None:
                begun = self._line
            if char == "(" and (self._word or "").endswith("=") and _ASSIGNED.fullmatch(self._word or ""):
                self._array()
            elif char == "(" and self._word is None and (counted := self._arithmetic()):
                self._words += counted
            elif char in "\n;|&()":
                if char == "&" and self._text[self._at + 1 : self._at + 2] == ">":
                    self._redirect()
                    continue
                self._end_word()
                if self._words:
                    yield begun, self._words, char == "&" and self._text[self._at + 1 : self._at + 2] != "&"
                self._words = []
                self._next(char)
            else:
                self._within(char)
        self._end_word()
        if self._words:
            yield begun, self._words, False

    def _within(self, char: str) -> None:
        """Take what does not end a command."""
        if char in " \t\r\n":
            self._end_word()
            self._line += char == "\n"
            self._at += 1
        elif char == "#" and self._word is None:
            self._at = self._end_of_line()
        elif char in "<>":
            self._redirect()
        else:
            self._part(char)

    def _array(self) -> None:
        """Take the elements of an array into the word that assigns it."""
        before, self._words, begin = self._words, [], self._word
        self._word = None
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] not in "();|&":
            self._within(self._text[self._at])
        self._at += self._text[self._at : self._at + 1] == ")"  # the others would be an error of the shell
        self._end_word()
        self._word = f"{begin}{FIELD}{FIELD.join(self._words)}"
        self._words = before

    def _arithmetic(self) -> list[str]:
        """Pass over `((...))`, and return assignments of what it may set, or of nothing; [] where it is none."""
        match = _ARITHMETIC.match(self._text, self._at)
        if match is None:
            return []
        self._at = match.end()
        names = [each[1] or each[2] for each in _COUNTED.finditer(match[0])]
        return [_computed(name) for name in names] or [_computed("_")]

    def _next(self, char: str) -> None:
        self._at += 1
        if char == "\n":
            self._line += 1
            for mark in self._heredocs:
                self._skip_heredoc(mark)
            self._heredocs = []

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _skip_heredoc(self, mark: str) -> None:
        while self._at < len(self._text):
            end = self._end_of_line()
            line = self._text[self._at : end]
            self._at, self._line = min(end + 1, len(self._text)), self._line + 1
            if line.strip() == mark:
                return

    def _end_word(self) -> None:
        if self._word is None:
            return
        if self._is_target:
            self._is_target = False
        else:
            self._words.append(self._word)
        self._word = None

    def _redirect(self) -> None:
        """Leave out a redirection: its number, its sign and its target."""
        self.does_more = True
        if self._word is not None and self._word.isdecimal():
            self._word = None
        self._end_word()
        match = re.compile(r"&?[<>]+[&|-]?").match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        if match[0].startswith("<<") and match[0] != "<<<":
            mark = re.compile(r"[ \t]*['\"]?([A-Za-z0-9_.!-]+)['\"]?").match(self._text, self._at)
            if mark is not None:
                self._heredocs.append(mark[1])
                self._at = mark.end()
            return
        self._is_target = True

    def _part(self, char: str) -> None:
        """Take one character, or what belongs together, into the word."""
        word = self._word or ""
        if char == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            self._line += following == "\n"
            self._at += 2
            if following in ("\n", ""):
                return
            word += LITERAL if following == "$" else following
        elif char == "'":
            end = self._text.find("'", self._at + 1)
            end = len(self._text) if end < 0 else end
            quoted = self._text[self._at + 1 : end]
            self._line += quoted.count("\n")
            word += quoted.replace("$", LITERAL)
            self._at = end + 1
        elif char == '"':
            word += self._double_quoted()
        elif char == "`" or self._text.startswith("$(", self._at):
            word += self._computed()
        else:
            self.does_more |= char in "*?[~" or (char == "{" and not word.endswith("$"))
            plain = _PLAIN.match(self._text, self._at)
            word += plain[0] if plain else char
            self._at += len(plain[0]) if plain else 1
        self._word = word

    def _double_quoted(self) -> str:
        quoted = ""
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != '"':
            char = self._text[self._at]
            if char == "\\" and self._at + 1 < len(self._text):
                following = self._text[self._at + 1]
                self._line += following == "\n"
                inside = "" if following == "\n" else following if following in '"\\`' else f"\\{following}"
                quoted += LITERAL if following == "$" else inside
                self._at += 2
            elif char == "`" or self._text.startswith("$(", self._at):
                quoted += self._computed()
            else:
                self._line += char == "\n"
                quoted += QUOTED if char == "$" else char
                self._at += 1
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
        program = _WHICH.fullmatch(self._text[begin : self._at].lstrip("$"))
        return program[1] if program else f"{UNKNOWN}(...)"
