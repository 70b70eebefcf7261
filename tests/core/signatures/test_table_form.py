"""The tables of known failures explain themselves: each entry names its fields."""

import ast

from tests.support.paths import ROOT


def test_every_field_but_the_name_is_a_keyword() -> None:
    positional = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "taco_launch/core/signatures").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Signature"
        if len(node.args) != 1
    ]
    assert positional == []
