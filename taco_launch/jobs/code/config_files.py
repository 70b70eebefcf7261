"""Single files of the controller that a job has at a path of its own: SRC:DST."""

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from taco_launch.agent.store import untrusted
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.manifest import MOST_CONFIG_BYTES, MOST_CONFIG_FILES, check_path


@dataclass(frozen=True)
class ConfigFile:
    """A file `source` of `size` bytes whose content has the SHA-256 `content`; `target` is absolute, or below the tree."""

    source: str
    target: str
    size: int
    content: str


def read(words: Sequence[str], called: str, *, has_tree: bool) -> tuple[ConfigFile, ...]:
    """Return the config files that words of the form SRC:DST name; `called` is how the option is called.

    Raises:
        UsageError: a word has another form, a file cannot be read or is too large, or a relative DST has no tree.
    """
    if len(words) > MOST_CONFIG_FILES:
        raise UsageError(f"{called}: {len(words)} files, but at most {MOST_CONFIG_FILES} are allowed")
    found: dict[str, ConfigFile] = {}
    for word in words:
        file = _read(word, called, has_tree=has_tree)
        if file.target in found:
            raise UsageError(f"{called}: two files for {file.target}", hint="leave one of them out")
        found[file.target] = file
    return tuple(found.values())


def split(word: str, called: str) -> tuple[str, str]:
    """Return SRC and DST of a word.

    Raises:
        UsageError: it has another form, or DST is not a path of a file.
    """
    source, colon, target = word.rpartition(":")
    if not (source and colon and target):
        raise UsageError(f"{called} {word!r}: write SRC:DST", hint=f"for example {called} nccl.conf:/etc/nccl.conf")
    try:
        check_path(target.removeprefix("/"))
    except ValueError as error:
        raise UsageError(f"{called} {word!r}: {error}") from None
    return source, target


def _read(word: str, called: str, *, has_tree: bool) -> ConfigFile:
    source, target = split(word, called)
    if not target.startswith("/") and not has_tree:
        raise UsageError(
            f"{called} {word!r}: a relative path starts at the folder of the code, but this job has no code",
            hint="write an absolute path, or add --sync DIR",
        )
    path = os.path.abspath(os.path.expanduser(source))  # noqa: PTH100, PTH111 - as its other users have it
    try:
        data = untrusted.read_named(Path(path), MOST_CONFIG_BYTES)
    except OSError as error:
        hint = "for larger files, use --sync DIR" if error.errno == errno.EFBIG else ""
        raise UsageError(f"{called}: {path}: cannot be read: {error.strerror}", hint=hint) from None
    return ConfigFile(path, target, len(data), hashlib.sha256(data).hexdigest())
