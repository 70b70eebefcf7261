"""start.sh among simulated docker and systemctl: when the unit is started, when anew, and what a container's end says."""

import shutil
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
  restart*) echo true >"${0%/*}/docker.running" ;;
esac
echo "$*" >>"$0.did"
"""


# A container of an engine that should lose nothing (cgroupfs): it has GPUs from its start to a reload, where that takes them.
RELOADED = """#!/bin/sh
cd "${0%/*}"
case "$0 $*" in
  *docker*info*) echo cgroupfs ;;
  *docker*State.Running*) echo true ;;
  *docker*exec*nvidia-smi*) [ -e gpus ]; exit ;;
  *systemctl*show*) printf 'LoadState=loaded\\nNeedDaemonReload=yes\\n' ;;
  *systemctl*daemon-reload*) [ ! -e takes ] || rm -f gpus ;;
  *systemctl*start*) : >gpus ;;
esac
case "$*" in daemon-reload | stop* | start*) echo "${0##*/} $*" >>did ;; esac
"""


@pytest.mark.parametrize(("takes", "job"), [(False, False), (True, False), (True, True)])
def test_gpus_that_went_with_a_reload_come_back(tmp_path: Path, *, takes: bool, job: bool) -> None:
    for name in ("docker", "systemctl", "sleep"):
        (tmp_path / name).write_text(RELOADED)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gpus").touch()
    if takes:
        (tmp_path / "takes").touch()
    idle = "idle() { echo 'error: job j runs' >&2; return 1; }\n" if job else "idle() { :; }\n"
    text = idle + scripts.text("reload.sh") + scripts.text("start.sh")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    argv = ("sh", "-c", text, "setup", "box", "box.service")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=False)
    anew = ["systemctl stop box.service", "docker stop box"] if takes and not job else []
    did = [*("systemctl daemon-reload", *anew), *(() if job else ("systemctl start box.service",))]
    assert (tmp_path / "did").read_text().splitlines() == did
    assert (done.returncode, done.stderr) == ((1, "error: job j runs\n") if job else (0, ""))
    assert (tmp_path / "gpus").exists() != job


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
        )
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stderr

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
    did = [line for line in (tmp_path / "systemctl.did").read_text().splitlines() if "start" in line]
    assert did == ["start box.service", "start box.service", "restart box.service", "start box.service"]
