"""Read what a report shows of a sweep from the history."""

from taco_launch.bench.history.history import History, Ladder
from taco_launch.bench.report.sweep_report import Sweep, SweepReport, report
from taco_launch.core.errors import UsageError

# So many sweeps of the same matrix are shown beside one.
_MOST_BEFORE = 30


def read(history: History, ladder: Ladder, baseline: str = "", *, nights: bool = False) -> SweepReport:
    """Return the report of a sweep, its matrix's first variant or `baseline` first; with `nights`, that of a nightly run beside earlier ones, whose verdicts stand elsewhere.

    Raises:
        UsageError: it has no variant `baseline`.
    """
    earlier = [
        one
        for one in history.ladders()
        if one.matrix == ladder.matrix
        and one.started < ladder.started
        and (not nights or (one.kind, one.cluster) == (ladder.kind, ladder.cluster))
    ]
    before = sorted(earlier, key=lambda one: one.started)[-_MOST_BEFORE:]
    sweep = _sweep(history, ladder)
    variants = {run.cell.variant for run in sweep.runs}
    if baseline and baseline not in variants:
        raise UsageError(
            f"--baseline {baseline}: not in sweep {ladder.id}", hint=f"it has {', '.join(sorted(variants))}"
        )
    verdicts = () if nights else history.verdicts(ladder.id)
    return report(sweep, [_sweep(history, one) for one in before], verdicts, baseline)


def _sweep(history: History, ladder: Ladder) -> Sweep:
    return Sweep(ladder, history.counted_runs(ladder))
