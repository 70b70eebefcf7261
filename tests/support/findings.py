"""Errors in logs, and what explain finds."""

import re
from pathlib import Path

from taco_launch.core.signatures.log_scan import explain

REFUSED = "ssh: connect to host gpu2 port 12222: Connection refused"


def names(text: str) -> list[str]:
    return [finding.signature for finding in explain(text.split("\n"))]


TRACEBACK = ("Traceback (most recent call last):", "  File 'x'", "ValueError: mine")


def samples(path: Path) -> list[tuple[str, str]]:
    """Return (the row's name, the text) of a file in which `=== NAME` stands above each text, perhaps with the address of its source."""
    parts = re.split(r"(?m)^=== (\S+)(?: https://\S+)?\n", path.read_text("utf-8"))
    return [(name, text.rstrip("\n")) for name, text in zip(parts[1::2], parts[2::2], strict=True)]
