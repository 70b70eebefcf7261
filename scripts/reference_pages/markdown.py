"""Text and tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

# A placeholder in angle brackets would be an HTML tag, and braces with a percent sign a template's.
_SPECIAL = re.compile(r"([<>|*\\])")


def prose(text: str) -> str:
    """Return text on one line, as Markdown that shows its characters."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return text as code; a cell of a table may hold it."""
    shown = " ".join(text.split()).replace("|", "\\|")
    fence = "``" if "`" in shown else "`"
    return f"{fence}{shown}{fence}" if shown else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, nothing where it has no rows; an empty line follows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield f"| {' | '.join(header)} |"
        yield f"|{'---|' * len(header)}"
        yield from lines
        yield ""
