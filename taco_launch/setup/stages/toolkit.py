"""The toolkit stage: the NVIDIA container toolkit, by which containers get the GPUs of their host."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from taco_launch.core.facts import MADE
from taco_launch.core.model.host.fact_value import Absent, Unknown, known_value
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, SetupState, System
from taco_launch.core.model.host.hosts import Host, Toolkit
from taco_launch.setup import keys
from taco_launch.setup.files import daemon_json, gpu_devices
from taco_launch.setup.model import packages
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem, StageRules, prove_gpus
from taco_launch.setup.scripts import text
from taco_launch.setup.stage_parts import docker_settings
from taco_launch.setup.stage_parts.docker_settings import RUNNING

_URL = "https://nvidia.github.io/libnvidia-container"
# Our files of that repository: source of packages, and key. Those of the user stay as they are.
_KEY = "taco-launch-nvidia-container-toolkit.asc"
_APT = ("/etc/apt/sources.list.d/taco-launch-nvidia-container-toolkit.list", f"/etc/apt/keyrings/{_KEY}")
_RPM = ("/etc/yum.repos.d/taco-launch-nvidia-container-toolkit.repo", f"/etc/pki/rpm-gpg/{_KEY}")
_ZYPPER = ("/etc/zypp/repos.d/taco-launch-nvidia-container-toolkit.repo", f"/etc/pki/rpm-gpg/{_KEY}")
# As NVIDIA has them made: its lists of packages are signed, the packages themselves are not. sources.list(5), dnf.conf(5)
_APT_SOURCE = """\
# by taco-launch setup, from toolkit.source in the inventory
deb [signed-by={key}] {url}/stable/deb/$(ARCH) /
"""
_RPM_SOURCE = """\
# by taco-launch setup, from toolkit.source in the inventory
[taco-launch-nvidia-container-toolkit]
name=NVIDIA Container Toolkit
baseurl={url}/stable/rpm/$basearch
enabled=1
repo_gpgcheck=1
gpgcheck=0
gpgkey=file://{key}
"""
_SECONDS = 1800.0
# What is known of the version of one that set-up installs: it is not older.
_NEW = "1.17"
_RUNTIME = "nvidia-container-runtime"
# The second is what the hook was called before 1.4.
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_PROGRAMS = ("nvidia-ctk", _RUNTIME, *_HOOKS[:1])
# What `nvidia-ctk runtime configure --runtime=docker` would write.
_REGISTERED = {"args": [], "path": _RUNTIME}
# Where else dockerd may have a runtime from: its own command line, or another file than daemon.json.
_ELSEWHERE = re.compile(rf"--add-runtime[= ]{gpu_devices.RUNTIME}=|--config-file")
# Where else it may be told whether it has CDI: dockerd's reference, --feature
_FEATURES_ELSEWHERE = re.compile("--feature|--config-file")
_GENERATE = 'nvidia-ctk cdi generate --output="$1"\n'


def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan the toolkit of a host with GPUs, and that its engine gives them to containers.

    A toolkit that is there and whole is never upgraded, wherever it comes from.
    """
    number = len(gpu_devices.gpus(host, facts))
    if not number:
        return
    docker, made = facts.docker, facts.made
    if not isinstance(docker, DockerFacts) or not isinstance(made, SetupState):
        why = docker if not isinstance(docker, DockerFacts) else made
        reason = why.reason if isinstance(why, (Absent, Unknown)) else ""
        yield Problem(
            "toolkit",
            f"docker is not available to give GPUs to containers: {reason}",
            "set up the stage docker before this one",
        )
        return
    toolkit = cluster.inventory.toolkit
    lacking = _lacking(docker, made, toolkit)
    if isinstance(lacking, Problem):
        yield lacking
        return
    if lacking:
        wanted = _install(facts.system, f"{number} GPU{'s' if number > 1 else ''}, and {lacking}", cluster)
        yield wanted
        if isinstance(wanted, Problem):
            return
        facts = wanted.expect(facts)
    yield from _given(facts, cluster)


def whole(facts: HostFacts, toolkit: Toolkit) -> bool:
    """Return whether a host has a toolkit to which nothing has to be added."""
    docker, made = facts.docker, facts.made
    return isinstance(docker, DockerFacts) and isinstance(made, SetupState) and _lacking(docker, made, toolkit) == ""


