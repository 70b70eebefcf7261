"""run, submit and the rest with the real mpirun: what reaches the ranks, what returns."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.inventory import profile
from taco_launch.hosts.remote import agent_bundle
from tests.conftest import Taco, eventually

pytestmark = pytest.mark.e2e

SHOW = """
import json, os, sys
print(json.dumps([[os.fsencode(a).hex() for a in sys.argv[1:]], {k.hex(): v.hex() for k, v in os.environb.items()}]))
"""
AWKWARD = [
    "", " ", "two words", "  pad  ", "new\nline", "tab\t", "'single'", '"double"', "`id`", "$(id)", "$HOME", "${X}",
    "-x", "--", "--np", "-", "*", "?", "[a]", "~", "a;b", "a&b", "a|b", "a>b", "#no", "!", "\\", "\\n", "a=b", ":",
    "::", ":a", "naïve", "你好", "\udcff\udcfe", "\x01\x1b[31m", "{}", "%s", "a,b", "x" * 100_000,
]  # fmt: skip


def test_arguments_reach_the_rank_byte_for_byte(taco: Taco) -> None:
    run = taco.ok("run", "--np", "1", "--", sys.executable, "-c", SHOW, *AWKWARD)
    arguments, _environment = json.loads(run.stdout.partition(" | ")[2])
    assert [bytes.fromhex(word) for word in arguments] == [os.fsencode(word) for word in AWKWARD]


def test_environment_values_reach_the_rank_byte_for_byte(taco: Taco) -> None:
    given = {f"AWKWARD_{index}": value for index, value in enumerate(AWKWARD)}
    options = [word for name, value in given.items() for word in ("-x", f"{name}={value}")]
    taken = {f"CALLER_{index}": value for index, value in enumerate(AWKWARD)}
    taco.env.update(taken)
    options += [word for name in taken for word in ("-x", name)]
    run = taco.ok("run", "--np", "2", *options, "--", sys.executable, "-c", SHOW)
    for line in run.stdout.splitlines():
        _arguments, environment = json.loads(line.partition(" | ")[2])
        for name, value in {**given, **taken}.items():
            assert bytes.fromhex(environment[os.fsencode(name).hex()]) == os.fsencode(value), name


def test_a_rank_knows_its_place(taco: Taco) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR TACO_LAUNCH_JOB"
    script = "echo " + " ".join(f"${n}" for n in names.split())
    run = taco("run", "--name", "place", "--np", "2", "--", "sh", "-c", script)
    assert sorted(run.stdout.splitlines()) == [
        "localhost/0 | 0 0 2 127.0.0.1 place",
        "localhost/1 | 1 1 2 127.0.0.1 place",
    ]


def test_the_callers_folder_umask_and_path(taco: Taco, tmp_path: Path) -> None:
    tool = tmp_path / "my-tool"
    tool.write_text("#!/bin/sh\npwd; umask\n", encoding="ascii")
    tool.chmod(0o755)
    taco.env["PATH"] = f"{tmp_path}:{taco.env['PATH']}"
    run = taco("run", "--np", "1", "--", "my-tool", cwd=tmp_path, preexec_fn=lambda: os.umask(0o027) and None)
    assert run.stdout == f"localhost/0 | {tmp_path}\nlocalhost/0 | 0027\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("exit 127", 127), ("kill -9 $$", 137), ("kill -SEGV $$", 139)],
)
def test_run_and_wait_exit_as_the_job(taco: Taco, script: str, code: int) -> None:
    run = taco("run", "--name", "code", "--np", "2", "--", "sh", "-c", f'[ "$RANK" = 1 ] || exit 0; {script}')
    assert run.returncode == code
    assert "job code: 2 ranks on localhost" in run.stderr
    assert taco("wait", "code").returncode == code
    job = taco.job("code")
    assert job["state"] == ("FAILED" if code else "SUCCEEDED")
    if code:
        assert job["first_failure"]["rank"] == 1


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_run(taco: Taco, command: str, code: int) -> None:
    run = taco("run", "--np", "1", "--", command)
    assert run.returncode == code
    assert f"cannot run '{command}'" in run.stderr


def fake_mpirun(folder: Path, script: str) -> str:
    fake = folder / "mpirun"
    fake.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    fake.chmod(0o755)
    return str(fake)


def run_with_mpirun(taco: Taco, folder: Path, mpirun: str, np: str) -> "subprocess.CompletedProcess[str]":
    text = f"cluster: c\nmpirun: {mpirun}\nhosts: {{localhost: {{address: 127.0.0.1, connection: local, slots: 2}}}}\n"
    (folder / "i.yaml").write_text(text, encoding="ascii")
    return taco("run", "-i", str(folder / "i.yaml"), "--np", np, "--", "true")


def test_125_when_no_rank_ran(taco: Taco, tmp_path: Path) -> None:
    assert run_with_mpirun(taco, tmp_path, "/no/such/mpirun", "1").returncode == 125


def test_mpirun_that_fails_before_any_rank(taco: Taco, tmp_path: Path) -> None:
    fake = fake_mpirun(tmp_path, "echo no license >&2; exit 7")
    run = run_with_mpirun(taco, tmp_path, fake, "1")
    assert run.returncode == 125
    assert run.stdout == "localhost/mpirun | no license\n"


def test_mpirun_that_starts_too_few_ranks_is_no_success(taco: Taco, tmp_path: Path) -> None:
    # Open MPI 5 with an option it ignores runs one rank and exits 0: the job must not be called done.
    fake = fake_mpirun(tmp_path, 'shift 2; exec mpirun -np 1 "$@"')
    run = run_with_mpirun(taco, tmp_path, fake, "2")
    assert run.returncode == 1


def test_more_ranks_than_slots(taco: Taco, tmp_path: Path) -> None:
    (tmp_path / "i.yaml").write_text(
        "cluster: c\nhosts: {me: {address: 127.0.0.1, connection: local, slots: 3}}\n", encoding="ascii"
    )
    run = taco("run", "-i", str(tmp_path / "i.yaml"), "--np", "4", "--", "true")
    assert run.returncode == 125
    assert "-H me:4" in run.stderr
    assert len(taco("list").stdout.splitlines()) == 1  # nothing is kept of what never started
    allowed = taco("run", "-i", str(tmp_path / "i.yaml"), "-H", "me:4", "--", "echo", "ok")
    assert (allowed.returncode, sorted(allowed.stdout.split("\n"))[1]) == (0, "me/0 | ok")
    assert taco("run", "-H", "localhost:4", "--np", "4", "--", "true").returncode == 0


HOROVOD = """
import os, sys, time
import horovod.torch as hvd, torch
hvd.init()
hvd.allreduce(torch.ones(1), name="a")
if hvd.rank() == 1:
    {how}
