"""The file of the history: two writers at once, a killed one, earlier and later versions, and what it cannot lie on."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch.bench.history import migrations
from taco_launch.bench.history.history import open_history
from taco_launch.bench.history.migrations import STEPS, migrate
from taco_launch.core.errors import TacoLaunchError
from tests.support.ladders import ladder, run
from tests.support.patience import HANG

# Adds runs to a ladder of its own, and says so after each.
WRITER = """
import sys
from pathlib import Path
from taco_launch.bench.history.history import open_history
from tests.support.ladders import ladder, run

number, count = int(sys.argv[2]), int(sys.argv[3])
with open_history(Path(sys.argv[1])) as history:
    history.begin(ladder(number))
    for position in range(count):
        history.add(ladder(number).id, position, run(1.0 + position, variant=f"v{position % 7}"))
        print(position, flush=True)
"""


def writer(path: Path, number: int, count: int) -> "subprocess.Popen[bytes]":
    argv = (sys.executable, "-c", WRITER, str(path), str(number), str(count))
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_writers_that_begin_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.db"
    writers = [writer(path, number, 25) for number in range(3)]
    for process in writers:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said.decode()
    with open_history(path, create=False) as history:
        for number in range(3):
            found = history.runs(ladder(number).id)
            assert [one.readings[0].value for _, one in found] == [1.0 + position for position in range(25)]
    with raw(path) as connection:
        # what they share is there once
        assert connection.execute("SELECT count(*) FROM cell").fetchone() == (7,)
        assert connection.execute("SELECT count(*) FROM circumstances").fetchone() == (1,)


def test_a_killed_writer_leaves_whole_runs(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with writer(path, 1, 100_000) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().splitlines()
    with open_history(path) as history:
        runs = history.runs(ladder(1).id)
        assert len(runs) >= 5 + len(said)
        assert all(len(one.readings) == 1 for _, one in runs)
        history.add(ladder(1).id, 200_000, run(1.0))


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.begin(ladder(1))
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        with open_history(path, create=False, busy=2 * HANG) as history:
            assert history.ladders() == (ladder(1),)
        assert time.monotonic() - begin < HANG
        with (
            pytest.raises(TacoLaunchError, match=r"has been writing to it for too long") as told,
            open_history(path, busy=0.1) as history,
        ):
            history.begin(ladder(2))
        assert told.value.hint == f"see which program: fuser {path}"


def test_an_earlier_version_is_migrated_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.merge(ladder(1), [(0, run(2.5))])
    with raw(path) as connection:
        broken = (*STEPS, ("ALTER TABLE run ADD COLUMN mood TEXT NOT NULL DEFAULT 'good'", "UPDATE nowhere SET a = 1"))
        with pytest.raises(sqlite3.OperationalError, match="no such table: nowhere"):
            migrate(connection, broken)
        assert not connection.in_transaction
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
        assert "mood" not in str(connection.execute("SELECT sql FROM sqlite_master").fetchall())
        with open_history(path) as history:
            assert history.runs(ladder(1).id) == ((0, run(2.5)),)
        migrate(connection, (*STEPS, broken[-1][:1]))
        migrate(connection, (*STEPS, broken[-1][:1]))  # finds nothing to do
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS) + 1,)
        assert connection.execute("SELECT mood FROM run").fetchall() == [("good",)]
    with pytest.raises(
        TacoLaunchError,
        match=rf"written by a newer taco-launch: the file has version {len(STEPS) + 1}, this taco-launch supports up to {len(STEPS)}",
    ):
        open_history(path).__enter__()


def test_an_earlier_version_is_migrated_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.begin(ladder(1))
    more = (*STEPS, ("CREATE TABLE mood (text TEXT)",))
    monkeypatch.setattr(migrations.migrate, "__defaults__", (more,))
    with open_history(path, create=False) as history:
        assert history.ladders() == (ladder(1),)
    with raw(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS) + 1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_of_earlier_sweeps_the_first_variant_stays_known(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with raw(path) as connection:
        connection.row_factory = None
        migrate(connection, STEPS[:3])
        for number, baseline in ((1, "tcp"), (2, "")):
            values = (f"taco-{number}", number, baseline)
            connection.execute(
                "INSERT INTO ladder (id, matrix, kind, digest, seed, cluster, started, outcome, baseline)"
                " VALUES (?, 'taco', 'ladder', 'd', 1, 'c', ?, 'done', ?)",
                values,
            )
    with open_history(path) as history:
        assert [one.variants for one in history.ladders()] == [(), ("tcp",)]


def _folder(path: Path) -> None:
    path.mkdir()


def _below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


def _text(path: Path) -> None:
    path.write_text("ladder,matrix\n" * 100)


def _foreign(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def _other_application(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("PRAGMA application_id = 7")
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("PRAGMA user_version = 1")


def _later(path: Path) -> None:
    with open_history(path), raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


def _cut(path: Path) -> None:
    with open_history(path) as history:
        history.merge(ladder(1), [(place, run(1.0, log="x" * 500)) for place in range(200)])
    os.truncate(path, 3 * 4096)


def _use(path: Path) -> None:
    with open_history(path) as history:
        history.runs(ladder(1).id)
        history.begin(ladder(2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_folder, r"is a folder, not a history"),
        (_below_a_file, r"/folder is not a folder"),
        (_text, r"is not a history: not an SQLite database"),
        (_foreign, r"is an SQLite database of another program"),
        (_other_application, r"is an SQLite database of another program"),
        (_later, r"was written by a newer taco-launch: the file has version \d, this taco-launch supports up to \d"),
        (_cut, r"is damaged"),
    ],
)
def test_what_is_no_history_is_told_and_left_as_it_is(make: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history.db"
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TacoLaunchError, match=said) as told:
        _use(path)
    assert told.value.message.startswith(f"{path}: ")
    assert told.value.hint
    assert (path.read_bytes() if path.is_file() else None) == before


def test_there_is_none_yet(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history.db"
    with pytest.raises(TacoLaunchError, match="there is no history yet"):
        open_history(path, create=False).__enter__()
    assert not path.parent.exists()


def test_a_full_disk_loses_nothing_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.merge(ladder(1, ended=2.0), [(0, run(1.0))])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50_000, hard))
        with pytest.raises(TacoLaunchError) as told, open_history(path) as history:
            history.merge(ladder(2), [(place, run(1.0, log="x" * 5_000)) for place in range(100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert "the disk is full" in told.value.message or "disk I/O error" in told.value.message
    with open_history(path) as history:
        assert history.ladders() == (replace(ladder(1, ended=2.0), imported=True),)
        assert history.runs(ladder(1).id) == ((0, run(1.0)),)
        history.begin(ladder(2))


NOBODY = """
import os, sys
from pathlib import Path
from taco_launch.bench.history.history import open_history
from taco_launch.core.errors import TacoLaunchError
from tests.support.ladders import ladder

