"""How jobs without mpirun end: the first rank that fails, a stop, a kill of any part, a lost host, a port that is taken."""

import re
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from taco_launch.core.model.jobs import Policy, Restart
from tests.conftest import eventually
from tests.e2e.cluster import Cluster
from tests.e2e.ends import (
    NO_WAIT,
    Kill,
    kill_leaves_nothing,
    kills,
    loss_leaves_nothing,
    nothing_left,
    running,
    stop_leaves_nothing,
)
from tests.e2e.shapes import WORST, shapes
from tests.support.torch_hosts import kept, path

__all__ = ["kept", "path"]  # fixtures

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("rank", "script", "code"), [(4, "exit 3", 3), (2, "kill -9 $$", 137), (0, "kill $$", 143)])
def test_the_first_rank_that_fails_ends_the_others(
    cluster: Cluster, name: str, rank: int, script: str, code: int
) -> None:
    there = cluster.made.folder / name
    there.mkdir()
    waits = f"until [ $(ls {there} | wc -l) = 5 ]; do sleep 0.1; done"
    script = (
        f"[ $RANK = {rank} ] && {{ {waits}; echo last words; {script}; }}; "
        f"trap 'echo ended; exit 1' TERM; : >{there}/$RANK; sleep 600 & wait"
    )
    job = cluster.run(cluster.spec(name, "sh", "-c", script, launcher="env"))
    assert (job["state"], job["exit_code"], job["first_failure"]["rank"]) == ("FAILED", code, rank)
    assert job["reason"].startswith(f"rank {rank} on n{rank // 2 + 1} ")
    assert f"n{rank // 2 + 1}/{rank} | last words" in cluster.log(name)
    assert sorted(line for line in cluster.log(name) if line.endswith("ended")) == [
        f"n{other // 2 + 1}/{other} | ended" for other in range(6) if other != rank
    ]
    nothing_left(cluster)


def test_the_first_rank_that_fails_under_torchrun(cluster: Cluster, name: str, path: dict[str, str]) -> None:
    script = "[ $RANK = 3 ] && { echo last words; exit 7; }; sleep 600"
    job = cluster.run(cluster.spec(name, "sh", "-c", script, np=4, launcher="torchrun"), **path)
    assert (job["state"], job["exit_code"]) == ("FAILED", 7), job
    assert job["reason"].startswith("rank 3 on n2 exited with code 7"), job
    assert "n2/3 | last words" in cluster.log(name)
    nothing_left(cluster)


@pytest.mark.parametrize("np", [2, 6])
def test_no_torchrun(cluster: Cluster, name: str, np: int) -> None:
    job = cluster.run(cluster.spec(name, "true", np=np, launcher="torchrun"), PATH="/usr/bin:/bin")
    assert (job["state"], job["exit_code"], job["started"] is None) == ("FAILED", 125, False), job
    assert re.fullmatch(r"no rank started: On n\d no program is found under the name 'torchrun'\.", job["reason"])
    assert any(
        line.startswith(f"n{np // 2}/torchrun | taco-launch: cannot run 'torchrun'") for line in cluster.log(name)
    )
    nothing_left(cluster)


@pytest.mark.parametrize("shape", shapes(gate=[WORST], nightly=[()]))
@pytest.mark.parametrize("launcher", ["env", "torchrun"])
def test_stop_leaves_nothing_anywhere(
    cluster: Cluster, name: str, path: dict[str, str], launcher: str, shape: Sequence[str]
) -> None:
    stop_leaves_nothing(cluster, name, *shape, launcher=launcher, environment=path)


@pytest.mark.parametrize("shape", shapes(gate=[WORST], nightly=[("deaf",)]))
@pytest.mark.parametrize("kill", kills("env", "torchrun"))
def test_kill_9_of_any_part_leaves_nothing_anywhere(
    cluster: Cluster, name: str, path: dict[str, str], shape: Sequence[str], kill: Kill
) -> None:
    kill_leaves_nothing(cluster, name, kill, *shape, environment=path)


