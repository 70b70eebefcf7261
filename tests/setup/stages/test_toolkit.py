"""The toolkit stage's plans: from facts and an inventory to operations, or to why there is none."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import ContainerState, DockerFacts, HostFacts, Os
from taco_launch.core.model.host.hosts import DockerEngine, Host, Inventory, Toolkit
from taco_launch.setup import keys
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.stages import toolkit
from tests.support.docker_stage import file, made
from tests.support.host_facts import host, known

URL = "https://nvidia.github.io/libnvidia-container"
LIST = "/etc/apt/sources.list.d/taco-launch-nvidia-container-toolkit.list"
KEY = "/etc/apt/keyrings/taco-launch-nvidia-container-toolkit.asc"
PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook")
NONE = Absent("nvidia-ctk: not found")
CONFIG = '{"runtimes": {"nvidia": {"path": "/opt/nvidia-container-runtime"}}, "log-level": "warn"}'
CDI = '{"features": {"cdi": true}}'
WHOLE: dict[str, Any] = {"toolkit": "1.17.4", "toolkit_programs": PROGRAMS}
# What Docker 25 to 28.1 tells where nobody has switched CDI on.
OFF: dict[str, Any] = {"cdi_folders": ()}
DEB = (("a.deb", b"one"), ("b.rpm", b"two"), ("c.deb", b"three"))


def facts(manager: str = "apt-get", gpu: Any = None, of: dict[str, Any] | None = None, **docker: Any) -> HostFacts:
    """Return a host with 8 GPUs and an engine that runs, without a toolkit but for what is said of docker."""
    found = host("gpu1", made=made(**(of or {})))
    system = replace(known(found.system), os=Os("debian", "12", "Debian"), package_manager=manager)
    asked: dict[str, Any] = {"toolkit": NONE, "toolkit_programs": (), "runtimes": ("runc",), "cdi": ()}
    engine = replace(known(found.docker), **{**asked, "cdi_folders": Absent("before 25.0"), **docker})
    return replace(found, system=system, docker=engine, gpu=found.gpu if gpu is None else gpu)


def planned(
    found: HostFacts,
    of: Toolkit = Toolkit(),  # noqa: B008 - frozen
    engine: DockerEngine = DockerEngine(),  # noqa: B008 - frozen
    **more: Any,
) -> list[Op | Problem]:
    one = Host("gpu1", "10.0.0.1")
    return list(
        toolkit.plan(one, found, PlanContext(Inventory("c", "gpu1", (one,), docker=engine, toolkit=of), {}, **more))
    )


def ops(found: HostFacts, of: Toolkit = Toolkit(), **more: Any) -> list[Op]:  # noqa: B008 - frozen
    """Plan, and have the facts right once all of it is done."""
    todo = planned(found, of, **more)
    assert all(isinstance(each, Op) for each in todo), todo
    done = [each for each in todo if isinstance(each, Op)]
    for op in done:
        assert op.stage == "toolkit"
        assert op.why
        found = op.expect(found)
    assert planned(found, of, **more) == []
    return done


def problem(found: HostFacts, of: Toolkit = Toolkit(), **more: Any) -> Problem:  # noqa: B008 - frozen
    (only,) = planned(found, of, **more)
    assert isinstance(only, Problem)
    assert only.stage == "toolkit"
    assert only.hint
    return only


def test_hosts_without_gpus_have_nothing_to_do() -> None:
    there = known(host("a").gpu)
    for gpu in (Absent("no driver"), Unknown("nvidia-smi hangs"), replace(there, gpus=())):
        assert planned(facts(gpu=gpu)) == []
    one = Host("gpu1", "10.0.0.1", gpus="none")
    assert list(toolkit.plan(one, facts(), PlanContext(Inventory("c", "gpu1", (one,)), {}))) == []


@pytest.mark.parametrize(
    "docker",
    [
        {"toolkit": "1.17.4", "toolkit_programs": PROGRAMS, "runtimes": ("nvidia", "runc")},
        # nvidia-docker2, before nvidia-ctk was made
        {
            "toolkit": "1.3.3",
            "toolkit_programs": ("nvidia-container-runtime", "nvidia-container-toolkit"),
            "runtimes": ("nvidia", "runc"),
        },
        {"toolkit": Unknown("it hangs"), "runtimes": ("nvidia", "runc")},
        {
            "toolkit": "1.18.0",
            "toolkit_programs": PROGRAMS,
            "version": "28.2.0",
            "cdi_folders": ("/etc/cdi",),
            "cdi": ("nvidia.com/gpu=all",),
        },
    ],
)
def test_what_works_is_left_as_it_is(docker: dict[str, Any]) -> None:
    assert planned(facts(of={"daemon_json": CONFIG}, **docker)) == []
    assert planned(facts(**docker), Toolkit("none")) == []


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("/usr/bin/dockerd -H fd://", False),
        ("/usr/bin/dockerd --add-runtime nvidia=/usr/bin/nvidia-container-runtime", True),
        ("/usr/bin/dockerd --add-runtime=nvidia=/usr/bin/nvidia-container-runtime", True),
        ("/usr/bin/dockerd --config-file /etc/docker.json", True),
    ],
)
def test_a_runtime_that_the_engine_has_only_until_it_starts_anew(command: str, *, right: bool) -> None:
    """As after its key was taken out of daemon.json, which an engine that runs does not mind."""
    docker: dict[str, Any] = {"toolkit": "1.17.4", "toolkit_programs": PROGRAMS, "runtimes": ("nvidia", "runc")}
    found = ops(facts(of={"engine_command": command}, **docker))
    assert [op.name for op in found] == ([] if right else ["daemon.json: add runtimes (reload)"])
    assert all("which is configured only until docker restarts" in op.why for op in found)


def test_the_toolkit_of_nvidias_repository_and_its_runtime() -> None:
    install, register = ops(facts())
    assert install.name == f"install nvidia-container-toolkit ({URL})"
    assert (
        install.why
        == f"8 GPUs, and the NVIDIA container toolkit is not installed; the package source is written to {LIST}"
    )
    folder = "/var/lib/taco-launch/docker"
    assert install.args == ("apt", f"{folder}/proxy", URL, f"{folder}/source", LIST, KEY)
    assert file(install, KEY) == keys.data("nvidia").decode()
    assert file(install, LIST).splitlines()[1] == f"deb [signed-by={KEY}] {URL}/stable/deb/$(ARCH) /"
    assert install.disrupts == register.disrupts == "nothing"
    assert register.name == "daemon.json: add runtimes (reload)"
    assert register.why == "docker gives GPUs to containers by the runtime nvidia, which is not configured"
    runtime = {"args": [], "path": "nvidia-container-runtime"}
    assert json.loads(file(register, "/etc/docker/daemon.json")) == {"runtimes": {"nvidia": runtime}}
    assert json.loads(file(register, "/var/lib/taco-launch/docker/added")) == {
        "runtimes": {"is": {"nvidia": runtime}}
    }  # so that teardown takes it out


@pytest.mark.parametrize(
    ("manager", "folder"), [("dnf", "/etc/yum.repos.d"), ("yum", "/etc/yum.repos.d"), ("zypper", "/etc/zypp/repos.d")]
)
def test_rpm_systems_and_a_mirror(manager: str, folder: str) -> None:
    mirror = Toolkit(url="http://mirror/nvidia/")
    engine = DockerEngine(proxy=(("http", "http://me:secret@proxy:3128"),))
    install = ops(facts(manager), mirror, engine=engine)[0]
    listed = f"{folder}/taco-launch-nvidia-container-toolkit.repo"
    key = "/etc/pki/rpm-gpg/taco-launch-nvidia-container-toolkit.asc"
    assert install.args[0] == "rpm"
    assert install.args[2:] == (
        "http://mirror/nvidia",
        install.args[3],
        listed,
        key,
        manager,
    )
    text = file(install, listed)
    assert "baseurl=http://mirror/nvidia/stable/rpm/$basearch\n" in text
    assert f"repo_gpgcheck=1\ngpgcheck=0\ngpgkey=file://{key}\n" in text
    assert file(install, "/var/lib/taco-launch/docker/proxy") == "http_proxy=http://me:secret@proxy:3128\n"
    assert "me:secret" not in repr(install)


def test_a_key_of_the_controller_travels_with_it() -> None:
    install = ops(facts(), Toolkit(key="~/gpgkey"), toolkit_key=b"BEGIN PGP")[0]
    assert file(install, KEY) == "BEGIN PGP"


def test_packages_of_the_controller() -> None:
    offline = Toolkit("packages", packages="~/debs")
    install = ops(facts(), offline, toolkit_packages=DEB)[0]
    assert install.name == "install nvidia-container-toolkit (2 package files from the controller)"
    folder = "/var/lib/taco-launch/docker/packages"
    assert install.args == ("apt-packages", folder)
    sums = file(install, f"{folder}/SHA256SUMS")
    assert sums == "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in DEB if name != "b.rpm")
    assert ops(facts("yum"), offline, toolkit_packages=DEB)[0].args == ("rpm-packages", folder, "yum")
    assert "~/debs holds no .rpm file for dnf" in problem(facts("dnf"), offline, toolkit_packages=DEB[:1]).message


def test_one_that_is_there_by_half_is_completed_and_not_upgraded() -> None:
    half = facts(toolkit="1.16.2", toolkit_programs=PROGRAMS[:2])
    install, _register = ops(half)
    assert "the NVIDIA container toolkit 1.16.2 lacks nvidia-container-runtime-hook" in install.why
    done = known(install.expect(half).docker)
    assert done.toolkit == "1.16.2"
    by_cdi = replace(done, toolkit_programs=PROGRAMS[:2], cdi_folders=("/etc/cdi",))
    assert [op.name for op in ops(replace(half, docker=by_cdi, made=made(daemon_json=CDI)))] == [
        "describe the GPUs for CDI in /var/run/cdi/nvidia.yaml"
    ]


@pytest.mark.parametrize("there", ["nvidia-container-toolkit 1.17.4-1", "nvidia-docker2 2.13.0-1"])
def test_before_docker_is_there_its_package_tells(there: str) -> None:
    later = Unknown("docker is installed first")
    nothing = Absent("docker is installed first")
    found = facts(toolkit=later, toolkit_programs=later, version=nothing, runtimes=later)
    install, register = ops(found)
    assert [op.name.partition(" (")[0] for op in (install, register)] == [
        "install nvidia-container-toolkit",
        "daemon.json: add runtimes",
    ]
    assert register.why.endswith("which is not configured, or by CDI if docker turns out to be version 25 or newer")
    assert ops(found, Toolkit(cdi="off"))[1].why.endswith("which is not configured")
    found = facts(
        of={"toolkit_packages": (there,)}, toolkit=later, toolkit_programs=later, version=nothing, runtimes=later
    )
    assert [op.name for op in ops(found)] == ["daemon.json: add runtimes (reload)"]


def test_cdi_where_engine_and_toolkit_can() -> None:
    able: dict[str, Any] = {"toolkit_programs": PROGRAMS, "cdi_folders": ("/etc/cdi", "/var/run/cdi")}
    (described,) = ops(facts(toolkit="1.12.1", version="28.2.1", **able))
    assert described.args == ("/var/run/cdi/nvidia.yaml",)
    assert "no specification names nvidia.com/gpu=all" in described.why
    for found, of in (
        (facts(toolkit="1.11.0", **able), Toolkit()),
        (facts(toolkit="1.17.4", **able), Toolkit(cdi="off")),
        (facts(**WHOLE, **OFF), Toolkit(cdi="off")),
    ):
        assert [op.name for op in ops(found, of)] == ["daemon.json: add runtimes (reload)"]


def test_cdi_is_switched_on_where_the_engine_has_it_off() -> None:
    """Docker 25 to 28.1 have it off unless told: https://github.com/moby/moby/pull/49963."""
    on, described = ops(facts(**OFF, **WHOLE))
    assert on.name == "daemon.json: add features (restart)"
    assert on.why == "containers get GPUs by CDI, which Docker 26.1.4 supports but has not enabled"
    assert json.loads(file(on, "/etc/docker/daemon.json")) == {"features": {"cdi": True}}
    assert json.loads(file(on, "/var/lib/taco-launch/docker/added")) == {"features": {"is": {"cdi": True}}}
    assert described.args == ("/var/run/cdi/nvidia.yaml",)
    install, on, _described = ops(facts(**OFF))  # with the toolkit that comes first
    assert [op.name.partition(" (")[0] for op in (install, on)] == [
        "install nvidia-container-toolkit",
        "daemon.json: add features",
    ]
    kept = ops(facts(of={"daemon_json": '{"features": {"buildkit": false}}'}, **OFF, **WHOLE))[0]
    assert json.loads(file(kept, "/etc/docker/daemon.json")) == {"features": {"buildkit": False, "cdi": True}}


