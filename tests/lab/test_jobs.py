"""Jobs over SSH as a person runs them: two lab hosts that `setup` made ready, and more than one controller."""

import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.lab.rig import Cluster
from tests.support.patience import patience

# The first test waits for the hosts to be set up.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
TICKS = "i=0; while [ $i -lt 200 ]; do echo tick $i; i=$((i+1)); sleep 0.1; done"


@pytest.fixture
def second(cluster: Cluster, tmp_path: Path) -> Cluster:
    """Another controller: a state folder of its own, and an inventory somebody wrote."""
    return another(cluster, tmp_path, "gpu1", "gpu2")


def another(of: Cluster, folder: Path, *hosts: str, **changes: Any) -> Cluster:
    """Write an inventory of the same cluster in other words."""
    written = json.loads(Path(of.inventory).read_text())
    said = {"cluster": written["cluster"], "container": written["container"], **changes}
    wanted = {name: text for name, text in said.items() if text is not None}
    return of.lab.inventory(folder / "cluster.yaml", *hosts, state=folder / "state", **wanted)


def processes(cluster: Cluster, host: str, pattern: str) -> list[str]:
    return cluster.lab.inside(host, "pgrep", "-af", pattern).stdout.splitlines()


def ticks(output: str) -> dict[str, list[int]]:
    """Return what each rank counted, by its label."""
    found: dict[str, list[int]] = {}
    for line in output.splitlines():
        label, tick, said = line.partition(" | tick ")
        if tick:  # mpirun may have a word of its own
            found.setdefault(label.strip(), []).append(int(said))
    return found


def is_whole(counted: Sequence[int]) -> bool:
    return list(counted) == list(range(len(counted)))


def test_a_job_has_the_containers_environment_and_what_is_named(cluster: Cluster) -> None:
    job = ("run", "--name", "env", "--np", "2", "-H", "gpu1:1,gpu2:1", "-x", "SECRET", "-x", "PLAIN=1", "--")
    env = {"SECRET": "hush-hush", "MINE": "mine"}
    done = cluster(*job, "sh", "-c", "echo $SECRET/$PLAIN/$MINE/$PATH", env=env)
    assert done.returncode == 0, done.stderr
    said = {line.partition(" | ")[2] for line in done.stdout.splitlines() if "/mpirun" not in line}
    assert len(said) == 1
    secret, plain, mine, path = said.pop().split("/", 3)
    assert (secret, plain, mine) == ("hush-hush", "1", "")
    assert "/usr/bin" in path
    assert path != cluster.env["PATH"]
    looks = "grep -rl hush-hush /var/lib/taco-launch/containers/*/jobs/env --exclude-dir=logs"
    kept = cluster.lab.inside("gpu1", "sh", "-c", looks)
    assert (kept.stdout, kept.stderr) == ("", "")
    cluster("delete", "env")


def test_two_controllers_see_the_same_jobs(cluster: Cluster, second: Cluster) -> None:
    done = cluster("submit", "--name", "shared", "--np", "2", "--", "sh", "-c", TICKS)
    assert (done.returncode, done.stdout) == (0, "shared\n"), done.stderr
    assert "shared" in second("list").stdout
    assert second.job("shared")["id"] == cluster.job("shared")["id"]
    taken = second("submit", "--name", "shared", "--", "true")
    assert taken.returncode == 2
    assert "the name is taken" in taken.stderr
    stopped = second("stop", "shared")
    assert "CANCELLED" in stopped.stderr
    assert cluster.job("shared")["state"] == "CANCELLED"
    assert cluster("delete", "shared").returncode == 0
    assert "shared" not in second("list").stdout


def test_a_drained_host_gets_no_new_job_of_anybody(cluster: Cluster, second: Cluster) -> None:
    assert cluster("submit", "--name", "runs", "--np", "1", "-H", "gpu2:1", "--", "sh", "-c", TICKS).returncode == 0
    eventually(lambda: cluster.job("runs")["state"] == "RUNNING", 60)
    drained = cluster("host", "drain", "gpu2", "--reason", "new cable")
    assert drained.returncode == 0, drained.stderr
    assert "gpu2 takes no new jobs; still there: job runs" in drained.stderr
    hosts = {host["name"]: host for host in json.loads(second("host", "list", "--json").stdout)["hosts"]}
    assert [hosts[name]["status"] for name in ("gpu1", "gpu2")] == ["ready", "draining"]
    assert hosts["gpu2"]["drain"]["reason"] == "new cable"
    assert second("submit", "--name", "waits", "--np", "1", "-H", "gpu2:1", "--", "true").returncode == 0
    eventually(lambda: "(new cable)" in str(second.job("waits")["waiting"]), 60)
    eventually(lambda: cluster.job("runs")["state"] == "SUCCEEDED", 60)
    # its slots are free now, and stay so
    assert "drained" in cluster("top", "node").stdout
    assert second.job("waits")["state"] == "QUEUED"
    assert cluster("host", "resume", "gpu2", "--force").returncode == 0
    eventually(lambda: second.job("waits")["state"] == "SUCCEEDED", 60)
    cluster("delete", "runs")
    second("delete", "waits")


