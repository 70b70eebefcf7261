"""start.sh among simulated docker and systemctl: when the unit is started, when anew, and what a container's end says."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from taco_launch.setup import scripts

DOCKER = """#!/bin/sh
case "$*" in
  *State.Running*) cat "$0.running" ;;
  *State.Error*) ;;
  *State.Status*) echo "exited, exit code 3" ;;
  logs*) cat "$0.logs" ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
case "$*" in
  *is-active*) [ -e "$0.active" ]; exit ;;
  *ActiveState*) cat "$0.state" ;;
  restart*) echo true >"${0%/*}/docker.running" ;;
esac
echo "$*" >>"$0.did"
"""


# A container with GPUs by the hook, of an engine that should lose nothing (cgroupfs): it has them from its start to a reload,
# where that takes them. What is to be done needs a reload where the unit's file is new, and where systemd says so.
RELOADED = """#!/bin/sh
cd "${0%/*}"
case "$0 $*" in
  *docker*info*) cat driver ;;
  *docker*ps*) echo one two ;;
  *docker*Config.Env*) cat boxes ;;
  *docker*State.Running*) echo true ;;
  *docker*exec*nvidia-smi*) [ -e gpus ]; exit ;;
  *systemctl*LoadState*NeedDaemonReload*) printf 'LoadState=loaded\\nNeedDaemonReload=yes\\n' ;;
  *systemctl*LoadState*) echo LoadState=loaded ;;
  *systemctl*daemon-reload*) [ ! -e takes ] || rm -f gpus ;;
  *systemctl*start*) : >gpus ;;
  *systemctl*enable*) [ "$SYSTEMCTL_INSTALL_CLIENT_SIDE" = 1 ] ;; # else no unit of the host counts as read from then on
