"""The Python of docs/guides/python.md, with real mpirun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Taco
from tests.support.python_examples import example

pytestmark = pytest.mark.e2e


_MATRIX = """name: night
workloads: {w: {kind: regex, command: "sh -c 'echo speed 5'", pattern: 'speed (\\d+)', unit: x, better: higher}}
sizes: [1]
variants: {plain: {}}
repeats: 1
"""


def run_example(word: str, taco: Taco, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the example of the page that has this word, in `folder`."""
    script = example(word)
    argv = (sys.executable, "-c", script)
    return subprocess.run(argv, env=taco.env, cwd=folder, capture_output=True, text=True, check=False)


def test_the_guides_nightly_run(taco: Taco, tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text(_MATRIX)
    done = run_example("run_nightly", taco, tmp_path)
    assert done.stderr == ""
    advice, outcome, line = done.stdout.splitlines()
    assert advice == "1 repeat gives no intervals, so only large differences will show (repeats: 5 in the matrix)"
    assert outcome == "ok 0"
    assert line.startswith("nightly night: OK: 1 cell without a verdict yet: ")
    last = json.loads((taco.state / "nights" / "night" / "last.json").read_text())
    assert (last["exit_code"], last["line"]) == (0, line)


def test_the_guides_python(taco: Taco, tmp_path: Path) -> None:
    done = run_example("cluster.submit(hello)", taco, tmp_path)
    assert done.stderr == ""
    line, ended, *logs, names = done.stdout.splitlines()
    assert line.startswith("('mpirun', ")
    assert ended == "0 SUCCEEDED every rank exited with 0"
    assert logs == ["hello from rank 0"]
    assert names == "['hello']"
    assert taco("list").stdout.count("hello") == 0
