"""Errors in logs, and what explain finds."""

from taco_launch.core.signatures.log_scan import explain

REFUSED = "ssh: connect to host gpu2 port 12222: Connection refused"


def names(text: str) -> list[str]:
    return [finding.signature for finding in explain(text.split("\n"))]


TRACEBACK = ("Traceback (most recent call last):", "  File 'x'", "ValueError: mine")
