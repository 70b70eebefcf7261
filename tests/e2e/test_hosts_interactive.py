"""Into a job of several hosts from a controller, by SSH to the head: a terminal, pipes, files and ports of another host."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.e2e.cluster import Cluster
from tests.e2e.controller import Controller
from tests.e2e.typist import asked, typist
from tests.support.patience import patience

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def controller(cluster: Cluster) -> Controller:
    return Controller(cluster)


@pytest.fixture
def job(cluster: Cluster, name: str) -> str:
    """A job of two ranks on each host, that runs."""
    cluster.submit(cluster.spec(name, "sleep", "600"))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    return name


def test_a_pipe_through_a_command_beside_a_rank(controller: Controller, job: str) -> None:
    script = 'md5sum; echo "$(hostname) $RANK $LOCAL_RANK $TACO_LAUNCH_JOB"; exit 5'
    argv = controller.argv("exec", job, "-i", "--rank", "3", "--", "sh", "-c", script)
    data = os.urandom(3_000_000)
    done = subprocess.run(argv, env=controller.env, input=data, capture_output=True, check=False, timeout=patience(60))
    digest = subprocess.run(["md5sum"], input=data, capture_output=True, check=True).stdout
    assert (done.returncode, done.stdout) == (5, digest + f"n2 3 1 {job}\n".encode()), done.stderr


def test_a_shell(cluster: Cluster, controller: Controller, job: str) -> None:
    with typist(controller.argv("shell", job, "--rank", "2"), controller.env) as shell:
        shell.type("stty size; hostname; sleep 4322.5; echo code-$?\r")
        shell.sees(r"24 80\r\nn2\r\n")
        eventually(lambda: [on for on, _pid in cluster.alive("^sleep 4322.5")] == [1])
        shell.type("\x03")
        shell.resize(40, 100)
        eventually(lambda: "40 100" in asked(shell, "stty size"))
        shell.type("exit 6\r")
        assert shell.leaves() == 6


@pytest.mark.parametrize("how", ["cut", "killed"])
def test_a_connection_that_is_lost(cluster: Cluster, controller: Controller, job: str, how: str) -> None:
    """The terminal is given back, and nothing is left on the rank's host; the job goes on."""
    with typist(controller.argv("exec", "-it", job, "--rank", "2", "--", "sleep", "4323.5"), controller.env) as found:
        eventually(lambda: [on for on, _pid in cluster.alive("^sleep 4323.5")] == [1])
        if how == "cut":
            controller.cut()
            assert found.leaves() == 125
        else:
            os.kill(found.process.pid, signal.SIGKILL)
        eventually(lambda: not cluster.alive("^sleep 4323.5"))
    assert cluster.job(job)["state"] == "RUNNING"


