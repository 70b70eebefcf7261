"""The images of lab hosts: a plain minimal server of this machine's own distribution, and the same with a registry."""

import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from taco_launch.errors import TacoLaunchError
from taco_launch.lab import daemon, sources
from taco_launch.lab.engine import ask, docker
from taco_launch.lab.labels import IMAGE_KEY
from taco_launch.lab.talk import Talk

_REPOSITORY = "taco-launch-lab"
# What a small cloud server has. No python, no docker: what a host needs besides is for set-up to bring.
_PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "dbus", "openssh-server", "sudo", "cron", "logrotate"),
    *("iproute2", "iptables", "nftables", "iputils-ping", "netbase", "ethtool", "pciutils", "kmod", "procps"),
    *("apt-utils", "ca-certificates", "curl", "gnupg", "less", "vim-tiny", "libfaketime"),
)
_REGISTRY_PACKAGES = ("docker-registry", "apache2-utils", "openssl")
_CERTIFICATES = "/usr/local/share/ca-certificates"
# Each host makes host keys and a machine id of its own; certificates that the machine trusts, its hosts trust as well.
_HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_*',
    ': >"$1"/etc/machine-id',
)
_TRUST_HOOKS = (f"sync-in {_CERTIFICATES} {_CERTIFICATES}", 'chroot "$1" update-ca-certificates')
# Documentation and translations make half of the time and a third of the room.
_DPKG = ("path-exclude=/usr/share/doc/*", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*")
_APT_KEPT = re.compile(r'Acquire::(?:https?::Proxy|Check-Valid-Until|Check-Date) ".*";')
_REGISTRY_FILE = """FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends {packages} && apt-get clean && \\
    systemctl disable docker-registry
"""


def ensure(talk: Talk) -> tuple[str, str]:
    """Give the tags of the host image and of the registry image; what is missing is made first.

    A tag is the hash of all that an image is made of, so whatever a lab was made from before is there at once.

    Raises:
        TacoLaunchError: they cannot be made here, or what makes them failed.
    """
    found = _archives()
    settings = _apt_settings()
    parts = [
        platform.machine(),
        settings,
        *(source.line for source in found),
        *(*_PACKAGES, *_HOOKS, *_TRUST_HOOKS, *_DPKG, _REGISTRY_FILE, *_REGISTRY_PACKAGES),
        *(path.read_text("utf-8", "replace") for path in _certificates()),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    base, registry = f"{_REPOSITORY}:host-{digest}", f"{_REPOSITORY}:registry-{digest}"
    if ask("image", "inspect", base).code:
        _make_base(base, found, settings, talk)
    if ask("image", "inspect", registry).code:
        talk.say("making the registry's image (about 10 s, once)")
        text = _REGISTRY_FILE.format(base=base, packages=" ".join(_REGISTRY_PACKAGES))
        label = f"{IMAGE_KEY}=registry"
        # --network host: the build reaches the archives by the very way that this machine does
        docker("build", "--network", "host", "--label", label, "--tag", registry, "-", stdin=text.encode(), timeout=600)
    return base, registry


def kept() -> tuple[tuple[str, str], ...]:
    """Give the images of labs that are here: (tag, size as docker shows it).

    An image that somebody commits from a host has the label as well, but not the repository.
    """
    wanted = ("--filter", f"label={IMAGE_KEY}", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}")
    shown = docker("image", "ls", *wanted, _REPOSITORY)
    return tuple((line.split()[0], line.split()[-1]) for line in shown.splitlines())


def remove() -> None:
    """Remove the images of labs."""
    for tag, _ in sorted(kept(), reverse=True):  # the registry's image stands on the host's
        docker("image", "rm", tag)


def _archives() -> tuple[sources.Source, ...]:
    try:
        release = Path("/etc/os-release").read_text("utf-8")
        folder = Path("/etc/apt")
        files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]
        files += sorted((folder / "sources.list.d").glob("*.sources"))
        texts = [(path.name, path.read_text("utf-8", "replace")) for path in files if path.is_file()]
    except OSError as error:
        raise TacoLaunchError(f"{error.filename}: {error.strerror}") from None
    codename = re.search(r'^VERSION_CODENAME="?([a-z]+)', release, re.MULTILINE)
    found = sources.distributions_own(texts, codename[1] if codename else "")
    if not found:
        what = f"of {codename[1]}" if codename else "of Debian or Ubuntu"
        raise TacoLaunchError(
            f"no package archive {what} (component main) in /etc/apt: lab hosts are made from this machine's own",
            hint="see man sources.list; on another system use a machine with Debian or Ubuntu",
        )
    return found


def _apt_settings() -> str:
    """Give what of this machine's apt settings its hosts need to reach the same archives."""
    argv = ("apt-config", "dump")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "".join(f"{line}\n" for line in done.stdout.splitlines() if _APT_KEPT.fullmatch(line))


def _certificates() -> list[Path]:
    return sorted(Path(_CERTIFICATES).glob("**/*.crt"))


def _make_base(tag: str, found: Sequence[sources.Source], settings: str, talk: Talk) -> None:
    if shutil.which("mmdebstrap") is None:
        daemon.install(("mmdebstrap",), talk)
    talk.say(f"making the image of a plain {found[0].base} host (about 40 s, once)")
    hooks = [f"--customize-hook={hook}" for hook in (*_HOOKS, *(_TRUST_HOOKS if _certificates() else ()))]
    with tempfile.TemporaryDirectory(prefix="taco-launch-lab-") as scratch:
        apt, packed = Path(scratch, "apt.conf"), Path(scratch, "host.tar")
        apt.write_text(settings + 'Acquire::Languages "none";\n', "utf-8")
        argv = (
            *("mmdebstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", f"--aptopt={apt}"),
            *(*(f"--dpkgopt={option}" for option in _DPKG), *hooks),
            *(found[0].base, str(packed), "-"),
        )
        _run(argv, "".join(f"{source.line}\n" for source in found), talk)
        talk.show("importing the image")
        docker("import", "--change", f"LABEL {IMAGE_KEY}=host", str(packed), tag, timeout=300)


def _run(argv: Sequence[str], stdin: str, talk: Talk) -> None:
    """Run mmdebstrap, show its steps.

    Raises:
        TacoLaunchError: it failed: its errors.
    """
    said = []
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(stdin)
        process.stdin.close()
        for line in process.stderr:
            said.append(line.rstrip())
            if line.startswith("I: "):
                talk.show(f"making the image: {line[3:].strip()}")
    if process.returncode:
        errors = [line for line in said if line.startswith("E:")] or said[-3:]
        raise TacoLaunchError(
            "the image of a host could not be made: mmdebstrap: " + "\n".join(errors),
            hint="see whether this machine reaches its package archives: apt-get update",
        )
