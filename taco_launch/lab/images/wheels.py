"""The wheels of the training image: torch for CPUs and what it needs, and Horovod's own, for the Python of that image."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from taco_launch.errors import TacoLaunchError
from taco_launch.frozen import dataclass
from taco_launch.lab.engine import ask, docker, docker_build
from taco_launch.lab.labels import IMAGE_KEY
from taco_launch.lab.reporter import Reporter

BUILD = "scripts/horovod_wheel.sh"
# What Horovod's package imports at run time (its metadata leave packaging out), and what its build imports.
_NEEDED = ("pip", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging")
_TO_BUILD = ("setuptools>=77", "wheel")
_BUILDER_PACKAGES = ("g++", "cmake", "make", "libopenmpi-dev", "libpython3-dev")
_BUILDER_FILE = """FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends {packages} && apt-get clean
"""
_BUILDER = """
set -eu
python3 -m venv --without-pip /opt/build
/opt/build/bin/python3 "$(echo /house/pip-*.whl)/pip" install --no-index --find-links /house \
  pip torch numpy setuptools wheel packaging cffi cloudpickle psutil pyyaml
exec bash /horovod_wheel.sh /opt/build/bin/python3 /house/horovod-*.tar.gz /made
"""
# Printed a line each: Python's version and the name of its ABI, Open MPI's version, the C library's.
_LOOK = """
set -eu
python3 -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2], sysconfig.get_config_var("SOABI"), sep="\\n")'
mpirun --version | sed -n '1s/.* //p'
getconf GNU_LIBC_VERSION
"""


@dataclass(frozen=True)
class Pins:
    """The versions that setup.cfg names: torch's, Horovod's, and numpy's and TensorBoard's as pip takes them."""

    torch: str
    horovod: str
    numpy: str
    tensorboard: str


@dataclass(frozen=True)
class Target:
    """What wheels have to fit: Python (`3.11`), the name of its ABI, Open MPI, the C library as getconf names it."""

    python: str
    abi: str
    openmpi: str
    libc: str

    def key(self, torch: str) -> str:
        """Name the folder of the wheel cache where a Horovod for this lies (scripts/setup.sh, find_key)."""
        return f"{self.abi}-torch{torch}-openmpi{self.openmpi}-{self.libc.replace(' ', '')}-cpu"


def read_target(image: str) -> Target:
    """Ask an image what wheels have to fit.

    Raises:
        TacoLaunchError: it cannot be run, or has no python3 or mpirun.
    """
    said = docker("run", "--rm", "--network", "none", image, "/bin/sh", "-c", _LOOK)
    return Target(*said.splitlines())


def cache(environ: Mapping[str, str], checkout: Path) -> Path:
    """Return the folder where built wheels are kept, as scripts/quickstart chooses it."""
    if named := environ.get("TACO_LAUNCH_WHEEL_CACHE"):
        return Path(named)
    home = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(home, "taco-launch/wheels") if home.startswith("/") else checkout / ".cache/wheels"


def collect(checkout: Path, base: str, pins: Pins, kept: Path, folder: Path, talk: Reporter) -> None:
    """Put into `folder` all wheels that the training image needs on top of the image `base`.

    Horovod's is taken from `kept`, the wheel cache, or built in a container of `base` and kept there.

    Raises:
        TacoLaunchError: pip is missing or finds no such wheel, or Horovod cannot be built: what it said.
    """
    if importlib.util.find_spec("pip") is None:
        raise TacoLaunchError(f"{sys.executable} has no pip", hint="scripts/quickstart makes a .venv that has it")
    target = read_target(base)
    torch = f"{pins.torch}+cpu"  # the local version of PyTorch's builds without CUDA, which would bring gigabytes
    talk.show(f"training image: wheels of torch {torch}")
    there = sorted((kept / target.key(torch)).glob(f"horovod-{pins.horovod}-*.whl"))
    wanted = (f"torch=={torch}", pins.numpy, pins.tensorboard, *_NEEDED, *(() if there else _TO_BUILD))
    _download(("--only-binary", ":all:", "--python-version", target.python, *wanted), folder)
    if not there:
        there = [_build(checkout, base, pins, kept / target.key(torch), folder, talk)]
    shutil.copy(there[0], folder)


def _download(arguments: Sequence[str], folder: Path) -> None:
    argv = (sys.executable, "-I", "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar", "off")
    done = subprocess.run(
        (*argv, "--dest", str(folder), *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or done.stderr.splitlines()
        raise TacoLaunchError(
            f"pip download: {errors[-1] if errors else f'exit {done.returncode}'}",
            hint="set PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to where PyTorch's CPU builds are",
        )


def _build(checkout: Path, base: str, pins: Pins, kept: Path, folder: Path, talk: Reporter) -> Path:
    """Build Horovod in a container, keep the wheel, give its path."""
    talk.say(f"building Horovod {pins.horovod} for the training image (about 2 min, once)")
    _download(("--no-deps", "--no-build-isolation", "--no-binary", "horovod", f"horovod=={pins.horovod}"), folder)
    builder = f"{base.replace('train-base', 'train-builder')}"
    text = _BUILDER_FILE.format(base=base, packages=" ".join(_BUILDER_PACKAGES))
    options = ("--network", "host", "--label", f"{IMAGE_KEY}=builder", "--tag", builder)
    docker_build(*options, "-", stdin=text.encode())
    with tempfile.TemporaryDirectory(prefix="taco-launch-lab-") as made:
        mounts = ((folder, "/house:ro"), (Path(made), "/made"), (checkout / BUILD, "/horovod_wheel.sh:ro"))
        volumes = (word for outside, inside in mounts for word in ("--volume", f"{outside}:{inside}"))
        argv = ("run", "--rm", "--network", "none", *volumes, builder, "/bin/sh", "-c", _BUILDER)
        answer = ask(*argv, timeout=1800)
        wheels = sorted(Path(made).glob("horovod-*.whl"))
        if answer.code or not wheels:
            said = "\n".join([*answer.text.splitlines(), *answer.stderr.splitlines()][-10:])
            raise TacoLaunchError(f"Horovod's wheel could not be built: {said}")
        kept.mkdir(parents=True, exist_ok=True)
        part = kept / f".part-{os.getpid()}"  # the whole wheel or none, also for one who looks right now
        shutil.copyfile(wheels[0], part)
        docker("image", "rm", builder)  # the wheel is kept instead
        return part.rename(kept / wheels[0].name)