def test_it_ends_with_the_job(cluster: Cluster, controller: Controller, job: str) -> None:
    argv = controller.argv("exec", job, "--rank", "5", "--", "sleep", "4321.5")
    with subprocess.Popen(argv, env=controller.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        eventually(lambda: [on for on, _pid in cluster.alive("^sleep 4321.5")] == [2])
        cluster.call("stop", names=[job], by="the test", signal=15, grace=0)
        cluster.ended(job)
        assert process.wait(patience(20)) in (137, 143)
    assert cluster.alive("^sleep 4321.5") == []


def test_files_of_another_host(cluster: Cluster, controller: Controller, job: str, tmp_path: Path) -> None:
    cluster.sh("mkdir -p /run/results/sub && head -c 3000000 /dev/urandom >/run/results/sub/data", on=1)
    done = controller("cp", "--rank", "3", f"{job}:/run/results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    there = cluster.path("/run/results/sub/data", 1)
    assert (tmp_path / "results/sub/data").read_bytes() == there.read_bytes()
    done = controller("cp", "--rank", "3", str(tmp_path / "results"), f"{job}:/run/back")
    assert done.returncode == 0, done.stderr
    assert cluster.path("/run/back/sub/data", 1).read_bytes() == there.read_bytes()


@pytest.mark.parametrize("way", ["here", "there"])
def test_a_copy_that_is_cut_off_leaves_nothing(
    cluster: Cluster, controller: Controller, job: str, tmp_path: Path, way: str
) -> None:
    cluster.sh("rm -rf /run/part; mkdir /run/part; head -c 100000000 /dev/zero >/run/big", on=1)
    there, words = cluster.path("/run/part", 1), (f"{job}:/run/big", str(tmp_path / "x"))
    if way == "there":
        (tmp_path / "big").write_bytes(bytes(100_000_000))
        words = (str(tmp_path / "big"), f"{job}:/run/part/x")
    folder = tmp_path if way == "here" else there
    argv = controller.argv("cp", "--rank", "3", *words)
    # At this rate the copy takes 20 s: it cannot be whole before the connection is cut.
    cluster.sh("tc qdisc add dev eth0 root tbf rate 40mbit burst 64k latency 50ms")
    try:
        with subprocess.Popen(argv, env=controller.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            eventually(lambda: list(folder.glob(".x.*.part")))
            controller.cut()
            assert process.wait(patience(30)) == 5
    finally:
        cluster.sh("tc qdisc del dev eth0 root")
    eventually(lambda: not list(folder.glob(".*")))
    assert not (folder / "x").exists()
    cluster.sh("rm -rf /run/part /run/big", on=1)


@pytest.fixture(params=["direct", "through-head"])
def way(request: pytest.FixtureRequest, controller: Controller) -> Iterator[None]:
    """The controller reaches the second host, or only the head does."""
    route = (*controller.network, "ip", "route")
    if request.param == "through-head":
        subprocess.run([*route, "add", "unreachable", "10.77.0.2/32"], check=True)
    yield
    if request.param == "through-head":
        subprocess.run([*route, "del", "unreachable", "10.77.0.2/32"], check=True)


@pytest.mark.usefixtures("way")
def test_a_port_of_another_host(cluster: Cluster, controller: Controller, job: str) -> None:
    """On its loopback; again after the connection to the head was lost; until the job ends."""
    cluster.sh("mkdir -p /run/www && head -c 2000000 /dev/urandom >/run/www/data", on=1)
    server = f"cd /run/www && exec {cluster.python} -m http.server 8123 --bind 127.0.0.1"
    cluster.sh(f"({server}) >/dev/null 2>&1 &", on=1)
    argv = controller.argv("forward", job, "8123:9123", "--rank", "2")
    with (
        subprocess.Popen(argv, env=controller.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"127.0.0.1:9123 -> n2:8123\n"

        def fetched() -> bytes:
            script = "import urllib.request as u; import sys; sys.stdout.buffer.write(u.urlopen(sys.argv[1]).read())"
            url = "http://127.0.0.1:9123/data"
            return subprocess.run(
                [*controller.network, cluster.python, "-c", script, url], capture_output=True, check=False, timeout=60
            ).stdout

        data = cluster.path("/run/www/data", 1).read_bytes()
        assert fetched() == data
        with ThreadPoolExecutor(5) as pool:
            assert all(found == data for found in pool.map(lambda _each: fetched(), range(5)))
        again = controller("forward", job, "8123:9123", "--rank", "2")
        assert again.returncode == 2
        assert again.stderr.startswith("error: port 9123 of this machine is in use by process ")
        controller.cut()
        eventually(lambda: fetched() == data)
        cluster.sh("pkill -f '[h]ttp.server 8123'", on=1)
        assert fetched() == b""
        assert process.poll() is None
        cluster.call("stop", names=[job], by="the test", signal=15, grace=0)
        assert process.wait(patience(30)) == 0
        said = process.stderr.read().decode()
    assert "n2: nothing accepts connections on port 8123 of its loopback" in said
    assert f"job {job}: CANCELLED after " in said
