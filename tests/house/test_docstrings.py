"""A docstring names the errors that its function raises itself."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.rooms import PACKAGE, ROOMS

# A message's `check` raises ValueError, as core/protocol/message.py says once for all; users never call the others.
EXEMPT = {"check", "__post_init__", "__getattr__", "__setattr__"}
# What is no error of a caller.
NO_ERRORS = {"SystemExit", "StopIteration", "NotImplementedError"}


def raised(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return what a function raises by name, without the functions and classes in it, and without what it passes on."""
    names: set[str] = set()
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            names.add(ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc))
        nodes += ast.iter_child_nodes(node)
    return names - NO_ERRORS


def silent(room: str) -> Iterator[str]:
    """Yield the functions of a room that raise, and whose docstring says neither what nor where that is said."""
    for path in sorted((PACKAGE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in EXEMPT and raised(node):
                text = ast.get_docstring(node) or ""
                if text and "aise" not in text and "see `" not in text:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}: {sorted(raised(node))}"


# A verb's docstring is its help, and its errors are the user's: they are not listed there.
@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_docstrings_name_what_is_raised(room: str) -> None:
    assert list(silent(room)) == []