@pytest.mark.nightly
def test_slots_that_are_held_are_named(cluster: Cluster, second: Cluster) -> None:
    assert cluster("submit", "--name", "holds", "--", "sleep", "100").returncode == 0
    busy = second("run", "--name", "hasty", "--np", "4", "--no-wait", "--", "true")
    assert busy.returncode == 125, busy.stderr
    assert "gpu2: 0 of 2 free, 2 held by job holds since" in busy.stderr
    assert second("get", "hasty").returncode == 1
    waits = second.start("run", "--name", "waits", "--np", "4", "--", "true")
    eventually(lambda: second("get", "waits").returncode == 0 and second.job("waits")["waiting"], 60)
    cluster("delete", "holds")
    _output, said = waits.communicate(timeout=patience(100))
    assert waits.returncode == 0, said
    assert "job waits: waiting: gpu1: 0 of 2 free, 2 held by job holds since" in said
    cluster("delete", "waits")


def test_two_heads_race_for_the_same_hosts(cluster: Cluster, tmp_path: Path) -> None:
    """Each asks for the hosts in its own order, and has a queue of its own: all jobs run, no two at once in a slot."""
    second = another(cluster, tmp_path, "gpu2", "gpu1")
    # A rank that finds another job's in its place ends with 9.
    script = "mkdir /tmp/use.$LOCAL_RANK || exit 9; sleep 0.5; rmdir /tmp/use.$LOCAL_RANK"
    started = {
        f"{side}{number}": controller.start(
            "run", "--name", f"{side}{number}", "--np", "4" if number else "2", "--", "sh", "-c", script
        )
        for number in range(3)
        for side, controller in (("one", cluster), ("two", second))
    }
    ended = {
        name: (process.communicate(timeout=patience(100))[1], process.returncode) for name, process in started.items()
    }
    assert {code for _said, code in ended.values()} == {0}, ended
    assert any(f"job {name}: waiting: " in said for name, (said, _code) in ended.items())
    # All slots are free again, and a head knows its own jobs from the other's.
    for after, controller in (("after-two", second), ("after-one", cluster)):
        assert controller("run", "--name", after, "--np", "4", "--", "true").returncode == 0
        gone = controller("delete", after, *(name for name in ended if controller.job(name)))
        assert (gone.returncode, "still there" in gone.stderr) == (0, False), gone.stderr
        listed = controller("list")
        assert (listed.returncode, "spec.json" in listed.stderr) == (0, False), listed.stderr


def test_a_short_cut_harms_nobody_and_a_lost_connection_is_made_again(cluster: Cluster) -> None:
    job = cluster.start("run", "--name", "cut", "--np", "4", "--", "sh", "-c", TICKS)
    cluster.runs("cut")
    cluster.lab.fault("gpu1", "cut", "5s")
    time.sleep(1)
    cluster.lab.inside("gpu1", "pkill", "-KILL", "-f", "^sshd: root@notty")
    output, said = job.communicate(timeout=patience(100))
    assert job.returncode == 0, said
    counted = ticks(output)
    assert sorted(counted) == ["gpu1/0", "gpu1/1", "gpu2/2", "gpu2/3"]
    assert all(is_whole(numbers) and len(numbers) == 200 for numbers in counted.values())
    assert "trying to connect again" in said
    assert "connected again, following job cut" in said
    cluster("delete", "cut")


def test_a_closed_terminal_leaves_the_job_and_says_how_to_go_on(cluster: Cluster) -> None:
    job = cluster.start("run", "--name", "left", "--np", "2", "--", "sh", "-c", "echo up; exec sleep 30")
    assert job.stdout is not None
    job.stdout.readline()
    job.send_signal(signal.SIGHUP)
    _output, said = job.communicate(timeout=patience(60))
    assert job.returncode == 128 + signal.SIGHUP
    assert f"job left keeps running: taco-launch -i {cluster.inventory} logs -f left" in said
    assert cluster.job("left")["state"] == "RUNNING"
    assert cluster("delete", "left").returncode == 0


@pytest.mark.nightly
def test_followers_that_are_gone_leave_nothing_in_the_container_for_long(cluster: Cluster) -> None:
    cluster("submit", "--name", "silent", "--np", "2", "--", "sleep", "300")
    follower = cluster.start("logs", "-f", "silent")
    eventually(lambda: processes(cluster, "gpu1", "pyz logs"), 20, "a follower")
    follower.kill()
    follower.wait()
    eventually(lambda: not processes(cluster, "gpu1", "pyz logs"), 45, "the follower's agent to end")
    cluster("delete", "silent")


def test_a_dry_run_asks_the_container(cluster: Cluster) -> None:
    done = cluster("run", "--np", "4", "--dry-run", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "version of mpirun" in done.stderr
    assert "not known" not in done.stderr
    assert "-H gpu1:2,gpu2:2" in done.stdout


def test_what_was_not_set_up_is_named_with_the_next_step(cluster: Cluster, tmp_path: Path) -> None:
    second = another(cluster, tmp_path, "gpu1", "gpu2", cluster="other")
    done = second("list")
    assert done.returncode == 5
    assert "gpu1: there is no container taco-launch-other" in done.stderr
    assert f"to set the hosts up: taco-launch -i {second.inventory} setup" in done.stderr
    another(cluster, tmp_path, "gpu1", "gpu2", container=None)
    alone = second("list")  # a bare lab host has none
    assert alone.returncode == 5
    assert "gpu1: there is no python3\nhint: install Python 3.8 or newer there" in alone.stderr
    across = second("run", "--", "true")
    assert across.returncode == 2
    assert "host gpu2: cannot be used: without a container jobs run on the head only, which is gpu1" in across.stderr
