"""A shell script, such as people give to sbatch or qsub -> its directives, and its commands as far as they can be read: pure.

It is not a shell: what a shell would compute stays a mark in the words, and the reader of a word can tell.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.command_line.nested_launcher import inner

# In the place of a dollar sign whose value is not known, and of one that the shell would leave alone.
UNKNOWN, LITERAL = "\ue000", "\ue001"
_SCHEDULERS = {"SBATCH": "Slurm", "PBS": "PBS", "BSUB": "LSF"}
_DIRECTIVE = re.compile(r"#(SBATCH|PBS|BSUB)\s+(\S.*)")
_MOST_CHARACTERS = 1 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_EXPANDED = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?::?[-=]([^{}$]*))?\})")
_OPENING = frozenset(("if", "while", "until", "for", "case"))
_CLOSING = frozenset(("fi", "done", "esac"))
_BEFORE = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "exec", "command", "time"))


@dataclass(frozen=True)
class ScriptCommand:
    """A command of a script: the number of its line, its words, and whether it is in a loop, a condition or a function."""

    line: int
    words: tuple[str, ...]
    is_conditional: bool = False


@dataclass(frozen=True)
class ShellScript:
    """A script: its `scheduler` ("" if it has no directives), the words of each directive, and its commands."""

    scheduler: str
    directives: tuple[tuple[int, str], ...]
    commands: tuple[ScriptCommand, ...]


def shown(text: str) -> str:
    """Return a word as a script has it: with its dollar signs."""
    return text.replace(UNKNOWN, "$").replace(LITERAL, "$")


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
    only = tuple(expanded(word, {}) for word in commands[0].words)
    return tuple(words) if inner(only) is None else only


def read(text: str) -> ShellScript:
    """Read a script."""
    text = text[:_MOST_CHARACTERS]
    directives, scheduler = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is not None and line.startswith("#"):
            scheduler = scheduler or _SCHEDULERS[match[1]]
            directives.append((number, re.sub(r"\s+#.*$", "", match[2])))
    return ShellScript(scheduler, tuple(directives), tuple(_commands(_Tokens(text))))


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """Put in the variables that are known; the dollar sign of any other becomes a mark."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        default = match[3] if match[3] is not None else UNKNOWN + match[0][1:]
        return variables.get(name, default)

    return _EXPANDED.sub(value, word).replace("$", UNKNOWN)


def defaults(words: Sequence[str]) -> dict[str, str]:
    """Return the variables that `: ${NAME:=VALUE}` sets where they are not set."""
    match = (each for word in words for each in _EXPANDED.finditer(word))
    return {each[2]: each[3] for each in match if each[2] and each[3]}


def assigned(words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that a command begins with, and the rest of its words."""
    values, at = {}, 0
    while at < len(words) and (match := _ASSIGNED.match(words[at])):
        values[match[1]] = words[at][match.end() :]
        at += 1
    return values, tuple(words[at:])


def _commands(tokens: "_Tokens") -> Iterator[ScriptCommand]:
    depth = 0
    for line, words in tokens.commands():
        at = 0
        while at < len(words) and words[at] in _BEFORE | _OPENING | _CLOSING:
            depth += (words[at] in _OPENING) - (words[at] in _CLOSING)
            at += len(words) if words[at] in ("for", "case") else 1
        if at < len(words):
            yield ScriptCommand(line, tuple(words[at:]), depth > 0 or "!" in words[:at])


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

    def commands(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the line that a command starts in, and its words."""
        begun = 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if not self._words and self._word is None:
                begun = self._line
            if char == "(" and (self._word or "").endswith("="):  # an array
                self._word = f"{self._word}{self._computed()}"
            elif char in "\n;|&()":
                if char == "&" and self._text[self._at + 1 : self._at + 2] == ">":
                    self._redirect()
                    continue
                self._end_word()
                if self._words:
                    yield begun, self._words
                self._words = []
                self._next(char)
            elif char in " \t\r":
                self._end_word()
                self._at += 1
            elif char == "#" and self._word is None:
                self._at = self._end_of_line()
            elif char in "<>":
                self._redirect()
            else:
                self._part(char)
        self._end_word()
        if self._words:
            yield begun, self._words

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
            word += char
            self._at += 1
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
                quoted += char
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
        return f"{UNKNOWN}(...)"