def test_a_job_that_is_tried_again(cluster: Cluster, name: str) -> None:
    script = "case $TACO_LAUNCH_JOB_ID in *.2) echo second;; *) [ $RANK = 3 ] && exit 5; sleep 600;; esac"
    policy = Policy(grace=1.0, restart=Restart.ON_FAILURE, backoff_limit=1, backoff=0.1)
    job = cluster.run(cluster.spec(name, "sh", "-c", script, launcher="env", np=4, policy=policy))
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 2), job
    assert job["left_out"] == ["n2"]
    assert sorted(cluster.log(name)[-4:]) == [f"n{(1, 1, 3, 3)[rank]}/{rank} | second" for rank in range(4)]


def test_a_host_that_is_lost_ends_the_job(cluster: Cluster, name: str) -> None:
    loss_leaves_nothing(cluster, name, *WORST, launcher="env")


def test_two_jobs_that_meet_at_one_port(cluster: Cluster, name: str) -> None:
    asked: dict[str, Any] = {"host_count": 2, "slots_per_host": 1, "launcher": "env", "per_host": True}
    running(cluster, name, **asked)
    refused = cluster.submit(cluster.spec("refused", "true", policy=NO_WAIT, **asked))
    assert (refused["state"], refused["exit_code"]) == ("FAILED", 4), refused
    assert "n1: port 23456, which the processes of --per-host use for rendezvous, is in use there" in refused["reason"]
    waits = cluster.submit(cluster.spec("waits", "true", **asked))
    assert waits["state"] == "QUEUED"
    assert waits["waiting"][0][1].startswith("port 23456")
    # Ports of another first host are others. It goes before the one that waits: behind it, it might take its slots.
    first: dict[str, Any] = {**asked, "hosts": cluster.spec("", "").hosts[1:], "policy": Policy(priority=1)}
    assert cluster.run(cluster.spec("other", "true", **first))["exit_code"] == 0
    cluster.call("stop", names=[name], by="the test", signal=signal.SIGTERM, grace=0)
    assert cluster.ended("waits")["state"] == "SUCCEEDED"
    for gone in ("waits", "other"):
        cluster.call("delete", names=[gone])


def test_a_port_that_somebody_took_is_named_with_who_has_it(cluster: Cluster, name: str) -> None:
    """Between the look at it and the start of rank 0."""
    there = cluster.made.folder / name
    listens = "import socket, sys, time; kept = socket.create_server(('', int(sys.argv[1]))); time.sleep(600)"
    binds = (
        f"import os, pathlib, socket, time; there = pathlib.Path('{there}'); port = os.environ['MASTER_PORT'];"
        " there.write_text(port);\nwhile there.exists(): time.sleep(0.1)\nsocket.create_server(('', int(port)))"
    )
    script = f'[ $RANK = 0 ] || exec sleep 600; exec {cluster.python} -c "{binds}"'
    cluster.submit(cluster.spec(name, "sh", "-c", script, np=4, launcher="env"))
    eventually(lambda: there.exists() and there.read_text())
    port = there.read_text()
    thief = subprocess.Popen([*cluster.made.inside(0), cluster.python, "-c", listens, port])
    try:
        eventually(lambda: f":{int(port):04X} " in cluster.sh("cat /proc/net/tcp"))
        there.unlink()
        job = cluster.ended(name)
    finally:
        thief.kill()
        thief.wait()
    assert (job["state"], job["exit_code"], job["first_failure"]["rank"]) == ("FAILED", 1, 0), job
    assert [finding["signature"] for finding in job["findings"]] == ["port-in-use"]
    assert re.search(
        rf"; port {port} of n1, which its ranks used for rendezvous, is still in use by process \d+ \(python3\S* of root\)",
        job["reason"],
    )
    nothing_left(cluster)
