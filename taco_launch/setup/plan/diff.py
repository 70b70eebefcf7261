"""What operations would change in files, as unified diffs; what is secret is named and not shown."""

import difflib
from collections.abc import Iterable, Mapping

from taco_launch.setup.model.ops import FileTarget, Op


def wanted(ops: Iterable[Op]) -> tuple[str, ...]:
    """Return the paths whose present text a diff needs and no operation brings along."""
    known = {path for op in ops for path, _ in op.old}
    paths = (path(file) for op in ops for file in op.files if not file.secret and _text(file.data) is not None)
    return tuple(dict.fromkeys(each for each in paths if each not in known))


def diffs(ops: Iterable[Op], present: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return a unified diff for each file of these operations; `present` are texts as they are, by path."""
    found = []
    for op in ops:
        old = dict(op.old)
        for file in op.files:
            where = path(file)
            before = old.get(where)
            if before is None and where in present:
                before = present[where].decode("utf-8", "replace")
            found.append(_diff(where, before, file))
    return tuple(filter(None, found))


def path(file: FileTarget) -> str:
    """Return the path at which a file ends up."""
    return file.shown or file.path


def _diff(where: str, before: str | None, file: FileTarget) -> str:
    after = _text(file.data)
    if file.secret or after is None:
        what = "secret, not shown" if file.secret else f"{len(file.data)} bytes, not shown"
        return f"--- {where}\n+++ {where}\n({what})\n"
    name = where if before is not None else "/dev/null"
    lines = difflib.unified_diff((before or "").splitlines(True), after.splitlines(True), name, where)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
