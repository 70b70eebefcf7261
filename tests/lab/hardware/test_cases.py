"""Every file in `cases/` is a conversation with a simulated host: `machine`, any number of `set`, `run`, `exit`, the output."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.hardware.hosts import Host

CASES = sorted(Path(__file__).with_name("cases").glob("*.txt"))
_NOW = re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\b")


def conversation(host: Host, lines: list[str]) -> str:
    """Do what the head of a case says; give its exit code and output as the case writes them."""
    run = ""
    for line in lines:
        word, _, rest = line.partition(": ")
        if word == "set":
            host.set(*rest.split(" ", 1))
        elif word == "run":
            run = rest
        else:
            assert word == "machine", line
    answer = host(run)
    printed = _NOW.sub("(now)", answer.stdout + answer.stderr).replace(os.uname().release, "(release)")
    return f"exit: {answer.returncode}\n\n{printed}"


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case: Path, untouched: Callable[[str], Host], own: Callable[[str], Host]) -> None:
    head, _, _ = case.read_bytes().decode().partition("exit: ")
    lines = head.splitlines()
    machine = lines[0].removeprefix("machine: ")
    host = (own if any(line.startswith("set: ") for line in lines) else untouched)(machine)
    assert head + conversation(host, lines) == case.read_bytes().decode()
