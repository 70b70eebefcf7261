"""Brings a Docker Engine to a host that has none: from where the inventory says, by the host's package manager."""

from dataclasses import replace

from taco_launch.model.facts import Docker, HostFacts, Os, System
from taco_launch.model.found import Absent, Found, Unknown
from taco_launch.model.hosts import Engine
from taco_launch.setup.ops import Cluster, File, Op, Problem
from taco_launch.setup.paths import STATE
from taco_launch.setup.scripts import text

# Where scripts/docker_install.sh finds packages of the controller, and the proxy; it removes both.
_GIVEN = f"{STATE}/docker/packages"
_PROXY = f"{STATE}/docker/proxy"

DOCKER_URL = "https://download.docker.com"

# What docker.io with its dependencies takes when unpacked (Debian 12: 330 MB), and its archives meanwhile.
_SPACE = 512 << 20
_SECONDS = 1800.0
_MANAGERS = ("apt-get", "dnf", "yum", "zypper")
# Distributions with a package of the engine, by their id in os-release; those of apt-get all have docker.io.
_PACKAGES = {
    "amzn": "docker",
    "fedora": "moby-engine",
    "openEuler": "docker",
    "opensuse-leap": "docker",
    "opensuse-tumbleweed": "docker",
    "sles": "docker",
}


def install(system: System, cluster: Cluster) -> Op | Problem:
    """Plan to install an engine on a host without one; or say why it cannot be."""
    engine, manager = cluster.inventory.engine, system.package_manager
    full = _full(system)
    if full is not None:
        return full
    if engine.source == "none":
        return Problem(
            "docker",
            "docker is not installed, and the inventory says that set-up does not install it (docker.source: none)",
            hint="install it on the host, or say where it comes from: docker: {source: distribution}",
        )
    if not isinstance(manager, str) or manager not in _MANAGERS:
        told = manager if isinstance(manager, str) else manager.reason
        return Problem(
            "docker",
            f"docker is not installed, and this host's package manager is none that set-up uses: {told or 'none found'}",
            hint=f"install docker by hand: set-up uses {', '.join(_MANAGERS)}",
        )
    if engine.source == "distribution":
        return _distribution(manager, system.os)
    if engine.source == "docker":
        return _docker(manager, engine)
    return _script(engine) if engine.source == "script" else _packages(manager, cluster)


def _full(system: System) -> Problem | None:
    disks = system.disks if isinstance(system.disks, tuple) else ()
    disk = next((disk for disk in disks if disk.path == "/"), None)
    if disk is None or disk.free >= _SPACE:
        return None
    return Problem(
        "docker",
        f"/ has {disk.free >> 20} MiB free, and installing docker takes {_SPACE >> 20} MiB",
        hint="make room: du -xh -d 2 / | sort -h | tail",
    )


def _distribution(manager: str, os: Found[Os]) -> Op | Problem:
    if manager == "apt-get":
        return _op("install docker.io (distribution)", "apt")
    name = _PACKAGES.get(os.id) if isinstance(os, Os) else None
    if name is None:
        told = os.name if isinstance(os, Os) else "this system"
        return Problem(
            "docker",
            f"docker is not installed, and no package of {told} is known that holds it",
            hint="say where it comes from in the inventory: docker: {source: docker} (Docker's own repository), "
            "script or packages",
        )
    return _op(f"install {name} (distribution)", "rpm", manager, name)


def _docker(manager: str, engine: Engine) -> Op | Problem:
    url = (engine.url or DOCKER_URL).rstrip("/")
    if manager == "apt-get":
        return _fetched(engine, f"install docker-ce ({url})", "apt-docker", url)
    if manager in ("dnf", "yum"):
        return _fetched(engine, f"install docker-ce ({url})", "rpm-docker", url, manager)
    return Problem(
        "docker",
        f"docker is not installed, and Docker has no repository for {manager}",
        hint="say in the inventory where it comes from instead: docker: {source: distribution}",
    )


def _script(engine: Engine) -> Op | Problem:
    if engine.url is None or engine.sha256 is None:
        return Problem(
            "docker",
            "docker is not installed, and docker.source: script takes docker.url and docker.sha256 in the inventory",
            hint="look at the script, then: curl -fsSL URL | sha256sum",
        )
    return _fetched(engine, f"install docker (script {engine.url})", "script", engine.url, engine.sha256)


def _packages(manager: str, cluster: Cluster) -> Op | Problem:
    ending = ".deb" if manager == "apt-get" else ".rpm"
    files = tuple(File(f"{_GIVEN}/{name}", data, 0o600) for name, data in cluster.packages if name.endswith(ending))
    if not files:
        folder = cluster.inventory.engine.packages or "docker.packages, which the inventory does not name,"
        return Problem(
            "docker",
            f"docker is not installed, and {folder} holds no {ending} file for {manager}",
            hint="put docker's packages for this system there, with all that they depend on",
        )
    way = ("apt-packages", _GIVEN) if ending == ".deb" else ("rpm-packages", _GIVEN, manager)
    return replace(_op(f"install docker ({len(files)} packages of the controller)", *way), files=files)


def _fetched(engine: Engine, name: str, way: str, *args: str) -> Op:
    """Give the operation for what is fetched from outside, by the proxy that the engine has too."""
    lines = "".join(f"{name}_proxy={value}\n" for name, value in engine.proxy)
    return replace(_op(name, way, _PROXY, *args), files=(File(_PROXY, lines.encode(), 0o600, secret=True),))


def _op(name: str, *args: str) -> Op:
    return Op(
        "docker",
        name,
        why="docker is not installed",
        script=text("docker_install.sh"),
        args=args,
        seconds=_SECONDS,
        expect=_installed,
    )


def _installed(facts: HostFacts) -> HostFacts:
    """Give the facts with an engine of which nothing is known yet but that it runs nothing."""
    later = Unknown("docker is installed first")
    docker = Docker(
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
    )
    return replace(facts, docker=docker)
