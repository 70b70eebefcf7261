"""Trees for the tests: made of what hypothesis draws, and compared."""

import os
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

# A path -> bytes of a file and its executable bit, or a link's target; None is an empty folder.
Drawn = Mapping[str, "tuple[bytes, bool] | str | None"]

# Anything but a slash and NUL may stand in a name, newlines and what is no UTF-8 too.
NAMES = (
    st.binary(min_size=1, max_size=8)
    .filter(
        lambda name: not set(name) & {0, 0x2F} and name not in (b".", b"..", b".git", b".gitignore", b".tacoignore")
    )
    .map(os.fsdecode)
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENT = st.one_of(
    st.none(), st.tuples(st.binary(max_size=50), st.booleans()), st.sampled_from(["gone", "./x/../y", "a/b"])
)


def make(root: Path, drawn: Drawn) -> None:
    """Write as much of a tree as can be written: a file is not a folder."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in drawn.items():
        there = root / path
        try:
            (there if content is None else there.parent).mkdir(parents=True, exist_ok=True)
            if isinstance(content, tuple):
                there.touch(0o755 if content[1] else 0o644, exist_ok=False)
                there.write_bytes(content[0])
            elif content is not None:
                there.symlink_to(content)
        except OSError:
            continue


def seen(root: Path) -> dict[str, object]:
    """Return what a tree holds: files with content and executable bit, links, and folders."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = path.read_bytes(), bool(path.stat().st_mode & 0o100)
    return found


def quiet(line: str) -> None:
    """Fail where anything is said of a tree."""
    raise AssertionError(line)
