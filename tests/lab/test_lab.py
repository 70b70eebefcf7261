"""Labs, by the command line: what is in a host, what a second command changes, what is left behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import taco_launch
from taco_launch.lab.docker.hosts import FORBIDDEN
from tests.conftest import eventually
from tests.lab.rig import Done, Lab, docker
from tests.support.patience import patience

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def started(lab: Lab) -> str:
    return docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", *(map(lab.container, ("gpu1", "registry"))))


def test_a_host_is_a_plain_server(lab: Lab) -> None:
    assert lab.inside("gpu1", "systemctl", "is-system-running").stdout == "running\n"
    assert lab.inside("gpu1", "cat", "/proc/1/comm").stdout == "systemd\n"
    if Path("/sys/fs/cgroup/unified").exists() or Path("/sys/fs/cgroup/cgroup.procs").exists():
        # cgroup v2 tells it when a session has ended; without it a later login hangs now and then
        assert "0::/init.scope\n" in lab.inside("gpu1", "cat", "/proc/1/cgroup").stdout
    wanted = "command -v sshd sudo ip nft iptables curl ps modprobe ping less"
    assert lab.inside("gpu1", "sh", "-c", wanted).returncode == 0
    for absent in ("docker", "python3", "mpirun", "csh"):
        assert lab.inside("gpu1", "sh", "-c", f"command -v {absent}").stdout == ""


def test_hosts_differ_and_know_each_other(lab: Lab) -> None:
    hosts = lab.status()["hosts"]
    assert [host["name"] for host in hosts] == ["gpu1", "gpu2", "registry"]
    assert len({host["address"] for host in hosts}) == 3
    for host in hosts:
        assert lab.ssh(host["name"], "hostname").stdout == f"{host['name']}\n"
        assert lab.inside("gpu1", "getent", "hosts", host["name"]).stdout.split()[0] == host["address"]
    assert len({lab.inside(host["name"], "cat", "/etc/machine-id").stdout for host in hosts}) == 3
    assert len({lab.inside(host["name"], "cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout for host in hosts}) == 3
    assert lab.inside("gpu1", "ping", "-c", "1", "-W", "2", "gpu2").returncode == 0


def test_a_second_up_changes_nothing(lab: Lab) -> None:
    before, files = started(lab), {path: path.read_bytes() for path in lab.folder.iterdir()}
    assert "was up already: nothing changed" in lab.up().stderr
    assert "was up already: nothing changed" in lab.up("--hosts", "2", "--slots", "3", "--gpus", "none").stderr
    assert started(lab) == before
    assert {path: path.read_bytes() for path in lab.folder.iterdir()} == files


def test_other_numbers_are_refused(lab: Lab) -> None:
    done = lab.verb("up", "--hosts", "3", "--slots", "3")
    assert done.returncode == 2
    assert "--hosts 3 (it has 2)" in done.stderr
    assert f"taco-launch lab down --name {lab.name} && taco-launch lab up --name {lab.name} --hosts 3" in done.stderr


def test_the_lab_is_an_inventory(lab: Lab) -> None:
    done = lab.cluster("inventory", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["head"] == "gpu1"
    assert [(host["name"], host["slots"], host["user"]) for host in found["hosts"]] == [
        ("gpu1", 3, "root"),
        ("gpu2", 3, "root"),
    ]
    assert {host["identity_file"] for host in found["hosts"]} == {str(lab.folder / "id_ed25519")}
    keys = Path(found["known_hosts"]).read_text("utf-8")
    for host in found["hosts"]:
        told = lab.inside(host["name"], "cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()[1]
        assert f"{host['name']},{host['address']} ssh-ed25519 {told}\n" in keys


def test_a_lab_that_is_not_there(lab: Lab) -> None:
    done = lab.taco("-i", "lab:nowhere", "inventory")
    assert done.returncode == 2
    assert "there is no lab 'nowhere'; existing labs: " in done.stderr
    assert "hint: use -i lab:" in done.stderr


def test_a_command_in_a_host_with_and_without_the_separator(lab: Lab) -> None:
    for separator in ((), ("--",)):
        done = lab.taco("lab", "exec", "--name", lab.name, "gpu1", *separator, "hostname")
        assert (done.returncode, done.stdout) == (0, "gpu1\n"), done.stderr


def test_what_the_controller_lost_is_made_again(lab: Lab) -> None:
    before = started(lab)
    modes = {path.name: path.stat().st_mode & 0o777 for path in lab.folder.iterdir()}
    password = (lab.folder / "registry-password").read_text("utf-8")
    shutil.rmtree(lab.folder)
    assert "are not in" in lab.cluster("inventory").stderr
    assert "nothing changed" not in lab.up().stderr
    assert lab.answers("gpu1")
    assert (lab.folder / "registry-password").read_text("utf-8") == password
    assert {path.name: path.stat().st_mode & 0o777 for path in lab.folder.iterdir()} == modes
    assert [name for name, mode in modes.items() if mode & 0o077] == ["id_ed25519.pub"]
    assert lab.folder.stat().st_mode & 0o777 == 0o700
    assert started(lab) == before


def test_the_registry_asks_for_a_password_and_its_certificate_is_trusted(lab: Lab) -> None:
    registry = lab.status()["registry"]
    url = f"https://{registry['address']}/v2/_catalog"
    code = ("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}")
    assert lab.inside("gpu1", *code, url).stdout == "401"
    login = f"user = {registry['user']}:{Path(registry['password_file']).read_text('utf-8').strip()}\n"
    assert lab.inside("gpu2", *code, "--config", "-", url, input=login).stdout == "200"
    untrusted = lab.inside(
        "gpu1", *code, "--capath", "/", "--cacert", "/etc/ssl/certs/ISRG_Root_X1.pem", "--config", "-", url, input=login
    )
    assert untrusted.returncode == 60  # curl(1): the peer's certificate cannot be authenticated


@pytest.mark.nightly
def test_an_image_goes_from_host_to_host(lab: Lab) -> None:
    installed = lab.inside("gpu1", "sh", "-c", "apt-get update && apt-get install -y --no-install-recommends docker.io")
    assert installed.returncode == 0, installed.stderr
    registry = lab.status()["registry"]
    password = Path(registry["password_file"]).read_text("utf-8")
    login = ("docker", "login", "-u", registry["user"], "--password-stdin", registry["address"])
    assert lab.inside("gpu1", *login, input=password).returncode == 0
    image = f"{registry['address']}/test:1"
    script = (
        f"tar -C / -c bin sbin lib lib64 usr/bin usr/lib usr/lib64 | docker import - {image} && docker push -q {image} && "
        f"docker image rm {image} && docker run --rm --net=host --pid=host --shm-size=64m {image} hostname"
    )
    done = lab.inside("gpu1", "sh", "-c", script)
    assert done.stdout.splitlines()[-1:] == ["gpu1"], done.stderr
    assert lab.inside("gpu1", "systemctl", "is-system-running").stdout == "running\n"


def test_exec_is_the_command_itself(lab: Lab) -> None:
    def run(host: str, *command: str, **more: Any) -> Done:
        return lab.verb("exec", host, "--", *command, **more)

    assert run("gpu1", "sh", "-c", "exit 7").returncode == 7
    assert run("gpu1", "cat", input="a\nb").stdout == "a\nb"
    odd = ["a b", "$(id)", "*", "'", '"', "", "-x", "--", "ü"]
    assert run("gpu1", "printf", "[%s]", *odd).stdout == "".join(f"[{word}]" for word in odd)
    missing = run("gpu9", "true")
    assert missing.returncode == 2
    assert "has no host 'gpu9': it has gpu1, gpu2, registry" in missing.stderr


@pytest.mark.parametrize("setting", ["kernel/panic", "kernel/pid_max", "fs/file-max", "vm/swappiness"])
def test_settings_of_the_machine_are_read_only(lab: Lab, setting: str) -> None:
    path = Path("/proc/sys", setting)
    before = path.read_text("utf-8")
    wrong = str(int(before.split()[0]) + 1)
    done = lab.inside("gpu1", "sh", "-c", f"echo {wrong} >{path}")
    after = path.read_text("utf-8")
    if after != before:
        path.write_text(before, "utf-8")  # never leave the machine with it
    assert after == before
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr


def test_settings_of_its_network_are_a_hosts_own(lab: Lab) -> None:
    path = Path("/proc/sys/net/ipv4/tcp_fin_timeout")
    before = path.read_text("utf-8")
    assert lab.inside("gpu1", "sh", "-c", f"echo 17 >{path} && cat {path}").stdout == "17\n"
    assert path.read_text("utf-8") == before


def test_no_host_can_act_on_the_machine(lab: Lab) -> None:
    for host in ("gpu1", "registry"):
        status = lab.inside(host, "cat", "/proc/1/status").stdout
        held = int(next(line for line in status.splitlines() if line.startswith("CapBnd")).split()[1], 16)
        # linux/capability.h
        bits = {"DAC_READ_SEARCH": 2, "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_BOOT": 22, "SYS_TIME": 25, "SYSLOG": 34}
        assert set(bits) == set(FORBIDDEN)
        assert not any(held >> bit & 1 for bit in bits.values())
    assert lab.inside("gpu1", "date", "-s", "@1").returncode != 0
    disk = lab.inside("gpu1", "sh", "-c", "mknod /root/disk b 254 0; dd if=/root/disk of=/dev/null count=1")
    assert "Operation not permitted" in disk.stderr
    cgroups = lab.inside("gpu1", "cat", "/proc/self/cgroup").stdout
    assert not re.search(r"/docker/[0-9a-f]{12}", cgroups)  # a namespace of its own
    assert lab.inside("gpu1", "sh", "-c", "ls /sys/fs/cgroup/*/release_agent").stdout == ""


@pytest.mark.nightly
def test_two_labs_side_by_side(lab: Lab, other: Lab) -> None:
    before = started(lab)
    other.up("--hosts", "2", "--gpus", "pcie4")
    mine, theirs = ({host["address"].rpartition(".")[0] for host in user.status()["hosts"]} for user in (lab, other))
    assert mine.isdisjoint(theirs)
    assert other.answers("gpu1")
    shown = other.inside("gpu1", "nvidia-smi", "-L")
    assert shown.returncode == 0
    assert shown.stdout.startswith("GPU 0: ")
    assert other.host("gpu1")["simulated_gpus"] == "pcie4"
    assert "pcie4 (simulated)" in other.verb("status").stdout
    done = other.taco("lab", "status", "--json")
    assert {lab.name, other.name} <= {each["name"] for each in json.loads(done.stdout)["labs"]}
    # containers beside it: one only has the name of one of its hosts, one the labels, from an image made of a host
    image = f"{other.name}-image"
    docker("commit", "--pause=false", other.container("gpu1"), image)
    base = docker("inspect", "-f", "{{.Image}}", lab.container("gpu1"))
    strangers = [
        docker("create", "--name", other.container("gpu9"), base, "true"),
        docker("create", "--name", f"{other.name}-mine", image, "true"),
    ]
    try:
        assert [host["name"] for host in other.status()["hosts"]] == ["gpu1", "gpu2", "registry"]
        down = other.verb("down")
        assert down.returncode == 0, down.stderr
        assert image not in down.stderr
        assert set(strangers) <= set(docker("ps", "--all", "--quiet", "--no-trunc").split())
        assert "there was no lab" in other.verb("down").stderr
    finally:
        docker("rm", *strangers)
        docker("image", "rm", image)
    assert other.left() == []
    assert not other.folder.exists()
    assert "kept for the next lab: taco-launch-lab:" in down.stderr
    assert started(lab) == before
    assert lab.answers("gpu1")


def test_down_of_no_lab(other: Lab) -> None:
    done = other.verb("down")
    assert (done.returncode, f"there was no lab {other.name!r}" in done.stderr) == (0, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_up_that_is_killed_leaves_nothing(other: Lab, number: signal.Signals) -> None:
    process = subprocess.Popen(
        other.argv("lab", "up", "--yes", "--name", other.name), env=other.env, stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: len(other.left()) > 2, 60, "the first parts of it")
    process.send_signal(number)
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), said
    if number == signal.SIGINT:
        assert f"stopped; to start again: taco-launch lab up --name {other.name}" in said
    assert "Traceback" not in said
    eventually(lambda: other.left() == [], 60, "what was made to be removed")
    done = other.verb("up")
    assert done.returncode == 0, done.stderr
    assert [host["state"] for host in other.status()["hosts"]] == ["on", "on", "on"]
    assert other.verb("down").returncode == 0
    assert other.left() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root can become another user")
def test_an_ordinary_user_is_told_what_is_missing(lab: Lab, tmp_path: Path) -> None:
    assert lab.answers("gpu1")
    tmp_path.chmod(0o777)
    somebody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for needed in (sys.executable, taco_launch.__file__):
        if subprocess.run((*somebody, "test", "-r", needed), check=False).returncode:
            pytest.skip(f"cannot: others may not read {needed}")
    argv = (*somebody, sys.executable, "-m", "taco_launch", "lab")
    env = {
        **lab.env,
        "TACO_LAUNCH_STATE": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for verb in (("up",), ("down",), ("status",), ("fault", "gpu1", "power-off")):
        done = subprocess.run((*argv, *verb), env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert "this user may not use the Docker Engine" in done.stderr
        assert "sudo taco-launch lab up" in done.stderr