while True:
    hvd.allreduce(torch.ones(1), name="b")
"""


@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        ("sys.exit(3)", 3, "rank 1 on localhost exited with code 3"),
        ("raise RuntimeError('mine')", 1, "rank 1 on localhost exited with code 1"),
        ("os.abort()", 134, "rank 1 on localhost was ended by signal 6 (SIGABRT)"),
    ],
)
@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.nightly)])  # which is gone sooner differs
def test_the_rank_that_failed_first_is_blamed(taco: Taco, name: str, how: str, code: int, reason: str) -> None:
    # The others fail too, with "Horovod has been shut down", and may be gone sooner.
    pytest.importorskip("horovod.torch")
    run = taco("run", "--name", name, "--np", "2", "--", sys.executable, "-c", HOROVOD.format(how=how))
    assert run.returncode == code, run.stderr
    assert taco.job(name)["reason"] == reason


def test_list_get_delete(taco: Taco) -> None:
    assert taco("submit", "--name", "a", "--np", "1", "--", "true").stdout == "a\n"
    taco.ended("a")
    again = taco("submit", "--name", "a", "--np", "1", "--", "true")
    assert again.returncode == 2
    assert "the name is taken" in again.stderr
    assert taco("submit", "--name", "b", "--np", "1", "--", "sleep", "600").returncode == 0
    eventually(lambda: taco.job("b")["state"] == "RUNNING")
    listed = json.loads(taco("list", "--json").stdout)["jobs"]
    assert {job["name"]: job["state"] for job in listed} == {"a": "SUCCEEDED", "b": "RUNNING"}
    assert "\nEXIT CODE: 0\n" in taco("get", "a").stdout
    gone = taco("delete", "a", "b", "nosuch")
    assert gone.returncode == 1
    assert "job 'nosuch' not found" in gone.stderr
    assert taco("list").stdout.splitlines() == ["NAME  STATUS  LAUNCHER  RANKS  HOSTS  AGE"]
    assert not list((taco.state / "jobs").glob("[!.]*"))


def test_secrets_of_the_caller_are_gone_after_the_job(taco: Taco) -> None:
    taco.env["API_TOKEN"] = "t0psecret"
    run = taco("run", "--name", "s", "--np", "1", "-x", "API_TOKEN", "--", "sh", "-c", "test ${#API_TOKEN} = 9")
    assert run.returncode == 0
    assert "t0psecret" not in taco("get", "s", "--json").stdout
    for path in taco.folder("s").rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"t0psecret" not in path.read_bytes(), path
            assert path.stat().st_mode & 0o077 == 0, path
    assert taco.state.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_a_lost_reader_is_no_error(taco: Taco, follow: tuple[str, ...]) -> None:
    assert taco("run", "--name", "p", "--np", "1", "--", "seq", "100000").returncode == 0
    piped = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$@" | head -n 1', "-", *taco.argv("logs", *follow, "p")],
        env=taco.env,
        capture_output=True,
        check=False,
    )
    assert (piped.stdout, piped.stderr, piped.returncode) == (b"localhost/0 | 1\n", b"", 0)


def old_python() -> str | None:
    """Find a Python 3.8 that runs; pyenv's shim on PATH may only stand for one beside it."""
    shim = shutil.which("python3.8")
    versions = Path(shim).parent.parent.glob("versions/3.8.*/bin/python3.8") if shim else ()
    for candidate in (shim, *versions):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(candidate)
    return None


