#!/usr/bin/env python3
"""Builds a release: the sdist, the wheel taco-launch, and the wheel taco-launch-lab, which has taco_launch.lab alone.

Needs setuptools as pyproject.toml names it, and no network. Both wheels are made of the sdist's files, each in a folder of its
own, so nothing that lies in the checkout gets into them.
"""

from __future__ import annotations

import argparse
import configparser
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_LAB_SETTINGS = _ROOT / "scripts" / "lab_wheel.cfg"


def main() -> None:
    """Build all three, and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=_ROOT / "dist", metavar="DIR", help="where they go; default: dist")
    to = parser.parse_args().to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sdist = _build("sdist", _ROOT, to)
        ours = _unpacked(sdist, Path(folder, "taco-launch"))
        lab = _unpacked(sdist, Path(folder, "taco-launch-lab"))
        _make_lab(lab)
        for built in (sdist, _build("wheel", ours, to), _build("wheel", lab, to)):
            print(built)


def _build(what: str, source: Path, to: Path) -> Path:
    """Have setuptools build an sdist or a wheel of a folder; return its path."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{what}(sys.argv[1]))"
    argv = [sys.executable, "-c", code, str(to)]
    done = subprocess.run(
        argv, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{what} of {source}: exit code {done.returncode}")
    return to / done.stdout.splitlines()[-1]


def _unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist; return the folder that is in it."""
    shutil.unpack_archive(sdist, folder)
    return next(folder.iterdir())


def _make_lab(folder: Path) -> None:
    """Turn the files of the sdist into those of taco-launch-lab: its settings, and the lab's data files."""
    version = _version(folder)
    (folder / "setup.py").unlink()
    files = configparser.ConfigParser()
    files.read(folder / "setup.cfg", "utf-8")
    lines = [f"{name} = {value}" for name, value in files["options.package_data"].items() if _is_lab(name)]
    settings = _LAB_SETTINGS.read_text("utf-8").replace("VERSION", version)
    (folder / "setup.cfg").write_text("\n".join([settings, "[options.package_data]", *lines, ""]), "utf-8")


def _is_lab(package: str) -> bool:
    return package == "taco_launch.lab" or package.startswith("taco_launch.lab.")


def _version(folder: Path) -> str:
    """Return the version that an sdist carries."""
    lines = (folder / "PKG-INFO").read_text("utf-8").splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("Version: "))


if __name__ == "__main__":
    main()
