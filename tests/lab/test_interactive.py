"""Into jobs in training containers, from a controller by SSH and docker: terminals, files, ports, and what other programs use."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.e2e.typist import asked, typist
from tests.lab.rig import Cluster
from tests.support.patience import patience

# The first test waits for the hosts to be set up.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def argv(cluster: Cluster, *words: str) -> list[str]:
    return cluster.argv(*words)


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> Iterator[str]:
    """A job of two ranks on each of two hosts."""
    assert cluster("submit", "--name", "into", "--np", "4", "--", "sleep", "3600").returncode == 0
    eventually(lambda: "RUNNING" in cluster("get", "into").stdout, 60)
    yield "into"
    cluster("delete", "into")


def sleeps(cluster: Cluster, host: str, seconds: str) -> str:
    return cluster.lab.inside(host, "pgrep", "-f", f"^sleep {seconds}").stdout


def test_a_terminal_in_the_container_of_another_host(cluster: Cluster, job: str) -> None:
    with typist(argv(cluster, "shell", job, "--rank", "3"), cluster.env) as shell:
        shell.type("PS1='$ '; hostname; echo $RANK; test -e /.dockerenv && echo in-container\r")
        told = shell.sees("\r\nin-container\r\n", 60)
        assert "gpu2\r\n3\r\n" in told
        shell.type("sleep 71.5\r")
        eventually(lambda: sleeps(cluster, "gpu2", "71.5"))
        shell.type("\x03")
        shell.resize(44, 111)
        eventually(lambda: "44 111" in asked(shell, "stty size"))
        assert not sleeps(cluster, "gpu2", "71.5")
        shell.type("exit 11\r")
        assert shell.leaves() == 11


@pytest.mark.parametrize(
    ("rank", "number"),
    [
        ("0", signal.SIGKILL),
        ("2", signal.SIGINT),
        pytest.param("0", signal.SIGINT, marks=pytest.mark.nightly),
        pytest.param("2", signal.SIGKILL, marks=pytest.mark.nightly),
    ],
)
def test_what_was_started_ends_with_the_command(cluster: Cluster, job: str, rank: str, number: signal.Signals) -> None:
    """The process in a container outlives the `docker exec` that a lost connection ends, and is ended all the same."""
    host, seconds = ("gpu1" if rank == "0" else "gpu2"), f"72.{rank}{int(number)}"
    with subprocess.Popen(
        argv(cluster, "exec", job, "--rank", rank, "--", "sleep", seconds),
        env=cluster.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        eventually(lambda: sleeps(cluster, host, seconds), 40)
        os.kill(process.pid, number)
        process.wait(patience(30))
        eventually(lambda: not sleeps(cluster, host, seconds), 90)


def test_files_and_pipes(cluster: Cluster, job: str, tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    (tmp_path / "up/data").write_bytes(os.urandom(3_000_000))
    done = cluster("cp", "--rank", "2", str(tmp_path / "up"), f"{job}:/tmp/up")
    assert done.returncode == 0, done.stderr
    done = cluster("cp", "--rank", "2", f"{job}:/tmp/up", str(tmp_path / "down"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "down/data").read_bytes() == (tmp_path / "up/data").read_bytes()
    packed = subprocess.run(
        argv(cluster, "exec", job, "--rank", "2", "--", "cat", "/tmp/up/data"),
        env=cluster.env,
        capture_output=True,
        check=False,
    )
    assert packed.stdout == (tmp_path / "up/data").read_bytes()
    piped = subprocess.run(
        argv(cluster, "exec", job, "-i", "--rank", "2", "--", "cmp", "-", "/tmp/up/data"),
        env=cluster.env,
        input=packed.stdout,
        capture_output=True,
        check=False,
    )
    assert piped.returncode == 0, piped.stderr


def test_a_port(cluster: Cluster, job: str) -> None:
    serve = "python3 -m http.server 8231 --bind 127.0.0.1"
    server = subprocess.Popen(
        argv(cluster, "exec", job, "--rank", "2", "--", "sh", "-c", f"cd /etc && exec {serve}"),
        env=cluster.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    forward = subprocess.Popen(
        argv(cluster, "forward", job, "8231:0", "--rank", "2"), env=cluster.env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert forward.stdout is not None
        here = forward.stdout.readline().split()[0]
        fetch = ("curl", "-sf", f"http://{here}/hostname")
        assert eventually(lambda: subprocess.run(fetch, capture_output=True, text=True, check=False).stdout) == "gpu2\n"
    finally:
        for process in (forward, server):
            process.send_signal(signal.SIGINT)
            process.wait(patience(30))


def test_ssh_and_what_is_built_on_it(cluster: Cluster, tmp_path: Path) -> None:
    """ssh, scp, sftp, rsync, and a forwarded port as an editor's remote mode has, with the exported file alone."""
    config = str(tmp_path / "ssh")
    done = cluster("export", "ssh-config", "--to", config)
    assert done.returncode == 0, done.stderr
    name = done.stderr.split("-F")[-1].split()[1].removesuffix("-gpu2")
    env = {**cluster.env, "HOME": str(tmp_path / "nobody")}

    def ok(*words: str) -> str:
        run = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=patience(60))
        assert run.returncode == 0, run.stderr
        return run.stdout

    for host in ("gpu1", "gpu2"):
        assert ok("ssh", "-F", config, f"{name}-{host}", "hostname; test -e /.dockerenv && echo in") == f"{host}\nin\n"
    (tmp_path / "file").write_text("by scp")
    ok("scp", "-q", "-F", config, str(tmp_path / "file"), f"{name}-gpu2:/tmp/by-scp")
    ok("scp", "-q", "-F", config, f"{name}-gpu2:/tmp/by-scp", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "by scp"
    if shutil.which("rsync") and "rsync" in ok("ssh", "-F", config, f"{name}-gpu2", "command -v rsync || true"):
        ok("rsync", "-e", f"ssh -F {config}", str(tmp_path / "file"), f"{name}-gpu2:/tmp/by-rsync")
    # The banner of the host's own sshd, by a channel that the container's sshd opens.
    through = ["ssh", "-F", config, "-W", "127.0.0.1:22", f"{name}-gpu2"]
    with subprocess.Popen(through, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(7) == b"SSH-2.0"
        process.kill()
