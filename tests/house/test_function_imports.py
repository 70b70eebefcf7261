"""Imports stand at the top of a module, but where a process that is counted must not wait for them.

tests/cli/budget.yaml names these processes: calls of the agent, `run`, `submit`, `--help`, a dry run. There an import
follows the work; so does one of the lab, of an extra, and of pydantic, which takes longer than the rest of a command.
"""

import ast
import subprocess
import sys

import pytest

from tests.house.rooms import PACKAGE, ROOMS

# Room -> how many imports within functions it may have; a number only falls.
LIMITS = {
    "cli": 41,
    "api": 18,
    "bench": 2,
    "jobs": 24,
    "setup": 0,
    "hosts": 8,
    "lab": 0,
    "agent": 57,
    "core": 5,
    "light": 0,
}


def within_functions(room: str) -> list[str]:
    """Return the imports of a room that stand within functions, as file:line."""
    found = set()
    for path in (PACKAGE / room).rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found |= {
                    f"{path.relative_to(PACKAGE)}:{node.lineno}"
                    for node in ast.walk(function)
                    if isinstance(node, (ast.Import, ast.ImportFrom))
                }
    return sorted(found)


def test_every_room_has_a_limit() -> None:
    assert list(LIMITS) == list(ROOMS)


@pytest.mark.parametrize("room", LIMITS)
def test_imports_within_functions_only_become_fewer(room: str) -> None:
    found = within_functions(room)
    assert len(found) <= LIMITS[room], f"import at the top of the module: {found}"


def test_every_command_loads_without_the_extras_and_the_lab() -> None:
    script = (
        "import sys\n"
        "for name in ('scipy', 'numpy', 'taco_launch.lab'):\n"
        "    sys.modules[name] = None\n"
        "from taco_launch.cli.verbs import all_verbs\n"
        "print(*(verb.load().name for verb in all_verbs()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=PACKAGE.parent
    )
    assert done.returncode == 0, done.stderr
    assert {"nightly", "lab"} <= set(done.stdout.split())
