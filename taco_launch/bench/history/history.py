"""The history: every ladder, run, reading and verdict, in one SQLite file that several programs use at once."""

import contextlib
import enum
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taco_launch.agent.store.folders import is_name, state_folder
from taco_launch.bench.history import run_rows
from taco_launch.bench.history.database import BUSY_SECONDS, connect, explained_errors
from taco_launch.bench.history.migrations import transaction
from taco_launch.bench.history.series import Point, SeriesQuery, newest_ladders, points
from taco_launch.bench.model.ladder import complete_rounds
from taco_launch.bench.model.runs import Cell, MetricKey, Run
from taco_launch.bench.stats.estimates import Interval
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass


class LadderKind(enum.Enum):
    """What a ladder was made by: `bench ladder`, `bench run`, `nightly run`, or somebody else's log."""

    LADDER = "ladder"
    RUN = "run"
    NIGHTLY_RUN = "night"
    IMPORT = "import"


@dataclass(frozen=True)
class Ladder:
    """One measuring of a matrix.

    `matrix` is its name. `digest` is that of the matrix's text, the command line's own options, and the cluster: what a
    broken ladder is found again by. `seed` (at most 63 bits) is that of its order. Times are seconds since the epoch,
    `ended` None while it runs or where it broke off. `outcome` is in its flow's words, "" until it has ended. What an
    `accepted` one measured counts in the baselines of later nightly runs. An `imported` one was started in another history: no job
    and no log here is its own.
    """

    id: str
    matrix: str
    kind: LadderKind
    digest: str
    seed: int
    cluster: str
    started: float
    ended: float | None = None
    outcome: str = ""
    accepted: bool = False
    imported: bool = False
    # In the order of the matrix, the baseline first; sweeps of earlier versions know only that one, or none.
    variants: tuple[str, ...] = ()

    @property
    def broke_off(self) -> bool:
        """Whether it was started here and has not ended: it broke off, or runs in another program."""
        return self.ended is None and not self.imported

    def place(self, cell: Cell) -> tuple[str, int, str, int]:
        """Return where a cell stands in each table of this ladder: variants as in the matrix, unknown ones last, by name."""
        names = (*self.variants, cell.variant)
        return cell.workload, names.index(cell.variant), cell.variant, cell.ranks


def default_path(environ: Mapping[str, str]) -> Path:
    """Return where the history lies unless --db says otherwise: in the controller's state folder."""
    return state_folder(environ, os.geteuid()) / "history.db"


@contextlib.contextmanager
def open_history(path: Path, *, create: bool = True, busy: float = BUSY_SECONDS) -> Iterator["History"]:
    """Open a history for as long as the block lasts; see `database.connect`.

    Raises:
        TacoLaunchError: there is none, it is none, or it cannot be read or written; in the block: the same, and
            nothing of what was being written is there then.
    """
    connection = connect(path, create=create, busy=busy)
    try:
        with explained_errors(path):
            yield History(path, connection)
    finally:
        connection.close()


