"""The lab's training image: docker/train-cpu on this machine's own distribution, made once, kept in the registry."""

import configparser
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from taco_launch.errors import TacoLaunchError
from taco_launch.frozen import dataclass
from taco_launch.lab.engine import ask, docker, docker_build
from taco_launch.lab.images import root, wheels
from taco_launch.lab.images.image import REPOSITORY
from taco_launch.lab.labels import IMAGE_KEY
from taco_launch.lab.reporter import Reporter

NAME = "train-cpu"
_DOCKERFILE = f"docker/{NAME}/Dockerfile"
_COPIED = tuple(
    f"scripts/{name}" for name in ("pytorch_synthetic_benchmark.py", "benchmark_run.py", "benchmark_models.py")
)
_FILES = (_DOCKERFILE, *_COPIED, "setup.cfg", wheels.BUILD)
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
    pins: wheels.Pins
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


def _pins(text: str) -> wheels.Pins:
    """Read the versions from setup.cfg."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(text)
    lines = settings["options.extras_require"]["train"].splitlines()
    named = {line.split()[0]: line.replace(" ", "") for line in lines if line and not line.startswith("#")}
    torch, horovod = (named[name].partition("==")[2] for name in ("torch", "horovod"))
    return wheels.Pins(torch, horovod, named["numpy"], named["tensorboard"])


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
        wheels.collect(
            what.checkout, what.base, what.pins, wheels.cache(environ, what.checkout), context / "wheels", talk
        )
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
