"""What a terminal, an editor or a mail adds to a tool's text: taken off before the text is read."""

import re
from typing import Tuple

# colours and underlines (CSI), titles (OSC), character sets
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>])")

# [root@gpu1 ~]# ls, root@gpu1:~# ls, gpu1$ ls, $ ls, % ls, PS1 at its plainest: "# "
PROMPT = re.compile(r"(?:\([\w.-]+\) )?(?:\[[^\]\n]*\]|[\w.-]+@[\w.-]+(?:[:\s]\S*)?|[\w.-]*)\s?[$#%>](?:\s|$)")


# What is left of an escape sequence whose first character was lost, or is shown as ^[ or as a picture: [4mGPU0 GPU1[0m
_LOST = re.compile(r"(?:\^\[|\u241b)?\[[0-9]{0,2}(?:;[0-9]{1,3}){0,4}m")
# Blanks of web pages and word processors, and what has no width: to read, they are blanks and nothing.
_BLANKS = {
    **{ord(char): " " for char in "\u00a0\u2002\u2003\u2007\u2009\u202f"},
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff")),
}
_FENCE = re.compile(r"[ \t]*(?:```+|~~~+)[ \t]*[\w+-]*[ \t]*")
# Marks of quotes and of comments, the same before every line. "# " alone is a prompt, too.
_QUOTES = tuple(re.compile(rf"[ \t]*{mark} ?") for mark in (">", r"\*(?!/)", "//"))


def pasted(text: str) -> str:
    """Return `text` as a tool printed it, without what pasting adds.

    Those are marks of quotes and comments before every line, Markdown's fences, the indentation that all lines share, blanks of other kinds, and
    what is left of escape sequences.
    """
    found = _LOST.sub("", plain(text).translate(_BLANKS))
    rows = found.split("\n")
    while any(map(_said, rows)):
        quote = next((mark for mark in _QUOTES if all(mark.match(row) for row in rows if row.strip())), None)
        if quote is None:
            break
        rows = [quote.sub("", row, count=1) for row in rows]
    rows = ["" if _FENCE.fullmatch(row) else row for row in rows]
    told = [row for row in rows if row.strip()]
    indents = [row[: len(row) - len(row.lstrip())] for row in told]
    first, last = min(indents, default=""), max(indents, default="")
    shared = next(
        (place for place, (one, other) in enumerate(zip(first, last)) if one != other), min(len(first), len(last))
    )
    return "\n".join(row[shared:] if row.strip() else row for row in rows)


def _said(row: str) -> bool:
    return bool(row.strip(" \t>*/"))


def plain(text: str) -> str:
    """Return `text` without escape sequences, byte order mark and carriage returns before line ends."""
    return re.sub(r"\r+(?=\n|$)", "", _ESCAPES.sub("", text.lstrip("\ufeff")))


def lines(text: str) -> Tuple[str, ...]:
    """Return the plain lines of `text`; unlike str.splitlines, only a line feed ends one."""
    found = plain(text).split("\n")
    return tuple(found[:-1] if found[-1] == "" else found)


def shown(text: str, width: int = 60) -> str:
    """Return `text` as a reason quotes it: between quotes, what does not print escaped, no longer than `width`."""
    short = text if len(text) <= width else text[: width - 3] + "..."
    return "'" + "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in short) + "'"
