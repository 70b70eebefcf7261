"""This machine as a host: files appear whole and private, commands run without a shell, faults are HostErrors."""

import os
import sys
import threading
from pathlib import Path

import pytest

from taco_launch.command import Command
from taco_launch.errors import HostError
from taco_launch.remote.local import Local

LOCAL = Local()


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
