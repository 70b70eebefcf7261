"""Which files a tree leaves out: .gitignore and .tacoignore, in each folder, as git reads them."""

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from taco_launch.core.errors import UsageError

# The later one goes before the earlier one.
TACO_IGNORE = ".tacoignore"
FILES = (".gitignore", TACO_IGNORE)
_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 4096  # as a path
# Spaces at the end count only behind a backslash.
_RULE = re.compile(r"(?:\\.?|[^ \\]| +(?=[^ ]))*", re.DOTALL)
_PLAIN = re.compile(r"[^*?\[\\/]+")
_TOKEN = re.compile(
    r"(\*+)|(\?)|\[([!^]?)((?:\\.|\[:\w+:\]|[^\\])(?:\\.|\[:\w+:\]|[^\]\\]){0,255})\]|\\(.)|(.)", re.DOTALL
)
_IN_SET = re.compile(r"\[:(\w+):\]|\\?(.)(?:-\\?(.))?", re.DOTALL)
_SETS = (
    r"alpha=a-zA-Z digit=0-9 alnum=a-zA-Z0-9 upper=A-Z lower=a-z xdigit=0-9a-fA-F space=\s blank=\x20\t "
    r"punct=!-/:-@\[-`{-~ cntrl=\0-\x1f\x7f print=\x20-~ graph=!-~"
)
_CLASSES = dict(pair.split("=", 1) for pair in _SETS.split())
_Part = Callable[[str], object] | None


class _Rule(NamedTuple):
    """A line: the parts of the paths that it matches, None for `**`, counted below `level` folders; `text` is its pattern."""

    leaves_out: bool
    for_folders: bool
    level: int
    parts: tuple[_Part, ...]
    text: str
    file: str
    line: int


class _Look(NamedTuple):
    """The rules of a folder by how they are compared: plain names and endings, which are compared all at once, and the others."""

    names: frozenset[str]
    ends: tuple[str, ...]
    others: tuple[_Rule, ...]


