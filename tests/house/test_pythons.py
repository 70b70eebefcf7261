"""The fast tests pass under every Python that setup.cfg allows, not only under the one of .venv."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.12", "3.13")
EXTRAS = "bench,docs,test"


def found(version: str) -> Path | None:
    """Find a Python that can make a venv; pyenv's shim on PATH may only stand for one beside it."""
    name = f"python{version}"
    shim = shutil.which(name)
    folders = [Path(folder) for folder in os.environ.get("TACO_LAUNCH_PYTHONS", "").split(os.pathsep) if folder]
    beside = sorted(Path(shim).parent.parent.glob(f"versions/{version}.*/bin/{name}")) if shim else []
    for python in (*(folder / name for folder in folders), *([Path(shim)] if shim else []), *beside):
        argv = [str(python), "-I", "-c", "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.stdout.strip() == version:
            return python
    return None


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_fast_tests_pass(version: str) -> None:
    python = found(version)
    if python is None:
        pytest.skip(f"cannot: there is no Python {version} here (TACO_LAUNCH_PYTHONS names its folder)")
    venv = ROOT / ".venv" / "pythons" / version
    # what this pytest says of itself would have the other one take itself for its worker
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    env = {**kept, "PATH": f"{venv}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}

    def run(*argv: str, seconds: float) -> None:
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(seconds),
            check=False,
        )
        assert done.returncode == 0, done.stdout[-20000:]

    run(str(python), "-I", "-m", "venv", str(venv), seconds=60)
    run(f"{venv}/bin/python", "-m", "pip", "install", "--quiet", "-e", f".[{EXTRAS}]", seconds=600)
    run(
        *(f"{venv}/bin/python", "-m", "pytest", "--quiet", "--numprocesses=2", "--tier=gate"),
        *("-m", "not e2e and not lab and not docs", "--disable-socket", "--allow-unix-socket"),
        *("-o", f"cache_dir={venv}/.pytest", "tests"),
        seconds=900,
    )
