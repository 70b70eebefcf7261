"""Docstrings begin with what a function does, in the words that readers of Python expect."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SAID = re.compile(r'^\s+"""(?:Give|Say) .*', re.MULTILINE)


def test_docstrings_return_and_yield() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("taco_launch", "scripts", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in _SAID.findall(path.read_text("utf-8"))
    ]
    assert found == []
