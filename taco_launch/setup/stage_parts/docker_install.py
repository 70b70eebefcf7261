"""Brings a Docker Engine to a host that has none: from where the inventory says, by the host's package manager."""

from dataclasses import replace

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, Os, System
from taco_launch.core.model.host.hosts import DockerEngine
from taco_launch.setup import keys
from taco_launch.setup.model import packages
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem
from taco_launch.setup.scripts import text
from taco_launch.setup.stage_parts.space import DATA_ROOT, disk_of

DOCKER_URL = "https://download.docker.com"
# Our files of that repository, by names that nobody else uses: those of the user stay as they are.
_APT = ("/etc/apt/sources.list.d/taco-launch-docker.list", "/etc/apt/keyrings/taco-launch-docker.asc")
_RPM = ("/etc/yum.repos.d/taco-launch-docker.repo", "/etc/pki/rpm-gpg/taco-launch-docker.asc")
# The host's /etc/os-release fills in the words in capitals: sources.list(5), dnf.conf(5).
APT_SOURCE = """\
# by taco-launch setup, from docker.source in the inventory
deb [signed-by={key}] {url}/linux/DISTRIBUTION CODENAME stable
"""
RPM_SOURCE = """\
# by taco-launch setup, from docker.source in the inventory
[taco-launch-docker]
name=Docker CE
baseurl={url}/linux/DISTRIBUTION/RELEASE/$basearch/stable
enabled=1
gpgcheck=1
gpgkey=file://{key}
"""

# What docker.io with its dependencies takes when unpacked (Debian 12: 330 MB), and its archives meanwhile.
_SPACE = 512 << 20
_SECONDS = 1800.0
# Distributions with a package of the engine, by their id in os-release; those of apt-get all have docker.io.
_PACKAGES = {
    "amzn": "docker",
    "fedora": "moby-engine",
    "openEuler": "docker",
    "opensuse-leap": "docker",
    "opensuse-tumbleweed": "docker",
    "sles": "docker",
}


def install(system: System, cluster: PlanContext) -> Op | Problem:
    """Plan to install an engine on a host without one; or say why it cannot be."""
    engine, manager = cluster.inventory.docker, system.package_manager
    unfit = _full(system) or _untyped(system, engine.data_root or DATA_ROOT)
    if unfit is not None:
        return unfit
    if engine.source == "none":
        return Problem(
            "docker",
            "docker is not installed, and set-up does not install it because of docker.source: none in the inventory",
            hint="install it on the host, or set its source in the inventory: docker: {source: distribution}",
        )
    if not isinstance(manager, str) or manager not in packages.MANAGERS:
        told = manager if isinstance(manager, str) else manager.reason
        return Problem(
            "docker",
            f"docker is not installed, and set-up does not support this host's package manager: {told or 'none found'}",
            hint=f"install docker by hand: set-up supports only {', '.join(packages.MANAGERS)}",
        )
    if engine.source == "distribution":
        return _distribution(manager, system.os)
    if engine.source == "docker":
        return _docker(manager, cluster)
    return _script(engine) if engine.source == "script" else _packages(manager, cluster)


def _full(system: System) -> Problem | None:
    disk = next((disk for disk in known_value(system.disks) or () if disk.path == "/"), None)
    if disk is None or disk.free >= _SPACE:
        return None
    return Problem(
        "docker",
        f"/ has {disk.free >> 20} MiB free, and installing docker requires {_SPACE >> 20} MiB",
        hint="make room: du -xh -d 2 / | sort -h | tail",
    )


def _untyped(system: System, root: str) -> Problem | None:
    """Refuse a file system that overlay2 cannot work on, before an engine is there that will not start on it."""
    disk = disk_of(system, root)
    if disk is None or disk.typed is not False:
        return None
    return Problem(
        "docker",
        f"{root} lies on {disk.path}, an XFS made with ftype=0 (xfs_info {disk.path}): docker's overlay2 cannot work there",
        hint="an existing XFS cannot be changed: make another one with mkfs.xfs -n ftype=1, and mount it where docker keeps its images "
        "or set a folder on it in the inventory: docker: {data_root: FOLDER}",
    )


