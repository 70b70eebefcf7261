"""What a terminal adds to a tool's text: taken off before the text is read."""

import re
from typing import Tuple

# colours and underlines (CSI), titles (OSC), character sets
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>])")

# [root@gpu1 ~]# ls, root@gpu1:~# ls, gpu1$ ls, $ ls, % ls, PS1 at its plainest: "# "
PROMPT = re.compile(r"(?:\([\w.-]+\) )?(?:\[[^\]\n]*\]|[\w.-]+@[\w.-]+[:\s]\S*|[\w.-]*)\s?[$#%>](?:\s|$)")


def plain(text: str) -> str:
    """Give `text` without escape sequences, byte order mark and carriage returns before line ends."""
    return re.sub(r"\r+(?=\n|$)", "", _ESCAPES.sub("", text.lstrip("\ufeff")))


def lines(text: str) -> Tuple[str, ...]:
    """Give the plain lines of `text`; unlike str.splitlines, only a line feed ends one."""
    found = plain(text).split("\n")
    return tuple(found[:-1] if found[-1] == "" else found)


def shown(text: str, width: int = 60) -> str:
    """Give `text` as a reason quotes it: between quotes, what does not print escaped, no longer than `width`."""
    short = text if len(text) <= width else text[: width - 3] + "..."
    return "'" + "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in short) + "'"
