"""After any end nothing of the job is alive, and the record says what happened."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.launch.command_line.env import SERVICE
from tests.conftest import Taco, eventually
from tests.e2e.process_table import command_lines, line
from tests.e2e.shapes import WORST, processes, shapes
from tests.e2e.typist import typist
from tests.support.patience import patience

pytestmark = pytest.mark.e2e

VICTIM = Path(__file__).parent / "victim.py"
SHAPES = shapes(
    gate=[(), WORST, ("deaf", "fork")],
    nightly=[("deaf",), ("wipe",), ("session", "deaf"), ("daemon", "deaf"), ("deaf", "spin")],
)


class Victims:
    """A running job of two ranks of some shape, and the witness files of its processes."""

    def __init__(self, taco: Taco, folder: Path, shape: tuple[str, ...], *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.taco, self.folder = taco, folder
        argv = (sys.executable, str(VICTIM), str(folder), *shape)
        taco.ok("submit", "--name", "victims", "--np", "2", *options, "--", *argv)
        ready = folder.with_suffix(".ready")
        eventually(
            lambda: ready.exists() and len(list(ready.iterdir())) == 2 * processes(shape), what=f"shapes {shape}"
        )
        eventually(lambda: self.job["state"] == "RUNNING", what="the job to run")

    @property
    def job(self) -> dict[str, Any]:
        return self.taco.job("victims")

    def alive(self) -> list[str]:
        """Name the witnesses whose process still runs, by /proc alone."""
        found = []
        for witness in self.folder.iterdir():
            try:
                stat = Path(f"/proc/{witness.name}/stat").read_bytes()
            except FileNotFoundError:
                continue
            fields = stat[stat.rindex(b")") + 2 :].split()
            if fields[0] not in (b"Z", b"X") and fields[19].decode() == witness.read_text(encoding="ascii"):
                found.append(witness.name)
        return found

    def pid(self, role: str) -> int:
        """Find a process of the agent, or mpirun, by what it runs for this job's folder."""
        folder = str(self.taco.folder("victims"))
        pids: dict[str, int] = {}
        for pid, argv in command_lines():
            if folder in argv:
                name = "mpirun" if argv[0].endswith("mpirun") else argv[argv.index(folder) - 1]
                pids.setdefault(name, pid)
        return pids[role]


@pytest.fixture(params=SHAPES)
def victims(request: pytest.FixtureRequest, taco: Taco, tmp_path: Path) -> Victims:
    return Victims(taco, tmp_path / "witnesses", request.param, "--grace", "0.5")


def test_stop_leaves_nothing(victims: Victims) -> None:
    assert victims.alive()
    answer = victims.taco("stop", "victims")
    assert answer.returncode == 0, answer.stderr
    assert not victims.alive()
    job = victims.job
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    assert "still alive" not in job["reason"]


@pytest.mark.parametrize("shape", shapes(gate=[WORST], nightly=[("deaf",)]))
@pytest.mark.parametrize(
    ("role", "state", "code", "reason"),
    [
        ("run", "LOST", 125, "supervisor"),
        ("guard", "FAILED", 1, "guard"),
        ("mpirun", "FAILED", 137, "the launcher"),
        ("rank", "FAILED", 137, "wrapper"),
    ],
)
def test_kill_9_of_any_part_leaves_nothing(
    taco: Taco, tmp_path: Path, shape: tuple[str, ...], role: str, state: str, code: int, reason: str
) -> None:
    victims = Victims(taco, tmp_path / "witnesses", shape)
    os.kill(victims.pid(role), signal.SIGKILL)
    job = taco.ended("victims")
    assert (job["state"], job["exit_code"]) == (state, code)
    assert reason in job["reason"]
    assert not victims.alive()
    assert taco("wait", "victims").returncode == code


def test_kill_9_of_the_command_itself(taco: Taco, tmp_path: Path) -> None:
    victims = Victims(taco, tmp_path / "witnesses", ("deaf",))
    os.kill(min(map(int, victims.alive())), signal.SIGKILL)
    job = taco.ended("victims")
    assert (job["state"], job["exit_code"]) == ("FAILED", 137)
    assert not victims.alive()


