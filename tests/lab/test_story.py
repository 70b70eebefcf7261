"""The whole life of a cluster as its people know it: bare hosts, set-up, jobs, a queue, a nightly run, a lost host, teardown.

One test in named steps, since each step begins with what the one before it left. What differs from this way is tested by the
other modules of this folder.
"""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from taco_launch.bench.history.history import LadderKind, open_history
from tests.conftest import eventually
from tests.lab.rig import Cluster, Image, made
from tests.support.patience import patience

pytest.importorskip("scipy")
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HOSTS = ("gpu1", "gpu2")
RANKS = {f"gpu{1 + rank // 2}/{rank}" for rank in range(4)}
# Prints what only the controller, the hosts and the caller have: the code, a data set, a variable.
HELLO = "import os; print(open('words').read().strip(), open('/data/set').read().strip(), os.environ['SECRET'])\n"
# Every rank takes part, and the first one prints a number that differs a little from run to run.
RATE = "import os, time; os.environ['RANK'] == '0' and print('rate', 100 * (1 + time.time_ns() % 101 / 20000))"
MATRIX = {
    "name": "cells",
    "workloads": {
        "loop": {"kind": "regex", "command": ["python3", "-c", RATE], "pattern": "rate ([0-9.]+)", "unit": "steps/sec"}
    },
    "sizes": [1, 4],
    "variants": {"base": {}},
    "repeats": 2,
    "warmUps": 0,
    "minEffect": "5%",
}


def test_from_bare_hosts_to_jobs_and_back(tmp_path: Path) -> None:
    with made("story", tmp_path, "--hosts", "2", "--slots", "2", image=Image.SMALL) as lab:
        for step in STEPS:
            print(f"step: {step.__name__}", flush=True)  # pytest shows the last one where a step fails
            step(lab.cluster, tmp_path)


def set_up(cluster: Cluster, _folder: Path) -> None:
    assert cluster.setup().returncode == 2  # nobody can be asked
    assert cluster.setup("--dry-run").returncode == 0
    assert cluster.setup("--check").returncode == 3
    assert cluster.lab.inside("gpu1", "sh", "-c", "command -v docker").stdout == "", "looking has installed something"
    done = cluster.setup("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = sorted((cluster.lab.state / "setup" / cluster.lab.name).glob("*/*.log"))
    assert [log.name for log in logs] == ["gpu1.log", "gpu2.log"]
    told = done.stdout + done.stderr + "".join(log.read_text() for log in logs)
    assert cluster.lab.password not in told
    assert "PRIVATE KEY" not in told
    cluster.converged()


def run_code_with_data(cluster: Cluster, folder: Path) -> None:
    """Run a script that only the controller has, on data that only the hosts have."""
    for host in HOSTS:
        cluster.lab.sh(host, "mkdir -p /srv/data && echo numbers >/srv/data/set")
    code = folder / "code"
    code.mkdir()
    (code / "hello.py").write_text(HELLO)
    (code / "words").write_text("hello\n")
    line = ("run", "--name", "hello", "--np", "4", "--sync", str(code), "--data", "/srv/data:/data:ro", "-x", "SECRET")
    done = cluster(*line, "--", "python3", "hello.py", env={"SECRET": "hush-hush"}, seconds=200)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines()]
    assert {row[0].strip() for row in rows} == RANKS
    assert {row[1] for row in rows} == {"hello numbers hush-hush"}
    kept = cluster.lab.inside(
        "gpu1", "sh", "-c", "grep -rl hush-hush /var/lib/taco-launch/containers/*/jobs --exclude-dir=logs"
    )
    assert kept.stdout == "", "the secret outlives its job"
    assert cluster("delete", "hello").returncode == 0


def exit_as_the_rank(cluster: Cluster, _folder: Path) -> None:
    script = '[ "$RANK" != 3 ] || { sleep 1; exit 7; }'
    assert cluster("run", "--name", "seven", "--np", "4", "--", "sh", "-c", script).returncode == 7
    assert cluster("wait", "seven").returncode == 7
    job = cluster.job("seven")
    assert (job["state"], job["exit_code"]) == ("FAILED", 7)
    assert cluster("delete", "seven").returncode == 0
    assert cluster("get", "seven").returncode != 0


