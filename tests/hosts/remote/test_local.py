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
from taco_launch.hosts.remote import local as module
from taco_launch.hosts.remote import transport
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