class IgnoreRules(NamedTuple):
    """The rules of a folder behind those of the folders above it; they may be asked until `deadline`."""

    rules: tuple[_Rule, ...]
    deadline: float
    for_files: _Look
    for_folders: _Look

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path, counted from the root, is left out: the last rule that matches decides.

        Raises:
            UsageError: the deadline has passed.
        """
        look = self.for_folders if is_folder else self.for_files
        name = path.rpartition("/")[2]
        if name in look.names or name.endswith(look.ends):
            rules = self.rules
        elif look.others:
            rules = look.others
        else:
            return False
        names = path.split("/")
        for rule in reversed(rules):
            _check_time(self.deadline, rule.file, rule.line)
            if (is_folder or not rule.for_folders) and _fits(rule.parts, names[rule.level :]):
                return rule.leaves_out
        return False


def rules_of(
    folder: str, there: str, names: Sequence[str], above: IgnoreRules | None, deadline: float
) -> IgnoreRules | None:
    """Return the rules of a folder of a tree, which lies at `there` and has files of rules of these names.

    Raises:
        UsageError: a file of rules cannot be read, or a rule is none.
    """
    level = folder.count("/") + 1 if folder else 0
    own = [rule for name in names for rule in _read(f"{there}/{name}", level, deadline)]
    if not own:
        return above
    rules = (*(above.rules if above else ()), *own)
    return IgnoreRules(rules, deadline, _look([rule for rule in rules if not rule.for_folders]), _look(rules))


def _look(rules: Sequence[_Rule]) -> _Look:
    names = {rule.text for rule in rules if _PLAIN.fullmatch(rule.text)}
    ends = {rule.text[1:] for rule in rules if rule.text.startswith("*") and _PLAIN.fullmatch(rule.text[1:])}
    others = (rule for rule in rules if rule.text not in names and not (rule.text[0] == "*" and rule.text[1:] in ends))
    return _Look(frozenset(names), tuple(ends), tuple(others))


def _check_time(deadline: float, path: str, line: int) -> None:
    if time.monotonic() > deadline:
        raise UsageError(
            f"{path}: line {line}: the files of the folder could not all be compared with this rule in time",
            hint="write fewer rules, or copy a folder with fewer files",
        )


def _read(path: str, level: int, deadline: float) -> list[_Rule]:
    try:
        # a link is not followed, as git does not
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            text = os.fsdecode(file.read(_MOST_BYTES + 1))
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114
            return []
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(text) > _MOST_BYTES:
        raise UsageError(f"{path}: larger than {_MOST_BYTES >> 20} MiB")
    rules = []
    for number, ended in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        _check_time(deadline, path, number)
        if len(ended) > _MOST_CHARACTERS:
            raise UsageError(f"{path}: line {number}: longer than {_MOST_CHARACTERS} characters")
        line = "" if ended.startswith("#") else _RULE.match(ended.removesuffix("\r"))[0]  # type: ignore[index]
        body = line.removeprefix("!")
        if line and not body:
            raise UsageError(f"{path}: line {number}: ! must be followed by a pattern")
        pattern = body.removesuffix("/")
        if pattern:
            rules.append(_Rule(body is line, pattern is not body, level, _parts(pattern), pattern, path, number))
    return rules


def _parts(pattern: str) -> tuple[_Part, ...]:
    """Return what matches each part of a path; a pattern without a slash matches at any level."""
    if "/" not in pattern:
        return (None, _part(pattern))
    parts = [None if re.fullmatch(r"\*\*+", part) else _part(part) for part in _split(pattern.removeprefix("/"))]
    return (*parts, _part("*")) if parts[-1] is None else tuple(parts)  # what lies below a folder, and not the folder


def _split(pattern: str) -> list[str]:
    """Split a pattern at its slashes; one between brackets is a character of a set, which matches no slash."""
    parts = [""]
    for token in _TOKEN.finditer(pattern):
        before, slash, behind = (token[0], "", "") if token[4] else token[0].partition("/")
        parts[-1] += before
        if slash:
            parts.append(behind)
    return parts


def _part(text: str) -> Callable[[str], object]:
    """Return a test for one name.

    What stands between two stars is taken where it fits first, and never looked for again: an atomic group of Python 3.10.
    """
    pieces, is_plain = [""], True
    for star, one, negated, inside, escaped, plain in _TOKEN.findall(text):
        if star:
            pieces.append("")
        elif inside:
            sets = [_CLASSES.get(kind) or _range(low, high) for kind, low, high in _IN_SET.findall(inside)]
            pieces[-1] += f"[{'^' if negated else ''}{''.join(sets)}]"
        else:
            # a [ that nothing closes and a \\ at the end match nothing
            pieces[-1] += "." if one else "(?!)" if plain in ("[", "\\") else re.escape(escaped or plain)
        is_plain = is_plain and plain not in ("", "[", "\\")
    if is_plain:
        return text.__eq__
    first, *others = pieces
    for number, piece in enumerate(others[:-1]):
        first += f"(?=(?P<g{number}>.*?{piece}))(?P=g{number})"
    return re.compile(first + (f".*{others[-1]}" if others else ""), re.DOTALL).fullmatch


def _range(low: str, high: str) -> str:
    return re.escape(low) + (f"-{re.escape(high)}" if low < high else "")


def _fits(parts: tuple[_Part, ...], names: Sequence[str]) -> bool:
    """Return whether parts match names: where one does not, the last `**` before it takes one name more."""
    if len(parts) == 2 and parts[0] is None:
        return bool(parts[1](names[-1]))  # type: ignore[misc]
    ends = (*parts, "".__eq__)  # no name is empty
    at = number = 0
    again: tuple[int, int] | None = None
    while number < len(names):
        part = ends[at]
        if part is None:
            at += 1
            again = at, number
        elif part(names[number]):
            at, number = at + 1, number + 1
        elif again is None:
            return False
        else:
            again = again[0], again[1] + 1
            at, number = again
    return at == len(parts)
