"""This machine as a host: commands with their ends, and sudo with its question, by a sudo of the test's own."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.hosts.remote import local
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.local import LocalTransport
from tests.conftest import eventually
from tests.support.patience import HANG

# Asks as sudo does: on stderr, for one line of its stdin.
SUDO = """#!/bin/sh
[ "$1 $2" = "-S -p" ] || exit 9
prompt=$3; shift 4
for _ in 1 2 3; do
  printf %s "$prompt" >&2
  IFS= read -r answer || exit 1
  if [ "$answer" = sésame ]; then UNDER=sudo exec env UNDER=sudo "$@"; fi
  echo "Sorry, try again." >&2
done
"""


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bin" / "sudo"
    path.parent.mkdir()
    path.write_text(SUDO)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.parametrize("sudo_too", [False, True])
def test_run(request: pytest.FixtureRequest, sudo_too: bool) -> None:
    if sudo_too:
        request.getfixturevalue("sudo")
    here = LocalTransport("gpu1", Credentials("sésame"))
    data = bytes(range(256)) * 4000
    script = 'cat; printf %s "$A" >&2; exit 3'
    result = here.run(Command(("sh", "-c", script), data, (("A", "b\n'c"),), sudo=sudo_too))
    assert (result.host, result.exit_code, result.stdout == data, result.stderr) == ("gpu1", 3, True, b"b\n'c")
    assert here.run(Command(("sh", "-c", "kill -9 $$"), sudo=sudo_too)).exit_code == 137
    missing = here.run(Command(("no-such-program",), sudo=sudo_too))
    assert missing.exit_code == 127
    assert b"no-such-program" in missing.stderr
    assert here.run(Command(("/etc/passwd",), sudo=sudo_too)).exit_code == 126
    under = here.run(Command(("sh", "-c", "echo $UNDER"), sudo=sudo_too)).stdout
    assert under == (b"sudo\n" if sudo_too else b"\n")
    begun = time.monotonic()
    with pytest.raises(HostError, match=r"gpu1: sleep did not end within 0.3 s"):
        here.run(Command(("sleep", "600"), timeout=0.3, sudo=sudo_too))
    assert time.monotonic() - begun < HANG


# Its grandchild ends in its group, and the parent of that, which left the group, never looks.
LEAVES_A_ZOMBIE = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(0)
    os.setsid()
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_the_end_of_a_call_does_not_wait_for_zombies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_END_SECONDS", 2 * HANG)
    with LocalTransport("gpu1").tail(Command((sys.executable, "-c", LEAVES_A_ZOMBIE))) as stdout:
        parent = int(stdout.readline())
        begun = time.monotonic()
    took = time.monotonic() - begun
    os.kill(parent, signal.SIGKILL)
    assert took < HANG


@pytest.mark.usefixtures("sudo")
def test_sudo_that_refuses() -> None:
    with pytest.raises(HostError, match="gpu1: sudo asks for a password"):
        LocalTransport("gpu1").run(Command(("true",), sudo=True))
    with pytest.raises(HostError, match="gpu1: sudo rejected the password"):
        LocalTransport("gpu1", Credentials("wrong")).run(Command(("true",), sudo=True))


@pytest.mark.usefixtures("sudo")
def test_tail_and_put_under_sudo(tmp_path: Path) -> None:
    here = LocalTransport("gpu1", Credentials("sésame"))
    with here.tail(Command(("sh", "-c", "echo $$; cat; exec sleep 60"), b"in\n", sudo=True)) as stdout:
        pid = int(stdout.readline())
        assert stdout.readline() == b"in\n"
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    target = tmp_path / "a" / "file"
    here.put(b"\0data" * 50_000, str(target), 0o644, sudo=True)
    assert target.read_bytes() == b"\0data" * 50_000
    assert target.stat().st_mode & 0o777 == 0o644


def test_root_needs_no_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(Path(shutil.which("true") or "/bin/true").parent))
    assert LocalTransport().run(Command((sys.executable, "-c", "print(1)"), sudo=True)).stdout == b"1\n"


def test_input_may_be_ended_twice() -> None:
    with LocalTransport().converse(Command(("cat",))) as talk:
        talk.stdin.write(b"a")
        talk.stdin.close()
        assert talk.stdout.read() == b"a"
        talk.stdin.close()
