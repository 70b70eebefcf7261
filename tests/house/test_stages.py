"""The stages of set-up: no code asks for one by its name, but its own file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import taco_launch
from taco_launch.setup.plan.stage_rules import RULES

_ROOT = Path(taco_launch.__file__).parent
# Where stages are at home: their files, and parts of those that grew too long.
_OWN = ("setup/stages", "setup/stage_parts")
_ROOMS = ("setup", "cli", "api", "jobs")
# What takes the name of a stage as its first argument.
_OF_STAGE = {"Op", "Problem", "HostFolder"}


def asks(source: str) -> list[int]:
    """Return the lines that compare a stage with a name that is written out, look one up by it, or list names of stages."""
    return sorted({node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr) and _asks(node)})


def _asks(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare):
        return _is_of_stage(node) and bool(_names(node))
    if isinstance(node, ast.Subscript):
        return _is_of_stage(node.value) and bool(_names(node.slice))
    if isinstance(node, ast.BinOp):  # {"image"} & set(stages)
        return _is_of_stage(node) and bool(_names(node))
    return isinstance(node, ast.Tuple | ast.Set | ast.List | ast.Dict) and len(_names(node)) > 2


def _names(node: ast.AST) -> set[str]:
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in RULES
    }


def _is_of_stage(node: ast.AST) -> bool:
    words = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    words |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return any("stage" in word.lower() or word == "RULES" for word in words)


def _sources() -> Iterator[tuple[str, str]]:
    for room in _ROOMS:
        for path in sorted((_ROOT / room).rglob("*.py")):
            yield path.relative_to(_ROOT).as_posix(), path.read_text("utf-8")


def test_a_stage_is_asked_for_what_it_does_and_not_for_its_name() -> None:
    found = {name: asks(source) for name, source in _sources() if not name.startswith(_OWN)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_branch_on_a_name_is_seen() -> None:
    for line in (
        'if stage == "image": pass',
        'if "ssh_mesh" in self._ask.stages: pass',
        'if not {"toolkit", "container"} & set(self._ask.stages): pass',
        'rules = RULES["docker"]',
        'HELD: tuple[Stage, ...] = ("image", "container", "ssh_mesh")',
        'any(op.stage == "container" for op in plan.ops)',
    ):
        assert asks(line) == [1], line


def test_operations_and_problems_name_stages_that_exist() -> None:
    for name, source in _sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OF_STAGE:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    assert first.value in (*RULES, "hardware"), f"{name}:{node.lineno}"


def test_the_order_is_that_of_what_builds_on_what() -> None:
    for place, stage in enumerate(RULES.values()):
        assert set(stage.after) <= set(tuple(RULES)[:place])
