"""Commands that change labs wait for each other, whoever's they are: the users of one engine share all that labs are made of."""

import fcntl
import getpass
import os
import threading
from pathlib import Path

import pytest

from taco_launch.core.errors import TacoLaunchError
from taco_launch.lab import lock
from taco_launch.lab.docker.reporter import Reporter


def test_a_command_waits_for_that_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(lock._LOCKED).stat().st_mode & 0o005 == 0o005, "every user can open it"
    tmp_path.chmod(0o555)
    monkeypatch.setattr(lock, "_LOCKED", str(tmp_path))
    done: list[str] = []
    waits = threading.Event()

    def say(text: str) -> None:
        done.append(text)
        waits.set()

    def work() -> None:
        with lock.one_at_a_time(Reporter(say, say)):
            done.append("mine")

    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    thread = threading.Thread(target=work)
    thread.start()
    assert waits.wait(10)
    done.append("theirs")
    os.close(other)
    thread.join(10)
    me = f"process {os.getpid()} of {getpass.getuser()}"
    assert done == [f"another `taco-launch lab` is running ({me}): waiting for it", "theirs", "mine"]
    with lock.one_at_a_time(Reporter(done.append, done.append)):
        assert len(done) == 3


def test_a_wait_without_end_names_who_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_LOCKED", str(tmp_path))
    monkeypatch.setattr(lock, "_MOST_SECONDS", 0.1)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with (
        pytest.raises(TacoLaunchError, match=f"process {os.getpid()} of .* has held the lock for all labs"),
        lock.one_at_a_time(Reporter(print, print)),
    ):
        pass
    os.close(other)