def agent_call(python: str, agent: Path, op: str, request: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Call an operation of the agent as the controller does, and give the job that it answers, {} where it is deleted."""
    stdin = json.dumps({"protocol": 1}) + "\n" + json.dumps(request) + "\n"
    argv = [python, "-I", "-S", str(agent), op]
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    _header, *frames, end = map(json.loads, done.stdout.splitlines())
    assert end == {"op": "end"}
    job: dict[str, Any] = frames[-1].get("job", {})
    return job


def request_of(name: str, *command: str, env: dict[str, str]) -> dict[str, Any]:
    host = Host("localhost", "127.0.0.1", slots=2, connection="local")
    auto = profile.load("auto", "", {})
    spec = JobSpec(name=name, command=command, hosts=(host,), np=2, head="localhost", profile=auto)
    return {"follow": False, "spec": to_json(spec), "caller": {"environment": env, "umask": 0o022}}


def test_the_agent_runs_on_python_3_8(taco: Taco, tmp_path: Path) -> None:
    python = old_python()
    if python is None:
        pytest.skip("cannot: no Python 3.8 on this machine")
    agent = tmp_path / "agent.pyz"
    agent.write_bytes(agent_bundle.build(agent_bundle.sources()))
    agent_call(python, agent, "submit", request_of("old", "sh", "-c", "echo $RANK", env=taco.env), env=taco.env)
    assert taco.ended("old")["state"] == "SUCCEEDED"
    assert sorted(taco("logs", "old").stdout.splitlines()) == ["localhost/0 | 0", "localhost/1 | 1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root can become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="cannot: no Python that every user may execute")
def test_an_ordinary_user(taco: Taco) -> None:
    # Not under tmp_path: pytest's folders are closed to other users.
    with tempfile.TemporaryDirectory() as home:
        agent = Path(home, "agent.pyz")
        agent.write_bytes(agent_bundle.build(agent_bundle.sources()))
        for path in (agent, Path(home)):
            os.chown(path, 65534, 65534)
        env = {"PATH": taco.env["PATH"], "HOME": home}

        def call(op: str, request: dict[str, Any]) -> dict[str, Any]:
            who: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": [], "env": env, "cwd": home}
            return agent_call("/usr/bin/python3", agent, op, request, **who)

        call("submit", request_of("u", "sh", "-c", "id -u; exec sleep 600", env=env))
        eventually(lambda: call("get", {"name": "u"})["record"]["state"] == "RUNNING")
        call("stop", {"names": ["u"], "by": "the test", "signal": 15, "grace": 0})
        eventually(lambda: call("get", {"name": "u"})["record"]["ended"])
        record = call("get", {"name": "u"})["record"]
        assert record["state"] == "CANCELLED"
        assert record["reason"].startswith("stopped by the test")
        log = Path(home, ".local/state/taco-launch/jobs/u/logs/rank-0.0.log")
        assert log.read_text(encoding="ascii") == "65534\n"
        assert log.stat().st_mode & 0o077 == 0
        call("delete", {"names": ["u"]})


def test_a_rank_ignores_no_signal_and_blocks_none(taco: Taco) -> None:
    run = taco("run", "--np", "1", "--", "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")
    assert [line.split()[-1] for line in run.stdout.splitlines()] == ["0" * 16, "0" * 16]


def test_a_state_folder_with_a_space_and_a_long_path(taco: Taco, tmp_path: Path) -> None:
    taco.env["TACO_LAUNCH_STATE"] = str(tmp_path / "a space" / ("long" * 40))
    run = taco("run", "--np", "2", "--", "echo", "ok")
    assert (run.returncode, sorted(run.stdout.splitlines())) == (0, ["localhost/0 | ok", "localhost/1 | ok"])


def test_a_damaged_request_to_stop_ends_the_job_and_is_named(taco: Taco) -> None:
    assert taco("submit", "--name", "bug", "--np", "1", "--", "sleep", "600").returncode == 0
    eventually(lambda: taco.job("bug")["state"] == "RUNNING")
    (taco.folder("bug") / "stop.json").write_text("[]", encoding="ascii")
    job = taco.ended("bug")
    assert job["state"] == "FAILED"
    assert "stop.json is damaged" in job["reason"]


@pytest.mark.parametrize("name", ["TACO_LAUNCH_SUDO_PASSWORD", "TACO_LAUNCH_REGISTRY_PASSWORD", "GIT_SYNC_PASSWORD"])
def test_no_rank_inherits_a_password_of_taco_launch(taco: Taco, name: str) -> None:
    secret = f"of-{name}-alone"
    env = {**taco.env, name: secret}
    taco = Taco(taco.state, env)
    # a rank can read what any process of its user was started with, taco-launch among them
    done = taco.ok(
        "run", "--np", "1", "--", "sh", "-c", "env | sort; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
    )
    assert "TACO_LAUNCH" in done.stdout
    assert secret not in done.stdout
    assert [file for file in taco.state.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()] == []


def test_where_no_rank_began_the_code_is_the_launchers(taco: Taco) -> None:
    done = taco("run", "--np", "1", "--workdir", "/nowhere", "--", "true")
    assert (done.returncode, "--workdir /nowhere: there is no such folder there" in done.stderr) == (125, True)
    assert taco("run", "--np", "1", "--", "sh", "-c", "exit 5").returncode == 5


def test_a_value_given_to_the_ranks_stands_in_nobodys_argv(taco: Taco, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"until [ -e {go} ]; do sleep 0.1; done; echo \"has $TOKEN\"; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    taco.ok("submit", "--name", "token", "--np", "2", "-x", "TOKEN=hunter2", "--", "sh", "-c", script)
    eventually(lambda: taco.job("token")["state"] == "RUNNING")
    go.touch()
    assert taco.ended("token")["state"] == "SUCCEEDED"
    output = taco("logs", "token").stdout
    assert sorted(line for line in output.splitlines() if "has " in line and line.endswith("hunter2")) == [
        "localhost/0 | has hunter2", "localhost/1 | has hunter2"
    ]  # fmt: skip
    assert output.count("hunter2") == 2
    assert "mpirun" in output


ABORTS = "import atexit, os; atexit.register(os.abort); raise ValueError('mine')"


@pytest.mark.parametrize(
    ("argv", "code", "why"),
    [
        (("sh", "-c", "exit 7"), 7, "exit code 7"),
        ((sys.executable, "-c", ABORTS), 134, "an exception of the program"),
    ],
)
def test_a_job_that_is_not_tried_again_says_why(taco: Taco, argv: tuple[str, ...], code: int, why: str) -> None:
    done = taco("run", "--launcher", "env", "--np", "1", "--restart", "exit-code", "--", *argv)
    assert done.returncode == code
    told = f"not tried again: --restart exit-code retries only after a signal or a lost host, not after {why}"
    assert told in done.stderr


def test_light_comes_with_the_agent(taco: Taco, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "where.py"
    script.write_text("import os, sys\nprint('searched', os.environ['PYTHONPATH'], sys.argv[1:])\n")
    run = taco("run", "--name", "l", "--np", "1", "--light", "--", sys.executable, str(script), "--lr", "1")
    assert run.returncode == 0, run.stderr
    assert "taco_launch.light applies them" in run.stderr
    assert f"searched {taco.folder('l')}/agent.pyz" in run.stdout
    assert "['--lr', '1']" in run.stdout
