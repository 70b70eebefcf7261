"""The Python of docs/guides/python.md, with real mpirun."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Taco

pytestmark = pytest.mark.e2e
_PAGE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"


_MATRIX = """name: night
workloads: {w: {kind: regex, command: "sh -c 'echo speed 5'", pattern: 'speed (\\d+)', unit: x, better: higher}}
sizes: [1]
variants: {plain: {}}
repeats: 1
"""


def run_example(number: int, taco: Taco, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example of the page, counted from 0, in `folder`."""
    script = re.findall(r"```python\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)[number]
    argv = (sys.executable, "-c", script)
    return subprocess.run(argv, env=taco.env, cwd=folder, capture_output=True, text=True, check=False)


def test_the_guides_nightly_run(taco: Taco, tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text(_MATRIX)
    done = run_example(1, taco, tmp_path)
    assert done.stderr == ""
    advice, outcome, line = done.stdout.splitlines()
    assert advice == "1 repeat gives no intervals, so only large differences will show (repeats: 5 in the matrix)"
    assert outcome == "ok 0"
    assert line.startswith("nightly night: OK: 1 cell without a verdict yet: ")
    last = json.loads((taco.state / "nights" / "night" / "last.json").read_text())
    assert (last["exit_code"], last["line"]) == (0, line)


def test_the_guides_python(taco: Taco, tmp_path: Path) -> None:
    done = run_example(0, taco, tmp_path)
    assert done.stderr == ""
    line, ended, *logs, names = done.stdout.splitlines()
    assert line.startswith("('mpirun', ")
    assert ended == "0 SUCCEEDED every rank exited with 0"
    assert logs == ["hello from rank 0"]
    assert names == "['hello']"
    assert taco("list").stdout.count("hello") == 0
