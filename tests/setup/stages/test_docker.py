"""The docker stage's plans: from facts and an inventory to operations, or to why there is none."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import ContainerState, Disk, DockerFacts, HostFacts, Os, SetupFile
from taco_launch.core.model.host.hosts import DockerEngine, Host, Inventory
from taco_launch.setup import keys
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.plan.diff import diffs
from taco_launch.setup.stage_parts.docker_settings import PROXY_VALUES, proxy_files
from taco_launch.setup.stages.docker import plan
from tests.support.docker_stage import file, made
from tests.support.host_facts import host, known

CONFIG = "/etc/docker/daemon.json"
DROP_IN = "/etc/systemd/system/docker.service.d/taco-launch.conf"
DEBIAN = Os("debian", "12", "Debian GNU/Linux 12 (bookworm)")
BUSY = ContainerState("busy", "image", "running", ())


def facts(docker: Found[DockerFacts] | None = None, of: dict[str, Any] | None = None, **fields: Any) -> HostFacts:
    """Return a Debian host with an engine that is as it should be, but for what is said."""
    found = host("gpu1", made=made(**fields))
    system = known(found.system)
    system = replace(system, **{"os": DEBIAN, "package_manager": "apt-get", **(of or {})})
    return replace(found, system=system, docker=found.docker if docker is None else docker)


def engine(**fields: Any) -> DockerFacts:
    found = known(host("gpu1").docker)
    return replace(found, **fields)


def bare(of: dict[str, Any] | None = None, **fields: Any) -> HostFacts:
    none = Absent("no unit")
    return facts(Absent("docker: not found"), of, engine_unit=none, engine_active=none, engine_command=none, **fields)


def cluster(of: DockerEngine, **fields: Any) -> PlanContext:
    hosts = (Host("gpu1", "10.0.0.1"),)
    return PlanContext(Inventory("c", "gpu1", hosts, docker=of), {}, **fields)


def planned(found: HostFacts, of: DockerEngine = DockerEngine(), **fields: Any) -> list[Op | Problem]:  # noqa: B008 - frozen
    whole = cluster(of, **fields)
    return list(plan(whole.inventory.hosts[0], found, whole))


def ops(found: HostFacts, of: DockerEngine = DockerEngine(), **fields: Any) -> list[Op]:  # noqa: B008 - frozen
    todo = planned(found, of, **fields)
    assert all(isinstance(each, Op) for each in todo), todo
    return [each for each in todo if isinstance(each, Op)]


def problem(found: HostFacts, of: DockerEngine = DockerEngine(), **fields: Any) -> str:  # noqa: B008 - frozen
    """Return the only thing planned: why nothing can be."""
    (only,) = planned(found, of, **fields)
    assert isinstance(only, Problem)
    assert only.hint
    return only.message


def test_an_engine_that_runs_is_right() -> None:
    assert planned(facts()) == []
    assert planned(facts(), DockerEngine(source="none")) == []
    assert planned(facts(engine(version="19.03.15"), engine_unit="static")) == []
    assert planned(facts(engine_unit=Unknown("systemctl: no answer"))) == []


def test_a_bare_host_gets_all_of_it_in_one_plan() -> None:
    of = DockerEngine(mirrors=("https://m",), data_root="/data", proxy=(("http", "http://p:1"),))
    install, settings, start = ops(bare(), of)
    assert (install.name, install.args) == ("install docker.io (distribution)", ("apt",))
    assert settings.name == "proxy: set it in docker.service; daemon.json: add registry-mirrors, data-root (restart)"
    assert (settings.disrupts, settings.args[0], settings.args[4]) == ("nothing", "restart", "absent")
    assert (
        settings.why == f"docker.service does not use the inventory's proxy; {CONFIG} lacks registry-mirrors, data-root"
    )
    assert file(settings, CONFIG) == '{\n  "registry-mirrors": [\n    "https://m"\n  ],\n  "data-root": "/data"\n}\n'
    assert start.name == "start docker, now and at boot"
    left = bare()
    for op in (install, settings, start):
        left = op.expect(left)
    assert (known(left.docker).containers, known(left.docker).images) == ((), ())
    assert (known(left.made).engine_unit, known(left.made).daemon_json) == ("enabled", file(settings, CONFIG))


@pytest.mark.parametrize(
    ("manager", "system", "args"),
    [
        ("apt-get", Os("ubuntu", "22.04", "Ubuntu 22.04"), ("apt",)),
        ("dnf", Os("fedora", "40", "Fedora Linux 40"), ("rpm", "dnf", "moby-engine")),
        ("yum", Os("amzn", "2", "Amazon Linux 2"), ("rpm", "yum", "docker")),
        ("zypper", Os("opensuse-leap", "15.6", "openSUSE Leap 15.6"), ("rpm", "zypper", "docker")),
    ],
)
def test_the_distributions_package(manager: str, system: Os, args: tuple[str, ...]) -> None:
    install, start = ops(bare({"package_manager": manager, "os": system}))
    assert install.args == args
    assert start.name.startswith("start docker")


@pytest.mark.parametrize(
    ("manager", "args"),
    [
        ("apt-get", ("/etc/apt/sources.list.d/taco-launch-docker.list", "/etc/apt/keyrings/taco-launch-docker.asc")),
        ("yum", ("/etc/yum.repos.d/taco-launch-docker.repo", "yum")),
    ],
)
def test_dockers_own_repository(manager: str, args: tuple[str, ...]) -> None:
    kind, key = ("deb", args[1]) if manager == "apt-get" else ("rpm", "/etc/pki/rpm-gpg/taco-launch-docker.asc")
    of = DockerEngine(source="docker", url="https://mirror/docker/")
    op = ops(bare({"package_manager": manager}), of)[0]
    folder = "/var/lib/taco-launch/docker"
    assert op.args[1:] == (f"{folder}/proxy", "https://mirror/docker", f"{folder}/source", *args)
    assert {file.path: file.data for file in op.files}[key] == keys.data(f"docker-{kind}")
    mirror = ops(bare({"package_manager": manager}), of, docker_key=b"of the mirror")[0]
    assert {file.path: file.data for file in mirror.files}[key] == b"of the mirror"
    shown = "".join(diffs([op], {}))
    assert f"+++ {args[0]}" in shown
    assert key in shown
    assert "https://mirror/docker/linux/DISTRIBUTION" in shown
    assert ops(bare(), DockerEngine(source="docker"))[0].args[2] == "https://download.docker.com"


def test_a_script_is_fetched_by_the_proxy_whose_password_stands_in_no_argument() -> None:
    of = DockerEngine(
        source="script", url="https://x/get.sh", sha256="a" * 64, proxy=(("https", "http://u:pw@p:1"), ("no", "a"))
    )
    install, settings, _ = ops(bare(), of)
    assert install.args == ("script", "/var/lib/taco-launch/docker/proxy", "https://x/get.sh", "a" * 64)
    assert [(each.data, each.mode, each.secret) for each in install.files] == [
        (b"https_proxy=http://u:pw@p:1\nno_proxy=a\n", 0o600, True)
    ]
    assert [(each.shown, each.mode, each.secret) for each in settings.files] == [
        (DROP_IN, 0o644, False),
        (PROXY_VALUES, 0o600, True),
    ]
    assert "pw" not in "".join(diffs([settings], {}))
    assert not [op for op in (install, settings) for word in (op.name, op.why, *op.args) if "pw" in word]


def test_packages_of_the_controller() -> None:
    of = DockerEngine(source="packages", packages="/srv/docker")
    given = (("docker.deb", b"d"), ("containerd.deb", b"c"), ("docker.rpm", b"r"))
    install, _ = ops(bare(), of, packages=given)
    folder = "/var/lib/taco-launch/docker/packages"
    assert install.args == ("apt-packages", folder)
    assert [(each.path, each.data) for each in install.files] == [
        (f"{folder}/docker.deb", b"d"),
        (f"{folder}/containerd.deb", b"c"),
        (
            f"{folder}/SHA256SUMS",
            b"".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode() for name, data in given[:2]),
        ),
    ]
    install, _ = ops(bare({"package_manager": "zypper"}), of, packages=given)
    assert (install.args, len(install.files)) == (("rpm-packages", folder, "zypper"), 2)
    assert problem(bare(), of) == "docker is not installed, and /srv/docker holds no .deb file for apt-get"


@pytest.mark.parametrize(
    ("of", "system", "message"),
    [
        (DockerEngine(source="none"), {}, "docker is not installed, and set-up does not install it because of docker.source: none in the inventory"),
        (DockerEngine(), {"os": Os("centos", "7", "CentOS 7"), "package_manager": "yum"}, "docker is not installed, and the package that contains it on CentOS 7 is not known"),
        (DockerEngine(), {"package_manager": Absent()}, "docker is not installed, and set-up does not support this host's package manager: none found"),
        (DockerEngine(), {"package_manager": "apk"}, "docker is not installed, and set-up does not support this host's package manager: apk"),
        (DockerEngine(source="docker"), {"package_manager": "zypper"}, "docker is not installed, and Docker has no repository for zypper"),
        (DockerEngine(source="script", url="https://x"), {}, "docker is not installed, and docker.source: script requires docker.url and docker.sha256"),
        (DockerEngine(), {"disks": (Disk("/", "ext4", 10 << 30, 100 << 20),)}, "/ has 100 MiB free, and installing docker requires 512 MiB"),
        (DockerEngine(), {"init": Absent("openrc")}, "process 1 of this host is not systemd"),
    ],
)  # fmt: skip
def test_what_cannot_be_installed(of: DockerEngine, system: dict[str, Any], message: str) -> None:
    assert problem(bare(system), of).startswith(message)


def test_a_host_without_systemd_tells_what_else_is_wrong() -> None:
    found = facts(engine(flavour="podman"), {"init": Absent("openrc")})
    told = [each.message.split(" (")[0].split(", ")[0] for each in planned(found) if isinstance(each, Problem)]
    assert told == [
        "process 1 of this host is not systemd",
        "the docker command of this host is podman",
    ]
    assert len(planned(bare({"init": Absent("openrc"), "package_manager": "apk"}))) == 2


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (facts(engine(flavour="podman")), "the docker command of this host is podman"),
        (facts(engine(flavour="rootless", userns=True)), "the Docker Engine is rootless"),
        (facts(engine(userns=True)), "the Docker Engine remaps users (userns-remap)"),
        (facts(engine(version="18.09.9")), "Docker Engine 18.09.9 is too old: docker run --gpus requires 19.03"),
        (facts(engine(version="1.13.1")), "Docker Engine 1.13.1 is too old"),
        (facts(engine(version=Unknown("permission denied"))), "the Docker Engine cannot be queried: permission denied"),
        (facts(engine_unit=Absent()), "Docker Engine 26.1.4 runs here, but not as docker.service"),
        (facts(engine_unit="masked"), "docker.service is masked"),
        (facts(daemon_json='{"userns-remap": "default"}'), f"{CONFIG}: userns-remap is set"),
        (facts(Unknown("docker info: no answer in time")), "docker: docker info: no answer in time"),
        (replace(facts(), made=Unknown("cut off")), "what set-up made: cut off"),
        (replace(facts(), system=Unknown("cut off")), "the host's system: cut off"),
    ],
)
def test_an_engine_that_does_not_fit_is_refused_and_left_alone(found: HostFacts, message: str) -> None:
    assert problem(found).startswith(message)


def test_an_engine_that_does_not_run_is_started() -> None:
    down = engine(version=Absent("Cannot connect"), containers=Unknown("no answer"), images=Unknown("no answer"))
    (start,) = ops(facts(down, engine_unit="disabled"))
    assert (start.name, start.disrupts) == ("start docker, now and at boot", "nothing")
    assert start.reveals  # none of which is known to be missing
    assert [ops(found)[-1].why for found in (facts(down), bare())] == [
        "Docker has stopped",
        "Docker is not running yet",
    ]
    (start,) = ops(facts(engine_unit="disabled"))
    assert (start.name, start.why) == ("start docker at boot", "docker.service is disabled")
    assert not start.reveals
    assert not ops(bare())[-1].reveals
    # a client without an engine, or an installation that was cut off
    none: dict[str, Any] = {"engine_unit": Absent(), "engine_active": Absent(), "engine_command": Absent()}
    assert [op.name for op in ops(facts(down, **none))] == [
        "install docker.io (distribution)",
        "start docker, now and at boot",
    ]
    settings, start = ops(facts(down), DockerEngine(data_root="/data"))
    assert (settings.disrupts, start.name) == ("nothing", "start docker, now and at boot")


def test_what_can_be_reloaded_is_not_restarted() -> None:
    of = DockerEngine(mirrors=("https://m",), settings=(("live-restore", "true"),))
    text = '{"data-root": "/data"}\n'
    (op,) = ops(facts(engine(containers=(BUSY,)), daemon_json=text), of)
    assert op.name == "daemon.json: add live-restore, registry-mirrors (reload)"
    assert (op.disrupts, op.args[:2]) == ("nothing", ("reload", "no"))
    assert op.args[4] == hashlib.sha256(text.encode()).hexdigest()
    assert op.old[0] == (CONFIG, text)
    keys = {"data-root": "/data", "live-restore": True, "registry-mirrors": ["https://m"]}
    assert json.loads(file(op, CONFIG)) == keys
    assert [each.path.rpartition("/")[2] for each in op.files] == ["adding", "daemon.json"]
    assert op.args[7:] == ("adding", "daemon.json")
    (op,) = ops(facts(), DockerEngine(settings=(("features", '{"cdi": true}'),)))
    assert op.name == "daemon.json: add features (restart)"


@pytest.mark.parametrize(
    ("before", "told", "after"),
    [
        ((), "true", ("/etc/cdi", "/var/run/cdi")),
        (("/opt/cdi",), "true", ("/opt/cdi",)),
        (("/opt/cdi",), "false", ()),
        (("/opt/cdi",), None, ("/opt/cdi",)),
        (Absent("before 25.0"), "true", Absent("before 25.0")),
    ],
)
def test_later_stages_know_whether_the_engine_has_cdi_then(before: Any, told: str | None, after: Any) -> None:
    found = facts(engine(cdi_folders=before))
    feature = "{}" if told is None else f'{{"cdi": {told}}}'
    (op,) = ops(found, DockerEngine(settings=(("features", feature),)))
    docker = known(op.expect(found).docker)
    assert docker.cdi_folders == after


@pytest.mark.parametrize("state", ["running", "paused", "restarting"])
def test_a_restart_waits_for_leave_where_a_container_runs(state: str) -> None:
    found = facts(engine(containers=(replace(BUSY, state=state),)))
    of = DockerEngine(data_root="/data", proxy=(("http", "http://p"),))
    message = "docker has to be restarted for the proxy, data-root, and a container runs there: busy"
    assert problem(found, of) == message
    for leave in ("docker", "host"):
        (op,) = ops(found, of, disrupt=leave)
        assert (op.disrupts, op.args[:2]) == ("docker", ("restart", "yes"))


def test_why_a_file_is_changed_says_what_differs() -> None:
    of = DockerEngine(mirrors=("https://m",), settings=(("debug", "true"),))
    (op,) = ops(facts(daemon_json='{"debug": false}'), of)
    assert op.name == "daemon.json: add registry-mirrors, change debug (reload)"
    assert op.why == f"{CONFIG} lacks registry-mirrors and has another debug"


def test_a_restart_where_nothing_runs() -> None:
    found = facts(engine(containers=(replace(BUSY, state="exited"),)))
    (op,) = ops(found, DockerEngine(data_root="/data"))
    assert (op.disrupts, op.args[:2]) == ("docker", ("restart", "no"))
    assert op.why.endswith("; its images and containers stay in /var/lib/docker, where the engine no longer sees them")
    (op,) = ops(facts(), DockerEngine(data_root="/data"))
    assert "images" not in op.why
    (op,) = ops(found, DockerEngine(settings=(("bip", '"10.9.0.1/24"'),)))
    assert "images" not in op.why
    unknown = facts(engine(containers=Unknown("docker ps: no answer in time")))
    assert "what runs there is not known: docker ps: no answer" in problem(unknown, DockerEngine(data_root="/data"))


def test_an_engine_with_another_data_root_has_to_pull_anew() -> None:
    (op,) = ops(facts(), DockerEngine(data_root="/data"))
    after = known(op.expect(facts()).docker)
    assert (after.root, after.images, after.containers) == ("/data", (), ())
    (op,) = ops(facts(), DockerEngine(data_root="/var/lib/docker"))
    assert op.expect(facts()).docker == facts().docker
    assert "no longer" not in op.why


def test_the_proxy_comes_changes_and_goes() -> None:
    of = DockerEngine(proxy=(("http", "http://p:3128/%20"), ("no", "localhost,10.0.0.0/8")))
    part, values = proxy_files(of)
    assert (part.mode, part.data.decode().splitlines()[1:]) == (
        0o644,
        ["[Service]", f"EnvironmentFile=-{PROXY_VALUES}"],
    )
    assert (values.mode, values.secret) == (0o600, False)
    assert values.data.decode() == 'HTTP_PROXY="http://p:3128/%20"\nNO_PROXY="localhost,10.0.0.0/8"\n'
    there = tuple(SetupFile(file.shown, hashlib.sha256(file.data).hexdigest(), file.mode) for file in (part, values))
    assert planned(facts(files=there), of) == []
    assert [op.name for op in ops(facts(), of)] == ["proxy: set it in docker.service (restart)"]
    for other in ((there[0],), (there[0], replace(there[1], sha256="0" * 64)), (replace(there[0], sha256="0" * 64),)):
        assert [op.name for op in ops(facts(files=other), of)] == ["proxy: change it in docker.service (restart)"]
    for left in (there, there[:1], there[1:]):
        (op,) = ops(facts(files=left))
        assert (op.name, op.args[5:]) == ("proxy: remove it from docker.service (restart)", (DROP_IN, "no"))


def test_a_change_that_was_interrupted_is_finished() -> None:
    marks = "/var/lib/taco-launch/docker"
    pending = (SetupFile(f"{marks}/restart", "e" * 64, 0o600),)
    (op,) = ops(facts(files=pending))
    assert (op.name, op.disrupts) == ("daemon.json: make the engine use it (restart)", "docker")
    (op,) = ops(facts(files=pending), DockerEngine(mirrors=("https://m",)))
    assert op.name == "daemon.json: add registry-mirrors (restart)"
    message = "docker has to be restarted for changes of an earlier set-up, which was interrupted, and a container runs"
    assert problem(facts(engine(containers=(BUSY,)), files=pending)).startswith(message)
    (op,) = ops(facts(engine(containers=(BUSY,)), files=(SetupFile(f"{marks}/reload", "e" * 64, 0o600),)))
    assert op.name == "daemon.json: make the engine use it (reload)"


def test_what_the_file_has_and_the_engine_has_not() -> None:
    of = DockerEngine(mirrors=("https://m",), insecure_registries=("r:5000", "10.0.0.0/8"))
    text = '{"registry-mirrors": ["https://m"], "insecure-registries": ["r:5000", "10.0.0.0/8"]}'
    (op,) = ops(facts(daemon_json=text), of)
    assert op.name == "daemon.json: make the engine use it (reload)"
    assert op.why == "the running engine does not use registry-mirrors, insecure-registries from daemon.json"
    taken = engine(mirrors=("https://m/",), insecure_registries=("10.0.0.0/8", "127.0.0.0/8", "r:5000"))
    assert planned(facts(taken, daemon_json=text), of) == []


def test_a_daemon_json_that_is_none_is_left_alone() -> None:
    assert problem(facts(daemon_json='{\n  "debug": true\n  "tls": 1}\n')).startswith(f"{CONFIG}: line 3 column 3: ")
    message = problem(facts(daemon_json='{"hosts": []}'), DockerEngine(data_root="/data"))
    assert message.startswith(f'{CONFIG}: line 1 column 2: the key "hosts" and dockerd\'s own flag -H set the same')
