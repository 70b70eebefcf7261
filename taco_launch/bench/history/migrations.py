"""The tables of the history, and how a database of an earlier version becomes one of this version."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence

# "taco" in a file's header tells a history from any other SQLite database (SQLite, PRAGMA application_id).
APPLICATION_ID = 0x7461636F

# One step per version, never changed once released: the n-th makes version n of version n - 1.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        # `accepted`: its readings count in the baselines of later nightly runs.
        """CREATE TABLE ladder (
            id TEXT PRIMARY KEY, matrix TEXT NOT NULL, kind TEXT NOT NULL, digest TEXT NOT NULL, seed INTEGER NOT NULL,
            cluster TEXT NOT NULL, started REAL NOT NULL, ended REAL, outcome TEXT NOT NULL,
            accepted INTEGER NOT NULL DEFAULT 0)""",
        "CREATE INDEX ladder_started ON ladder (started)",
        # What a series is of but for its metric; `hosts` is a JSON list, sorted.
        """CREATE TABLE cell (
            id INTEGER PRIMARY KEY, workload TEXT NOT NULL, variant TEXT NOT NULL, ranks INTEGER NOT NULL,
            hosts TEXT NOT NULL, gpu TEXT NOT NULL, UNIQUE (workload, variant, ranks, hosts, gpu))""",
        """CREATE TABLE metric (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL, unit TEXT NOT NULL, higher_is_better INTEGER NOT NULL,
            UNIQUE (name, unit, higher_is_better))""",
        # Most runs of a ladder share theirs; `facts` is a JSON list of [host, what, value].
        "CREATE TABLE circumstances (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE)",
        # `hosts` is a JSON list in the order of ranks.
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY, ladder TEXT NOT NULL REFERENCES ladder, position INTEGER NOT NULL,
            cell INTEGER NOT NULL REFERENCES cell, repeat INTEGER NOT NULL, warm_up INTEGER NOT NULL,
            job TEXT NOT NULL, started REAL NOT NULL, seconds REAL NOT NULL, hosts TEXT NOT NULL, why TEXT NOT NULL,
            log TEXT NOT NULL, circumstances INTEGER NOT NULL REFERENCES circumstances, UNIQUE (ladder, position))""",
        "CREATE INDEX run_cell ON run (cell, ladder)",
        """CREATE TABLE reading (
            run INTEGER NOT NULL REFERENCES run, place INTEGER NOT NULL, metric INTEGER NOT NULL REFERENCES metric,
            value REAL NOT NULL, PRIMARY KEY (run, place)) WITHOUT ROWID""",
        # `key_hosts` is a JSON list in its key's order. `change` and its bounds are fractions: 0.05 is 5 % more.
        """CREATE TABLE verdict (
            ladder TEXT NOT NULL REFERENCES ladder, place INTEGER NOT NULL, cell INTEGER NOT NULL REFERENCES cell,
            key_hosts TEXT NOT NULL, metric TEXT NOT NULL, kind TEXT NOT NULL, change REAL, low REAL, high REAL, p REAL, why TEXT NOT NULL,
            PRIMARY KEY (ladder, place)) WITHOUT ROWID""",
        "CREATE VIEW baseline AS SELECT * FROM ladder WHERE kind = 'night' AND accepted",
        """CREATE VIEW whole_run AS SELECT run.*, workload, variant, ranks, gpu, facts FROM run
            JOIN cell ON cell.id = run.cell JOIN circumstances ON circumstances.id = run.circumstances""",
    ),
    (
        # It was started in another history: its jobs and its logs are not of here. Of earlier imports only these are known.
        "ALTER TABLE ladder ADD COLUMN imported INTEGER NOT NULL DEFAULT 0",
        "UPDATE ladder SET imported = 1 WHERE kind = 'import' OR (ended IS NULL AND outcome <> '')",
    ),
    # The matrix's first variant.
    ("ALTER TABLE ladder ADD COLUMN baseline TEXT NOT NULL DEFAULT ''",),
    (
        # All of them, as a JSON list in the matrix's order; of earlier sweeps only the first is known.
        "ALTER TABLE ladder RENAME COLUMN baseline TO variants",
        "UPDATE ladder SET variants = CASE variants WHEN '' THEN '[]' ELSE json_array(variants) END",
    ),
)


class ForeignError(Exception):
    """A database is not a history, or one of a later version; the message says which, for behind the file's name."""


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Bring a database to the version that `steps` make, in one transaction; an empty one gets all of them.

    `connection` starts no transaction by itself (isolation_level None). Two programs that do this at once wait for one
    another, and the second finds nothing to do.

    Raises:
        ForeignError: it is not a history, or made by a later version.
        sqlite3.Error: it cannot be read or written; nothing has changed then.
    """
    with transaction(connection, "BEGIN"):  # all that it reads is of one moment
        if _version(connection, len(steps)) == len(steps):
            return
    with transaction(connection):
        for step in steps[_version(connection, len(steps)) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Have all that the block does happen, or nothing of it."""
    try:  # Ctrl-C may come right after BEGIN
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, known: int) -> int:
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if (application != APPLICATION_ID and not empty) or (empty and (application, version) != (0, 0)):
        raise ForeignError("is an SQLite database of another program, not a taco-launch history")
    if version > known:
        raise ForeignError(
            f"was written by a newer taco-launch: the file has version {version}, this taco-launch supports up to {known}"
        )
    return int(version)
