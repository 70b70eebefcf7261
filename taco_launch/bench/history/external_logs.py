"""Logs that somebody else's runs left, as a ladder of one cell: each log is a repeat."""

import hashlib
from collections.abc import Sequence

from taco_launch.bench.history.exchange import HistoryEntry
from taco_launch.bench.history.history import Ladder, LadderKind
from taco_launch.bench.logs.parse import Sample, parse
from taco_launch.bench.logs.workloads import read
from taco_launch.bench.model.matrix import LogFormat, Workload
from taco_launch.bench.model.runs import Cell, Run
from taco_launch.core.frozen import dataclass

_DIGITS = 10


@dataclass(frozen=True)
class ExternalLog:
    """A log: where it lies, its text, and when it was written, in seconds since the epoch."""

    path: str
    text: str
    time: float


def of_logs(
    logs: Sequence[ExternalLog], workload: Workload, variant: str, ranks: int | None, hosts: Sequence[str]
) -> HistoryEntry:
    """Return the ladder; `ranks` is None where the logs say it. Same logs, same id.

    Raises:
        ValueError: a log holds no sample, or not of that many ranks, or nobody says of how many.
    """
    runs = []
    for repeat, log in enumerate(logs):
        told = parse(log.text) if workload.kind in (LogFormat.HOROVOD, LogFormat.TF_CNN) and ranks is None else None
        if isinstance(told, Sample):
            ranks = told.ranks
        readings = read(workload, log.text, ranks)
        if not isinstance(readings, tuple):
            raise ValueError(  # noqa: TRY004 - it is a word on a log
                f"{log.path}: no sample: {readings.why}"
            )
        if ranks is None:
            raise ValueError(f"{log.path}: a {workload.kind.value} log does not show the number of ranks: add --np N")
        of = Cell(workload.name, variant, ranks)
        runs.append((repeat, Run(of, repeat, False, "", log.time, 0.0, tuple(hosts), "", readings, "", log.path)))
    digest = hashlib.sha256()
    for part in (workload.kind.value, workload.name, variant, str(ranks), *hosts, *(log.text for log in logs)):
        digest.update(hashlib.sha256(part.encode("utf-8", "replace")).digest())
    told_digest = digest.hexdigest()
    times = [log.time for log in logs]
    ladder = Ladder(
        id=f"import-{told_digest[:_DIGITS]}",
        matrix=workload.name,
        kind=LadderKind.IMPORT,
        digest=told_digest,
        seed=0,
        cluster="",
        started=min(times),
        ended=max(times),
        outcome="imported",
    )
    return HistoryEntry(ladder, tuple(runs))
