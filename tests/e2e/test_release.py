"""A release: the sdist and the wheel have what they need, and the installed wheel works away from the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import taco_launch
from tests.docs.pages import ROOT

pytestmark = pytest.mark.e2e

# What setuptools' own build makes, in the current environment: no network is needed.
_BUILD = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
_NAME = f"taco_launch-{taco_launch.__version__}"
_WHEEL = f"{_NAME}-py3-none-any.whl"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist and the wheel of a copy of the files that a checkout has."""
    folder = tmp_path_factory.mktemp("release")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, map(os.fsdecode, names.split(b"\0"))):
        if (ROOT / name).exists():  # tracked and deleted
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "copy" / name, follow_symlinks=False)
    target = folder / "dist"
    target.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(target)], cwd=folder / "copy", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def data_files() -> set[str]:
    """Return the files of the package in the checkout, by their paths in the wheel."""
    names = subprocess.run(
        ["git", "ls-files", "taco_launch", "inventories"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    shipped = {name.replace("inventories/", "taco_launch/inventory/shipped/", 1) for name in names}
    return {name for name in shipped if not name.endswith("/README.md") or "/examples/" in name}


def test_the_wheel_has_all_of_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / _WHEEL) as wheel:
        names = set(wheel.namelist())
    assert data_files() - names == set()
    assert {name.split("/")[0] for name in names} == {"taco_launch", f"{_NAME}.dist-info"}
    assert [name for name in names if "/tests/" in name or "/test_" in name] == []


def test_the_sdist_has_what_the_wheel_is_made_of(built: Path) -> None:
    with tarfile.open(built / f"{_NAME}.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "taco_launch/py.typed"} <= names


def test_pip_installs_the_wheel_and_it_works_in_an_empty_folder(built: Path, tmp_path: Path) -> None:
    where, home, empty = tmp_path / "venv", tmp_path / "home", tmp_path / "empty"
    venv.create(where, symlinks=True, with_pip=True)
    python = where / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(built / _WHEEL)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    home.mkdir()
    empty.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_LAUNCH", "PYTHON", "XDG_"))}
    path = f"{python.parent}:{os.environ['PATH']}"
    environ = {**kept, "HOME": str(home), "PATH": path, "TACO_LAUNCH_LEASES": str(tmp_path / "leases")}

    def run(*argv: str, cwd: Path = empty) -> str:
        done = subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    found = run(str(python), "-c", "import taco_launch; print(taco_launch.__file__)")
    assert found.startswith(str(where))
    assert taco_launch.__version__ in run("taco-launch", "version").splitlines()[0]
    if not shutil.which("mpirun"):
        pytest.skip("cannot: there is no mpirun")
    assert run("taco-launch", "run", "-H", "localhost:2", "--", "hostname").count("| ") == 2
    run("taco-launch", "init", "--example", "01-hello", "hello")
    assert "hello from" in run("taco-launch", "run", "-f", "job.yaml", cwd=empty / "hello")
