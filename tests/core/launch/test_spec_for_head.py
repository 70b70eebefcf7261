"""Where the agent is started: on this machine, on a host, in a container (of a simulated docker), and why it cannot be."""

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.agent.store.folders import state_folder
from taco_launch.core.errors import HostError
from taco_launch.core.launch.spec_for_head import spec_for_head
from taco_launch.core.model.host.hosts import Container, Host, Inventory, Registry
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol.calls.job_list import List, Rows
from taco_launch.core.protocol.calls.jobs import Get
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.jobs.backend import agent_location
from taco_launch.jobs.backend.agent_client import AgentClient

# What `docker container inspect` and `docker exec -i` do, of which the second runs the rest right here. Simulated.
DOCKER = """#!/bin/sh
echo "$@" >>"$SIMULATED/calls"
case $1 in
  container)
    for name; do :; done
    if [ -e "$SIMULATED/down" ]; then echo 'Cannot connect to the Docker daemon. Is it running?' >&2; exit 1; fi
    if [ ! -e "$SIMULATED/$name" ]; then echo; echo "Error: No such container: $name" >&2; exit 1; fi
    cat "$SIMULATED/$name" ;;
  exec)
    shift 3
    PATH=$SIMULATED/inside exec "$@" ;;
esac
"""


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a simulated docker, and what its container has on PATH."""
    folder = tmp_path / "simulated"
    (folder / "inside").mkdir(parents=True)
    for name in ("python3", "sh", "id", "tr"):
        # a version manager's python3 is a script, which needs more than there is
        there = sys.executable if name == "python3" else shutil.which(name)
        assert there is not None
        (folder / "inside" / name).symlink_to(there)
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    (folder / "taco-launch-c").write_text("running\n")
    monkeypatch.setenv("SIMULATED", str(folder))
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    return folder


@pytest.fixture
def head(simulated: Path, agent: Path, monkeypatch: pytest.MonkeyPatch) -> AgentClient:
    monkeypatch.setattr(agent_bundle, "build", lambda _contents: agent.read_bytes())  # packing it takes a second
    there = replace(agent_location.in_container("taco-launch-c"), folder=f"{simulated.parent}/state/agent/", sudo=False)
    return AgentClient(LocalTransport("gpu1"), there, "taco-launch -i c.yaml")


def test_the_agent_in_a_container(head: AgentClient, simulated: Path, tmp_path: Path) -> None:
    assert head.call(List()) == [Rows(rows=[])]
    (file,) = (tmp_path / "state" / "agent").glob("agent-*")
    assert file.name == agent_bundle.name(agent_bundle.sources())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.stat().st_mtime_ns
    assert head.call(List()) == [Rows(rows=[])]
    assert file.stat().st_mtime_ns == before
    assert "exec -i taco-launch-c /bin/sh -c" in (simulated / "calls").read_text()


def test_a_container_that_prints_errors_without_end_is_cut_off(simulated: Path, tmp_path: Path) -> None:
    (tmp_path / "agent").write_bytes(b"PK" + bytes(20))
    python3 = simulated / "inside" / "python3"
    python3.unlink()
    python3.write_text("#!/bin/sh\nexec /usr/bin/yes >&2\n")
    python3.chmod(0o755)
    location = replace(agent_location.in_container("taco-launch-c"), folder=f"{tmp_path}/")
    argv = location.argv("agent", "list")
    done = subprocess.run(argv, capture_output=True, timeout=30, check=False)
    assert (done.stdout, len(done.stderr)) == (b"ready\n", 65536)


def test_an_older_agent_stays_beside_ours(head: AgentClient, tmp_path: Path) -> None:
    other = tmp_path / "state" / "agent" / "agent-0123456789abcdef.pyz"
    other.parent.mkdir(parents=True)
    other.write_text("older")
    assert head.call(List()) == [Rows(rows=[])]
    assert len(list(other.parent.glob("agent-*"))) == 2
    assert other.read_text() == "older"


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_an_agent_that_is_there_in_part_is_put_there_again(head: AgentClient, tmp_path: Path, size: int) -> None:
    assert head.call(List()) == [Rows(rows=[])]
    (file,) = (tmp_path / "state" / "agent").glob("agent-*")
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    assert head.call(List()) == [Rows(rows=[])]
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("missing", "gpu1: there is no container taco-launch-c"),
        ("stopped", "gpu1: the container taco-launch-c is not running: it is exited"),
        ("down", "gpu1: docker: Cannot connect to the Docker daemon. Is it running?"),
        ("no-docker", "gpu1: there is no docker"),
        ("no-python3", "gpu1: the container taco-launch-c has no python3"),
        (
            "part-of-python3",
            "gpu1: the python3 of the container taco-launch-c has no module uuid: its Python installation is incomplete",
        ),
        ("old-python3", "gpu1: the python3 of the container taco-launch-c is Python 3.6.8, and 3.8 is needed"),
    ],
)
def test_what_is_not_set_up_is_named(
    head: AgentClient, simulated: Path, broken: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken == "missing":
        (simulated / "taco-launch-c").unlink()
    elif broken == "stopped":
        (simulated / "taco-launch-c").write_text("exited\n")
    elif broken == "down":
        (simulated / "down").touch()
    elif broken == "no-docker":
        monkeypatch.setenv("PATH", str(simulated / "inside"))
    else:
        (simulated / "inside" / "python3").unlink()
    if broken in ("old-python3", "part-of-python3"):
        other = simulated / "inside" / "python3"
        what = "python 3.6.8" if broken == "old-python3" else "module uuid"
        other.write_text(f"#!/bin/sh\necho unready {what}\n")
        other.chmod(0o755)
    with pytest.raises(HostError) as caught:
        head.call(List())
    assert caught.value.message == said
    hint, _and, records = (caught.value.hint or "").partition("; ")
    assert hint == "to set the hosts up: taco-launch -i c.yaml setup"
    assert not records or records.startswith("records of earlier jobs, if any, are in /var/lib/taco-launch/containers")
    assert caught.value.exit_code == 5


def test_an_old_python_says_so_before_it_reads_the_agent(tmp_path: Path) -> None:
    text = agent_bundle._MAIN.decode().replace("sys.version_info <", "(3, 6) <")
    done = subprocess.run(["python3", "-c", text], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("unready python 3.")


def test_a_part_of_python_is_named_by_what_it_lacks(agent: Path, tmp_path: Path) -> None:
    """As Debian's python3-minimal is: no shutil, no uuid."""
    script = "import runpy, sys; sys.modules['shutil'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    argv = [sys.executable, "-I", "-S", "-c", script, str(agent), "submit"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "unready module shutil\n", "")
    host = agent_location.on_host().refused("gpu1", "module", "uuid", "taco-launch setup")
    assert host.message == "gpu1: its python3 has no module uuid: its Python installation is incomplete"


