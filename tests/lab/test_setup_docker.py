"""The docker stage on a bare host: its plans, applied over SSH as set-up does, and what is left then."""

import hashlib
import re
import secrets
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.facts import MADE
from taco_launch.hosts.fanout import connect
from taco_launch.hosts.gather_facts import gather
from taco_launch.hosts.inventory.load import load
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.setup.model.ops import Op, PlanContext, Problem
from taco_launch.setup.plan import batch
from taco_launch.setup.stages import docker
from tests.lab.rig import Lab, made

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

SUBJECTS = ("system", "docker", MADE)


_TINY = """
folder=$(mktemp -d)
for file in /bin/sleep $(ldd /bin/sleep | grep -o '/[^ ]*'); do
  mkdir -p "$folder${file%/*}"
  cp -L "$file" "$folder$file"
done
tar -cf - -C "$folder" . | docker import - tiny
"""
_PURGE = """
export DEBIAN_FRONTEND=noninteractive
docker rm -f $(docker ps -aq) >/dev/null 2>&1
apt-get purge -y docker.io containerd runc iptables >/dev/null 2>&1
rm -rf /etc/docker /var/lib/taco-launch/docker
systemctl daemon-reload
[ ! -e /usr/bin/docker ]
"""


@dataclass(frozen=True)
class Bare:
    """A host of a lab that has nothing of ours."""

    lab: Lab
    folder: Path

    def sh(self, script: str, **more: Any) -> str:
        return self.lab.sh("gpu1", script, **more)

    def cluster(self, engine: dict[str, Any], **more: Any) -> PlanContext:
        written = self.lab.inventory(self.folder / "cluster.yaml", "gpu1", docker=engine)
        return PlanContext(load(written.inventory, {}), {}, **more)

    def planned(self, cluster: PlanContext) -> list[Op | Problem]:
        """Look at the host and plan."""
        with connect(cluster.inventory, cluster.inventory.hosts, Credentials()) as fanout:
            (answer,) = gather(fanout, SUBJECTS, sudo=True, cluster="c")
        assert answer.value is not None, answer.error
        return list(docker.plan(cluster.inventory.hosts[0], answer.value, cluster))

    def problem(self, engine: dict[str, Any]) -> str:
        (found,) = self.planned(self.cluster(engine))
        assert isinstance(found, Problem)
        return found.message

    def applied(self, engine: dict[str, Any], **more: Any) -> tuple[list[str], str]:
        """Plan and apply; give what was to be done, and how it failed if it did."""
        cluster = self.cluster(engine, **more)
        found = self.planned(cluster)
        ops = [each for each in found if isinstance(each, Op)]
        assert ops == found
        marker = secrets.token_hex(8)
        with connect(cluster.inventory, cluster.inventory.hosts, Credentials()) as fanout:
            (host,) = fanout.transports
            for file in batch.apart(ops):
                host.put(file.data, file.path, file.mode, sudo=True)
            with host.tail(batch.command(ops, marker)) as lines:
                outcome = batch.read(lines, marker)
        assert outcome.whole, outcome
        failed = outcome.failed
        return [op.name for op in ops], batch.failure_reason(ops[failed.number], failed) if failed else ""

    def converges(self, engine: dict[str, Any], **more: Any) -> list[str]:
        """Plan and apply; then nothing is left to do. Give what was done."""
        done, failed = self.applied(engine, **more)
        assert failed == ""
        assert self.planned(self.cluster(engine, **more)) == []
        left = self.sh("ls -A /var/lib/taco-launch/docker 2>/dev/null || :").split()
        assert left in ([], ["added"], ["proxy.env"], ["added", "proxy.env"])
        return done

    def purge(self) -> None:
        self.sh(_PURGE)

    @property
    def config(self) -> str:
        return self.sh("cat /etc/docker/daemon.json")

    @property
    def engine(self) -> str:
        return self.sh("cat /run/docker.pid")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    with made("docker", tmp_path_factory.mktemp("state"), "--hosts", "1") as lab:
        yield Bare(lab, tmp_path_factory.mktemp("inventory"))


@pytest.fixture(scope="module")
def running(bare: Bare) -> Bare:
    """The host with an engine, and an image to run."""
    if bare.planned(bare.cluster({})):
        bare.converges({})
    bare.sh(_TINY)
    return bare


@pytest.fixture
def busy(running: Bare) -> Iterator[Bare]:
    """A container that runs there."""
    running.sh("docker run -d --name busy tiny /bin/sleep 100000")
    yield running
    running.sh("docker rm -f busy")


