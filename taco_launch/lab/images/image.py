"""The images of lab hosts: a minimal server of a release of this machine's distribution, one with Docker, one with a registry."""

from collections.abc import Sequence

from taco_launch.core.errors import TacoLaunchError
from taco_launch.lab.docker.engine import ask, docker, docker_build
from taco_launch.lab.docker.labels import IMAGE_KEY
from taco_launch.lab.docker.reporter import Reporter
from taco_launch.lab.images import root

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
# As scripts/docker_install.sh of set-up installs them: Debian 13 has the client in a package of its own.
_ENGINE_PACKAGES = ("docker.io", "iptables", "ca-certificates", "$(apt-cache pkgnames docker-cli | grep -x docker-cli)")
_MORE = """FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends {packages} && apt-get clean && {then}
"""


def ensure(release: str, talk: Reporter, *, engine: bool = False) -> tuple[str, str]:
    """Return the tags of the image of hosts of `release` and of the registry's, which is of this machine's own release.

    With `engine` the hosts' image has Docker Engine installed. What is missing is made first.

    A tag is the hash of all that an image is made of, so whatever a lab was made from before is there at once.

    Raises:
        TacoLaunchError: they cannot be made here, or what makes them failed.
    """
    here = root.machine()
    there = root.machine(release)
    host, base = _host(there, talk), _host(here, talk)
    if engine:
        host = _more("host_docker", "a host with Docker", host, _ENGINE_PACKAGES, "true", there, talk)
    then = "systemctl disable docker-registry"
    return host, _more("registry", "the registry", base, _REGISTRY_PACKAGES, then, here, talk)


def missing(release: str, *, engine: bool) -> tuple[str, ...]:
    """Return which images `ensure` would make, in words; all of them while no Docker Engine answers.

    Raises:
        TacoLaunchError: they cannot be made here.
    """
    here, there = root.machine(), root.machine(release)
    wanted = {_host_tag(there): f"{there.archives[0].base} host", _host_tag(here): f"{here.archives[0].base} host"}
    kinds = [("host_docker", "host with Docker")] * engine + [("registry", "registry")]
    lacking = [what for tag, what in wanted.items() if ask("image", "inspect", tag).code]
    have = {tag.partition(":")[2].partition("-")[0] for tag, _size in kept()} if not ask("version").code else set()
    return (*lacking, *(what for kind, what in kinds if kind not in have))


def _more(
    kind: str, what: str, base: str, packages: Sequence[str], then: str, of: root.AptSources, talk: Reporter
) -> str:
    text = _MORE.format(base=base, packages=" ".join(packages), then=then)
    tag = f"{REPOSITORY}:{kind}-{of.digest(text)}"
    if ask("image", "inspect", tag).code:
        talk.say(f"making the image of {what} (about 15 s, once)")
        # --network host: the build reaches the archives by the very way that this machine does
        label = f"{IMAGE_KEY}={kind}"
        docker_build("--network", "host", "--label", label, "--tag", tag, "-", stdin=text.encode())
    return tag


def _host(of: root.AptSources, talk: Reporter) -> str:
    tag = _host_tag(of)
    if ask("image", "inspect", tag).code:
        talk.say(f"making the image of a plain {of.archives[0].base} host (about 40 s, once)")
        root.make(tag, "host", _PACKAGES, _HOOKS, of, talk)
    return tag


def _host_tag(of: root.AptSources) -> str:
    return f"{REPOSITORY}:host-{of.digest(*_PACKAGES, *_HOOKS)}"


def kept() -> tuple[tuple[str, str], ...]:
    """Return the images of labs that are here: (tag, size as docker shows it).

    An image that somebody commits from a host has the label as well, but not the repository.
    """
    wanted = ("--filter", f"label={IMAGE_KEY}", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}")
    shown = docker("image", "ls", *wanted, REPOSITORY)
    return tuple((line.split()[0], line.split()[-1]) for line in shown.splitlines())


def remove() -> None:
    """Remove the images of labs, but for those that another lab's hosts are made of.

    Raises:
        TacoLaunchError: the engine refuses.
    """
    for tag, _ in sorted(kept(), reverse=True):  # by their names each comes before the one that it is on
        answer = ask("image", "rm", tag)
        if answer.code and "is using" not in answer.stderr:
            raise TacoLaunchError(f"{tag}: not removed: {answer.stderr}")
