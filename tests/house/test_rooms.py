"""The package has the rooms that rooms.py names, none of them too large, and the tests mirror them."""

import ast
import configparser
import re
from pathlib import Path

import pytest

from tests.house.rooms import DATA, PACKAGE, PAGE, ROOMS, lines_of, page
from tests.support.paths import ROOT, TESTS

MOST_FILES, MOST_LINES = 15, 400
# Tables without logic, one file for each program or library that they describe: as long as its subject.
TABLES = (
    "core/signatures/known/",
    "core/launch/knobs/",
    "jobs/command_lines/launcher_options.py",
    "jobs/request/job_fields.py",
)
# What is no room: the package's own files, which Python wants.
OWN_FILES = {"__init__.py", "__main__.py", "py.typed"}
# Tests of the whole program, of the project itself, and what tests share.
OF_THE_WHOLE = {"docs", "e2e", "faults", "house", "lab", "scripts", "security", "support"}


def test_the_page_shows_the_tree() -> None:
    assert page() == PAGE.read_text("utf-8"), "run python -m tests.house.rooms"


def test_the_first_level_has_the_rooms_and_what_python_wants() -> None:
    # A folder that an earlier checkout left holds nothing but bytecode.
    names = {path.name for path in PACKAGE.iterdir() if path.is_file() or any(path.rglob("*.py"))}
    assert names == {*ROOMS, *DATA, *OWN_FILES}


def test_the_contract_of_layers_has_the_rooms_in_their_order() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    layers = setup["importlinter:contract:layers"]["layers"]
    assert re.findall(r"\w+", layers) == list(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_its_budget_of_lines(room: str) -> None:
    lines = lines_of(room)
    assert lines <= ROOMS[room], f"{room}/ has {lines} lines: remove some, or raise its budget in tests/house/rooms.py"


def test_no_folder_has_more_files_than_one_can_take_in() -> None:
    counts = {str(room): len(list(room.glob("*.py"))) for room in {path.parent for path in PACKAGE.rglob("*.py")}}
    assert {room: count for room, count in counts.items() if count > MOST_FILES} == {}


def test_no_file_is_longer_than_one_can_read() -> None:
    files = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    lengths = {name: len(path.read_text("utf-8").splitlines()) for name, path in files.items()}
    long = {name: count for name, count in lengths.items() if count > MOST_LINES and not name.startswith(TABLES)}
    assert long == {}


def test_tests_mirror_the_tree() -> None:
    """Each module of tests lies where a folder of the package has its name, or tests the whole."""
    modules = (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    lost = [str(path) for path in modules if path.parts[0] not in OF_THE_WHOLE and not (PACKAGE / path.parent).is_dir()]
    assert lost == []


def test_no_test_imports_from_another_test() -> None:
    importing = [
        f"{path.relative_to(TESTS)}: {node.module}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("tests")
        and any(re.search(r"[.]test_", f"{node.module}.{each.name}") for each in node.names)
    ]
    assert importing == [], "move what is shared to tests/support"


def test_only_the_public_interface_is_in_the_users_documents() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guides").glob("*.md")]
    named = {
        f"{page.name}: {name}"
        for page in pages
        for name in re.findall(r"taco_launch(?:[.]\w+)+", page.read_text("utf-8"))
        if not name.startswith(("taco_launch.api", "taco_launch.light"))
    }
    assert named == set()


def test_what_is_counted_is_there() -> None:
    assert lines_of("core") > lines_of("api") > 100
    assert Path(PACKAGE / "core" / "facts" / "probe.sh").is_file()