@pytest.mark.parametrize(
    ("of", "docker"),
    [
        ({}, {"containers": (ContainerState("busy", "image", "running", ()),)}),  # a restart would stop it
        ({}, {"containers": Unknown("it hangs")}),
        ({"daemon_json": '{"features": {"cdi": false}}'}, {}),
        ({"daemon_json": '{"features": {"cdi": true}}'}, {}),  # it does not help
        ({"engine_command": "/usr/bin/dockerd --feature cdi=false"}, {}),
        ({"engine_command": "/usr/bin/dockerd --config-file /etc/docker.json"}, {}),
    ],
)
def test_where_cdi_stays_off(of: dict[str, Any], docker: dict[str, Any]) -> None:
    found = facts(of=of, **{**OFF, **WHOLE, **docker})
    (only,) = ops(found)
    assert "by the runtime nvidia, which is not configured" in only.why
    # and what GPUs are given by stays, when nothing runs there any more
    idle = replace(found, docker=replace(known(found.docker), containers=()))
    assert planned(only.expect(idle)) == []


def test_containers_may_be_stopped_for_cdi() -> None:
    busy = facts(**OFF, **WHOLE, containers=(ContainerState("busy", "image", "running", ()),))
    on, _described = ops(busy, disrupt="docker")
    assert (on.name, on.disrupts) == ("daemon.json: add features (restart)", "docker")


