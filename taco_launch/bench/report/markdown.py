"""A sweep's report as Markdown: without figures, and without what draws them."""

from types import SimpleNamespace

from taco_launch.bench.compare.tables import MissingCell
from taco_launch.bench.model.runs import when
from taco_launch.bench.report.sweep_report import SweepReport
from taco_launch.bench.report.words import row, words_in


def markdown(report: SweepReport, language: str) -> str:
    """Return the report as Markdown, without the figures."""
    words = words_in(language)
    lines = [f"# {report.ladder.matrix}", "", f"{report.ladder.id}, {when(report.ladder.started)}", ""]
    lines += [f"- {sentence}" for sentence in report.sentences or (words.nothing,)]
    if report.missing:
        lines += ["", f"## {words.missing}", ""]
        lines += [f"- {gap.cell.name}: {gap_text(gap, words)}" for gap in report.missing]
    for grid in report.grids:
        rule = ["---:" if name in grid.numbers else "---" for name in grid.header]
        lines += ["", f"## {grid.title}", "", *(row(cells) for cells in (grid.header, rule, *grid.rows))]
    # A backslash breaks the line within a paragraph; behind the last line it would be printed.
    lines += ["", "\\\n".join(report.legend.splitlines())]
    if report.slow:
        lines += ["", f"## {words.slow}", ""]
        lines += [f"- {words.slow_host.format(host.host, host.share * 100, host.runs)}" for host in report.slow]
    if report.changes:
        lines += [
            "",
            f"## {words.changes}",
            "",
            row((words.when, words.what, words.before, words.after)),
            row(["---"] * 4),
        ]
        lines += [row((when(each.started), *one)) for each in reversed(report.changes) for one in each.differs]
    lines += ["", f"## {words.about}", "", *(f"- {name}: {text}" for name, text in about(report, words)), ""]
    return "\n".join(lines)


def gap_text(gap: MissingCell, words: SimpleNamespace) -> str:
    """Return why a cell has no sample, behind the number of its runs if there are any."""
    return f"{words.of_runs.format(gap.failed, gap.runs)}: {gap.why}" if gap.runs else gap.why


def about(report: SweepReport, words: SimpleNamespace) -> list[tuple[str, str]]:
    """Return what the sweep was, as (name, text)."""
    ladder = report.ladder
    rows = [
        (words.sweep, ladder.id),
        (words.cluster, ladder.cluster),
        (words.hosts, ", ".join(report.hosts)),
        (words.gpu, report.gpu),
        (words.started, when(ladder.started)),
        (words.outcome, ladder.outcome if ladder.ended else words.unfinished),
    ]
    return [(name, text) for name, text in rows if text]
