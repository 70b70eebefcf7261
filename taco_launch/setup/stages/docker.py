"""The docker stage: an engine that is there, runs, starts at boot, and has the settings of the inventory."""

from collections.abc import Iterator
from dataclasses import replace

from taco_launch.core.facts import MADE
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, SetupState, System
from taco_launch.core.model.host.hosts import Host
from taco_launch.setup.files.gpu_devices import version_numbers
from taco_launch.setup.model.ops import Op, PlanContext, Problem, StageRules
from taco_launch.setup.scripts import text
from taco_launch.setup.stage_parts.docker_install import install
from taco_launch.setup.stage_parts.docker_removal import take_back
from taco_launch.setup.stage_parts.docker_settings import settings

# The first release with `docker run --gpus`.
_OLDEST = (19, 3)


def plan(_host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan what a host's Docker Engine takes; nothing where it is right already.

    An engine that is there is never upgraded, and one that does not fit is never removed: that is a Problem.
    """
    system, made, docker = facts.system, facts.made, facts.docker
    if not isinstance(system, System):
        yield _unread("the host's system", system)
    elif not isinstance(made, SetupState):
        yield _unread("what set-up made", made)
    elif system.init != "systemd":
        yield Problem(
            "docker",
            "process 1 of this host is not systemd, which starts the engine and the training container at boot",
            hint="set-up requires systemd; to run jobs on the host without a container, set container: null in the inventory",
        )
        besides = install(system, cluster) if isinstance(docker, Absent) else None
        besides = _unfit(docker) if isinstance(docker, DockerFacts) else besides
        if isinstance(besides, Problem):
            yield besides
    elif isinstance(docker, Unknown):
        yield _unread("docker", docker)
    elif isinstance(docker, Absent) or (isinstance(docker.version, Absent) and isinstance(made.engine_unit, Absent)):
        wanted = install(system, cluster)
        yield wanted
        if isinstance(wanted, Op):
            yield from _there(wanted.expect(facts), cluster)
    else:
        refused = _unfit(docker) or _unheld(docker, made)
        yield from [refused] if refused is not None else _there(facts, cluster)


def _unread(what: str, why: Absent | Unknown) -> Problem:
    return Problem(
        "docker",
        f"{what}: {why.reason or 'cannot be read'}",
        hint="look at the host: taco-launch -i FILE facts --only system --only docker",
    )


def _unfit(docker: DockerFacts) -> Problem | None:
    """Return why training containers cannot have what they take from an engine of this kind."""
    if docker.flavour == "podman":
        return Problem(
            "docker",
            "the docker command of this host is podman (package podman-docker), but training containers require Docker Engine",
            hint="remove podman-docker from the host (podman itself may stay), then run setup again",
        )
    if docker.flavour == "rootless":
        return Problem(
            "docker",
            "the Docker Engine is rootless: its containers cannot have the host's network, devices and memory locks",
            hint="disable it (dockerd-rootless-setuptool.sh uninstall) and have the engine run as root: "
            "systemctl enable --now docker",
        )
    if docker.userns is True:
        return Problem(
            "docker",
            "the Docker Engine remaps users (userns-remap): no container can have the host's network and processes",
            hint="take userns-remap out of /etc/docker/daemon.json and restart docker; its images have to be pulled again",
        )
    if isinstance(docker.version, str) and version_numbers(docker.version) < _OLDEST:
        return Problem(
            "docker",
            f"Docker Engine {docker.version} is too old: docker run --gpus requires 19.03, and set-up does not upgrade it",
            hint="remove its package from the host, then run setup again, which installs a new one",
        )
    return None


def _unheld(docker: DockerFacts, made: SetupState) -> Problem | None:
    """Return why an engine cannot be asked, or kept running."""
    if made.engine_unit == "masked":
        return Problem(
            "docker", "docker.service is masked: an admin has disabled it", hint="systemctl unmask docker, on the host"
        )
    if isinstance(docker.version, Unknown):
        return Problem(
            "docker",
            f"the Docker Engine cannot be queried: {docker.version.reason}",
            hint="on the host: sudo docker info",
        )
    if isinstance(docker.version, str) and isinstance(made.engine_unit, Absent):
        return Problem(
            "docker",
            f"Docker Engine {docker.version} runs here, but not as docker.service: it is a snap, or was started by hand",
            hint="remove it (snap remove docker) and run setup again, which installs one that starts at boot",
        )
    return None


def _there(facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan settings, and that the engine runs, now and after a boot."""
    docker, made = facts.docker, facts.made
    assert isinstance(docker, DockerFacts)
    assert isinstance(made, SetupState)
    wanted = tuple(settings(docker, made, cluster))
    yield from wanted
    if any(isinstance(each, Problem) for each in wanted):
        return
    runs = isinstance(docker.version, str)
    told = isinstance(docker.containers, tuple) and isinstance(docker.images, tuple)
    starts = not isinstance(made.engine_unit, str) or made.engine_unit in ("enabled", "static", "indirect", "generated")
    if runs and starts:
        return
    stopped = "Docker has stopped" if starts and isinstance(made.engine_unit, str) else "Docker is not running yet"
    yield Op(
        "docker",
        "start docker, now and at boot" if not runs else "start docker at boot",
        why=stopped if not runs else f"docker.service is {made.engine_unit}",
        script=text("dpkg.sh") + text("dockerd.sh") + text("docker_start.sh"),
        seconds=300,
        expect=_started,
        reveals=not (runs or told),
    )


def _started(facts: HostFacts) -> HostFacts:
    docker, made = facts.docker, facts.made
    if not isinstance(docker, DockerFacts) or not isinstance(made, SetupState):
        return facts
    # Stages that ask what it holds wait for that (`reveals`); to the others one that is started runs nothing yet.
    return replace(
        facts,
        docker=replace(docker, containers=docker.containers if isinstance(docker.containers, tuple) else ()),
        made=replace(made, engine_unit="enabled", engine_active="active"),
    )


STAGE = StageRules(
    ("system", "docker", MADE), plan, changes=("system", "docker", MADE), take_back=take_back, gives_gpus=True
)
