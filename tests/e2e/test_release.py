"""A release: the sdist and the wheels have what they need, and the installed wheels work away from the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import taco_launch
from tests.docs.pages import ROOT

pytestmark = pytest.mark.e2e

_NAME = f"taco_launch-{taco_launch.__version__}"
_WHEEL = f"{_NAME}-py3-none-any.whl"
_LAB_NAME = f"taco_launch_lab-{taco_launch.__version__}"
_LAB_WHEEL = f"{_LAB_NAME}-py3-none-any.whl"
_LAB = "taco_launch/lab/"


@dataclass(frozen=True)
class Installed:
    """An environment with a wheel, and an empty folder to work in."""

    python: Path
    folder: Path
    environ: Mapping[str, str]

    def pip(self, *words: str) -> None:
        argv = (str(self.python), "-m", "pip", "--disable-pip-version-check", *words)
        environ = {**self.environ, "HOME": os.environ.get("HOME", "/root")}  # whose settings name the index
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def call(self, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=cwd or self.folder, env=self.environ, capture_output=True, text=True, timeout=100, check=False
        )

    def run(self, *argv: str, cwd: Path | None = None) -> str:
        done = self.call(*argv, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what scripts/build_wheels.py builds of a copy of the files that a checkout has."""
    folder = tmp_path_factory.mktemp("release")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, map(os.fsdecode, names.split(b"\0"))):
        if (ROOT / name).exists():  # tracked and deleted
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "copy" / name, follow_symlinks=False)
    script = folder / "copy" / "scripts" / "build_wheels.py"
    stale = folder / "copy" / "build" / "lib" / _LAB / "old.py"  # what an earlier build left is in no wheel
    stale.parent.mkdir(parents=True)
    stale.touch()
    done = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    target = folder / "copy" / "dist"
    names_printed = [Path(line).name for line in done.stdout.splitlines()]
    assert names_printed == [f"{_NAME}.tar.gz", _WHEEL, _LAB_WHEEL]
    assert {path.name for path in target.iterdir()} == set(names_printed)
    return target


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with the first wheel alone."""
    folder = tmp_path_factory.mktemp("installed")
    where, home, empty = folder / "venv", folder / "home", folder / "empty"
    home.mkdir()
    empty.mkdir()
    venv.create(where, symlinks=True, with_pip=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_LAUNCH", "PYTHON", "XDG_"))}
    own = {"HOME": str(home), "PATH": f"{where / 'bin'}:{os.environ['PATH']}"}
    no_engine = {"DOCKER_HOST": f"unix://{folder}/no.sock"}
    found = Installed(
        where / "bin" / "python", empty, {**kept, **own, **no_engine, "TACO_LAUNCH_LEASES": str(folder / "leases")}
    )
    found.pip("install", "--quiet", str(built / _WHEEL))
    return found


def data_files() -> set[str]:
    """Return the files of the package in the checkout, by their paths in the wheels."""
    names = subprocess.run(
        ["git", "ls-files", "taco_launch", "inventories"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    shipped = {name.replace("inventories/", "taco_launch/hosts/inventory/shipped/", 1) for name in names}
    return {name for name in shipped if not name.endswith("/README.md") or "/examples/" in name}


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_all_of_the_package_but_the_lab_and_nothing_else(built: Path) -> None:
    names = names_in(built / _WHEEL)
    assert {name for name in data_files() if not name.startswith(_LAB)} - names == set()
    assert {name.split("/")[0] for name in names} == {"taco_launch", f"{_NAME}.dist-info"}
    assert [name for name in names if name.startswith(_LAB) or "/tests/" in name or "/test_" in name] == []


def test_the_labs_wheel_has_the_lab_and_nothing_else(built: Path) -> None:
    names = names_in(built / _LAB_WHEEL)
    own = {name for name in names if not name.startswith(f"{_LAB_NAME}.dist-info/")}
    assert own == {name for name in data_files() if name.startswith(_LAB)}


def test_each_wheel_names_the_other_in_its_own_version(built: Path) -> None:
    needed = {}
    for wheel, name in ((_WHEEL, _NAME), (_LAB_WHEEL, _LAB_NAME)):
        with zipfile.ZipFile(built / wheel) as archive:
            lines = archive.read(f"{name}.dist-info/METADATA").decode().splitlines()
        needed[wheel] = [line for line in lines if line.startswith("Requires-Dist: taco-launch")]
    version = taco_launch.__version__
    assert needed[_WHEEL] == [f'Requires-Dist: taco-launch-lab=={version}; extra == "lab"']
    assert needed[_LAB_WHEEL] == [f"Requires-Dist: taco-launch=={version}"]


def test_the_sdist_has_what_the_wheels_are_made_of(built: Path) -> None:
    with tarfile.open(built / f"{_NAME}.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "taco_launch/py.typed"} <= names
    assert {name for name in data_files() if name.startswith(_LAB)} - names == set()


def test_pip_installs_the_wheel_and_it_works_in_an_empty_folder(installed: Installed) -> None:
    run = installed.run
    found = run(str(installed.python), "-c", "import taco_launch; print(taco_launch.__file__)")
    assert found.startswith(str(installed.python.parents[1]))
    assert taco_launch.__version__ in run("taco-launch", "version").splitlines()[0]
    if not shutil.which("mpirun"):
        pytest.skip("cannot: there is no mpirun")
    assert run("taco-launch", "run", "-H", "localhost:2", "--", "hostname").count("| ") == 2
    run("taco-launch", "init", "--example", "01-hello", "hello")
    assert "hello from" in run("taco-launch", "run", "-f", "job.yaml", cwd=installed.folder / "hello")


def test_the_lab_is_an_extra(installed: Installed, built: Path) -> None:
    for words in (("lab", "status"), ("-i", "lab", "list")):
        refused = installed.call("taco-launch", *words)
        assert refused.returncode == 1
        assert refused.stderr == (
            "error: the lab is not installed: No module named 'taco_launch.lab'\n"
            "hint: in a checkout: pip install -e '.[bench]'; with wheels: pip install 'taco-launch[lab]'\n"
        )
    for line in ("--help", "lab --help", "lab up --help"):
        installed.run("taco-launch", *line.split())

    local = ("install", "--quiet", "--no-index", "--find-links", str(built))
    installed.pip(*local, "taco-launch[lab]")
    try:
        assert "simulated-hardware" in installed.run(
            str(installed.python),
            "-c",
            "from importlib import resources; import taco_launch.lab.hardware as of\n"
            "print(*(path.name for path in resources.files(of).joinpath('programs').iterdir()))",
        )
        assert "power-off" in installed.run("taco-launch", "lab", "fault", "--help")
        no_engine = installed.call("taco-launch", "lab", "status").stderr
        assert "ocker" in no_engine
        assert "taco-launch-lab" not in no_engine
    finally:
        installed.pip("uninstall", "--quiet", "--yes", "taco-launch-lab")
    assert "pip install" in installed.call("taco-launch", "lab", "status").stderr
    installed.run("taco-launch", "version")
