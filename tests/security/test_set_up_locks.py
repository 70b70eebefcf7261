"""Set-up looks who uses a host, among files that containers and other users made: idle.sh."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from taco_launch.setup import scripts
from tests.support.setup_scripts import SHELLS, Fakes


@pytest.fixture(params=SHELLS)
def fakes(tmp_path: Path, request: pytest.FixtureRequest) -> Fakes:
    return Fakes(tmp_path / "bin", request.param)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A host's state folder, with a job that runs."""
    folder = tmp_path / "state"
    (folder / "jobs" / "train").mkdir(parents=True)
    return folder


@pytest.fixture
def lock(state: Path) -> Iterator[Path]:
    path = state / "jobs" / "train" / "lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def line(file: Path) -> str:
    told = file.stat()
    return f"{told.st_dev} {told.st_ino} {file}"


def locked(fakes: Fakes, folder: Path, *lines: str, most: int = 10, text: str = scripts.text("idle.sh")) -> list[str]:
    """Ask which of these files are locked."""
    fakes.folder.mkdir(exist_ok=True)
    asked = 'folder=$1 most=$2; shift 2; printf "%s\\n" "$@" | idle_locked "$most" "$folder"'
    done = fakes.run_text(text + asked, str(folder), str(most), *lines)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.splitlines()


def test_what_is_locked_is_known_without_opening_it(fakes: Fakes, state: Path, lock: Path) -> None:
    free, held = state / "free", line(lock)
    free.touch()
    lock.rename(state / "moved")
    os.mkfifo(lock)  # who opens it waits
    assert locked(fakes, state, line(free), held) == [str(lock)]


@pytest.mark.parametrize(("kind", "held"), [("xfs", False), ("ext2/ext3", False), ("btrfs", True), ("overlayfs", True)])
def test_a_locked_inode_of_another_device_counts_where_devices_differ(
    fakes: Fakes, state: Path, lock: Path, kind: str, *, held: bool
) -> None:
    told = lock.stat()
    fakes.make("stat", f"case $1 in -f) echo {kind} ;; *) echo {told.st_dev + 1} ;; esac")
    assert locked(fakes, state, f"{told.st_dev + 1} {told.st_ino} /it") == ["/it"] * held


def test_devices_of_large_numbers(fakes: Fakes, state: Path, tmp_path: Path) -> None:
    """As stat tells them and as the kernel does: NVMe is 259:N, and N may be above 255."""
    locks = tmp_path / "locks"
    locks.write_text("1: FLOCK  ADVISORY  WRITE 7 103:12345 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 103:12345:77 0 EOF\n")
    device = os.makedev(0x103, 0x12345)
    fakes.make("stat", f"case $1 in -f) echo xfs ;; *) echo {device} ;; esac")
    text = scripts.text("idle.sh").replace("/proc/locks", str(locks))
    assert locked(fakes, state, f"{device} 77 /it", f"{device} 78 /other", text=text) == ["/it"]


def test_locks_without_an_end_are_not_remembered(fakes: Fakes, state: Path, lock: Path) -> None:
    text = scripts.text("idle.sh")
    assert text.count("FNR > 200000") == 1
    assert locked(fakes, state, line(lock), text=text.replace("FNR > 200000", "FNR > 0")) == ["more"]


def test_a_name_of_two_lines_is_no_line_of_ours(fakes: Fakes, state: Path) -> None:
    odd = state / "jobs" / "a\nmore b"
    odd.mkdir()
    (odd / "lock").touch()
    fakes.folder.mkdir()
    done = fakes.run_text(scripts.text("idle.sh") + 'idle_jobs "$1"', str(state))
    assert (done.stdout, done.returncode) == ("", 0)


def test_files_without_an_end_are_more_than_can_be_looked_at(fakes: Fakes, state: Path) -> None:
    fakes.make("timeout", "exit 124")
    asked = 'idle_jobs "$1" | idle_locked 10 "$1"'
    assert fakes.run_text(scripts.text("idle.sh") + asked, str(state)).stdout == "more\n"