def test_kill_9_of_supervisor_and_guard_at_once(taco: Taco, tmp_path: Path) -> None:
    victims = Victims(taco, tmp_path / "witnesses", WORST)
    for role in ("run", "guard"):
        os.kill(victims.pid(role), signal.SIGSTOP)
    for pid in [victims.pid(role) for role in ("run", "guard")]:
        os.kill(pid, signal.SIGKILL)
    # Nobody is left to notice; whoever looks next ends the job.
    job = taco.ended("victims")
    assert (job["state"], job["exit_code"]) == ("LOST", 125)
    assert not victims.alive()


def test_a_supervisor_that_hangs_is_given_up_by_the_guard(taco: Taco, tmp_path: Path) -> None:
    # On a busy machine a supervisor that does not hang may be silent for some seconds.
    silence = patience(6)
    victims = Victims(taco, tmp_path / "witnesses", ("deaf",), "--host-loss-timeout", f"{silence:.0f}")
    supervisor = victims.pid("run")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        eventually(lambda: not victims.alive(), silence + 20, "the guard to end the ranks")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    job = taco.ended("victims")
    assert (job["state"], job["exit_code"]) == ("FAILED", 1)
    assert job["reason"].startswith("its guard heard nothing from the supervisor for ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP], ids=["KILL", "HUP"])
def test_the_job_outlives_its_controller(taco: Taco, tmp_path: Path, number: int) -> None:
    go = tmp_path / "go"
    script = f"echo before; while ! [ -e {go} ]; do sleep 0.05; done; echo after"
    controller = taco.start("run", "--name", "orphan", "--np", "1", "--", "sh", "-c", script, start_new_session=True)
    assert line(controller) == b"localhost/0 | before\n"
    os.kill(controller.pid, number)
    assert controller.wait(patience(10)) == (-number if number == signal.SIGKILL else 128 + number)
    assert taco.job("orphan")["state"] == "RUNNING"
    follower = taco.start("logs", "-f", "orphan")
    go.touch()
    out, _err = follower.communicate(timeout=patience(30))
    assert out == b"localhost/0 | before\nlocalhost/0 | after\n"
    assert taco.ended("orphan")["state"] == "SUCCEEDED"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=int)
def test_ctrl_c_and_term_stop_the_job(taco: Taco, number: int) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    controller = taco.start("run", "--name", "c", "--np", "2", "--", "sh", "-c", script)
    for _rank in range(2):
        assert line(controller).endswith(b"ready\n")
    controller.send_signal(number)
    out, err = controller.communicate(timeout=patience(30))
    assert {b"localhost/0 | saved", b"localhost/1 | saved"} <= set(out.splitlines())
    assert controller.returncode == 128 + number
    assert b"stopping job c" in err
    assert taco.job("c")["state"] == "CANCELLED"


def test_ctrl_c_on_a_terminal_counts_the_seconds_down(taco: Taco) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    argv = taco.argv("run", "--name", "c", "--np", "1", "--grace", "3", "--", "sh", "-c", script)
    with typist(argv, taco.env) as person:
        person.sees("ready")
        person.type("\x03")
        for shown in ("3 s left", "1 s left", "1 rank did not end within 3 s and had to be killed"):
            person.sees(shown)
        assert person.leaves() == 128 + signal.SIGINT


def test_timeout_ends_the_job_and_nohup_goes_on_following(taco: Taco, tmp_path: Path) -> None:
    loop = ("sh", "-c", "echo up; while :; do sleep 0.05; done")
    ended = subprocess.run(
        ["timeout", f"{patience(4):.0f}", *taco.argv("run", "--name", "t", "--np", "1", "--", *loop)],
        env=taco.env,
        check=False,
    )
    assert ended.returncode == 124
    assert taco.ended("t")["state"] == "CANCELLED"
    go = tmp_path / "go"
    waits = f"echo up; until [ -e {go} ]; do sleep 0.05; done; echo on"
    follows = taco.argv("run", "--name", "n", "--np", "1", "--", "sh", "-c", waits)
    argv = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *follows]
    controller = subprocess.Popen(argv, env=taco.env, stdout=subprocess.PIPE)
    assert line(controller) == b"localhost/0 | up\n"
    controller.send_signal(signal.SIGHUP)
    go.touch()
    out, _err = controller.communicate(timeout=patience(30))
    assert (out, controller.returncode) == (b"localhost/0 | on\n", 0)