def _distribution(manager: str, os: Found[Os]) -> Op | Problem:
    if manager == "apt-get":
        return _op("install docker.io (distribution)", "apt")
    name = _PACKAGES.get(os.id) if isinstance(os, Os) else None
    if name is None:
        told = os.name if isinstance(os, Os) else "this system"
        return Problem(
            "docker",
            f"docker is not installed, and the package that contains it on {told} is not known",
            hint="set its source in the inventory: docker: {source: docker} (Docker's own repository), "
            "script or packages",
        )
    return _op(f"install {name} (distribution)", "rpm", manager, name)


def _docker(manager: str, cluster: PlanContext) -> Op | Problem:
    engine = cluster.inventory.docker
    url = (engine.url or DOCKER_URL).rstrip("/")
    name = f"install docker-ce ({url})"
    if manager == "apt-get":
        (file, key), source = _APT, APT_SOURCE
        op = _fetched(engine, name, "apt-docker", url, packages.SOURCE, *_APT)
    elif manager in ("dnf", "yum"):
        (file, key), source = _RPM, RPM_SOURCE
        op = _fetched(engine, name, "rpm-docker", url, packages.SOURCE, file, manager)
    else:
        return Problem(
            "docker",
            f"docker is not installed, and Docker has no repository for {manager}",
            hint="set another source in the inventory: docker: {source: distribution}",
        )
    signed = FileTarget(key, cluster.docker_key or keys.data(f"docker-{'deb' if file == _APT[0] else 'rpm'}"))
    return packages.from_source(replace(op, files=(*op.files, signed)), source.format(key=key, url=url), file)


def _script(engine: DockerEngine) -> Op | Problem:
    if engine.url is None or engine.sha256 is None:
        return Problem(
            "docker",
            "docker is not installed, and docker.source: script requires docker.url and docker.sha256 in the inventory",
            hint="look at the script, then: curl -fsSL URL | sha256sum",
        )
    return _fetched(engine, f"install docker (script {engine.url})", "script", engine.url, engine.sha256)


def _packages(manager: str, cluster: PlanContext) -> Op | Problem:
    files = packages.given(manager, cluster.packages)
    if not files:
        folder = cluster.inventory.docker.packages or "docker.packages, which the inventory does not set,"
        return Problem(
            "docker",
            f"docker is not installed, and {folder} holds no {packages.ending(manager)} file for {manager}",
            hint="put docker's packages for this system there, with all that they depend on",
        )
    name = f"install docker ({len(files) - 1} package files from the controller)"
    return replace(_op(name, *packages.way(manager)), files=files)


def _fetched(engine: DockerEngine, name: str, way: str, *args: str) -> Op:
    """Return the operation for what is fetched from outside, by the proxy that the engine has too."""
    return replace(_op(name, way, packages.PROXY, *args), files=(packages.proxied(engine),))


def _op(name: str, *args: str) -> Op:
    return Op(
        "docker",
        name,
        why="docker is not installed",
        script="".join(map(text, ("dpkg.sh", "packages.sh", "docker_install.sh"))),
        args=args,
        seconds=_SECONDS,
        expect=_installed,
    )


def _installed(facts: HostFacts) -> HostFacts:
    """Return the facts with an engine of which nothing is known yet but that it runs nothing."""
    later = Unknown("docker is installed first")
    docker = DockerFacts(
        version=Absent("docker is installed first"),
        flavour="docker",
        userns=False,
        root=later,
        storage=later,
        cgroup_driver=later,
        cgroup_version=later,
        runtimes=later,
        default_runtime=later,
        live_restore=later,
        mirrors=later,
        insecure_registries=later,
        containers=(),
        images=(),
        toolkit=later,
        toolkit_programs=later,
    )
    return replace(facts, docker=docker)
