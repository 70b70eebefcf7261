"""Each module can be the first that is imported: which one is, depends on what a user types."""

import subprocess
import sys
from pathlib import Path

import pytest

import taco_launch

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

PACKAGE = Path(taco_launch.__file__).parent
# What runs when it is imported: programs.
_PROGRAMS = {"taco_launch.__main__", "taco_launch.agent.__main__", "taco_launch.setup.scripts.peers"}


def names() -> list[str]:
    paths = (path for path in PACKAGE.rglob("*.py") if PACKAGE / "examples" not in path.parents)
    found = (".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths)
    return sorted({name.removesuffix(".__init__") for name in found} - _PROGRAMS)


def test_each_module_comes_first(tmp_path: Path) -> None:
    """In children of a process that has the libraries, so that each takes a moment alone."""
    script = tmp_path / "alone.py"
    script.write_text(
        "import importlib, os, sys, traceback\n"
        "import click, ClusterShell, fabric, paramiko, pydantic, rich.console, rich.table, yaml\n"
        "failed = []\n"
        "for name in sys.stdin.read().split():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            importlib.import_module(name)\n"
        "        except BaseException:\n"
        "            traceback.print_exc(limit=-1)\n"
        "            os._exit(1)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        failed.append(name)\n"
        "print(*failed)\n"
    )
    done = subprocess.run(
        [sys.executable, script], input="\n".join(names()), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [], done.stderr