def _lacking(docker: DockerFacts, made: SetupState, toolkit: Toolkit) -> str | Problem:
    """Return what of the toolkit does not exist, empty where it is whole; a Problem where nobody can say."""
    if isinstance(docker.toolkit, Unknown):
        if not isinstance(docker.version, str):  # docker is to come first, and its facts with it
            names = [each.partition(" ")[0] for each in known_value(made.toolkit_packages) or ()]
            whole = "nvidia-container-toolkit" in names or "nvidia-docker2" in names
            return "" if whole else "the NVIDIA container toolkit is not installed"
        if isinstance(docker.runtimes, tuple) and gpu_devices.RUNTIME in docker.runtimes:
            return ""
        return Problem(
            "toolkit",
            f"it is not known whether docker has the NVIDIA container toolkit: {docker.toolkit.reason}",
            hint="on the host: nvidia-ctk --version",
        )
    if isinstance(docker.toolkit, Absent):
        return "the NVIDIA container toolkit is not installed"
    if not isinstance(docker.toolkit_programs, tuple) or gpu_devices.by_cdi(docker, toolkit):
        return ""
    programs = docker.toolkit_programs
    missing = [] if _RUNTIME in programs else [_RUNTIME]
    missing += [] if any(hook in programs for hook in _HOOKS) else [_HOOKS[0]]
    return f"the NVIDIA container toolkit {docker.toolkit} lacks {' and '.join(missing)}" if missing else ""


# --- where it comes from ----------------------------------------------------------------------------------------------


def _install(system: System | Absent | Unknown, why: str, cluster: PlanContext) -> Op | Problem:
    """Plan to install the toolkit; or say why it cannot be."""
    toolkit = cluster.inventory.toolkit
    if toolkit.source == "none":
        return Problem(
            "toolkit",
            f"{why}; set-up does not install it because of toolkit.source: none in the inventory",
            hint="install it on the host, or let set-up install it: toolkit: {source: nvidia}; for a host whose GPUs no one "
            "uses: gpus: none",
        )
    manager = system.package_manager if isinstance(system, System) else system
    if not isinstance(manager, str) or manager not in packages.MANAGERS:
        told = manager if isinstance(manager, str) else manager.reason
        return Problem(
            "toolkit",
            f"{why}; set-up does not support this host's package manager: {told or 'none found'}",
            hint=f"install the NVIDIA container toolkit by hand: set-up supports only {', '.join(packages.MANAGERS)}",
        )
    return _offline(manager, why, cluster) if toolkit.source == "packages" else _repository(manager, why, cluster)


def _repository(manager: str, why: str, cluster: PlanContext) -> Op:
    toolkit = cluster.inventory.toolkit
    url = (toolkit.url or _URL).rstrip("/")
    way, source, files = "rpm", _RPM_SOURCE, _ZYPPER if manager == "zypper" else _RPM
    if manager == "apt-get":
        way, source, files = "apt", _APT_SOURCE, _APT
    rest = () if way == "apt" else (manager,)
    op = _op(url, why, way, packages.PROXY, url, packages.SOURCE, *files, *rest)
    key = FileTarget(files[1], cluster.toolkit_key or keys.data("nvidia"))
    op = replace(op, files=(packages.proxied(cluster.inventory.docker), key))
    return packages.from_source(op, source.format(key=files[1], url=url), files[0])


def _offline(manager: str, why: str, cluster: PlanContext) -> Op | Problem:
    files = packages.given(manager, cluster.toolkit_packages)
    if not files:
        return Problem(
            "toolkit",
            f"{why}; {cluster.inventory.toolkit.packages} holds no {packages.ending(manager)} file for {manager}",
            hint="put nvidia-container-toolkit, nvidia-container-toolkit-base, libnvidia-container-tools and "
            "libnvidia-container1 there",
        )
    return replace(_op(f"{len(files) - 1} package files from the controller", why, *packages.way(manager)), files=files)


def _op(source: str, why: str, *args: str) -> Op:
    return Op(
        "toolkit",
        f"install nvidia-container-toolkit ({source})",
        why=why,
        script="".join(map(text, ("dpkg.sh", "packages.sh", "toolkit_install.sh"))),
        args=args,
        seconds=_SECONDS,
        expect=_installed,
    )


def _with_docker(change: Callable[[DockerFacts], DockerFacts]) -> Callable[[HostFacts], HostFacts]:
    """Return what makes the facts those with docker as `change` gives it."""
    return lambda facts: replace(facts, docker=change(facts.docker)) if isinstance(facts.docker, DockerFacts) else facts


_installed = _with_docker(
    lambda docker: replace(docker, toolkit=known_value(docker.toolkit) or _NEW, toolkit_programs=_PROGRAMS)
)


# --- and how containers get GPUs by it --------------------------------------------------------------------------------


