"""This machine as a host: files appear whole and private, commands run without a shell, faults are HostErrors."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError, UsageError
from taco_launch.hosts.remote import local, transport
from taco_launch.hosts.remote import local as module
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.local import LocalTransport
from tests.conftest import eventually
from tests.support.patience import HANG

LOCAL = LocalTransport()


# --- put


def test_a_file_is_put_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "agent.pyz"
    old = os.umask(0)
    try:
        LOCAL.put(b"one", str(path))
    finally:
        os.umask(old)
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in (tmp_path / "a", tmp_path / "a" / "b")} == {0o700}
    LOCAL.put(b"two", str(path))
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["agent.pyz"]


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path, contents = tmp_path / "agent.pyz", {bytes([letter]) * 3_000_000 for letter in b"ab"}
    LOCAL.put(min(contents), str(path))
    done = threading.Event()

    def write() -> None:
        for _round in range(5):
            for content in sorted(contents):
                LOCAL.put(content, str(path))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert path.read_bytes() in contents
    writer.join()


def test_a_file_that_cannot_be_put(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "agent.pyz", tmp_path / "folder"):
        with pytest.raises(HostError, match="localhost: cannot write") as caught:
            LOCAL.put(b"x", str(path))
        assert str(path) in caught.value.message
        assert caught.value.hint is not None
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


KILLED = """
import os, signal, sys
from taco_launch.hosts.remote.local import LocalTransport
os.fsync = lambda _descriptor: os.kill(os.getpid(), signal.SIGKILL)
LocalTransport().put(bytes(1000), sys.argv[1])
"""


def by_shell(*shell: str) -> Callable[[bytes, str], None]:
    """Return what puts a file by a shell, as on hosts and under sudo."""

    class Shell(LocalTransport):
        def run(self, command: Command) -> Result:
            return super().run(replace(command, argv=(*shell, *command.argv[1:])))

    return lambda data, path: transport.put(Shell(), data, path, 0o600, sudo=False)


@pytest.mark.parametrize("shell", [(), ("dash",), ("busybox", "sh")], ids=["python", "dash", "busybox"])
def test_what_killed_writers_leave_is_removed_by_a_later_one(tmp_path: Path, shell: tuple[str, ...]) -> None:
    if shell and not shutil.which(shell[0]):
        pytest.skip(f"{shell[0]} is not installed (apt-get install {shell[0]})")
    put, path = (by_shell(*shell) if shell else LOCAL.put), tmp_path / "a [b] * c" / "agent.pyz"
    LOCAL.put(b"", str(path))
    argv = (*shell, "-c", transport._PUT, "put", str(path), "600", "1000")
    with subprocess.Popen(
        argv if shell else (sys.executable, "-c", KILLED, str(path)), stdin=subprocess.PIPE
    ) as writer:
        eventually(lambda: len(os.listdir(path.parent)) == 2)
        writer.kill()
    (part,) = (found for found in path.parent.iterdir() if found != path)
    own = part.with_name(".taco-launch.yaml")  # the user's
    own.touch()
    for found in (own, path):
        os.utime(found, (0, 0))
    put(b"one", str(path))
    assert part.exists()  # it may be of a writer that still runs
    os.utime(part, (time.time() - (400 if shell else 70),) * 2)
    put(b"two", str(path))
    assert (sorted(path.parent.iterdir()), path.read_bytes()) == ([own, path], b"two")


# --- tail


def test_tail_gives_output_as_it_comes() -> None:
    with LOCAL.tail(Command(("sh", "-c", "cat; sleep 60"), stdin=b"line\n")) as stdout:
        assert stdout.readline() == b"line\n"


def test_the_end_of_the_block_ends_the_command() -> None:
    with LOCAL.tail(Command(("sh", "-c", "echo $$; exec sleep 60"))) as stdout:
        pid = int(stdout.readline())
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_tail_what_cannot_run() -> None:
    with (
        pytest.raises(HostError, match="localhost: cannot run /no/such/program"),
        LOCAL.tail(Command(("/no/such/program",))),
    ):
        raise AssertionError


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_command_that_does_not_read(size: int) -> None:
    """It ends before it has read what it is given: its output tells, a broken pipe does not."""
    with LOCAL.tail(Command(("sh", "-c", "exec <&-; echo sorry"), stdin=b"x" * size)) as stdout:
        assert stdout.read() == b"sorry\n"


def test_ctrl_c_in_the_terminal_is_not_the_commands_business() -> None:
    command = Command((sys.executable, "-c", "import os; print(os.getsid(0))"))
    own = str(os.getsid(0)).encode()
    with LOCAL.tail(command) as stdout:
        assert stdout.read().strip() != own


def test_a_file_is_private_from_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes, fchmod = [], os.fchmod

    def seen(descriptor: int, mode: int) -> None:
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", seen)
    old = os.umask(0o022)
    try:
        LOCAL.put(b"secret", str(tmp_path / "file"), 0o640)
    finally:
        os.umask(old)
    assert modes == [0o600]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


# --- children that stay


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_a_child_that_stays_keeps_nobody_waiting() -> None:
    script = "sleep 600 & echo $!; head -c 60000 /dev/zero >&2; exit 3"
    result = LOCAL.run(Command(("sh", "-c", script), timeout=HANG))
    child = int(result.stdout)
    assert (result.exit_code, len(result.stderr), gone(child)) == (3, 60_000, False)
    os.kill(child, signal.SIGKILL)


def test_the_end_of_tail_ends_children_of_what_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 0.3)
    with LOCAL.tail(Command(("sh", "-c", "sleep 20 & echo $!"))) as stdout:
        child = int(stdout.readline())
        time.sleep(0.1)
    assert gone(child)


def test_a_timeout_ends_children_that_outlive_their_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 0.3)
    script = f"(trap '' TERM; exec sleep 20) & echo $! >{tmp_path}/pid; exec sleep 20"
    with pytest.raises(HostError, match=r"sh did not end within 0\.5 s"):
        LOCAL.run(Command(("sh", "-c", script), timeout=0.5))
    eventually(lambda: gone(int((tmp_path / "pid").read_text())))


def test_how_it_ended_is_not_known_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 0.1)
    with subprocess.Popen(["sleep", "20"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert module._Pipe(process).ending() == ""
        process.kill()


@pytest.mark.parametrize("name", ["UID", "A-B", "_"])
def test_names_that_cannot_travel_to_a_host_are_refused_here_too(name: str) -> None:
    command = Command(("true",), env=((name, "x"),))
    with pytest.raises(UsageError, match="no shell can export it"):
        LOCAL.run(command)
    with pytest.raises(UsageError, match="no shell can export it"), LOCAL.tail(command):
        raise AssertionError


def test_what_a_command_says_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.hosts.remote.session.ANSWER_BYTES", 1 << 20)
    with pytest.raises(HostError, match=r"^localhost: the answer of yes is larger than 1 MiB"):
        LOCAL.run(Command(("yes",), timeout=60))


# --- This machine as a host: commands with their ends, and sudo with its question, by a sudo of the test's own


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