def test_cdi_that_the_engine_has_only_until_it_starts_anew() -> None:
    """As after its key was taken out of daemon.json: nothing has to stop for that."""
    on: dict[str, Any] = {**WHOLE, "cdi_folders": ("/etc/cdi",), "cdi": ("nvidia.com/gpu=all",)}
    (only,) = ops(facts(**on, containers=(ContainerState("busy", "image", "running", ()),)))
    assert (only.name, only.disrupts) == ("daemon.json: add features (reload)", "nothing")
    assert "has enabled only until it restarts" in only.why
    assert planned(facts(of={"daemon_json": CDI}, **on)) == []
    assert planned(facts(of={"engine_command": "/usr/bin/dockerd --feature=cdi=true"}, **on)) == []
    assert planned(facts(**on), Toolkit("none")) == []


def test_a_runtime_of_the_user_is_taken_not_changed() -> None:
    there = facts(of={"daemon_json": CONFIG}, toolkit="1.17.4", toolkit_programs=PROGRAMS)
    (only,) = ops(there)
    assert (only.name, only.files) == ("daemon.json: make the engine use it (reload)", ())
    stopped = {"version": Absent("no engine"), "runtimes": Unknown("the engine does not answer")}
    whole: dict[str, Any] = {"toolkit": "1.17.4", "toolkit_programs": PROGRAMS, **stopped}
    assert planned(facts(of={"daemon_json": CONFIG}, **whole)) == []