def wait_in_the_queue_and_look_into_a_job(cluster: Cluster, folder: Path) -> None:
    cluster.ok("submit", "--name", "first", "--np", "4", "--", "sleep", "600")
    cluster.runs("first")
    cluster.ok("submit", "--name", "second", "--np", "4", "--", "hostname")
    assert cluster.job("second")["state"] == "QUEUED"
    assert cluster.ok("exec", "first", "--rank", "3", "--", "hostname") == "gpu2\n"
    sent = folder / "sent"
    sent.write_text("there and back")
    cluster.ok("cp", "--rank", "3", str(sent), "first:/tmp/sent")
    cluster.ok("cp", "--rank", "3", "first:/tmp/sent", str(folder / "back"))
    assert (folder / "back").read_text() == "there and back"
    cluster.ok("stop", "--yes", "first")
    assert cluster("wait", "second").returncode == 0
    assert {job["name"]: job["state"] for job in cluster.jobs()} == {"first": "CANCELLED", "second": "SUCCEEDED"}
    cluster.ok("delete", "--yes", "first", "second")


def run_a_night(cluster: Cluster, folder: Path) -> None:
    """A nightly run whose cells go over both hosts is judged, told in one line, and in the history."""
    matrix = folder / "cells.yaml"
    matrix.write_text(json.dumps(MATRIX))
    line = cluster.ok("nightly", "run", str(matrix), seconds=400)
    summary = json.loads(Path(line.partition("summary: ")[2].strip()).with_suffix(".json").read_text())
    assert {each["ranks"] for each in summary["judged"]} == {1, 4}
    with open_history(cluster.lab.state / "history.db") as history:
        (night,) = history.ladders(LadderKind.NIGHTLY_RUN)
        runs = [run for _at, run in history.runs(night.id)]
    assert night.outcome == summary["outcome"]
    assert all(run.readings for run in runs)
    assert {run.cell.ranks: run.hosts for run in runs} == {1: ("gpu1",), 4: HOSTS}
    assert cluster.jobs() == []


def press_ctrl_c(cluster: Cluster, _folder: Path) -> None:
    job = cluster.start("run", "--name", "stopped", "--np", "4", "--", "sh", "-c", "echo up; exec sleep 987")
    cluster.runs("stopped")
    assert running(cluster, "gpu2", "sleep 987")
    job.send_signal(signal.SIGINT)
    _output, said = job.communicate(timeout=patience(60))
    assert job.returncode == 130, said
    assert cluster.job("stopped")["state"] == "CANCELLED"
    assert [running(cluster, host, "sleep 987") for host in HOSTS] == ["", ""]
    cluster.ok("delete", "--yes", "stopped")


def lose_a_host(cluster: Cluster, _folder: Path) -> None:
    cluster.ok("submit", "--name", "lost", "--np", "4", "--host-loss-timeout", "10s", "--", "sleep", "986")
    cluster.runs("lost")
    cluster.lab.fault("gpu2", "power-off")
    assert cluster("wait", "lost", seconds=120).returncode != 0
    assert cluster.job("lost")["state"] == "LOST"
    eventually(lambda: not running(cluster, "gpu1", "sleep 986"), 30, "the ranks on the head to end")
    cluster.lab.fault("gpu2", "power-on")
    eventually(lambda: cluster.lab.answers("gpu2"), 30, "gpu2 to answer")
    cluster.ok("setup", "--yes")
    assert cluster("run", "--np", "4", "--", "true").returncode == 0


def tear_down(cluster: Cluster, _folder: Path) -> None:
    image = cluster.lab.training()["image"]
    cluster.lab.sh("gpu1", f"docker create --name foreign {image} true")
    assert cluster("teardown").returncode == 2
    cluster.ok("teardown", "--yes", seconds=200)
    ours = (
        "ls -d /etc/taco-launch /etc/systemd/system/taco* /var/lib/taco-launch/[!c]* /var/lib/taco-launch/clusters "
        "/run/taco-launch/leases*"
    )
    assert [cluster.lab.inside(host, "sh", "-c", ours).stdout for host in HOSTS] == ["", ""]
    assert [cluster.lab.inside(host, "pgrep", "-af", "taco-launch|agent-").stdout for host in HOSTS] == ["", ""]
    assert cluster.lab.sh("gpu1", "docker ps -a --format '{{.Names}}'") == "foreign"
    assert image in cluster.lab.sh("gpu1", "docker images --format '{{.Repository}}:{{.Tag}}'")
    assert cluster.setup("--check").returncode == 3


STEPS: tuple[Callable[[Cluster, Path], None], ...] = (
    set_up,
    run_code_with_data,
    exit_as_the_rank,
    wait_in_the_queue_and_look_into_a_job,
    run_a_night,
    press_ctrl_c,
    lose_a_host,
    tear_down,
)


def running(cluster: Cluster, host: str, line: str) -> str:
    return cluster.lab.inside(host, "pgrep", "-fx", line).stdout
