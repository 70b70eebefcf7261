"""The file of the history: how it is opened, by several programs at once, and what is said where it cannot be."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from taco_launch.agent.store.folders import make_private, private
from taco_launch.agent.store.ownership import require_own
from taco_launch.bench.history.migrations import ForeignError, migrate
from taco_launch.core.errors import TacoLaunchError

# How long one writer waits for another; each holds the file for the moment that one run takes.
BUSY_SECONDS = 30.0
_ELSEWHERE = "use another path: --db PATH, or TACO_LAUNCH_STATE=FOLDER to keep all state in another folder"
# SQLite reads changes of a history from these files beside it; in a folder such as /tmp another user can make them.
_BESIDE = ("-wal", "-shm", "-journal")
# SQLite's own words (sqlite3_errstr and the messages of its parser): Python 3.10 gives no codes.
_KNOWN = (
    ("locked", "another program has been writing to it for too long", "see which program: fuser {path}"),
    ("disk is full", "the disk is full; the earlier records are intact", "free some space there; or {elsewhere}"),
    ("disk I/O error", "the file cannot be read or written (disk I/O error, or a limit on file sizes)",
     "check the disk, its free space and `ulimit -f`; or {elsewhere}"),
    ("readonly", "the file or its folder is not writable", "make it writable; or {elsewhere}"),
    ("unable to open", "the file cannot be opened, or its folder is not writable", "make it writable; or {elsewhere}"),
    ("not a database", "is not a history: not an SQLite database", "{elsewhere}"),
    ("malformed", "is damaged", "recover what is readable: sqlite3 {path} .recover | sqlite3 NEW; then use --db NEW"),
)  # fmt: skip


def connect(path: Path, *, create: bool, busy: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a history, made with the folders above it where there is none, and bring it to this version.

    With `create` False there has to be one, and one that this user cannot write to is read all the same. `busy` is for
    how many seconds another writer is waited for.

    Raises:
        TacoLaunchError: there is none, it is something else, or it cannot be read or written.
        UsageError: another user can decide what is in it: see `require_own`.
    """
    if path.is_dir():
        raise TacoLaunchError(
            f"{path}: is a folder, not a history file", hint=f"name a file in it: --db {path / 'history.db'}"
        )
    if path.exists() and not path.is_file():  # a pipe would have no end
        raise TacoLaunchError(f"{path}: is not a regular file", hint=_ELSEWHERE)
    for name in ("", *_BESIDE):
        require_own(path.with_name(path.name + name), os.geteuid(), "the history", "--db FILE, or TACO_LAUNCH_STATE")
    if not create and not path.exists():
        raise TacoLaunchError(
            f"{path}: there is no history yet",
            hint="measure first: taco-launch bench run --np N -- COMMAND; or name another file: --db PATH",
        )
    if create:
        try:
            make_private(path.parent)
        except OSError as error:
            where = error.filename or path.parent
            raise TacoLaunchError(f"{path}: cannot create {where}: {error.strerror}", hint=_ELSEWHERE) from None
        if not path.parent.is_dir():
            raise TacoLaunchError(f"{path}: {path.parent} is not a folder", hint=_ELSEWHERE)
        # SQLite makes a file as the umask says, and those beside it like the file itself.
        with contextlib.suppress(OSError):
            os.close(private(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    with explained_errors(path):
        connection = _opened(path, busy, create=create)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            migrate(connection)  # first: a file of another program stays as it is
            if connection.execute("PRAGMA query_only").fetchone()[0] == 0:
                _wal(connection, busy)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def explained_errors(path: Path) -> Iterator[None]:
    """Tell of what SQLite refuses in words that help.

    Raises:
        TacoLaunchError: it did.
    """
    try:
        yield
    except ForeignError as error:
        raise TacoLaunchError(f"{path}: {error}", hint=_ELSEWHERE) from None
    except sqlite3.Error as error:
        text = str(error)
        for words, said, hint in _KNOWN:
            if words in text:
                raise TacoLaunchError(
                    f"{path}: {said} (SQLite: {text})", hint=hint.format(path=path, elsewhere=_ELSEWHERE)
                ) from error
        raise TacoLaunchError(f"{path}: SQLite: {text}", hint=_ELSEWHERE) from error


def _opened(path: Path, busy: float, *, create: bool) -> sqlite3.Connection:
    mode = "rwc" if create else "rw"
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    if not create and not writable and not path.with_name(f"{path.name}-wal").exists():
        # Where SQLite can put no files of its own beside it, it reads a database only on the word that nobody writes.
        mode = "ro&immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy, isolation_level=None)
    connection.row_factory = sqlite3.Row
    if mode.startswith("ro"):
        connection.execute("PRAGMA query_only = ON")
    return connection


def _wal(connection: sqlite3.Connection, busy: float) -> None:
    """Have readers and one writer work at once; the first change of a new file to it does not wait by itself."""
    give_up = time.monotonic() + busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return
