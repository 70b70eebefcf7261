"""Read the Python examples of docs/guides/python.md."""

import re

from tests.support.paths import ROOT


def example(word: str) -> str:
    """Return the only example that has this word."""
    page = (ROOT / "docs" / "guides" / "python.md").read_text("utf-8")
    (script,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in each)
    return str(script)