def _given(facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan what an engine takes so that containers can have GPUs of it."""
    docker, made, toolkit = facts.docker, facts.made, cluster.inventory.toolkit
    assert isinstance(docker, DockerFacts)
    assert isinstance(made, SetupState)
    if gpu_devices.by_cdi(docker, toolkit) or _may_have_cdi(docker, made, cluster):
        yield from _by_cdi(docker, made, cluster)
        return
    running = gpu_devices.RUNTIME in (known_value(docker.runtimes) or ())
    there = _there(made)
    # one that does not run takes it when it starts; one that runs may have it from a file that is gone since
    if toolkit.source == "none" or (there and (running or not isinstance(docker.version, str))):
        return
    if running and isinstance(made.engine_command, str) and _ELSEWHERE.search(made.engine_command):
        return
    # By our own hand, not by nvidia-ctk's: so it can be seen before it is done, is checked by the engine and taken back
    # if that refuses it, and `teardown` knows what was put in.
    lacks = "which is not configured" if not running else "which is configured only until docker restarts"
    why = f"docker gives GPUs to containers by the runtime {gpu_devices.RUNTIME}, {lacks}{gpu_devices.undecided(docker, toolkit)}"
    keys = {} if there else {"runtimes": {gpu_devices.RUNTIME: _REGISTERED}}
    for each in docker_settings.plan_daemon_keys("toolkit", keys, docker, made, cluster, why):
        yield each if isinstance(each, Problem) else replace(each, expect=_registered(each))


def _may_have_cdi(docker: DockerFacts, made: SetupState, cluster: PlanContext) -> bool:
    """Return whether CDI is to be switched on: the engine starts anew for that, so never under containers unasked.

    Where GPUs are given in another way already, or somebody has said that CDI is off, that stays.
    """
    if not gpu_devices.by_cdi_if_on(docker, cluster.inventory.toolkit) or cluster.inventory.toolkit.source == "none":
        return False
    idle = isinstance(docker.containers, tuple) and all(each.state not in RUNNING for each in docker.containers)
    other = _there(made) or not isinstance(docker.runtimes, tuple) or gpu_devices.RUNTIME in docker.runtimes
    return (idle or cluster.disrupt != "nothing") and not other and not _told_of_cdi(made)


def _by_cdi(docker: DockerFacts, made: SetupState, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan that the engine has CDI, now and whenever it starts, and that the GPUs are described for it."""
    if not gpu_devices.on_by_itself(docker) and cluster.inventory.toolkit.source != "none" and not _told_of_cdi(made):
        has = bool(docker.cdi_folders)
        lacks = "has enabled only until it restarts" if has else "supports but has not enabled"
        why = f"containers get GPUs by CDI, which Docker {docker.version} {lacks}"
        for each in docker_settings.plan_daemon_keys(
            "toolkit", {"features": {"cdi": True}}, docker, made, cluster, why, has=has
        ):
            yield each
            if isinstance(each, Problem):
                return
    if not isinstance(docker.cdi, tuple) or gpu_devices.ALL not in docker.cdi:
        yield Op(
            "toolkit",
            f"describe the GPUs for CDI in {gpu_devices.SPECIFICATION}",
            why=f"docker gives GPUs to containers by CDI, and no specification names {gpu_devices.ALL}",
            script=_GENERATE,
            args=(gpu_devices.SPECIFICATION,),
            expect=_described,
        )


def _told_of_cdi(made: SetupState) -> bool:
    """Return whether something tells the engine whether it has CDI: daemon.json, or its command line."""
    command = known_value(made.engine_command) or ""
    return "cdi" in _member(made, "features") or _FEATURES_ELSEWHERE.search(command) is not None


def _there(made: SetupState) -> bool:
    """Return whether daemon.json has the runtime already, whoever put it there."""
    return gpu_devices.RUNTIME in _member(made, "runtimes")


def _member(made: SetupState, key: str) -> dict[str, Any]:
    """Return an object of daemon.json, empty where there is none that can be read."""
    try:
        found = daemon_json.read(known_value(made.daemon_json) or "").get(key)
    except daemon_json.NotOursError:
        return {}
    return found if isinstance(found, dict) else {}


_described = _with_docker(
    lambda docker: replace(docker, cdi=tuple(sorted({*(known_value(docker.cdi) or ()), gpu_devices.ALL})))
)


def _registered(op: Op) -> Callable[[HostFacts], HostFacts]:
    register = _with_docker(
        lambda docker: replace(
            docker, runtimes=tuple(sorted({*(known_value(docker.runtimes) or ()), gpu_devices.RUNTIME}))
        )
    )
    return lambda facts: register(op.expect(facts))


STAGE = StageRules(
    ("system", "docker", "gpu", MADE),
    plan,
    after=("docker",),
    changes=("system", "docker", MADE),
    prove=(prove_gpus,),
    gives_gpus=True,
)
