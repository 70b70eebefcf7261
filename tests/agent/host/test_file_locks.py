"""Which files are locked: /proc/locks is read as the kernel writes it, and nobody is kept from a lock."""

import fcntl
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from taco_launch.agent.host import file_locks
from taco_launch.agent.host.file_locks import Lock, Locks

TEXT = """1: FLOCK  ADVISORY  WRITE 708 08:01:1835044 0 EOF
2: POSIX  ADVISORY  READ 612 00:14:552 128 128
3: OFDLCK ADVISORY  WRITE -1 fd:00:77 0 EOF
4: FLOCK  ADVISORY  READ 12 1a:fff:18446744073709551615 0 EOF
4: -> FLOCK  ADVISORY  WRITE 99 08:01:5 0 EOF
5: LEASE  ACTIVE    READ 3 08:01:6 0 EOF
6: FLOCK  MSNFS     READ  7 00:1b:8 0 EOF
"""


def test_only_flocks_that_are_held_count() -> None:
    assert file_locks.parse(TEXT) == {
        Lock(708, os.makedev(8, 1), 1835044),
        Lock(12, os.makedev(0x1A, 0xFFF), 18446744073709551615),
        Lock(7, os.makedev(0, 0x1B), 8),
    }


@given(
    st.lists(
        st.tuples(st.integers(1, 4194304), st.integers(0, 0xFFF), st.integers(0, 0xFFFFF), st.integers(0, 2**64 - 1))
    )
)
def test_every_line_is_read(rows: list[tuple[int, int, int, int]]) -> None:
    # fs/locks.c, lock_get_status: "%02x:%02x:%lu"
    text = "".join(
        f"{number}: FLOCK  ADVISORY  WRITE {pid} {major:02x}:{minor:02x}:{inode} 0 EOF\n"
        for number, (pid, major, minor, inode) in enumerate(rows, 1)
    )
    assert file_locks.parse(text) == {Lock(pid, os.makedev(major, minor), inode) for pid, major, minor, inode in rows}


@given(st.text())
def test_anything_else_is_no_lock(text: str) -> None:
    file_locks.parse(text)


def test_a_lock_of_ours_is_seen(tmp_path: Path) -> None:
    with open(tmp_path / "one", "wb") as one, open(tmp_path / "other", "wb") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        found = file_locks.read()
        assert found.takers(os.fstat(one.fileno())) == (os.getpid(),)
        assert not found.takers(os.fstat(other.fileno()), (os.getpid(),))
        fcntl.flock(one, fcntl.LOCK_UN)
        assert not file_locks.read().takers(os.fstat(one.fileno()))


def test_where_the_device_is_another_the_process_is_right(tmp_path: Path) -> None:
    """As on btrfs and overlayfs."""
    (tmp_path / "file").touch()
    file = (tmp_path / "file").stat()
    elsewhere = Locks(frozenset((Lock(7, file.st_dev + 1, file.st_ino),)))
    assert elsewhere.takers(file, (7,)) == (7,)
    assert not elsewhere.takers(file, (8,))
    assert not elsewhere.takers(file)
