"""The registry host: Debian's docker-registry behind TLS and a password, both of the lab's own making.

Its images lie in one volume of the machine, which every lab's registry mounts: a new lab has them at once.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress

from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.lab.docker import hosts
from taco_launch.lab.docker.engine import ask, docker, execute
from taco_launch.lab.docker.labels import IMAGE_KEY, REGISTRY, LabHost

PORT = 5000
ADDRESS = f"{REGISTRY}:{PORT}"  # as every host of a lab calls it
# Where its storage driver keeps what a tag stands for; the link is written last.
_TAG = f"{hosts.REGISTRY_PATH}/docker/registry/v2/repositories/{{}}/_manifests/tags/{{}}/current/link"
_CHUNK = 1 << 20
# docker's own grammar of names, less its corner cases (distribution/reference)
_NAME = re.compile(r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::(?P<tag>\w[\w.-]{0,127}))?", re.ASCII)
# skopeo(1) reads an archive twice, so not from a pipe; the password comes from a file
_PUSH = """
set -eu
file=$(mktemp /var/tmp/image.XXXXXX)
trap 'rm -f "$file"' EXIT
cat >"$file"
skopeo copy --quiet --dest-authfile /etc/docker/registry/lab/auth.json "docker-archive:$file" "docker://$1"
"""
_TRUST = """
set -eu
file=/usr/local/share/ca-certificates/taco-launch-lab.crt
cat >"$file.new"
if ! cmp -s "$file.new" "$file"; then
  mv "$file.new" "$file"
  # what update-ca-certificates(8) does for one certificate: all 140 take it a second
  cat "$file" >>/etc/ssl/certs/ca-certificates.crt
  ln -sf "$file" /etc/ssl/certs/taco-launch-lab.pem
  ln -sf taco-launch-lab.pem "/etc/ssl/certs/$(openssl x509 -noout -hash -in "$file").0"
fi
rm -f "$file.new"
"""


def make_volume() -> None:
    """Make the volume of all registries of this machine; where it is there it stays as it is."""
    docker("volume", "create", "--label", f"{IMAGE_KEY}=registry", hosts.REGISTRY_VOLUME)


def registry_volume() -> tuple[tuple[str, str], ...]:
    """Return that volume, where it is there: (its name, what it is)."""
    found = docker("volume", "ls", "--quiet", "--filter", f"name=^{hosts.REGISTRY_VOLUME}$")
    return ((found, "(the registry's images)"),) if found else ()


def remove_volume() -> bool:
    """Remove that volume; say whether it is gone: it stays while a registry is up."""
    answer = ask("volume", "rm", hosts.REGISTRY_VOLUME)
    return not answer.code or "no such volume" in answer.stderr.lower()


def name_of(image: str) -> str:
    """Return the name that an image of this machine gets in a lab's registry: its own, without another registry's address.

    Raises:
        UsageError: it has none (an id, a digest), or one that docker would not take.
    """
    first, _, rest = image.partition("/")
    short = rest if rest and ("." in first or ":" in first or first == "localhost") else image
    found = _NAME.fullmatch(short)
    if found is None:
        raise UsageError(
            f"{image!r} is not an image name, with or without a tag",
            hint="an image that has only an id or a digest: docker tag ID NAME:TAG, then push NAME:TAG",
        )
    return f"{found['name']}:{found['tag'] or 'latest'}"


def has(container: str, name: str) -> bool:
    """Return whether the registry has an image, `NAME:TAG`."""
    return not execute(container, "test", "-s", _TAG.format(*name.rsplit(":", 1))).code


def push(host: LabHost, container: str, image: str, name: str, show: Callable[[str], None]) -> None:
    """Put an image of this machine's engine into the registry as `name`; `show` is told how far it is.

    Raises:
        TacoLaunchError: the engine has no such image.
        HostError: the registry did not take it: its words.
    """
    found = ask("image", "inspect", "--format", "{{.Size}}", image)
    if found.code:
        raise TacoLaunchError(f"the Docker Engine of this machine has no image {image}", hint=f"docker pull {image}")
    size = f"about {int(found.text) / 1e6:.0f} MB"  # what it takes unpacked: the stream is not known before its end
    give = ("docker", "save", image)
    take = ("docker", "exec", "--interactive", container, "/bin/sh", "-c", _PUSH, "push", f"{ADDRESS}/{name}")
    with (
        subprocess.Popen(give, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as saved,
        tempfile.TemporaryFile() as said,
        subprocess.Popen(take, stdin=subprocess.PIPE, stdout=said, stderr=said) as taken,
    ):
        assert saved.stdout is not None
        assert taken.stdin is not None
        sent = 0
        with suppress(BrokenPipeError), saved.stdout, taken.stdin:  # a registry that ends early says why, below
            while chunk := saved.stdout.read(_CHUNK):
                taken.stdin.write(chunk)
                sent += len(chunk)
                show(f"{image}: {sent / 1e6:.0f} of {size} sent to the registry")
        show(f"{image}: {sent / 1e6:.0f} MB sent; the registry stores it")
        taken.wait()
        said.seek(0)
        words = said.read().decode("utf-8", "replace").strip().splitlines()
    if taken.returncode or saved.returncode:
        last = words[-1] if words else f"docker save: exit {saved.returncode}"
        raise HostError(
            f"{host.name}: the registry did not accept {name}: {last}", hint="check whether the disk is full: df -h"
        )


@dataclass(frozen=True)
class Login:
    """What a client of the registry needs: the password, and the certificate of the authority behind it (PEM)."""

    password: str
    authority: str


def start(host: LabHost, container: str) -> Login:
    """Have the registry run, with the certificate and password that it has or, the first time, makes.

    Raises:
        HostError: it does not.
    """
    words = (host.lab, host.address, str(PORT))
    answer = execute(container, "/bin/sh", "-c", hosts.script("registry.sh"), "registry", *words)
    password, _, authority = answer.text.partition("\n")
    if answer.code or "BEGIN CERTIFICATE" not in authority:
        raise HostError(
            f"{host.name}: docker-registry does not start: {answer.stderr or answer.text or f'exit {answer.code}'}",
            hint=f"taco-launch lab exec --name {host.lab} {host.name} -- journalctl -u docker-registry",
        )
    return Login(password, authority + "\n")


def trust(host: LabHost, container: str, authority: str) -> None:
    """Have a host trust certificates of the lab's authority, system-wide.

    Raises:
        HostError: it cannot be done.
    """
    answer = execute(container, "/bin/sh", "-c", _TRUST, stdin=authority.encode())
    if answer.code:
        raise HostError(f"{host.name}: the lab's certificate cannot be installed: {answer.stderr}")