def test_running_containers_are_no_hindrance() -> None:
    busy = facts(containers=(ContainerState("busy", "image", "running", ()),))
    assert [op.disrupts for op in ops(busy)] == ["nothing", "nothing"]


NO_DOCKER = "docker is not available to give GPUs to containers"
UNKNOWN = "it is not known whether docker has the NVIDIA container toolkit: it hangs"


@pytest.mark.parametrize(
    ("found", "of", "message"),
    [
        (facts(), Toolkit("none"), "set-up does not install it because of toolkit.source: none in the inventory"),
        (facts("pacman"), Toolkit(), "set-up does not support this host's package manager: pacman"),
        (facts(toolkit=Unknown("it hangs")), Toolkit(), UNKNOWN),
        (replace(facts(), docker=Absent("docker: not found")), Toolkit(), f"{NO_DOCKER}: docker: not found"),
        (replace(facts(), docker=Unknown("cut off")), Toolkit(), f"{NO_DOCKER}: cut off"),
    ],
)
def test_why_it_cannot_be(found: HostFacts, of: Toolkit, message: str) -> None:
    assert message in problem(found, of).message


def test_a_broken_daemon_json_is_told_and_left() -> None:
    found: Found[DockerFacts] = facts().docker
    assert isinstance(found, DockerFacts)
    broken = facts(of={"daemon_json": '{"a": 1, "a": 2}'}, toolkit="1.17.4", toolkit_programs=PROGRAMS)
    assert 'the key "a" appears twice' in problem(broken).message
