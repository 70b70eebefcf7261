"""Jobs that fail, and processes of the queue that are killed: further attempts, what stays of a job, a scheduler again."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from taco_launch.agent.host import facts, processes
from tests.conftest import Taco, eventually
from tests.e2e.process_table import running
from tests.e2e.queue_view import began, hold, keepers, kinds, schedulers, submit
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

# --- attempts

AGAIN = 'echo attempt; [ -e "$WITNESS" ] && exit 0; touch "$WITNESS"; exit 7'


def test_a_job_that_fails_is_tried_again(taco: Taco, tmp_path: Path) -> None:
    words = ("--restart", "on-failure", "--backoff-limit", "2", "--backoff", "0.5", "-x", f"WITNESS={tmp_path}/seen")
    run = taco.ok("run", "--name", "again", "--np", "1", *words, "--", "sh", "-c", AGAIN)
    lines = [line for line in run.stdout.splitlines() if "/mpirun" not in line]
    assert lines == ["localhost/0 | attempt", "[taco-launch: attempt 2]", "localhost/0 | attempt"]
    job = taco.job("again")
    assert (job["state"], job["attempt"], job["mark"]) == ("SUCCEEDED", 2, f"{job['id']}.2")
    states = "QUEUED STARTING RUNNING RESTARTING STARTING RUNNING SUCCEEDED"
    assert [change["state"] for change in job["transitions"]] == states.split()
    assert (taco.folder("again") / "logs/attempt-2/rank-0.0.log").read_bytes() == b"attempt\n"
    assert (taco.folder("again") / "logs/rank-0.0.log").read_bytes() == b"attempt\n"


def test_the_number_of_attempts_is_bounded(taco: Taco) -> None:
    words = ("--restart", "on-failure", "--backoff-limit", "1", "--backoff", "0.1")
    run = taco("run", "--name", "fails", "--np", "1", *words, "--", "sh", "-c", "exit 7")
    assert run.returncode == 7
    assert kinds(taco, "fails").count("restarting") == 1
    assert "its 2 attempts are used up" in run.stderr


def test_the_time_of_a_job_is_that_of_all_attempts(taco: Taco) -> None:
    words = ("--restart", "on-failure", "--backoff-limit", "9", "--backoff", "60", "--timeout", f"{patience(8):.0f}")
    submit(taco, "slow", "--np", "1", *words, "--", "sh", "-c", "exit 7")
    assert taco.ended("slow", 40)["exit_code"] == 124
    assert kinds(taco, "slow")[-2:] == ["restarting", "ended"]


def test_the_head_reboots_between_two_attempts(taco: Taco, tmp_path: Path) -> None:
    backoff = round(patience(5))
    words = f"--restart on-failure --backoff-limit 1 --backoff {backoff} -x WITNESS={tmp_path}/seen".split()
    submit(taco, "again", "--np", "1", *words, "--", "sh", "-c", AGAIN)
    eventually(lambda: kinds(taco, "again")[-1] == "restarting")
    for pid in schedulers(taco):
        os.kill(pid, signal.SIGKILL)
    file = taco.folder("again") / "events.jsonl"
    file.write_text(file.read_text(encoding="ascii").replace(facts.boot_id(), "before"), encoding="ascii")
    time.sleep(backoff)
    assert kinds(taco, "again")[-1] == "restarting"  # nobody was there
    job = taco.ended("again")
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 2)


@pytest.mark.parametrize("restart", [True, False])
def test_a_supervisor_that_is_killed(taco: Taco, tmp_path: Path, restart: bool) -> None:
    words = ("--restart", "on-failure", "--backoff-limit", "1", "--backoff", "0.1") if restart else ()
    script = '[ -e "$WITNESS" ] && exit 0; touch "$WITNESS"; exec sleep 600'
    submit(taco, "mine", "--np", "1", *words, "-x", f"WITNESS={tmp_path}/seen", "--", "sh", "-c", script)
    eventually((tmp_path / "seen").exists)
    submit(taco, "next", "--np", "2", "--", "true")
    (pid,) = running("run", f"{taco.folder('mine')}", "")
    os.kill(pid, signal.SIGKILL)
    assert taco.ended("mine")["state"] == ("SUCCEEDED" if restart else "LOST")
    assert taco.ended("next")["state"] == "SUCCEEDED"


def test_a_job_that_a_job_has_submitted_is_no_part_of_it(taco: Taco, tmp_path: Path) -> None:
    # mpirun refuses to run below another one, which it tells by its environment
    clean = " ".join(f"{name}='{taco.env[name]}'" for name in ("PATH", "TACO_LAUNCH_STATE", "TACO_LAUNCH_LEASES"))
    submits = f"env -i {clean} {sys.executable} -m taco_launch submit --np 1 --name"
    script = f"{submits} inner -- sh -c 'until [ -e {tmp_path}/go ]; do sleep 0.05; done' && {submits} waits -- true"
    outer = taco("run", "--name", "outer", "--np", "1", "--", "sh", "-c", script)
    assert outer.returncode == 0, outer.stdout + outer.stderr
    assert taco.job("inner")["state"] in ("STARTING", "RUNNING")
    (tmp_path / "go").touch()
    assert {taco.ended(name)["state"] for name in ("inner", "waits")} == {"SUCCEEDED"}


# --- what stays, and how long


def test_a_record_is_removed_after_its_time(taco: Taco) -> None:
    assert taco("run", "--name", "short", "--np", "1", "--ttl", "2", "--", "true").returncode == 0
    eventually(lambda: not taco.folder("short").exists(), 10)
    eventually(lambda: not schedulers(taco))


def lives(witness: Path) -> bool:
    """Return whether a process lives whose number is in a file."""
    entry = processes.identify(int(witness.read_text(encoding="ascii")))
    return entry is not None and entry.state != "Z"


STAYS = 'setsid sleep 600 >/dev/null 2>&1 & echo $! >"$WITNESS"'


@pytest.mark.parametrize("policy", ["none", "running"])
def test_what_a_job_leaves_running(taco: Taco, tmp_path: Path, policy: str) -> None:
    witness = tmp_path / "pid"
    words = ("--clean-up", policy, "-x", f"WITNESS={witness}", "--", "sh", "-c", STAYS)
    assert taco("run", "--name", "leaves", "--np", "1", *words).returncode == 0
    assert lives(witness) == (policy == "none")
    # whoever takes its slots ends it first
    assert taco("run", "--np", "2", "--", "true").returncode == 0
    assert not lives(witness)


def test_what_a_job_has_left_running_ends_with_its_record(taco: Taco, tmp_path: Path) -> None:
    witness = tmp_path / "pid"
    words = ("--clean-up", "none", "-x", f"WITNESS={witness}", "--", "sh", "-c", STAYS)
    assert taco("run", "--name", "leaves", "--np", "1", *words).returncode == 0
    assert taco("delete", "leaves").returncode == 0
    assert not lives(witness)


# --- the scheduler


def test_kill_9_of_the_scheduler(taco: Taco) -> None:
    hold(taco)
    for name in ("a", "b"):
        submit(taco, name, "--np", "2", "--", "true")
    (pid,) = eventually(lambda: len(found := schedulers(taco)) == 1 and found)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not schedulers(taco))
    assert taco("list").returncode == 0  # any call starts it again
    # each call that finds none starts one, of which one stays
    (again,) = eventually(lambda: len(found := schedulers(taco)) == 1 and found)
    os.kill(again, signal.SIGKILL)
    eventually(lambda: not schedulers(taco))
    (taco.folder("holder") / "stop.json").write_text('{"by": "the test", "signal": 15, "grace": 0}', encoding="ascii")
    # and so does the end of a job
    eventually(lambda: "ended" in kinds(taco, "b"), 30)
    assert {taco.job(name)["state"] for name in "ab"} == {"SUCCEEDED"}
    assert began(taco, "a") < began(taco, "b")
    eventually(lambda: not schedulers(taco))


def test_kill_9_of_the_scheduler_while_a_job_waits_for_its_next_attempt(taco: Taco) -> None:
    """Nobody types a command after that, and the next attempt comes all the same."""
    submit(
        taco, "again", "--np", "1", "--restart", "on-failure", "--backoff", "3s", "--backoff-limit", "1", "--", "false"
    )
    eventually(lambda: "restarting" in kinds(taco, "again"), 30)
    (pid,) = eventually(lambda: len(found := schedulers(taco)) == 1 and found)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: kinds(taco, "again").count("placed") == 2, 30, "the second attempt")
    eventually(lambda: "ended" in kinds(taco, "again"), 30)
    eventually(lambda: not schedulers(taco) and not keepers(taco), what="the queue's processes to end")


def test_kill_9_of_what_keeps_the_scheduler(taco: Taco) -> None:
    submit(taco, "again", "--np", "1", "--restart", "on-failure", "--backoff", "600s", "--", "false")
    eventually(lambda: "restarting" in kinds(taco, "again"), 30)
    eventually(lambda: len(schedulers(taco)) == 1)
    (pid,) = eventually(lambda: len(found := keepers(taco)) == 1 and found)
    os.kill(pid, signal.SIGKILL)
    (other,) = eventually(lambda: len(found := keepers(taco)) == 1 and pid not in found and found, 30, "another keeper")
    assert other != pid
    eventually(lambda: len(schedulers(taco)) == 1)
    taco.ok("stop", "again")
    eventually(lambda: not schedulers(taco) and not keepers(taco), what="the queue's processes to end")
