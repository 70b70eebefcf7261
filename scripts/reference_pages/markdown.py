"""Text and tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_SPAN = re.compile(r"(`[^`]+`)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# What Markdown or HTML would read as markup; a bar ends a cell, and an underscore inside of a word is none.
_MARKUP = re.compile(r"[&<>|*`\\]|(?<!\w)_|_(?!\w)")


def prose(text: str) -> str:
    """Return text on one line, as Markdown that shows its characters; text in backquotes is code."""
    parts = _SPAN.split(" ".join(text.split()))
    return "".join(code(part[1:-1]) if at % 2 else _escaped(part) for at, part in enumerate(parts))


def code(text: str) -> str:
    """Return text as code; a cell of a table may hold it."""
    shown = " ".join(text.split())
    if "|" in shown:  # between backquotes, a cell would show the backslash before it
        return f"<code>{_escaped(shown)}</code>"
    fence = "``" if "`" in shown else "`"
    return f"{fence}{shown}{fence}" if shown else ""


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"&#{ord(match[0])};"), text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, nothing where it has no rows; an empty line follows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield f"| {' | '.join(header)} |"
        yield f"|{'---|' * len(header)}"
        yield from lines
        yield ""
