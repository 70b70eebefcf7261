"""The queue with real jobs on this machine: order, deadlines, what is shown of a job that waits, stop and suspend."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.e2e.queue_view import began, hold, kinds, schedulers, submit
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
    assert err.startswith(b"job next: waiting: localhost: ")
    assert b"to leave it: Ctrl-C; not to wait: --no-wait" in err
    assert process.returncode == 0


def test_one_job_for_each_value(taco: Taco) -> None:
    words = ("--name", "each", "--np", "1", "--launcher", "env")
    started = taco(
        "submit",
        *words,
        "--each",
        "lr=0.1,0.01",
        "--array",
        "3,5",
        "--",
        "sh",
        "-c",
        "echo {lr} $lr $SLURM_ARRAY_TASK_ID",
    )
    names = ["each-1", "each-2", "each-3", "each-4"]
    assert started.stdout.split() == names
    assert taco("wait", *names).returncode == 0
    told = [taco("logs", name).stdout.partition("| ")[2] for name in names]
    assert told == ["0.1 0.1 3\n", "0.1 0.1 5\n", "0.01 0.01 3\n", "0.01 0.01 5\n"]


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


def test_a_job_that_is_submitted_to_wait(taco: Taco) -> None:
    submit(taco, "later", "--np", "1", "--suspend", "--", "true")
    assert taco.job("later")["state"] == "SUSPENDED"
    assert not schedulers(taco)  # nobody has to look after it
    assert taco("resume", "later").returncode == 0
    assert taco.ended("later")["state"] == "SUCCEEDED"
