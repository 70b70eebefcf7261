"""The queue with real jobs on this machine: order, words, ends, attempts; whoever is killed, no job is lost or stuck."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.host import facts, processes
from tests.conftest import Taco, eventually
from tests.e2e.process_table import command_lines, running
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

# A rank that locks a file of its own number: two that have the same at once are seen.
WITNESS = """
import fcntl, os, sys, time
slots = os.environ["SLOTS_FOLDER"]
for number in range(int(sys.argv[1])):
    lock = open(f"{slots}/{number}", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except OSError:
        continue
else:
    sys.exit("more ranks than slots run at once")
time.sleep(0.1)
open(f"{slots}/done-{os.environ['TACO_LAUNCH_JOB']}-{os.environ['RANK']}", "w").close()
"""


def submit(taco: Taco, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return taco.ok("submit", "--name", name, *words)


def hold(taco: Taco, name: str = "holder", np: int = 2, *options: str) -> None:
    """Start a job that has its slots until it is stopped."""
    submit(taco, name, "--np", str(np), *options, "--", "sleep", "600")
    eventually(lambda: "running" in kinds(taco, name), what=f"{name} to run")


def events(taco: Taco, name: str) -> list[dict[str, Any]]:
    lines = (taco.folder(name) / "events.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


def kinds(taco: Taco, name: str) -> list[str]:
    return [event["kind"] for event in events(taco, name)]


def began(taco: Taco, name: str) -> float:
    return next(float(event["time"]) for event in events(taco, name) if event["kind"] == "placed")


def schedulers(taco: Taco) -> list[int]:
    """Return the processes that schedule for this test."""
    return of_queue(taco, "schedule")


def keepers(taco: Taco) -> list[int]:
    """Return the processes that start those again."""
    return of_queue(taco, "keep-queue")


def of_queue(taco: Taco, op: str) -> list[int]:
    own = str(taco.state)
    return [pid for pid, words in command_lines() if op in words and any(w.startswith(own) for w in words)]


# --- order


def test_a_job_waits_for_its_slots_and_is_told_why(taco: Taco) -> None:
    hold(taco)
    process = taco.start("run", "--name", "next", "--np", "1", "--", "echo", "mine")
    eventually(lambda: taco("get", "next").returncode == 0 and taco.job("next")["waiting"])
    job = taco.job("next")
    assert job["state"] == "QUEUED"
    ((host, why),) = job["waiting"]
    assert host == "localhost"
    assert "held by job holder " in why
    assert job["reason"] == "waiting for slots"  # whoever has written it, supervisor or scheduler
    assert "waiting" in kinds(taco, "next")
    assert taco("stop", "holder").returncode == 0
    out, err = process.communicate(timeout=patience(30))
    assert out == b"localhost/0 | mine\n"
    assert b"job next: waiting: localhost: " in err
    assert process.returncode == 0


def test_first_in_first_out_by_priority(taco: Taco) -> None:
    hold(taco)
    for name, priority in (("a", 0), ("b", 0), ("c", 5)):
        submit(taco, name, "--np", "2", "--priority", str(priority), "--", "true")
    assert {name: taco.job(name)["state"] for name in "abc"} == dict.fromkeys("abc", "QUEUED")
    assert taco("stop", "holder").returncode == 0
    assert {taco.ended(name)["state"] for name in "abc"} == {"SUCCEEDED"}
    assert sorted("abc", key=lambda name: began(taco, name)) == ["c", "a", "b"]


def test_who_passes_delays_nobody(taco: Taco) -> None:
    hold(taco, "three", 3, "-H", "localhost:4")
    submit(taco, "big", "--np", "3", "-H", "localhost:4", "--", "true")
    submit(taco, "all", "--np", "4", "-H", "localhost:4", "--", "true")
    submit(taco, "small", "--np", "1", "-H", "localhost:4", "--", "true")
    # It would not be in the way of `big`, but of `all`, which needs every slot.
    eventually(lambda: "waiting" in kinds(taco, "small"), what="the scheduler to leave it waiting")
    assert taco.job("small")["state"] == "QUEUED"
    taco("stop", "all")
    assert taco.ended("small")["state"] == "SUCCEEDED"
    assert taco.job("big")["state"] == "QUEUED"


def test_what_can_never_fit_is_refused_wherever_it_stands(taco: Taco) -> None:
    hold(taco)
    submit(taco, "waits", "--np", "1", "--", "true")
    for name in ("first", "second"):
        refused = taco("run", "--name", name, "--np", "3", "--", "true")
        assert refused.returncode == 125
        assert not taco.folder(name).exists()


def test_no_wait(taco: Taco) -> None:
    hold(taco)
    for more in ((), ("waits",)):
        for name in more:
            submit(taco, name, "--np", "1", "--", "true")
        refused = taco("run", "--name", "hasty", "--np", "1", "--no-wait", "--", "true")
        assert refused.returncode == 125
        assert "held by job holder " in refused.stderr
        assert not taco.folder("hasty").exists()


def test_the_queue_deadline(taco: Taco) -> None:
    hold(taco)
    submit(taco, "late", "--np", "1", "--queue-timeout", "2", "--", "true")
    assert taco("wait", "late").returncode == 125
    job = taco.job("late")
    assert (job["state"], job["exit_code"], job["started"]) == ("FAILED", 4, None)
    assert taco("wait", "late").stderr.count("\n") == 1  # it never ran: there is no log to name


@pytest.mark.parametrize("count", [20, pytest.param(50, marks=pytest.mark.nightly)])
def test_many_submits_at_once(taco: Taco, tmp_path: Path, count: int) -> None:
    slots = tmp_path / "slots"
    slots.mkdir()
    script = tmp_path / "witness.py"
    script.write_text(WITNESS, encoding="ascii")
    names = [f"many-{number}" for number in range(count)]

    def one(name: str) -> int:
        words = ("--name", name, "--np", "1", "-x", f"SLOTS_FOLDER={slots}", "--", sys.executable, str(script), "2")
        return taco("submit", *words, timeout=120).returncode

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, names)) == {0}
    ended = {name: taco.ended(name, 120)["state"] for name in names}
    assert ended == dict.fromkeys(names, "SUCCEEDED")
    assert len(list(slots.glob("done-*"))) == count
    eventually(lambda: not schedulers(taco), what="the scheduler to end with the queue")


# --- stop, suspend


@pytest.mark.parametrize("verb", ["stop", "delete", "suspend"])
def test_none_of_several_named_jobs_starts_in_place_of_another(taco: Taco, verb: str) -> None:
    """A job has all slots, others wait for them; all are named, the one that runs first."""
    hold(taco)
    waiting = [f"w{number}" for number in range(4)]
    for name in waiting:
        submit(taco, name, "--np", "2", "--", "touch", str(taco.state / f"ran-{name}"))
    taco.ok(verb, "holder", *waiting)
    submit(taco, "last", "--np", "2", "--", "true")
    taco.ok("wait", "last")
    assert [path.name for path in taco.state.glob("ran-*")] == []


def test_a_job_with_more_ranks_than_the_limit_of_open_files_allows(taco: Taco, tmp_path: Path) -> None:
    """Not with the soft limit, which the supervisor raises; a hard one refuses the job before it starts."""
    inventory = tmp_path / "i.yaml"
    inventory.write_text("cluster: c\ncontainer: null\nhosts: {localhost: {slots: 16, connection: local}}\n")
    words = ("-i", str(inventory), "run", "--np", "16", "--name", "n", "--", "true")
    limited = ("prlimit", "--nofile=48:4096", *taco.argv(*words))
    done = subprocess.run(limited, env=taco.env, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, done.stderr
    taco.ok("delete", "n")
    limited = ("prlimit", "--nofile=100:100", *taco.argv(*words))
    done = subprocess.run(limited, env=taco.env, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 125, done.stderr
    assert "a job of 16 ranks needs 130 open files on its head, where the hard limit is 100" in done.stderr


def test_stop_of_a_job_that_waits(taco: Taco) -> None:
    hold(taco)
    for name in ("first", "second"):
        submit(taco, name, "--np", "1", "--", "true")
    for name in ("second", "first"):
        assert taco("stop", name).returncode == 0
        job = taco.job(name)
        assert (job["state"], job["exit_code"], job["started"]) == ("CANCELLED", 143, None)
        assert not (taco.folder(name) / "caller.json").exists()
    assert taco("delete", "first", "second").returncode == 0


@pytest.mark.parametrize("when", ["waiting", "being placed", "before there is one"])
def test_ctrl_c_before_a_job_has_its_place(taco: Taco, when: str) -> None:
    if when == "waiting":
        hold(taco)
    process = taco.start("run", "--name", "mine", "--np", "2", "--", "sleep", "600")
    eventually((taco.state / "jobs" if when == "before there is one" else taco.folder("mine")).exists)
    if when == "waiting":
        eventually(lambda: "waiting" in kinds(taco, "mine"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patience(20))
    assert process.returncode == 130
    assert taco.job("mine")["state"] == "CANCELLED"


def test_suspend_and_resume(taco: Taco) -> None:
    hold(taco, "mine", 2)
    assert taco("suspend", "mine").returncode == 0
    eventually(lambda: taco.job("mine")["state"] == "SUSPENDED")
    assert taco("run", "--name", "other", "--np", "2", "--", "true").returncode == 0  # its slots are free
    assert taco("resume", "mine").returncode == 0
    eventually(lambda: taco.job("mine")["state"] == "RUNNING")
    assert taco.job("mine")["attempt"] == 2
    assert "ATTEMPT" not in taco("get", "mine").stdout  # it has not failed
    assert re.search(r"\[taco-launch: suspended by .*\]\n\[taco-launch: attempt 2\]\n", taco("logs", "mine").stdout)
    assert taco("resume", "mine").returncode == 2
    assert taco("stop", "mine").returncode == 0
    refused = taco("suspend", "mine")
    assert refused.returncode == 2
    assert "it is CANCELLED" in refused.stderr


def test_a_job_that_is_submitted_to_wait(taco: Taco) -> None:
    submit(taco, "later", "--np", "1", "--suspend", "--", "true")
    assert taco.job("later")["state"] == "SUSPENDED"
    assert not schedulers(taco)  # nobody has to look after it
    assert taco("resume", "later").returncode == 0
    assert taco.ended("later")["state"] == "SUCCEEDED"


def test_suspend_of_a_job_that_waits(taco: Taco) -> None:
    hold(taco)
    for name in ("a", "b"):
        submit(taco, name, "--np", "1", "--", "true")
    assert taco("suspend", "a").returncode == 0
    assert taco.job("a")["state"] == "SUSPENDED"
    assert taco("stop", "holder").returncode == 0
    assert taco.ended("b")["state"] == "SUCCEEDED"  # it keeps nobody
    assert taco.job("a")["state"] == "SUSPENDED"
    assert taco("stop", "a").returncode == 0
    assert taco.job("a")["state"] == "CANCELLED"


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