if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
with open_history(Path(sys.argv[1]), create=False) as history:
    print(len(history.runs(ladder(1).id)))
for path in (sys.argv[1], sys.argv[2]):
    try:
        with open_history(Path(path)) as history:
            history.begin(ladder(2))
    except TacoLaunchError as error:
        print(error.message)
"""


@pytest.mark.parametrize("writes", [False, True])
def test_who_may_not_write_reads_all_the_same(*, writes: bool) -> None:
    with ExitStack() as stack:
        # pytest's own folders are root's alone, and other tests have theirs in them
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        with open_history(folder / "history.db") as history:
            history.merge(ladder(1), [(0, run(1.0))])
        (folder / "history.db").chmod(0o644)  # its owner lets others read it, and SQLite's files beside it are like it
        if writes:  # what is new lies in a file of its own then
            stack.enter_context(open_history(folder / "history.db")).add(ladder(1).id, 1, run(2.0))
        _reads(folder, 2 if writes else 1)


def _reads(folder: Path, count: int) -> None:
    folder.chmod(0o555)
    (folder / "history.db").chmod(0o444)
    try:
        argv = (sys.executable, "-c", NOBODY, str(folder / "history.db"), str(folder / "new" / "history.db"))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    finally:
        folder.chmod(0o700)
    read, here, new = done.stdout.splitlines() or (done.stderr, "", "")
    assert read == str(count)
    assert "the file or its folder is not writable (SQLite: attempt to" in here
    assert new.endswith("new: Permission denied")
