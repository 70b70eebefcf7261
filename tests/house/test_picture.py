"""The README's picture of the house is the tree: every room and file of the first level, and the rooms within rooms that it names."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_DRAWN = re.compile(r"^(│ {3})?[├└]── ([\w.]+/?) ", re.MULTILINE)
# What is no room: the package's own words, how it is started, and helpers of one caller.
_UNDRAWN = {"__init__.py", "__init__.pyi", "__main__.py", "py.typed", "digest.py", "__pycache__/"}


def drawn() -> set[str]:
    text = (ROOT / "README.md").read_text("utf-8").partition("## How it is built")[2]
    above, found = "", set[str]()
    for inner, name in _DRAWN.findall(text):
        above = above if inner else name
        found.add(f"{above}{name}" if inner else name)
    return found


def test_the_picture_is_the_tree() -> None:
    package = ROOT / "taco_launch"
    there = {f"{path.name}/" if path.is_dir() else path.name for path in package.iterdir()}
    first = {name for name in drawn() if name.count("/") == name.endswith("/")}
    assert first == there - _UNDRAWN
    assert all((package / name).exists() for name in drawn())