@pytest.mark.parametrize("given", ["TACO_LAUNCH_STATE", "XDG_STATE_HOME", "HOME", "relative"])
def test_on_a_host_the_agent_lies_in_the_logins_own_state_folder(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script's rule and the agent's are one: the agent finds the jobs where its file lies."""
    for name in ("TACO_LAUNCH_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "id").write_text("#!/bin/sh\necho 1000\n")  # root's is fixed, and nothing is to be written there
    (programs / "id").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(
        "XDG_STATE_HOME" if given == "relative" else given, "x" if given == "relative" else str(tmp_path / given)
    )
    expected = state_folder(os.environ, 1000)
    done = subprocess.run(agent_location.on_host().argv("a.pyz", "list"), capture_output=True, text=True, check=True)
    assert done.stdout == f"unready agent {expected}/agent/a.pyz\n"


def test_on_a_host_python3_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "id").symlink_to(shutil.which("id") or "")
    (tmp_path / "tr").symlink_to(shutil.which("tr") or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="gpu1: there is no python3") as caught:
        AgentClient(LocalTransport("gpu1"), agent_location.on_host()).call(List())
    assert caught.value.hint == "install Python 3.8 or newer there"


def test_the_seat_of_an_inventory() -> None:
    far, near = Host("gpu1", "10.0.0.1"), Host("here", "127.0.0.1", connection="local")
    image = Container("image")

    def of(host: Host, container: Container | None) -> agent_location.AgentLocation:
        return agent_location.of(Inventory("c", host.name, (host,), container=container), {"HOME": "/home/u"}, 1000)

    for host in (far, near):
        there = of(host, image)
        assert (there.container, there.sudo, there.inherit) == ("taco-launch-c", True, True)
        assert there.argv("a.pyz", "get")[-3:] == ("taco-launch-c", "/var/lib/taco-launch/agent/a.pyz", "get")
    assert of(far, None) == agent_location.on_host()
    here = of(near, None)
    assert (here.sudo, here.inherit, here.turn) == (False, False, None)
    assert here.argv("a.pyz", "get")[-2:] == ("/home/u/.local/state/taco-launch/agent/a.pyz", "get")


@pytest.mark.parametrize(
    ("container", "connection"), [(Container("image", registry=Registry("me")), "ssh"), (None, "local")]
)
def test_what_is_local_to_the_controller_is_not_to_the_head(container: Container | None, connection: str) -> None:
    """Only the host that the agent knows as another one is requested a lease, the head's own as well."""
    hosts = (Host("gpu1", "10.0.0.1", identity_file="key"), Host("gpu2", "10.0.0.2", connection="local"))
    spec = spec_for_head(JobSpec("job", ("true",), hosts, head="gpu1", container=container, cwd="/home/u"))
    assert [(host.connection, host.identity_file) for host in spec.hosts] == [(connection, None)] * 2
    assert [host.name for host in spec.hosts if spec.is_here(host)] == (["gpu1"] if container else ["gpu1", "gpu2"])
    assert spec.cwd == ""
    assert spec.container is None or spec.container.registry is None


def test_hints_have_the_inventory_in_them(head: AgentClient) -> None:
    with pytest.raises(Exception, match="job 'x' not found") as caught:
        head.call(Get(name="x"))
    assert caught.value.hint == "list all jobs: taco-launch -i c.yaml list"  # type: ignore[attr-defined]
