"""The Python of docs/guides/python.md, with real mpirun."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Taco

pytestmark = pytest.mark.e2e
_PAGE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"


def test_the_guides_python(taco: Taco, tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    done = subprocess.run(
        (sys.executable, "-c", script), env=taco.env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    line, ended, *logs, names = done.stdout.splitlines()
    assert line.startswith("('mpirun', ")
    assert ended == "0 SUCCEEDED every rank exited with 0"
    assert logs == ["hello from rank 0"]
    assert names == "['hello']"
    assert taco("list").stdout.count("hello") == 0
