"""Builds an image on this machine's Docker Engine: another one with more packages, or of a Dockerfile; hosts get it from here."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from taco_launch import __version__
from taco_launch.agent.store import untrusted
from taco_launch.core.command import shell
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.inventory.schema import names
from taco_launch.setup import scripts

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*(?:=[A-Za-z0-9.+:~-]+)?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,254}")
_TAG = re.compile(r"[a-z0-9][a-z0-9._:/-]{0,254}")
_MOST_BYTES = 1 << 20
# Settings of pip that say where packages come from; docker knows those of proxies itself.
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_HINT = "see Docker's message above; `docker build` uses the network of this machine's Docker Engine"


@dataclass(frozen=True)
class BuildRequest:
    """What is to be built: `tag` from `base` with `requirements` (a file for pip) and `apt` packages, or of a `dockerfile`.

    With `wheels`, a folder, pip installs from there alone. `folder` is what a Dockerfile copies from; `mpirun` what the image has to have.
    """

    tag: str
    base: str = ""
    requirements: str = ""
    apt: tuple[str, ...] = ()
    wheels: str = ""
    dockerfile: str = ""
    folder: str = ""
    mpirun: str = "mpirun"


def build(request: BuildRequest, say: Callable[[str], None]) -> str:
    """Build the image, look whether it can be a training image, and return its id; Docker says on stderr how it goes on.

    Raises:
        UsageError: parts of the request are wrong or missing.
        TacoLaunchError: Docker is not there, or cannot build it; or the image lacks what a training container needs.
    """
    check(request)
    if shutil.which("docker") is None:
        raise TacoLaunchError("there is no docker on this machine", hint="install it, or build the image elsewhere")
    with tempfile.TemporaryDirectory(prefix="taco-launch-build-") as scratch:
        if request.dockerfile:
            words: tuple[str, ...] = (
                "--file",
                request.dockerfile,
                request.folder or str(Path(request.dockerfile).parent),
            )
        else:
            _context(request, Path(scratch))
            words = (scratch,)
        given = [name for name in (*_PIP, *_PROXIES) if os.environ.get(name)]
        arguments = [word for name in given for word in ("--build-arg", name)]  # its value from the environment
        say(f"building {request.tag}")
        label = f"{BUILT_LABEL}={__version__}"
        _run(("docker", "build", "--label", label, "--tag", request.tag, *arguments, *words))
    looked = subprocess.run(
        ("/bin/sh", "-c", scripts.text("look.sh") + 'look "$1" "$2"', "look", request.tag, request.mpirun),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if looked.returncode:
        said = looked.stderr.strip().removeprefix("error: ")
        raise TacoLaunchError(
            f"{request.tag} was built, but cannot be used as a training image: {said or 'it does not run'}"
        )
    argv = ("docker", "image", "inspect", "--format", "{{.Id}}", request.tag)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def check(request: BuildRequest) -> None:
    """Check a request before anything is done.

    Raises:
        UsageError: parts of it contradict each other, are missing or wrong.
    """
    if not _TAG.fullmatch(request.tag):
        raise UsageError(
            f"--tag: {names.shown(request.tag)} is not a name for an image",
            hint="use lowercase letters, for example train:1",
        )
    if bool(request.base) == bool(request.dockerfile):
        raise UsageError(
            "say what the image is built from: --from IMAGE with --requirements or --apt, or -f DOCKERFILE",
            hint="taco-launch image build --from IMAGE --requirements requirements.txt --tag train:1",
        )
    if request.dockerfile and (request.requirements or request.apt or request.wheels):
        raise UsageError(
            "-f: cannot be combined with --requirements, --apt or --wheels: the Dockerfile itself defines what is installed",
            hint="leave --requirements, --apt and --wheels out",
        )
    if request.folder and not request.dockerfile:
        raise UsageError(
            "DIR is the build context of a Dockerfile, and no Dockerfile is given", hint="add -f DOCKERFILE"
        )
    if request.base and not _IMAGE.fullmatch(request.base):
        raise UsageError(f"--from: {names.shown(request.base)} is not an image")
    if request.base and not (request.requirements or request.apt):
        raise UsageError(
            "--from: nothing to install on top of the image", hint="add --requirements FILE or --apt PACKAGE"
        )
    wrong = next((each for each in request.apt if not _PACKAGE.fullmatch(each)), None)
    if wrong is not None:
        raise UsageError(f"--apt: {names.shown(wrong)} is not a name of a package")
    for path, is_right in (
        (request.requirements, os.path.isfile),
        (request.dockerfile, os.path.isfile),
        (request.wheels, os.path.isdir),
    ):
        if path and not is_right(path):
            raise UsageError(f"{path}: there is no such {'folder' if path == request.wheels else 'file'}")


def dockerfile(request: BuildRequest) -> str:
    """Return the Dockerfile of a request without one; nothing of what the user wrote stands in a line for a shell."""
    lines = [f"FROM {request.base}", "USER root", *(f"ARG {name}" for name in _PIP)]
    if request.apt:
        packages = " ".join(request.apt)
        lines.append(
            "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
            f"{packages} && rm -rf /var/lib/apt/lists/*"
        )
    if request.requirements:
        lines.append("COPY requirements.txt /usr/local/share/taco-launch/requirements.txt")
        where = ""
        if request.wheels:
            lines.append("COPY wheels /usr/local/share/taco-launch/wheels")
            where = "--no-index --find-links /usr/local/share/taco-launch/wheels "
        lines.append(
            "RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --root-user-action=ignore "
            f"{where}--requirement /usr/local/share/taco-launch/requirements.txt"
        )
    return "\n".join(lines) + "\n"


def _context(request: BuildRequest, folder: Path) -> None:
    """Write what Docker gets: the Dockerfile, the requirements, the wheels.

    Raises:
        UsageError: a wheel or the requirements cannot be read.
    """
    (folder / "Dockerfile").write_text(dockerfile(request), encoding="utf-8")
    if request.requirements:
        path = Path(request.requirements)
        try:
            (folder / "requirements.txt").write_bytes(untrusted.read_named(path, _MOST_BYTES))
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if request.wheels:
        shutil.copytree(
            request.wheels,
            folder / "wheels",
            ignore=lambda _folder, found: [each for each in found if not each.endswith((".whl", ".tar.gz", ".zip"))],
        )


def _run(argv: Sequence[str]) -> None:
    try:
        code = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=2, check=False).returncode
    except OSError as error:
        raise TacoLaunchError(f"{shell(argv[:2])}: {error.strerror}") from None
    if code:
        raise TacoLaunchError(f"docker build: exit code {code}", hint=_HINT)


BUILT_LABEL = "taco-launch.built"
_SECONDS = 20


def is_built_here(image: str) -> bool:
    """Return whether this machine's engine has an image of that name that `image build` has made."""
    if shutil.which("docker") is None:
        return False
    argv = ("docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{BUILT_LABEL}"}}}}', image)
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() not in (b"", b"<no value>")
