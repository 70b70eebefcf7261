"""A night in the hands of a real cron, and the keys, host keys and hosts with which it could not begin."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from taco_launch.bench.nightly.install import local_zone
from tests.conftest import Taco, eventually
from tests.support import sshd as server
from tests.support.crontabs import crontab, status
from tests.support.patience import patience
from tests.support.sshd import agent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROGRAM = "#!{python}\nfrom taco_launch.cli.main import main\nmain()\n"
OTHERS = '# Grüße\nMAILTO=""\nOTHERS=kept\n59 23 31 12 * echo 100\\% # mine\n\n# the end, without a line end'.encode()


def _crontab() -> bytes | None:
    done = subprocess.run(("crontab", "-l"), capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _write(content: bytes | None) -> None:
    argv = ("crontab", "-r") if content is None else ("crontab", "-")
    subprocess.run(argv, input=content or b"", check=content is not None, capture_output=True)


@pytest.fixture
def own_turn() -> Iterator[None]:
    """A user has one crontab, and a machine one cron, whoever else runs these tests."""
    with (Path(tempfile.gettempdir()) / f"taco-launch-crontab-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def cron(own_turn: None) -> Iterator[None]:  # noqa: ARG001
    """A cron that runs: the machine's, else one for this test; the user's crontab is put back at the end."""
    if not shutil.which("crontab"):
        pytest.skip("cron is not installed (apt-get install cron)")
    pid = Path("/run/crond.pid")
    running = pid.exists() and Path("/proc", pid.read_text().strip(), "comm").exists()
    program = shutil.which("cron", path="/usr/sbin:/sbin:/usr/bin") or shutil.which("crond", path="/usr/sbin:/sbin")
    if not running and (os.geteuid() != 0 or not program):
        pytest.skip("cannot: no cron runs here, and only root starts one")
    before = _crontab()
    process = (
        None if running else subprocess.Popen((str(program), "-f" if program and program.endswith("cron") else "-n"))
    )
    try:
        yield
    finally:
        _write(before)
        if process is not None:
            process.terminate()
            process.wait(patience(10))


def test_cron_runs_an_installed_night_once(taco: Taco, cron: None, tmp_path: Path) -> None:  # noqa: ARG001
    _write(OTHERS + b"\n")
    folder = tmp_path / "50% für 'alle'"
    folder.mkdir()
    program, log, matrix = folder / "taco-launch", tmp_path / "log", folder / "a matrix.yaml"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    speed = {"kind": "regex", "command": f"sh -c 'env >>{log}; pwd >>{log}; echo speed 5'", "pattern": r"speed (\d+)"}
    cells = {"workloads": {"w": {**speed, "unit": "x", "better": "higher"}}, "sizes": [1], "variants": {"plain": {}}}
    matrix.write_text(json.dumps({"name": "mine", **cells, "repeats": 1, "warmUps": 0}))
    zone, _ = local_zone()
    for spare in (10, patience(30)):  # for what comes before its minute
        due = (datetime.now(zone) + timedelta(seconds=60 + spare)).replace(second=0, microsecond=0)
        done = subprocess.run(
            (str(program), "nightly", "install", matrix.name, "--at", f"{due:%H:%M}", "--with", "cron", "--yes"),
            env={**taco.env, "SSH_AUTH_SOCK": "/nowhere"}, cwd=folder, capture_output=True, text=True, check=False, timeout=patience(60),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if datetime.now(zone) < due:
            break
        taco("nightly", "uninstall", "mine", "--yes")  # on a busy machine that took too long
    last = taco.state / "nights" / "mine" / "last.json"
    eventually(lambda: last.exists() and json.loads(last.read_text())["ended"], 150, "the nightly run to end")
    found = status(taco)[0]
    assert (found["state"], found["last"]["exit_code"]) == ("ok", 0), found
    assert Path(found["last"]["summary"]).parent == taco.state / "nights" / "mine"
    began = datetime.fromtimestamp(found["last"]["started"], zone)
    assert f"{began:%H:%M}" == f"{due:%H:%M}"
    assert datetime.fromisoformat(found["next"]).date() == (due + timedelta(days=1)).date()
    told = log.read_text().splitlines()
    assert told.count(str(folder)) == 1, "it ran once, where it was installed"
    given = dict(line.split("=", 1) for line in told if "=" in line)
    assert given["TACO_LAUNCH_STATE"] == str(taco.state)
    assert not {"SSH_AUTH_SOCK", "OTHERS"} & set(given), "nothing of the caller's agent, nor of other entries"
    taco.ok("nightly", "uninstall", "mine", "--yes")
    assert _crontab() == OTHERS + b"\n"


# --- a head over SSH


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Sshd]:
    if reason := server.why_not():
        pytest.skip(reason)
    with server.sshd(tmp_path_factory.mktemp("night-sshd"), users=(server.User("plain", 5001),)) as made:
        server.keygen(made.folder / "locked", passphrase="open sesame")
        with (made.folder / "authorized").open("a") as file:
            file.write((made.folder / "locked.pub").read_text())
        yield made


@pytest.fixture
def kept(taco: Taco, tmp_path: Path) -> Path:
    """The file of a crontab of the test's own."""
    taco.env["PATH"] = f"{tmp_path / 'bin'}:{taco.env['PATH']}"
    taco.env["HOME"] = str(tmp_path / "home")
    (tmp_path / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    taco.env.pop("SSH_AUTH_SOCK", None)
    return crontab(tmp_path / "bin")


def inventory(folder: Path, sshd: server.Sshd, key: str, host_keys: str = "accept-new") -> str:
    file = folder / "cluster.yaml"
    host = f"{{address: 127.0.0.1, port: {sshd.port}, user: plain, slots: 1}}"
    file.write_text(
        f"cluster: c\nssh: {{host_keys: {host_keys}, identity_file: '{sshd.folder / key}'}}\nhosts: {{gpu1: {host}}}\n"
    )
    return str(file)


def test_a_key_with_a_passphrase_is_refused_though_the_agent_has_it(
    taco: Taco, kept: Path, sshd: server.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    askpass = tmp_path / "askpass"
    askpass.write_text("#!/bin/sh\necho 'open sesame'\n")
    askpass.chmod(0o755)
    monkeypatch.setenv("SSH_ASKPASS", str(askpass))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    file = inventory(tmp_path, sshd, "locked")
    install = ("-i", file, "nightly", "install", "lab", "--at", "2:30", "--with", "cron", "--yes")
    with agent(sshd.folder / "locked") as socket:
        taco.env["SSH_AUTH_SOCK"] = socket
        taco.ok("-i", file, "list")
        done = taco(*install)
    assert (done.returncode, kept.exists()) == (5, False), done.stderr
    assert f"the key {sshd.folder / 'locked'} has a passphrase, and a nightly run has no one to type it" in done.stderr
    assert "hint: create a key without a passphrase" in done.stderr
    inventory(tmp_path, sshd, "login")
    done = taco(*install)
    assert (done.returncode, kept.exists()) == (0, True), done.stderr
    assert "the head gpu1 of c answers" in done.stderr


def test_a_host_that_is_not_known_or_not_there_is_refused(
    taco: Taco, kept: Path, sshd: server.Sshd, tmp_path: Path
) -> None:
    file = inventory(tmp_path, sshd, "login", "strict")
    done = taco("-i", file, "nightly", "install", "lab", "--at", "2:30", "--with", "cron", "--yes")
    assert (done.returncode, kept.exists()) == (5, False), done.stderr
    assert "trust" in done.stderr.rpartition("hint:")[2]
    Path(file).write_text(Path(file).read_text().replace(f"port: {sshd.port}", "port: 1"))
    done = taco("-i", file, "nightly", "install", "lab", "--at", "2:30", "--with", "cron", "--yes")
    assert (done.returncode, kept.exists()) == (5, False), done.stderr
    assert "gpu1" in done.stderr
