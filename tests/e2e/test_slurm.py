"""Jobs by way of a real Slurm of two nodes on this machine."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Taco, eventually
from tests.support import sshd as ssh_server

pytestmark = pytest.mark.e2e


@pytest.fixture
def on_slurm(taco: Taco, of_slurm: dict[str, str]) -> Taco:
    """The command line with `-i slurm:` as its inventory."""
    return Taco(taco.state, {**taco.env, **of_slurm, "TACO_LAUNCH_INVENTORY": "slurm:"})


def call(environ: dict[str, str], *argv: str) -> str:
    done = subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    return done.stdout


def kept(taco: Taco, name: str) -> dict[str, Any]:
    return dict(json.loads((taco.folder(name) / "slurm.json").read_text()))


def number(taco: Taco, name: str) -> str:
    return str(kept(taco, name)["job"])


def runs(taco: Taco, name: str) -> None:
    eventually(lambda: taco.job(name)["state"] == "RUNNING", 30, f"{name} to run")


def test_an_array_is_one_job_of_slurm(on_slurm: Taco, of_slurm: dict[str, str], tmp_path: Path) -> None:
    script = f"echo part $SLURM_ARRAY_TASK_ID; until [ -e {tmp_path}/$SLURM_ARRAY_TASK_ID ]; do sleep 0.2; done"
    on_slurm.ok(
        *("submit", "--name", "a", "--np", "1", "--array", "0-4%2", "--launcher", "env", "--", "sh", "-c", script)
    )
    for name in ("a-0", "a-1"):
        runs(on_slurm, name)
    listed = [
        line.split() for line in call(of_slurm, "squeue", "--noheader", "--array", "--format=%F %K %T").splitlines()
    ]
    assert {array for array, _place, _state in listed} == {kept(on_slurm, "a-4")["of_array"].partition("_")[0]}
    assert sorted((place, state) for _array, place, state in listed) == [
        *(("0", "RUNNING"), ("1", "RUNNING"), ("2", "PENDING"), ("3", "PENDING"), ("4", "PENDING"))
    ]
    limit = "as many jobs of its array run as its limit allows"
    eventually(lambda: limit in on_slurm.ok("get", "a-2").stdout, 20, "the reason to be told")
    assert on_slurm.ok("exec", "a-1", "--", "echo", "hi").stdout == "hi\n"
    on_slurm.ok("stop", "a-2")
    call(of_slurm, "scancel", kept(on_slurm, "a-3")["of_array"])
    on_slurm.ok("stop", "a-0")
    runs(on_slurm, "a-4")  # it has the number of the array: to end it ends no other
    assert on_slurm.job("a-4")["slurm_job"] == int(kept(on_slurm, "a-4")["of_array"].partition("_")[0])
    on_slurm.ok("stop", "a-4")
    assert on_slurm.job("a-1")["state"] == "RUNNING"
    (tmp_path / "1").touch()
    ends = [on_slurm("wait", f"a-{place}") for place in range(5)]
    assert [end.returncode for end in ends] == [143, 0, 143, 143, 143]
    assert "cancelled in Slurm before it started" in ends[3].stderr
    assert on_slurm("logs", "a-1").stdout.partition("| ")[2] == "part 1\n"
    on_slurm.ok("delete", *(f"a-{place}" for place in range(5)))


def test_an_array_that_slurm_refuses(on_slurm: Taco) -> None:
    on_slurm("submit", "--name", "a", "--np", "1", "--array", "1,999999", "--", "true")
    for name in ("a-1", "a-999999"):
        assert "Slurm refuses the job: Invalid job array specification" in on_slurm("wait", name).stderr


def test_a_job_is_in_slurms_queue_and_its_end_is_told_right(on_slurm: Taco, of_slurm: dict[str, str]) -> None:
    words = (
        "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE; sleep 2; [ $OMPI_COMM_WORLD_RANK != 3 ] || exit 7"
    )
    on_slurm.ok("submit", "--name", "j", "--np", "4", "--partition", "all", "--", "sh", "-c", words)
    assert "|j|" in call(of_slurm, "squeue", "--noheader", "--format=|%j|")
    waited = on_slurm("wait", "j")
    assert waited.returncode == 7
    assert "job j: FAILED" in waited.stderr
    assert "rank 3 on n2 exited with code 7" in waited.stderr
    shown = on_slurm.job("j")
    assert str(shown["slurm_job"]) == number(on_slurm, "j")
    assert [(share["host"], share["ranks"]) for share in shown["shares"]] == [("n1", 2), ("n2", 2)]
    logs = on_slurm.ok("logs", "j", "-v").stdout
    assert all(f"rank {rank} of 4" in logs for rank in range(4)), logs
    assert call(of_slurm, "scontrol", "show", "job", "-o", number(on_slurm, "j")).partition("ExitCode=")[2][:3] == "7:0"
    on_slurm.ok("delete", "j")


def test_cancelled_by_slurm(on_slurm: Taco, of_slurm: dict[str, str]) -> None:
    on_slurm.ok("submit", "--name", "runs", "--np", "4", "--", "sleep", "100")
    on_slurm.ok("submit", "--name", "waits", "--np", "4", "--", "sleep", "100")
    runs(on_slurm, "runs")
    eventually(
        lambda: "nodes that fit are in use (Resources)" in on_slurm.ok("get", "waits").stdout,
        20,
        "the reason to be told",
    )
    call(of_slurm, "scancel", number(on_slurm, "waits"))
    call(of_slurm, "scancel", number(on_slurm, "runs"))
    for name in ("runs", "waits"):
        waited = on_slurm("wait", name)
        assert waited.returncode == 143
        assert f"cancelled in Slurm (Slurm job {number(on_slurm, name)})" in waited.stderr


def test_stop_of_a_job_that_runs_and_of_one_that_waits(on_slurm: Taco, of_slurm: dict[str, str]) -> None:
    for name in ("runs", "waits"):
        on_slurm.ok("submit", "--name", name, "--np", "4", "--", "sleep", "100")
    runs(on_slurm, "runs")
    on_slurm.ok("stop", "waits", "runs")
    assert [on_slurm("wait", name).returncode for name in ("runs", "waits")] == [143, 143]
    eventually(lambda: not call(of_slurm, "squeue", "--noheader").strip(), 30, "Slurm's queue to be empty")


def test_suspended_and_resumed(on_slurm: Taco, of_slurm: dict[str, str], tmp_path: Path) -> None:
    flag = tmp_path / "again"
    script = f"[ -e {flag} ] && exit 0; touch {flag}; sleep 100"
    on_slurm.ok("submit", "--name", "s", "--np", "1", "--", "sh", "-c", script)
    eventually(flag.exists, 30, "the job to run")
    on_slurm.ok("suspend", "s")
    assert on_slurm.job("s")["state"] == "SUSPENDED"
    eventually(lambda: not call(of_slurm, "squeue", "--noheader").strip(), 30, "its nodes to be given back")
    on_slurm.ok("resume", "s")
    assert on_slurm("wait", "s").returncode == 0


def test_beside_its_ranks(on_slurm: Taco, tmp_path: Path) -> None:
    on_slurm.ok("submit", "--name", "j", "--np", "4", "--", "python3", "-c", "import time; time.sleep(100)")
    runs(on_slurm, "j")
    assert on_slurm.ok("exec", "j", "--rank", "3", "--", "echo", "hi").stdout == "hi\n"
    assert "4 ranks are in <module>" in on_slurm.ok("stacks", "j").stdout
    (tmp_path / "sent").write_text("text")
    on_slurm.ok("cp", "--rank", "3", str(tmp_path / "sent"), "j:/tmp/taco-launch-0/sent")
    on_slurm.ok("cp", "--rank", "3", "j:/tmp/taco-launch-0/sent", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "text"
    assert "jobs hold 4 of 4 slots" in on_slurm.ok("top", "node").stdout


def test_a_port_of_a_node_without_sshd(on_slurm: Taco, tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(os.urandom(1 << 20))
    # A node has processes of its own, but the network of this machine.
    serve = "import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); "
    serve += "print('at', s.server_port, flush=True); s.serve_forever()"
    program = f'cd {tmp_path}; [ $RANK = 3 ] || exec sleep 100; exec python3 -c "{serve}"'
    on_slurm.ok("submit", "--name", "j", "--np", "4", "--launcher", "env", "--", "sh", "-c", program)
    eventually(lambda: "at " in on_slurm.ok("logs", "j").stdout, 30, "it to listen")
    port = on_slurm.ok("logs", "j").stdout.split()[-1]
    with on_slurm.start("forward", "j", f"{port}:0", "--rank", "3") as forward:
        assert forward.stdout is not None
        here, _arrow, there = forward.stdout.readline().decode().split()
        assert there == f"n2:{port}"
        with urllib.request.urlopen(f"http://{here}/sent", timeout=30) as answer:
            assert answer.read() == (tmp_path / "sent").read_bytes()
        forward.terminate()
    on_slurm.ok("stop", "j")


def test_code_reaches_both_nodes_and_nothing_stays_there(on_slurm: Taco, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "text").write_text("here")
    done = on_slurm.ok("run", "--name", "j", "--np", "4", "--sync", str(tmp_path / "code"), "--", "cat", "text")
    assert done.stdout.count("here") == 4
    assert not (on_slurm.folder("j") / "caller.json").exists()
    listed = "ls /tmp/taco-launch-0 | grep -c '^[0-9]*$'"  # the running job's own folder
    done = on_slurm.ok("run", "--np", "4", "--launcher", "env", "--", "sh", "-c", listed)
    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines()] == ["1"] * 4


def test_the_variables_of_another_submission_change_nothing(on_slurm: Taco, of_slurm: dict[str, str]) -> None:
    first = Taco(on_slurm.state, {**on_slurm.env, "SBATCH_PARTITION": "one", "SBATCH_EXCLUSIVE": "1"})
    first.ok("submit", "--name", "first", "--np", "4", "--", "sleep", "100")
    on_slurm.ok("submit", "--name", "second", "--np", "2", "--", "true")
    eventually(lambda: "second" in call(of_slurm, "squeue", "--noheader", "--format=%j %P"), 20, "it to be in Slurm")
    assert set(call(of_slurm, "squeue", "--noheader", "--format=%P").split()) == {"all"}
    on_slurm.ok("stop", "first", "second")
    on_slurm("wait", "first")


def test_a_node_that_fails(on_slurm: Taco, of_slurm: dict[str, str]) -> None:
    on_slurm.ok("submit", "--name", "j", "--np", "4", "--", "sleep", "100")
    runs(on_slurm, "j")
    call(of_slurm, "scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        waited = on_slurm("wait", "j", timeout=90)
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # it may be back by itself
            call(of_slurm, "scontrol", "update", "nodename=n2", "state=resume")
    assert "a node failed" in waited.stderr
    assert on_slurm.job("j")["state"] == "FAILED"


def test_a_nightly_run(on_slurm: Taco, tmp_path: Path) -> None:
    matrix = {
        "name": "night",
        "workloads": {"w": {"kind": "horovod", "command": "echo 'Total img/sec on 2 CPU(s): 100.0 +-0.3'"}},
        "sizes": [2],
        "variants": {"plain": {}},
        "repeats": 2,
        "warmUps": 0,
    }
    (tmp_path / "night.yaml").write_text(json.dumps(matrix))
    done = on_slurm.ok("nightly", "run", str(tmp_path / "night.yaml"), "--deadline", "20s", timeout=120)
    assert "nightly night: OK: 1 cell" in done.stdout


def test_jobs_are_shown_while_slurm_does_not_answer(on_slurm: Taco, of_slurm: dict[str, str]) -> None:
    on_slurm.ok("run", "--name", "j", "--np", "1", "--", "echo", "hi")
    os.kill(int(of_slurm["SLURMCTLD_PID"]), signal.SIGSTOP)
    try:
        assert "SUCCEEDED" in on_slurm.ok("list", timeout=5).stdout
        assert "hi" in on_slurm.ok("logs", "j", timeout=5).stdout
    finally:
        os.kill(int(of_slurm["SLURMCTLD_PID"]), signal.SIGCONT)


def test_torchrun_on_both_nodes(on_slurm: Taco) -> None:
    done = on_slurm.ok(
        "run", "--launcher", "torchrun", "--hosts", "2", "--slots-per-host", "2", "--", "sh", "-c", "echo $RANK"
    )
    # torchrun may have words of its own
    assert sorted(re.findall(r"^\S+/\d+ +\| (\d)$", done.stdout, re.MULTILINE)) == ["0", "1", "2", "3"], done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--np", "2", "--partition", "none"), "Slurm refuses the job: Invalid partition name specified"),
        (("--np", "2", "--priority", "3"), "--priority does not apply to Slurm"),
        (("--np", "2", "--image", "a:1"), "start the container in the command: -- apptainer exec"),
        (("--np", "2", "--tensorboard"), "start it on the login node: tensorboard"),
        (("--np", "2", "--qos", "a\nb"), "is not a valid value for Slurm"),
        ((), "the size of the job is missing"),
    ],
)
def test_refused(on_slurm: Taco, options: tuple[str, ...], words: str) -> None:
    done = on_slurm("run", *options, "--", "true")
    assert words in done.stderr
    assert done.returncode in (2, 125)


def test_without_slurm(taco: Taco, tmp_path: Path) -> None:
    done = Taco(taco.state, {**taco.env, "SLURM_CONF": str(tmp_path / "none")})("-i", "slurm:", "top", "node")
    assert done.returncode == 5
    assert "is this a login node of a Slurm cluster?" in done.stderr
    limited = taco("submit", "--np", "1", "--array", "0-3%2", "--", "true")
    assert "--array: the limit %2 works only with Slurm" in limited.stderr
    assert "--partition works only with Slurm" in taco("run", "--np", "1", "--partition", "p", "--", "true").stderr


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun", "env"])
def test_an_exported_script_runs_without_taco_launch(on_slurm: Taco, tmp_path: Path, launcher: str) -> None:
    # One write for a line: print makes several where Python does not buffer.
    program = "import os; e = os.environ; os.write(1, f\"rank {e.get('RANK') or e['OMPI_COMM_WORLD_RANK']} {e['A']}\\n\".encode())"
    (tmp_path / "job.yaml").write_text(
        json.dumps(
            {"name": "alone", "hosts": 2, "slotsPerHost": 2, "launcher": launcher, "env": {"A": "x 'y' $z"}}
            | {"command": ["python3", "-c", program], "workingDir": str(tmp_path)}
        )
    )
    (tmp_path / "job.sbatch").write_text(on_slurm.ok("export", "sbatch", "-f", str(tmp_path / "job.yaml")).stdout)
    environ = {**on_slurm.env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    call(environ, "sbatch", "--wait", f"--chdir={tmp_path}", str(tmp_path / "job.sbatch"))
    (log,) = tmp_path.glob("alone-*.log")
    ranks = sorted(line for line in log.read_text().splitlines() if line.startswith("rank"))
    assert ranks == [f"rank {rank} x 'y' $z" for rank in range(4)], log.read_text()


def test_from_another_machine(taco: Taco, of_slurm: dict[str, str], tmp_path: Path) -> None:
    """The controller has no Slurm; its login node has the state folder."""
    at_login = tmp_path / "at-login"
    at_login.mkdir(mode=0o700)
    sent = {**of_slurm, "TACO_LAUNCH_STATE": str(at_login), "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    options = "SetEnv " + " ".join(f'{name}="{value}"' for name, value in sent.items())
    with ssh_server.sshd(tmp_path / "sshd", options=options) as login:
        (tmp_path / "known").write_text(f"[127.0.0.1]:{login.port} {login.host_key()}\n")
        config = f"UserKnownHostsFile {tmp_path}/known\nIdentityFile {login.login}\nUser root\n"
        (tmp_path / ".ssh").mkdir()
        (tmp_path / ".ssh" / "config").write_text(config)
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "text").write_text("here\n")
        source = f"slurm:root@127.0.0.1:{login.port}"
        away = Taco(taco.state, {**taco.env, "TACO_LAUNCH_INVENTORY": source, "HOME": str(tmp_path)})
        done = away.ok("run", "--name", "j", "--np", "4", "--sync", str(tmp_path / "code"), "--", "cat", "text")
        assert done.stdout.count("here") == 4
        away.ok("submit", "--name", "long", "--np", "2", "--", "sleep", "100")
        eventually(lambda: "RUNNING" in away.ok("list").stdout, 30, "it to run")
        assert away.ok("exec", "long", "--rank", "1", "--", "echo", "hi").stdout == "hi\n"
        # The machines have one network: the port that the node connects to is that of the login node's sshd.
        with away.start("forward", "long", f"{login.port}:0") as forward:
            assert forward.stdout is not None
            name, here = forward.stdout.readline().decode().split()[0].split(":")
            with socket.create_connection((name, int(here)), timeout=30) as connection:
                assert connection.recv(4) == b"SSH-"
            forward.terminate()
        away.ok("stop", "long")
        assert away("wait", "long").returncode == 143
        assert "n2 (ranks 2-3)" in away.ok("get", "j").stdout
    assert not (taco.state / "jobs").exists()
    assert (at_login / "jobs" / "j").exists()
