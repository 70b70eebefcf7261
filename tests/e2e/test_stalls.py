"""A job whose ranks do nothing is ended where that is asked, and says what they did; the first to fail is shown."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.model.jobs import Policy
from tests.conftest import Taco, eventually
from tests.e2e.cluster import Cluster
from tests.e2e.ends import nothing_left
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, "starts", flush=True)
mode = sys.argv[1:][rank]
if mode == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
while mode == "spin":
    pass
while mode == "write":
    print("step", flush=True)
    time.sleep(0.5)
if mode == "fail":
    print(*(f"line {number}" for number in range(30)), "\\x1b[2J", sep="\\n")
    sys.exit(3)
time.sleep(1000)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "rank.py"
    path.write_text(SCRIPT, encoding="ascii")
    return str(path)


def run(taco: Taco, script: str, *modes: str, options: tuple[str, ...] = ()) -> Any:
    np = ("--np", str(len(modes)), "--grace", "0.5", "--name", "job")
    return taco("run", *np, *options, "--", sys.executable, script, *modes)


@pytest.mark.parametrize("launcher", ["mpirun", "env"])
def test_a_job_that_hangs_is_ended_and_says_what_its_ranks_did(taco: Taco, script: str, launcher: str) -> None:
    told = run(taco, script, "sleep", "stop", options=("--stall-timeout", f"{patience(3):.0f}", "--launcher", launcher))
    assert told.returncode == 124, told.stderr
    job = taco.job("job")
    assert (job["state"], job["exit_code"], job["first_failure"]) == ("FAILED", 124, None)
    assert job["reason"].startswith("stalled for --stall-timeout ")
    assert job["reason"] in told.stderr
    stopped, sleeps = job["stalled"]["ranks"]
    assert (stopped["rank"], stopped["state"], stopped["last_line"]) == (1, "T", "rank 1 starts")
    assert (sleeps["rank"], sleeps["state"], sleeps["last_line"]) == (0, "S", "rank 0 starts")
    assert stopped["host"] == sleeps["host"] == "localhost"
    assert [event["kind"] for event in job["events"]][-3:] == ["stalled", "stopping", "ended"]
    shown = taco("get", "job").stdout
    assert "\nSTALLED: " in shown
    for pid in (stopped["pid"], sleeps["pid"]):
        assert f" {pid} " in shown
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("mode", ["spin", "write"])
def test_a_rank_that_does_something_keeps_the_job(taco: Taco, script: str, mode: str) -> None:
    # On a busy machine one that wants to do something may have to wait for some seconds.
    stall = patience(4)
    limits = ("--stall-timeout", f"{stall:.0f}", "--timeout", f"{2.5 * stall:.0f}")
    told = run(taco, script, "sleep", mode, options=limits)
    assert told.returncode == 124, told.stderr
    job = taco.job("job")
    assert job["exit_code"] == 124
    assert [event["kind"] for event in job["events"]][-3:] == ["seen", "stopping", "ended"]


def test_a_hang_is_a_failure_that_is_tried_again(taco: Taco, script: str) -> None:
    words = f"--stall-timeout {patience(1):.0f} --restart on-failure --backoff-limit 1 --backoff 0.1"
    told = run(taco, script, "sleep", options=tuple(words.split()))
    assert told.returncode == 124, told.stderr
    job = taco.job("job")
    kinds = [event["kind"] for event in job["events"]]
    assert (job["attempt"], kinds.count("stalled"), kinds.count("restarting")) == (2, 2, 1)


def test_the_first_rank_to_fail_is_shown_with_its_last_lines(taco: Taco, script: str) -> None:
    told = run(taco, script, "sleep", "fail")
    assert told.returncode == 3, told.stderr
    log = f"localhost:{taco.folder('job')}/logs/rank-1.0.log"
    lines = [*(f"line {number}" for number in range(11, 30)), "\x1b[2J"]
    first = taco.job("job")["first_failure"]
    assert (first["rank"], first["host"], first["exit_code"]) == (1, "localhost", 3)
    assert (first["log"], first["lines"]) == (log, lines)
    shown = [*(f"  {line}" for line in lines[:-1]), "  \\x1b[2J"]
    block = "\n".join((f"({log}):", *shown))
    assert f"LAST LINES OF RANK 1 on localhost {block}\n" in taco("get", "job").stdout
    for verb in (told, taco("wait", "job")):
        assert f"the last lines of rank 1 on localhost {block}\nits log: " in verb.stderr
    quiet = taco("wait", "-q", "job").stderr
    assert quiet.startswith("job job: FAILED")
    assert "line 11" not in quiet


def test_hosts_hang_together_and_not_alone(cluster: Cluster, name: str) -> None:
    """Six ranks on three hosts: while one of them works nothing happens; when that is stopped, too, the job ends."""
    there = cluster.made.folder / name
    script = f"[ $RANK = 5 ] || exec sleep 1000; echo $$ >{there}; while :; do echo step; sleep 0.3; done"
    stall = patience(4)
    policy = Policy(stall_timeout=stall, grace=0.5, queue_timeout=0)
    cluster.submit(cluster.spec(name, "sh", "-c", script, policy=policy, launcher="env"))
    eventually(lambda: cluster.job(name)["state"] == "RUNNING")
    time.sleep(2 * stall + 1)
    job = cluster.job(name)
    assert (job["state"], job["stalled"]) == ("RUNNING", None)
    cluster.kill(int(there.read_text(encoding="ascii")), 2, signal.SIGSTOP)
    job = cluster.ended(name, stall + 40)
    assert (job["state"], job["exit_code"]) == ("FAILED", 124), job
    looks = job["stalled"]["ranks"]
    assert (looks[0]["rank"], looks[0]["host"], looks[0]["state"], looks[0]["last_line"]) == (5, "n3", "T", "step")
    assert sorted((look["rank"], look["host"]) for look in looks) == [(rank, f"n{rank // 2 + 1}") for rank in range(6)]
    nothing_left(cluster)


def test_where_the_log_of_a_rank_lies_on_its_host(cluster: Cluster, name: str) -> None:
    script = "[ $RANK = 3 ] && { echo first; echo last; exit 3; }; exec sleep 1000"
    first = cluster.run(cluster.spec(name, "sh", "-c", script, launcher="env"))["first_failure"]
    assert (first["rank"], first["host"], first["exit_code"], first["lines"]) == (3, "n2", 3, ["first", "last"])
    host, _colon, path = first["log"].partition(":")
    assert (host, cluster.sh(f"cat {path}", on=1)) == ("n2", "first\nlast\n")