# dpkg tells this program each state that it brings a package to.
_KILL = """
cat >/root/kill <<'END'
#!/bin/sh
while read -r line; do
  case $line in
    'status: {state}'*)
      rm /etc/dpkg/dpkg.cfg.d/kill
      pkill -9 -x apt-get
      pkill -9 -x dpkg
      ;;
  esac
done
END
chmod 755 /root/kill
echo 'status-logger=/root/kill' >/etc/dpkg/dpkg.cfg.d/kill
"""
DATA = {
    "mirrors": ["https://mirror.example"],
    "data_root": "/data/docker",
    "settings": {"log-opts": {"max-size": "9m"}},
}


def test_from_a_bare_host_to_an_engine_with_its_settings(bare: Bare) -> None:
    assert bare.converges(DATA) == [
        "install docker.io (distribution)",
        "daemon.json: add log-opts, registry-mirrors, data-root (restart)",
        "start docker, now and at boot",
    ]
    assert bare.sh("docker info --format '{{.DockerRootDir}} {{.RegistryConfig.Mirrors}}'") == (
        "/data/docker [https://mirror.example/]"
    )
    assert bare.sh("systemctl is-enabled docker") == "enabled"
    bare.purge()


def test_a_mirror_comes_by_a_reload_and_nothing_stops(busy: Bare) -> None:
    engine = busy.engine
    assert busy.converges({"mirrors": ["https://m.example"]}) == ["daemon.json: add registry-mirrors (reload)"]
    assert busy.converges({"mirrors": ["https://n.example"], "settings": {"labels": ["a=b"]}}) == [
        "daemon.json: add labels, change registry-mirrors (reload)"
    ]
    assert busy.engine == engine
    assert busy.sh("docker ps --format '{{.Names}}'") == "busy"
    assert busy.sh("docker info --format '{{.RegistryConfig.Mirrors}} {{.Labels}}'") == (
        "[https://m.example/ https://n.example/] [a=b]"
    )


def test_a_container_that_runs_keeps_the_engine_from_a_restart(busy: Bare) -> None:
    before, engine = busy.sh("cat /etc/docker/daemon.json 2>/dev/null || :"), busy.engine
    wanted = {"settings": {"log-opts": {"max-file": "3"}}}
    assert busy.problem(wanted) == "docker has to be restarted for log-opts, and a container runs there: busy"
    assert (busy.sh("cat /etc/docker/daemon.json 2>/dev/null || :"), busy.engine) == (before, engine)
    done = busy.converges(wanted, disrupt="docker")
    assert done == ["daemon.json: add log-opts (restart)"]
    assert busy.engine != engine


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  "debug": true\n  "tls": true\n}\n', "line 3 column 3: "),
        ('{\n  "debug": true,\n  "debug": false }', 'line 3 column 3: the key "debug" appears twice'),
        ('{\n  "hosts": ["unix:///run/docker.sock"]\n}', 'line 2 column 3: the key "hosts" and dockerd\'s own flag -H'),
    ],
)
def test_a_daemon_json_that_is_none_is_refused_and_stays(running: Bare, text: str, place: str) -> None:
    running.sh("mkdir -p /etc/docker; touch /etc/docker/daemon.json; cp -p /etc/docker/daemon.json /root/kept")
    running.sh(f"cat >/etc/docker/daemon.json <<'END'\n{text}\nEND\n")
    try:
        before = running.sh("sha256sum /etc/docker/daemon.json")
        assert running.problem({"data_root": "/data"}).startswith(f"/etc/docker/daemon.json: {place}")
        assert running.sh("sha256sum /etc/docker/daemon.json") == before
    finally:
        running.sh(
            "mv /root/kept /etc/docker/daemon.json; [ -s /etc/docker/daemon.json ] || rm /etc/docker/daemon.json"
        )


def test_settings_that_the_engine_refuses_are_taken_back(running: Bare) -> None:
    running.converges({"settings": {"shutdown-timeout": 7}})
    before = running.config
    (done,), failed = running.applied({"settings": {"no-such-key": "x"}})
    assert done == "daemon.json: add no-such-key (restart)"
    assert re.search(r"(runs with the old one again|the old one stays): .*no-such-key", failed), failed
    assert running.config == before
    assert running.planned(running.cluster({})) == []
    assert running.sh("docker version --format '{{.Server.Version}}'")


def test_the_proxy_comes_and_goes(running: Bare) -> None:
    proxy = {"http": "http://user:p%40ss@proxy.example:3128", "no_proxy": "localhost,10.0.0.0/8"}
    assert running.converges({"proxy": proxy}) == ["proxy: set it in docker.service (restart)"]
    environment = running.sh("tr '\\0' '\\n' </proc/$(cat /run/docker.pid)/environ")
    assert {"HTTP_PROXY=http://user:p%40ss@proxy.example:3128", "NO_PROXY=localhost,10.0.0.0/8"} <= {
        *environment.splitlines()
    }
    assert running.sh("stat -c %a /var/lib/taco-launch/docker/proxy.env") == "600"
    assert "p%40ss" not in running.sh("systemctl show docker; cat /etc/systemd/system/docker.service.d/*")
    assert running.converges({}) == ["proxy: remove it from docker.service (restart)"]
    assert "PROXY" not in running.sh("tr '\\0' '\\n' </proc/$(cat /run/docker.pid)/environ")


