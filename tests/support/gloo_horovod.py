"""A Horovod with Gloo, which its elastic jobs require: scripts/setup.sh builds one without, three minutes faster."""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/horovod_wheel.sh"
# Read before tests get a cache of their own: what was built is for the next run, too.
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def site() -> Path:
    """Return a folder for PYTHONPATH that has it; the first call on a machine builds it, which takes some minutes."""
    version, torch = map(importlib.metadata.version, ("horovod", "torch"))
    name = f"horovod{version}-{sys.implementation.cache_tag}-torch{torch}"
    folder = _CACHES / "taco-launch/gloo" / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        venv = Path(work, "venv")
        venv.symlink_to(sys.prefix)  # a path without blanks, for CMake
        python = str(venv / "bin/python")
        pip = (python, "-I", "-m", "pip")
        source = ("--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-binary", "horovod")
        subprocess.run((*pip, "download", *source, "--dest", work, f"horovod=={version}"), check=True)
        archive = f"{work}/horovod-{version}.tar.gz"
        environment = {**os.environ, "HOROVOD_WITH_GLOO": "1", "PATH": f"{venv}/bin:{os.environ['PATH']}"}
        subprocess.run((SCRIPT, python, archive, f"{work}/wheels"), check=True, env=environment)
        (wheel,) = Path(work, "wheels").glob("horovod-*.whl")
        subprocess.run((*pip, "install", "--no-deps", "--target", f"{work}/site", str(wheel)), check=True)
        Path(work, "site").rename(folder)
    return folder