class History:
    """An open history; what is added is on the disk when the method returns."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use what `open_history` has opened."""
        self.path = path
        self._db = connection

    def begin(self, ladder: Ladder) -> None:
        """Add a ladder.

        Raises:
            TacoLaunchError: its id is taken.
        """
        with transaction(self._db):
            if self.ladder(ladder.id) is not None:
                raise TacoLaunchError(f"{self.path}: a sweep {ladder.id} already exists")
            self._insert(ladder)

    def end(self, ladder_id: str, outcome: str) -> None:
        """Record the outcome of a ladder, and that it ends now."""
        with transaction(self._db):
            self._db.execute("UPDATE ladder SET ended = ?, outcome = ? WHERE id = ?", (time.time(), outcome, ladder_id))

    def resumable(self, digest: str) -> Ladder | None:
        """Return the newest ladder of a digest that was started here and has not ended: see `Ladder.broke_off`."""
        return self._one(
            "SELECT * FROM ladder WHERE digest = ? AND ended IS NULL AND NOT imported ORDER BY started DESC LIMIT 1",
            (digest,),
        )

    def ladder(self, ladder_id: str) -> Ladder | None:
        """Return one ladder."""
        return self._one("SELECT * FROM ladder WHERE id = ?", (ladder_id,))

    def ladders(
        self, kind: LadderKind | None = None, matrix: str | None = None, limit: int | None = None
    ) -> tuple[Ladder, ...]:
        """Return the ladders, of a kind or a matrix only where they are given, the newest first, at most `limit`."""
        found = self._db.execute(
            "SELECT * FROM ladder WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR matrix = ?2)"
            " ORDER BY started DESC, id LIMIT ?3",
            (kind.value if kind else None, matrix, -1 if limit is None else limit),
        )
        return tuple(map(self._ladder, found))

    def add(self, ladder_id: str, position: int, run: Run) -> None:
        """Add a run in its ladder's order, in a transaction of its own: it is there whole, or not at all.

        Raises:
            TacoLaunchError: the place is taken.
        """
        with transaction(self._db):
            self._add(ladder_id, position, run)

    def merge(self, ladder: Ladder, runs: Sequence[tuple[int, Run]]) -> int:
        """Add a ladder of another history, or what of it is not here yet; give how many runs were new.

        One that was not over there when it came here is brought up to date; whether it counts in baselines is
        decided here, as is when one ends that was started here.

        Raises:
            TacoLaunchError: it, or a run of it, is here and is another; nothing of it is added then.
        """
        with transaction(self._db):
            here = self.ladder(ladder.id)
            if here is None:
                self._insert(replace(ladder, imported=True))
            elif _as_begun(here, ladder) != _as_begun(ladder, here):
                raise TacoLaunchError(f"{self.path}: a sweep {ladder.id} already exists with other content")
            elif here.imported and here.ended is None and ladder.ended is not None:
                self._db.execute(
                    "UPDATE ladder SET ended = ?, outcome = ? WHERE id = ?", (ladder.ended, ladder.outcome, ladder.id)
                )
            known = dict(self.runs(ladder.id))
            for position, run in runs:
                if position not in known:
                    self._add(ladder.id, position, run)
                elif known[position] != run:
                    raise TacoLaunchError(
                        f"run {position} of sweep {ladder.id} differs from the same run in {self.path}: it was not imported",
                        hint="import it into another history: --db FILE",
                    )
        return len({position for position, _ in runs} - known.keys())

    def runs(self, ladder_id: str) -> tuple[tuple[int, Run], ...]:
        """Return the runs of a ladder as (position, run), in that order."""
        return run_rows.runs(self._db, ladder_id)

    def counted_runs(self, ladder: Ladder) -> tuple[Run, ...]:
        """Return the runs that each table of a ladder counts, and warm-ups: see `complete_rounds`.

        Nightly runs measure some cells again, and compare each cell with itself: all of their runs count.
        """
        runs = tuple(run for _position, run in self.runs(ladder.id))
        return runs if ladder.kind is LadderKind.NIGHTLY_RUN else complete_rounds(runs)

    def series(self, asked: SeriesQuery) -> tuple[Point, ...]:
        """Return what cells measured over time: ladder by ladder, the oldest first, in the order of its tables."""
        measured: list[Point] = []
        for one in map(self._ladder, newest_ladders(self._db, asked)):
            fields = {name: getattr(one, name) for name in ("matrix", "started", "accepted")}
            shared = {**fields, "ladder": one.id, "kind": one.kind.value}
            measured += points(asked, shared, one.place, self.counted_runs(one))
        return tuple(measured)

    def accept(self, ladder_id: str, outcome: str = "") -> None:
        """Have what a ladder measured count in the baselines of later nightly runs; `outcome` replaces its own."""
        with transaction(self._db):
            self._db.execute(
                "UPDATE ladder SET accepted = 1, outcome = CASE ? WHEN '' THEN outcome ELSE ? END WHERE id = ?",
                (outcome, outcome, ladder_id),
            )

    def reject(self, ladder_id: str, outcome: str) -> None:
        """Have what a ladder measured count in no baseline; it is kept, with another outcome."""
        with transaction(self._db):
            self._db.execute("UPDATE ladder SET accepted = 0, outcome = ? WHERE id = ?", (outcome, ladder_id))

    def reset(self, before: float, matrix: str, cluster: str) -> None:
        """Have nightly runs of a matrix that started before `before` count in no baseline any more; they are kept."""
        with transaction(self._db):
            self._db.execute(
                "UPDATE ladder SET accepted = 0 WHERE matrix = ? AND cluster = ? AND started < ?",
                (matrix, cluster, before),
            )

    def baseline(self, matrix: str, cluster: str) -> tuple[Ladder, ...]:
        """Return the nightly runs of a matrix on a cluster that count in baselines, the newest first."""
        found = self._db.execute(
            "SELECT * FROM baseline WHERE matrix = ? AND cluster = ? ORDER BY started DESC, id DESC", (matrix, cluster)
        )
        return tuple(map(self._ladder, found))

    def nightly_runs(
        self,
        key: MetricKey,
        last: int,
        before: float,
        matrix: str | None = None,
        cluster: str | None = None,
        waiting: tuple[str, str] | None = None,
    ) -> tuple[tuple[float, ...], ...]:
        """Return what the last accepted nightly runs measured of a key: the counted values of each, the oldest first.

        They started before `before`. The order of a key's hosts is all one.
        Workloads and variants are names within a matrix: `matrix` and `cluster` leave out nightly runs of any other.
        With `waiting`, two outcomes, return instead those that ended so, do not count, and are not older than the oldest that does.
        """
        found: dict[str, list[float]] = {}
        for nightly_run, value in self._db.execute(
            """WITH counted AS (
                SELECT run.ladder, run.position, value FROM run JOIN reading ON reading.run = run.id
                WHERE cell = (SELECT id FROM cell WHERE (workload, variant, ranks, hosts, gpu) = (?, ?, ?, ?, ?))
                AND NOT warm_up AND metric IN (SELECT id FROM metric WHERE name = ?)),
            nightly_run AS (
                SELECT id, started FROM ladder WHERE kind = 'night' AND started < ?
                AND (? IS NULL OR matrix = ?) AND (? IS NULL OR cluster = ?)
                AND CASE WHEN ? IS NULL THEN accepted ELSE NOT accepted AND outcome IN (?, ?)
                    AND started >= (SELECT coalesce(min(started), 0) FROM baseline WHERE matrix = ? AND cluster = ?) END
                AND EXISTS (SELECT 1 FROM counted WHERE counted.ladder = ladder.id)
                ORDER BY started DESC, id DESC LIMIT ?)
            SELECT nightly_run.id, value FROM nightly_run CROSS JOIN counted ON counted.ladder = nightly_run.id
            ORDER BY nightly_run.started, nightly_run.id, position""",
            (
                *(key.workload, key.variant, key.ranks, run_rows.text(sorted(key.hosts)), key.gpu, key.metric),
                *(before, matrix, matrix, cluster, cluster),
                *(None if waiting is None else waiting[0], *(waiting or ("", ""))),
                *(matrix, cluster, last),
            ),
        ):
            found.setdefault(nightly_run, []).append(value)
        return tuple(map(tuple, found.values()))

    def keep_verdicts(self, ladder_id: str, verdicts: "Sequence[Verdict]") -> None:
        """Keep what was judged of a nightly run, in place of what was before."""
        with transaction(self._db):
            self._db.execute("DELETE FROM verdict WHERE ladder = ?", (ladder_id,))
            for place, verdict in enumerate(verdicts):
                key, change = verdict.key, verdict.change
                cell = run_rows.cell(self._db, Cell(key.workload, key.variant, key.ranks), key.hosts, key.gpu)
                at = (ladder_id, place, cell, run_rows.text(key.hosts))
                interval = (None, None, None) if change is None else (change.value, change.low, change.high)
                self._db.execute(
                    "INSERT INTO verdict (ladder, place, cell, key_hosts, metric, kind, change, low, high, p, why)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*at, key.metric, verdict.kind.value, *interval, verdict.p, verdict.why),
                )

    def verdicts(self, ladder_id: str) -> "tuple[Verdict, ...]":
        """Return what was judged of a nightly run, as it was kept."""
        found = self._db.execute(
            "SELECT * FROM verdict JOIN cell ON cell.id = cell WHERE ladder = ? ORDER BY place", (ladder_id,)
        ).fetchall()
        return tuple(map(_verdict, found))

    def _one(self, query: str, values: Sequence[Any]) -> Ladder | None:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else self._ladder(row)

    def _insert(self, ladder: Ladder) -> None:
        what = (ladder.id, ladder.matrix, ladder.kind.value, ladder.digest, ladder.seed, ladder.cluster)
        variants = run_rows.text(ladder.variants)
        self._db.execute(
            "INSERT INTO ladder (id, matrix, kind, digest, seed, cluster, started, ended, outcome, accepted, imported, variants)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*what, ladder.started, ladder.ended, ladder.outcome, ladder.accepted, ladder.imported, variants),
        )

    def _add(self, ladder_id: str, position: int, run: Run) -> None:
        try:
            run_rows.add(self._db, ladder_id, position, run)
        except sqlite3.IntegrityError as error:
            why = f"run {position} of sweep {ladder_id} cannot be added: {error}"
            raise TacoLaunchError(f"{self.path}: {why}") from None

    def _ladder(self, row: Mapping[str, Any]) -> Ladder:
        if not is_name(str(row["id"])):  # its logs are in a folder of that name, and its jobs have names that start so
            raise TacoLaunchError(
                f"{self.path}: it contains a sweep with the invalid id {str(row['id'])[:80]!r}",
                hint="another program wrote this file; use another history: --db PATH",
            )
        switches = {name: bool(row[name]) for name in ("accepted", "imported")}
        variants = tuple(json.loads(row["variants"]))
        return Ladder(**{**dict(row), "kind": LadderKind(row["kind"]), "variants": variants, **switches})


def _as_begun(ladder: Ladder, other: Ladder) -> Ladder:
    """Return a ladder without what differs between histories that both have it; those of old versions know fewer variants."""
    variants = ladder.variants[: len(other.variants)]
    return replace(ladder, ended=None, outcome="", accepted=False, imported=False, variants=variants)


def _verdict(row: Mapping[str, Any]) -> Verdict:
    hosts = tuple(json.loads(row["key_hosts"]))
    return Verdict(
        key=MetricKey(hosts, row["gpu"], row["workload"], row["variant"], row["ranks"], row["metric"]),
        kind=VerdictKind(row["kind"]),
        change=None if row["change"] is None else Interval(row["change"], row["low"], row["high"]),
        p=row["p"],
        why=row["why"],
    )
