"""The lab's training image: docker/train-cpu on this machine's own distribution, made once, kept in the registry."""

import configparser
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from taco_launch.agent.store.folders import cache_folder
from taco_launch.agent.store.ownership import require_own
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.lab.docker.engine import ask, docker, docker_build
from taco_launch.lab.docker.labels import IMAGE_KEY
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.images import root
from taco_launch.lab.images.image import REPOSITORY

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
    """Return the folder where built wheels are kept, as scripts/quickstart chooses it.

    Raises:
        UsageError: another user can decide what is in it.
    """
    named = environ.get("TACO_LAUNCH_WHEEL_CACHE")
    if not named and (environ.get("XDG_CACHE_HOME", "").startswith("/") or environ.get("HOME")):
        return cache_folder(environ, os.geteuid()) / "wheels"
    folder = Path(named).absolute() if named else checkout / ".cache/wheels"
    return require_own(folder, os.geteuid(), "the cache of wheels", "TACO_LAUNCH_WHEEL_CACHE")


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
    """Build Horovod in a container, keep the wheel, give its path.

    Raises:
        TacoLaunchError: the build fails.
    """
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


NAME = "train-cpu"
_DOCKERFILE = f"docker/{NAME}/Dockerfile"
_COPIED = tuple(
    f"scripts/{name}" for name in ("pytorch_synthetic_benchmark.py", "benchmark_run.py", "benchmark_models.py")
)
_FILES = (_DOCKERFILE, *_COPIED, "setup.cfg", BUILD)
# pip and a compiler are for what people add: packages that are built where they are installed, kernels that are at run time.
_PACKAGES = (
    *("openmpi-bin", "openssh-server", "python3", "iproute2", "procps", "ca-certificates"),
    *("python3-pip", "python3-dev", "g++"),
)
# Host keys are set-up's to make, for each host its own.
_HOOKS = ('rm -f "$1"/etc/ssh/ssh_host_*',)
_CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Recipe:
    """All that the image is made of: the checkout, this machine, the versions; and the tags of base and image."""

    checkout: Path
    here: root.AptSources
    pins: Pins
    base: str
    tag: str

    @property
    def name(self) -> str:
        """Its name in a registry: `train-cpu:HASH`, the hash of all that it is made of."""
        return f"{NAME}:{self.tag.rpartition('-')[2]}"


def recipe(checkout: Path = _CHECKOUT) -> Recipe:
    """Read what the image is made of; nothing is made.

    Raises:
        TacoLaunchError: a file of the checkout is missing: taco-launch was installed without one.
    """
    missing = [name for name in _FILES if not (checkout / name).is_file()]
    if missing:
        raise TacoLaunchError(
            f"{missing[0]} is not in {checkout}: the training image is built from a checkout of taco-launch",
            hint="in a checkout, run scripts/quickstart, then use its .venv/bin/taco-launch; "
            "or put an image of your own into the registry: taco-launch lab push IMAGE, with the lab's --name",
        )
    here = root.machine()
    pins = _pins((checkout / "setup.cfg").read_text("utf-8"))
    base = here.digest(*_PACKAGES, *_HOOKS)
    texts = ((checkout / name).read_text("utf-8") for name in (_DOCKERFILE, *_COPIED))
    tag = here.digest(base, pins.torch, pins.horovod, pins.numpy, pins.tensorboard, *texts)
    return Recipe(checkout, here, pins, f"{REPOSITORY}:train-base-{base}", f"{REPOSITORY}:{NAME}-{tag}")


def _pins(text: str) -> Pins:
    """Read the versions from setup.cfg."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(text)
    lines = settings["options.extras_require"]["train"].splitlines()
    named = {line.split()[0]: line.replace(" ", "") for line in lines if line and not line.startswith("#")}
    torch, horovod = (named[name].partition("==")[2] for name in ("torch", "horovod"))
    return Pins(torch, horovod, named["numpy"], named["tensorboard"])


def ensure(what: Recipe, environ: Mapping[str, str], talk: Reporter) -> str:
    """Return the image's tag in this machine's engine; it is made where it is missing.

    Raises:
        TacoLaunchError: it cannot be made: what is missing, or what failed.
    """
    if not ask("image", "inspect", what.tag).code:
        return what.tag
    talk.say("making the training image (about a minute, once)")
    ensure_base(what, talk)
    with tempfile.TemporaryDirectory(prefix="taco-launch-lab-") as scratch:
        context = Path(scratch)
        for name in ("wheels", "benchmark"):
            (context / name).mkdir()
        collect(what.checkout, what.base, what.pins, cache(environ, what.checkout), context / "wheels", talk)
        for name in _COPIED:
            shutil.copy(what.checkout / name, context / "benchmark")
        talk.show("training image: installing torch and Horovod")
        shutil.copy(what.checkout / _DOCKERFILE, context)
        labels = ("--label", f"{IMAGE_KEY}=train-cpu")
        docker_build("--network", "none", "--build-arg", f"BASE={what.base}", *labels, "--tag", what.tag, str(context))
    # what the first stage left, wheels and all
    docker("image", "prune", "--force", "--filter", f"label={IMAGE_KEY}=installed")
    return what.tag


def ensure_base(what: Recipe, talk: Reporter) -> None:
    """Make the image that the training image is on, where it is missing: Open MPI, sshd and Python, without torch.

    Raises:
        TacoLaunchError: it cannot be made: what is missing, or what failed.
    """
    if ask("image", "inspect", what.base).code:
        root.make(what.base, "train-base", _PACKAGES, _HOOKS, what.here, talk)
