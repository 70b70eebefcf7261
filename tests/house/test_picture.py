"""The picture in docs/explanation/architecture.md is the tree, and the tree can be taken in at a glance."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "taco_launch"
_INNER = re.compile(r"^(?:│| ) {3}[├└]── ([\w.]+/?) ")
_OUTER = re.compile(r"^[├└]── ([\w.]+/?) ")
# What is no room: the package's own words, how it is started, and helpers of one caller.
_UNDRAWN = {"__init__.py", "__init__.pyi", "__main__.py", "py.typed", "digest.py", "__pycache__/"}
MOST_FILES, MOST_LINES = 15, 400


def drawn() -> set[str]:
    """Return what the picture names: files and rooms of the first level, and ROOM/INNER/."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8").partition("## How it is built")[2]
    above, found = "", set[str]()
    for line in text.splitlines():
        if outer := _OUTER.match(line):
            above = outer[1]
            found.add(above)
        elif inner := _INNER.match(line):
            found.add(above + inner[1])
    return found


def there() -> set[str]:
    """Return what the package has, in the same words; a room within a room is a folder with anything but bytecode."""
    found = {f"{path.name}/" if path.is_dir() else path.name for path in PACKAGE.iterdir()} - _UNDRAWN
    inner = {path for path in PACKAGE.glob("*/*/") if path.is_dir() and path.name != "__pycache__"}
    inner -= set(PACKAGE.glob("examples/*/"))  # data, each folder by itself
    return found | {f"{path.parent.name}/{path.name}/" for path in inner if any(path.glob("*.*"))}


def test_the_picture_is_the_tree() -> None:
    assert drawn() == there()


def test_no_room_has_more_files_than_one_can_take_in() -> None:
    rooms = {path.parent for path in PACKAGE.rglob("*.py")}
    counts = {str(room.relative_to(ROOT)): len(list(room.glob("*.py"))) for room in rooms}
    assert {room: count for room, count in counts.items() if count > MOST_FILES} == {}


def test_no_file_is_longer_than_one_can_read() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {path: count for path, count in lengths.items() if count > MOST_LINES} == {}