def test_an_engine_that_is_stopped_or_off_at_boot_is_started(running: Bare) -> None:
    running.sh("systemctl disable --now docker.socket docker")
    assert running.converges({}) == ["start docker, now and at boot"]
    running.sh("systemctl disable docker")
    assert running.converges({}) == ["start docker at boot"]
    assert running.sh("systemctl is-enabled docker") == "enabled"


def test_a_change_that_was_cut_off_before_the_restart_is_finished(running: Bare) -> None:
    running.sh("mkdir -p /var/lib/taco-launch/docker; touch /var/lib/taco-launch/docker/restart")
    engine = running.engine
    assert running.converges({}) == ["daemon.json: make the engine use it (restart)"]
    assert running.engine != engine


@pytest.mark.parametrize(
    "state", ["docker.io: unpacked", pytest.param("docker.io: half-installed", marks=pytest.mark.nightly)]
)
def test_an_installation_that_is_killed_is_finished_by_the_next(bare: Bare, state: str) -> None:
    bare.purge()
    bare.sh(_KILL.format(state=state))
    _, failed = bare.applied({})
    assert failed.startswith("install docker.io (distribution): ")
    assert "docker.io" in bare.sh("dpkg --audit")
    bare.converges({})
    assert bare.sh("dpkg --audit") == ""


@pytest.mark.nightly
def test_a_source_that_is_down_is_named(bare: Bare) -> None:
    bare.purge()
    bare.sh("mv /etc/apt /etc/apt.kept; cp -r /etc/apt.kept /etc/apt; rm -rf /etc/apt/sources.list* /var/lib/apt/lists")
    bare.sh("echo 'deb http://127.0.0.1:9/debian stable main' >/etc/apt/sources.list")
    try:
        _, failed = bare.applied({})
    finally:
        bare.sh("rm -rf /etc/apt; mv /etc/apt.kept /etc/apt")
    assert failed.startswith("install docker.io (distribution): ")
    assert "apt-get install: " in failed
    assert "; package source: Failed to fetch http://127.0.0.1:9/debian" in failed


@pytest.mark.nightly
def test_packages_of_the_controller_on_a_host_without_sources(bare: Bare, tmp_path: Path) -> None:
    bare.purge()
    bare.sh(
        "apt-get -q update && mkdir -p /root/debs/partial && apt-get -q -y --no-install-recommends --download-only "
        "-o Dir::Cache::archives=/root/debs install docker.io iptables ca-certificates"
    )
    subprocess.run(
        ("docker", "cp", f"{bare.lab.container('gpu1')}:/root/debs", str(tmp_path)), check=True, capture_output=True
    )
    packages = tuple((path.name, path.read_bytes()) for path in sorted((tmp_path / "debs").glob("*.deb")))
    bare.sh("mv /etc/apt/sources.list /root; rm -rf /var/lib/apt/lists /var/cache/apt/*.bin /root/debs")
    # of a run that was cut: no package, which apt would refuse
    bare.sh("mkdir -p /var/lib/taco-launch/docker/packages; echo half >/var/lib/taco-launch/docker/packages/old.deb")
    try:
        engine = {"source": "packages", "packages": "/srv/docker"}
        done = bare.converges(engine, packages=packages)
    finally:
        bare.sh("mv /root/sources.list /etc/apt/")
    assert done == [
        f"install docker ({len(packages)} package files from the controller)",
        "start docker, now and at boot",
    ]


@pytest.mark.nightly
def test_a_script_by_its_url(bare: Bare) -> None:
    bare.purge()
    script = b"apt-get -q update\napt-get -q -y --no-install-recommends install docker.io iptables\n"

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(script)

    here = bare.sh("ip route | sed -n 's/^default via \\([0-9.]*\\) .*/\\1/p'")
    with ThreadingHTTPServer((here, 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{here}:{server.server_port}/get-docker.sh"
        _, failed = bare.applied({"source": "script", "url": url, "sha256": "0" * 64})
        assert f"{url} has the SHA-256 {hashlib.sha256(script).hexdigest()}, and docker.sha256" in failed
        right = {"source": "script", "url": url, "sha256": hashlib.sha256(script).hexdigest()}
        assert bare.converges(right) == [f"install docker (script {url})", "start docker, now and at boot"]
        server.shutdown()