esac || exit
case "$*" in daemon-reload | stop* | start*) echo "${0##*/} $*" >>did ;; esac
"""
BOX = "/box false nvidia NVIDIA_VISIBLE_DEVICES=all\n"
OTHER = "/other false nvidia NVIDIA_VISIBLE_DEVICES=all\n"


class Reloaded:
    """A host in a folder, on which start.sh runs: its unit is to be another, or was made so before."""

    def __init__(self, folder: Path, boxes: str, driver: str = "cgroupfs", *, new: bool = True) -> None:
        self.folder = folder
        for name in ("docker", "systemctl", "sleep"):
            (folder / name).write_text(RELOADED)
            (folder / name).chmod(0o755)
        (folder / "gpus").touch()
        (folder / "boxes").write_text(boxes)
        (folder / "driver").write_text(f"{driver}\n")
        (folder / "box.service").write_text("old")
        if new:
            (folder / "unit.new").write_text("new")

    def start(self, job: str = "") -> tuple[int, str]:
        idle = f'idle() {{ echo "error: job {job} runs in $1" >&2; return 1; }}\n' if job else "idle() { :; }\n"
        text = idle + scripts.text("reload.sh") + scripts.text("start.sh")
        files = (str(self.folder / name) for name in ("box.service", "unit.new"))
        done = subprocess.run(
            ("sh", "-c", text, "setup", "box", "box.service", *files),
            env={"PATH": f"{self.folder}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert not (self.folder / "unit.new").exists()
        return done.returncode, done.stderr

    @property
    def did(self) -> list[str]:
        file = self.folder / "did"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def unit(self) -> str:
        return (self.folder / "box.service").read_text()


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("takes", [False, True])
def test_gpus_that_went_with_a_reload_come_back(tmp_path: Path, *, takes: bool, new: bool) -> None:
    host = Reloaded(tmp_path, BOX, new=new)
    if takes:
        (tmp_path / "takes").touch()
    assert host.start() == (0, "")
    anew = ["systemctl stop box.service", "docker stop box"] if takes else []
    assert host.did == ["systemctl daemon-reload", *anew, "systemctl start box.service"]
    assert (tmp_path / "gpus").exists()
    assert host.unit == ("new" if new else "old")


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("new", [False, True])
def test_under_a_job_nothing_is_written_nor_read(tmp_path: Path, driver: str, *, new: bool) -> None:
    host = Reloaded(tmp_path, BOX, driver, new=new)
    code, said = host.start(job="j")
    assert (code, host.did, host.unit) == (1, [], "old"), "it is still to be done by the next set-up"
    assert said.startswith("error: job j runs in box, which may lose its GPUs when systemd reads box.service again")
    assert (tmp_path / "gpus").exists()


def test_no_other_container_loses_its_gpus_by_a_changed_unit(tmp_path: Path) -> None:
    host = Reloaded(tmp_path, BOX + OTHER, "systemd")
    code, said = host.start()
    assert (code, host.did, host.unit) == (1, [], "old")
    assert "the change of box.service has systemd read its units again, which takes the GPUs from other\nhint: " in said
    assert "hint: when no job runs there: docker stop other; then run this again" in said
    (tmp_path / "boxes").write_text("/box false runc request=cdi\n/other true nvidia NVIDIA_VISIBLE_DEVICES=all\n")
    (tmp_path / "unit.new").write_text("new")
    assert (host.start(job="j"), host.unit) == ((0, ""), "new"), "none of these loses any"


@pytest.mark.parametrize("shell", [shell for shell in ("dash", "bash") if shutil.which(shell)])
def test_the_unit_of_a_container_that_is_not_up(shell: str, tmp_path: Path) -> None:
    for name, text in (("docker", DOCKER), ("systemctl", SYSTEMCTL), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def start() -> tuple[int, str]:
        argv = (
            shell,
            "-c",
            "".join(map(scripts.text, ("idle.sh", "reload.sh", "start.sh"))),
            "setup",
            "box",
            "box.service",
            "/none/box.service",
            "/none/new",
        )
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stderr

    state = tmp_path / "systemctl.state"
    state.write_text("ActiveState=inactive\n")
    running, logs = tmp_path / "docker.running", tmp_path / "docker.logs"
    running.write_text("false\n")
    logs.write_text("")
    said = "error: box does not stay up: exited, exit code 3"
    assert start() == (1, f"{said}; see journalctl -u box.service\n")
    logs.write_text("sshd: no hostkeys\n")
    assert start() == (1, f"{said}: sshd: no hostkeys; see journalctl -u box.service\n")
    (tmp_path / "systemctl.active").touch()
    assert start() == (0, "")  # another container had the name when the unit was started
    assert start() == (0, "")
    (tmp_path / "systemctl.active").unlink()
    state.write_text("ActiveState=activating\n")
    assert start() == (0, "")  # its start waits for devices which the unit named before
    did = [line for line in (tmp_path / "systemctl.did").read_text().splitlines() if "start" in line]
    assert did == [
        "start box.service",
        "start box.service",
        "restart box.service",
        "start box.service",
        "restart box.service",
    ]


# --- variant_port.sh: each variant has a port of its own, the same one each time


def lease(folder: Path, *words: object) -> str:
    text = scripts.text("variant_port.sh").replace("/var/lib/taco-launch", str(folder / "var"))
    text = text.replace("/run/taco-launch", str(folder / "run"))
    argv = ("/bin/sh", "-c", text, "variant_port", *map(str, words))
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def test_each_has_its_own_and_keeps_it(tmp_path: Path) -> None:
    assert lease(tmp_path, "c@1", 47301, 47303, 0) == "port 47301"
    assert lease(tmp_path, "c@2", 47301, 47303, 0) == "port 47302"
    assert lease(tmp_path, "c@1", 47301, 47303, 0) == "port 47301"
    assert lease(tmp_path, "c@3", 47301, 47303, 47302) == "taken"
    assert lease(tmp_path, "c@3", 47301, 47303, 47303) == "port 47303"
    assert lease(tmp_path, "c@4", 47301, 47303, 0) == "taken"


def test_what_another_host_refused_is_given_up_for_another(tmp_path: Path) -> None:
    assert lease(tmp_path, "c@1", 47311, 47313, 0) == "port 47311"
    assert lease(tmp_path, "c@1", 47311, 47313, 0, 47311) == "port 47312"
    assert lease(tmp_path, "c@2", 47311, 47313, 0) == "port 47311"


@pytest.mark.enable_socket
def test_a_port_with_a_listener_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert lease(tmp_path, "c@1", port, port, 0) == "taken"


@pytest.mark.parametrize("place", ["other/ssh", "c/variants/0123456789/ssh"])
def test_so_is_that_of_a_container_that_does_not_run(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "var/clusters" / place
    folder.mkdir(parents=True)
    (folder / "sshd_config").write_text("ListenAddress 10.0.0.1:47321\n")
    assert lease(tmp_path, "c@1", 47321, 47322, 0) == ("port 47322" if place.startswith("other") else "port 47321")