def test_the_second_ctrl_c_does_not_wait(taco: Taco) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    controller = taco.start("run", "--name", "c", "--np", "1", "--grace", "300", "--", "sh", "-c", script)
    assert line(controller).endswith(b"ready\n")
    controller.send_signal(signal.SIGINT)
    eventually(lambda: taco.job("c")["state"] == "STOPPING")
    controller.send_signal(signal.SIGINT)
    controller.communicate(timeout=patience(30))
    assert controller.returncode == 130


def test_every_rank_has_the_whole_grace_time(taco: Taco) -> None:
    # mpirun alone would kill rank 1 one second after rank 0 has ended.
    script = "trap 'sleep $((RANK * 3)); echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    taco.ok("submit", "--name", "slow", "--np", "2", "--", "sh", "-c", script)
    eventually(lambda: taco("logs", "slow").stdout.count("ready") == 2)
    assert taco("stop", "slow").returncode == 0
    assert taco("logs", "slow").stdout.count("saved") == 2


def test_a_job_whose_folder_is_removed_is_ended(taco: Taco, tmp_path: Path) -> None:
    victims = Victims(taco, tmp_path / "witnesses", ("deaf",), "--grace", "0.5")
    shutil.rmtree(taco.folder("victims"))
    eventually(lambda: not victims.alive(), 20, "the ranks to end")


def test_other_jobs_are_left_alone(taco: Taco, tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        assert taco("submit", "--name", "stays", "--np", "1", "-H", "localhost:3", "--", "sleep", "600").returncode == 0
        Victims(taco, tmp_path / "witnesses", ("deaf",), "--grace", "0", "-H", "localhost:3")
        assert taco("stop", "victims").returncode == 0
        assert taco.job("stays")["state"] in ("STARTING", "RUNNING")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_mpirun_that_does_not_end(taco: Taco, tmp_path: Path) -> None:
    mpirun, inventory = tmp_path / "mpirun", tmp_path / "slow.yaml"
    mpirun.write_text('#!/bin/sh\nmpirun "$@"\ncode=$?\n[ "$*" = --version ] || sleep 600\nexit $code\n')
    mpirun.chmod(0o755)
    inventory.write_text(f"cluster: slow\nmpirun: {mpirun}\nhosts: {{localhost: {{connection: local, slots: 2}}}}\n")
    run = taco("-i", str(inventory), "run", "--name", "slow", "--grace", "1", "--np", "2", "--", "true")
    assert run.returncode == 0
    assert taco.job("slow")["reason"] == "every rank exited with 0; mpirun did not end by itself"
    failed = taco("-i", str(inventory), "run", "--name", "bad", "--grace", "1", "--np", "1", "--", "sh", "-c", "exit 3")
    assert failed.returncode == 3


@pytest.mark.parametrize("end", ["true", "kill -9 $PPID; sleep 60"], ids=["well", "killed"])
def test_session_folders_of_mpirun_are_the_jobs_own_and_go_with_its_end(taco: Taco, end: str) -> None:
    look = f'ls -d "$OMPI_MCA_orte_tmpdir_base"/ompi.*; {end}'
    answer = taco("run", "--name", "own", "--np", "2", "--", "sh", "-c", look)
    sessions = taco.folder("own") / "mpi"
    assert f"{sessions}/ompi." in answer.stdout, "mpirun made them there"
    assert not sessions.exists()


def test_a_job_that_a_rank_submits_goes_on_and_nothing_that_only_calls_itself_a_service(
    taco: Taco, tmp_path: Path
) -> None:
    claims = f"{SERVICE}=1 setsid sh -c 'echo $$ >{tmp_path}/pid; sleep 60' &"
    submits = f"{sys.executable} -m taco_launch submit --launcher env --np 1 --name inner -- sh -c 'until [ -e {tmp_path}/go ]; do sleep 0.1; done'"
    outer = taco.ok("run", "--np", "1", "--name", "outer", "--", "sh", "-ec", f"{claims} {submits}; cat {tmp_path}/pid")
    assert not Path(f"/proc/{int(outer.stdout.split()[-1])}").exists()
    assert taco.job("inner")["state"] == "RUNNING"
    (tmp_path / "go").touch()
    assert taco("wait", "inner").returncode == 0
