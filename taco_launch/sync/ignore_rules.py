"""Which files a tree leaves out: .gitignore and .tacoignore, in each folder, as git reads them."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from taco_launch.errors import UsageError

# The later one goes before the earlier one.
TACO_IGNORE = ".tacoignore"
FILES = (".gitignore", TACO_IGNORE)
_MOST_BYTES = 1 << 20
# pathspec's patterns match what lies below a match as well, and name the slash where that begins.
_BELOW = "ps_d"


class _Rule(NamedTuple):
    pattern: GitIgnoreSpecPattern
    text: str
    leaves_out: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Return whether it is about this path itself; what lies below a folder that is left out is never looked at."""
        if not self.text.endswith("/"):
            match = self.pattern.match_file(path)
            return match is not None and match.match.groupdict().get(_BELOW) is None
        match = self.pattern.match_file(f"{path}/") if is_folder else None
        if match is None:
            return False
        if self.text.strip("!/") in ("*", "**"):
            return True
        ends = match.match.end(_BELOW) > len(path)
        return not ends if self.text.endswith("/**/") else ends


class IgnoreRules(NamedTuple):
    """The rules of a folder: its path from the root, its own rules, those of the folders above."""

    folder: str
    own: tuple[_Rule, ...]
    above: "IgnoreRules | None"

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path of this folder, counted from the root, is left out: the last rule that matches decides."""
        rules: IgnoreRules | None = self
        while rules is not None:
            inner = path[len(rules.folder) + 1 :] if rules.folder else path
            for rule in reversed(rules.own):
                if rule.matches(inner, is_folder=is_folder):
                    return rule.leaves_out
            rules = rules.above
        return False


def rules_of(folder: str, there: str, names: Sequence[str], above: IgnoreRules | None) -> IgnoreRules | None:
    """Return the rules of a folder of a tree, which lies at `there` and has files of rules of these names.

    Raises:
        UsageError: a file of rules cannot be read, or a rule is none.
    """
    own = tuple(rule for name in names for rule in _read(os.path.join(there, name)))  # noqa: PTH118
    return IgnoreRules(folder, own, above) if own else above


def _read(path: str) -> list[_Rule]:
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
    found = []
    for number, ended in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = ended.removesuffix("\r")
        try:
            pattern = GitIgnoreSpecPattern(line)
        except ValueError as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
        if pattern.include is not None:
            found.append(_Rule(pattern, line.rstrip(), pattern.include))
    return found
