"""The images of lab hosts: a plain minimal server of a release of this machine's distribution, and one with a registry."""

from taco_launch.errors import TacoLaunchError
from taco_launch.lab import root
from taco_launch.lab.engine import ask, docker, docker_build
from taco_launch.lab.labels import IMAGE_KEY
from taco_launch.lab.talk import Talk

REPOSITORY = "taco-launch-lab"
# What a small cloud server has. No python, no docker: what a host needs besides is for set-up to bring.
_PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "dbus", "openssh-server", "sudo", "cron", "logrotate"),
    *("iproute2", "iptables", "nftables", "iputils-ping", "netbase", "ethtool", "pciutils", "kmod", "procps"),
    *("apt-utils", "ca-certificates", "curl", "gnupg", "less", "vim-tiny", "libfaketime"),
)
_REGISTRY_PACKAGES = ("docker-registry", "apache2-utils", "openssl", "skopeo", "busybox")
# Each host makes host keys and a machine id of its own.
_HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_*',
    ': >"$1"/etc/machine-id',
)
_REGISTRY_FILE = """FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends {packages} && apt-get clean && \\
    systemctl disable docker-registry
"""


def ensure(release: str, talk: Talk) -> tuple[str, str]:
    """Give the tags of the image of hosts of `release` and of the registry's, which is of this machine's own release.

    What is missing is made first.

    A tag is the hash of all that an image is made of, so whatever a lab was made from before is there at once.

    Raises:
        TacoLaunchError: they cannot be made here, or what makes them failed.
    """
    here = root.machine()
    host, base = _host(root.machine(release), talk), _host(here, talk)
    text = _REGISTRY_FILE.format(base=base, packages=" ".join(_REGISTRY_PACKAGES))
    registry = f"{REPOSITORY}:registry-{here.digest(text)}"
    if ask("image", "inspect", registry).code:
        talk.say("making the registry's image (about 10 s, once)")
        label = f"{IMAGE_KEY}=registry"
        # --network host: the build reaches the archives by the very way that this machine does
        docker_build("--network", "host", "--label", label, "--tag", registry, "-", stdin=text.encode())
    return host, registry


def _host(of: root.Machine, talk: Talk) -> str:
    tag = f"{REPOSITORY}:host-{of.digest(*_PACKAGES, *_HOOKS)}"
    if ask("image", "inspect", tag).code:
        talk.say(f"making the image of a plain {of.archives[0].base} host (about 40 s, once)")
        root.make(tag, "host", _PACKAGES, _HOOKS, of, talk)
    return tag


def kept() -> tuple[tuple[str, str], ...]:
    """Give the images of labs that are here: (tag, size as docker shows it).

    An image that somebody commits from a host has the label as well, but not the repository.
    """
    wanted = ("--filter", f"label={IMAGE_KEY}", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}")
    shown = docker("image", "ls", *wanted, REPOSITORY)
    return tuple((line.split()[0], line.split()[-1]) for line in shown.splitlines())


def remove() -> None:
    """Remove the images of labs, but for those that another lab's hosts are made of."""
    for tag, _ in sorted(kept(), reverse=True):  # train-cpu stands on train-base, the registry's image on the host's
        answer = ask("image", "rm", tag)
        if answer.code and "is using" not in answer.stderr:
            raise TacoLaunchError(f"{tag}: not removed: {answer.stderr}")
