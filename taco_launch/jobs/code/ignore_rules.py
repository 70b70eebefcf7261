"""Which files a tree leaves out: .gitignore and .tacoignore, in each folder, as git reads them."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from taco_launch.core.errors import UsageError

# The later one goes before the earlier one.
TACO_IGNORE = ".tacoignore"
FILES = (".gitignore", TACO_IGNORE)
_MOST_BYTES = 1 << 20
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")


class IgnoreRules(NamedTuple):
    """The rules of a folder behind those of the folders above it, each written as one of the root's."""

    lines: tuple[str, ...]
    for_files: GitIgnoreSpec
    for_folders: GitIgnoreSpec

    def leave_out(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path, counted from the root, is left out: the last rule that matches decides."""
        return (self.for_folders if is_folder else self.for_files).match_file(path)


def rules_of(folder: str, there: str, names: Sequence[str], above: IgnoreRules | None) -> IgnoreRules | None:
    """Return the rules of a folder of a tree, which lies at `there` and has files of rules of these names.

    Raises:
        UsageError: a file of rules cannot be read, or a rule is none.
    """
    own = [_from_root(rule, folder) for name in names for rule in _read(os.path.join(there, name))]  # noqa: PTH118
    if not own:
        return above
    lines = (*(above.lines if above else ()), *own)
    # What lies below a folder that is left out is never asked for; and of folders a rule for them alone is one like any other.
    files = [line for line in lines if line.startswith("!") or not line.rstrip().endswith("/")]
    folders = [line.rstrip().removesuffix("/") if line.rstrip().endswith("/") else line for line in lines]
    return IgnoreRules(lines, GitIgnoreSpec.from_lines(files), GitIgnoreSpec.from_lines(folders))


def _from_root(rule: str, folder: str) -> str:
    """Return a rule of a folder as the root would have it."""
    if not folder:
        return rule
    negated, body = ("!", rule[1:]) if rule.startswith("!") else ("", rule)
    below = body.removeprefix("/") if "/" in body.rstrip().removesuffix("/") else f"**/{body}"
    escaped = _SPECIAL.sub(r"\\\1", folder)
    return f"{negated}/{escaped}/{below}"


def _read(path: str) -> list[str]:
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
            is_rule = any(pattern.include is not None for pattern in GitIgnoreSpec.from_lines([line]).patterns)
        except ValueError as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
        if is_rule:
            found.append(line)
    return found
