"""Git is started in one place, which says what protocols each caller may use; what it says has limits."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.jobs.code import git_program
from tests.house.rooms import PACKAGE
from tests.support.git_server import ENVIRONMENT, repository


def _functions() -> Iterator[tuple[str, str, ast.AST]]:
    """Yield each node of the product with its file and the function that it is in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        tree = ast.parse(path.read_text("utf-8"))
        inside = [(node, node.name) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        owner = {id(below): function for node, function in inside for below in ast.walk(node)}
        yield from ((name, owner.get(id(node), ""), node) for node in ast.walk(tree))


def _is_git(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (node.value == "git" or str(node.value).endswith("bin/git"))


def test_each_call_of_git_says_what_protocols_it_may_use() -> None:
    calls = [
        (name, function, ast.unparse(node.args[2]))
        for name, function, node in _functions()
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "git_program.start"
    ]
    assert sorted(calls) == sorted(
        [
            ("jobs/code/git_state.py", "ask", "git_program.LOCAL"),  # the folder's settings: no protocol at all
            ("jobs/code/git_state.py", "ask", "git_program.LOCAL"),  # its status
            ("jobs/code/git_repository.py", "_run", "self._protocols"),  # https, ssh, and the address's http or file
        ]
    )


@pytest.mark.nightly
def test_git_is_started_nowhere_else() -> None:
    found = set()
    for name, _function, node in _functions():
        words = (
            node.elts if isinstance(node, (ast.Tuple, ast.List)) else node.args if isinstance(node, ast.Call) else []
        )
        if words and _is_git(words[0]) and ast.unparse(words[-1]) != "'rsync'":  # Arena's two ways to copy code
            found.add((name, ast.unparse(words[0])))
    assert found == {("jobs/code/git_program.py", "'git'")}


def test_an_answer_of_git_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = repository(tmp_path / "work", {"a": "a"})
    monkeypatch.setattr(git_program, "_MOST_ANSWER", 10)
    process = git_program.start(("-C", str(work), "log"), ENVIRONMENT, git_program.LOCAL)
    code, said, why = git_program.answer(process)
    assert (code, said, why) == (-9, b"", "more than 0 MiB of output")


def test_an_answer_of_git_has_a_deadline(tmp_path: Path) -> None:
    process = git_program.start(
        ("-C", str(tmp_path), "-c", "alias.wait=!sleep 60", "wait"), ENVIRONMENT, git_program.LOCAL
    )
    assert git_program.answer(process, 0.2) == (-9, b"", "not within 0.2 s")
