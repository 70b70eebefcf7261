"""Name the rooms of the package, from the highest layer to the lowest, and limit the lines of each.

The first line of a room's `__init__.py` is its sentence. `python -m tests.house.rooms` writes the tree of
docs/explanation/source-tree.md. Raise a budget only for a feature that belongs in that room, in the commit that needs it.
"""

import ast
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "taco_launch"
PAGE = ROOT / "docs" / "explanation" / "source-tree.md"
# Room -> the most lines of Python that it may have.
ROOMS = {
    "cli": 12_569,
    "api": 1_500,
    "bench": 9_982,
    "jobs": 16_187,
    "setup": 9_100,
    "hosts": 8_461,
    "lab": 3_650,
    "agent": 21_614,
    "core": 36_682,
    "light": 944,
}
# Folders that users copy: data, no room.
DATA = {"examples": "Hold folders that `init --example` copies: jobs, programs, inventories."}
_START, _END = "```text\ntaco_launch/\n", "```"


def tree() -> str:
    """Return the tree of rooms with a sentence for each, as the page shows it."""
    lines = []
    for name in (*ROOMS, *DATA):
        is_last = name == next(reversed((*ROOMS, *DATA)))
        lines.append(_line("└── " if is_last else "├── ", name, DATA.get(name) or sentence(PACKAGE / name)))
        inner = inner_rooms(name)
        lines += [_line("│   └── " if room == inner[-1] else "│   ├── ", room.name, sentence(room)) for room in inner]
    return "\n".join(lines) + "\n"


def inner_rooms(name: str) -> list[Path]:
    """Return the rooms within a room, by name."""
    return sorted(path.parent for path in (PACKAGE / name).glob("*/__init__.py"))


def sentence(room: Path) -> str:
    """Return the first line of a room's docstring."""
    return (ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or "").partition("\n")[0]


def lines_of(name: str) -> int:
    """Return how many lines of Python a room has."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in (PACKAGE / name).rglob("*.py"))


def page() -> str:
    """Return the page with the tree as it is now."""
    before, _start, rest = PAGE.read_text("utf-8").partition(_START)
    return before + _START + tree() + _END + rest.partition(_END)[2]


def _line(branch: str, name: str, text: str) -> str:
    return f"{branch}{name + '/':<{24 - len(branch)}} {text}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
