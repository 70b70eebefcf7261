"""A sweep's report as a page of HTML that loads nothing, or as Markdown."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jinja2
from markupsafe import Markup

from taco_launch.bench.compare.tables import Grid
from taco_launch.bench.model.runs import Cell, when
from taco_launch.bench.report import figure
from taco_launch.bench.report.sweep_report import MOST_TRENDS, SweepReport
from taco_launch.bench.stats.verdicts import VerdictKind

LANGUAGES = ("en", "zh")
_RED = (VerdictKind.REGRESSION, VerdictKind.DRIFT, VerdictKind.NO_SAMPLE)
_WORDS = {
    "verdict": ("Verdict", "结论"),
    "nothing": ("There is only one variant: nothing is compared.", "只有一个变体, 没有可比较的内容"),
    "missing": ("No sample", "没有样本"),
    "of_runs": ("{} of {} runs gave no sample", "{} / {} 次运行没有样本"),
    "figure": ("Rate and linear speedup", "速率与线性加速比"),
    "figure_label": ("The tables below as a figure", "下面表格的图示"),
    "slow": ("Slow hosts", "较慢的主机"),
    "slow_host": ("{}: {:.1f} % of the median rate, in {} runs", "{}: 中位速率的 {:.1f} % ({} 次运行)"),
    "trends": ("Over time", "历史变化"),
    "more": ("{} more cells: taco-launch bench history", "另有 {} 个单元: taco-launch bench history"),
    "changes": ("What changed between sweeps", "各次测量之间的变化"),
    "when": ("Sweep", "时间"),
    "what": ("What", "内容"),
    "before": ("Before", "之前"),
    "after": ("After", "之后"),
    "about": ("About this sweep", "关于本次测量"),
    "sweep": ("Sweep", "编号"),
    "cluster": ("Cluster", "集群"),
    "hosts": ("Hosts", "主机"),
    "gpu": ("GPU", "GPU"),
    "started": ("Started", "开始"),
    "outcome": ("Outcome", "结果"),
    "logs": ("Logs of the runs", "各次运行的日志"),
    "time": ("Time", "时间"),
    "time_spent": ("Where the time went", "时间花在哪里"),
    "over_time": ("Progress and use", "进度与资源使用"),
    "host": ("Host", "主机"),
    "ranks": ("Ranks", "rank"),
    "slots": ("Slots", "槽位"),
    "events": ("Events", "事件"),
    "event": ("Event", "事件"),
    "about_job": ("About this job", "关于本作业"),
    "all_nights": ("All nightly runs", "所有夜间回归"),
    "next": ("What to do", "下一步"),
    "changed_since": ("What changed since the last accepted run, {}", "自上次被接受的运行 {} 以来的变化"),
    "nothing_changed": (
        "Nothing that is recorded has changed since the last accepted run. Programs and data outside git are not recorded.",
        "自上次被接受的运行以来, 所记录的内容没有变化. git 之外的程序和数据不在记录之列.",
    ),
    "all_hosts": ("all", "全部"),
    "verdicts": ("Verdicts", "各单元的结论"),
    "cell": ("Cell", "单元"),
    "tonight": ("This run", "本次"),
    "baseline": ("Baseline", "基线"),
    "why": ("Why", "原因"),
}


def html(report: SweepReport, language: str) -> str:
    """Return the page in one of LANGUAGES."""
    words = words_in(language)
    return rendered(
        "sweep",
        language,
        started=when(report.ladder.started),
        red=any(verdict.kind in _RED for verdict in report.verdicts) or bool(report.missing),
        sentences=report.sentences,
        **measured(report, words),
    )


def rendered(template: str, language: str, **values: Any) -> str:
    """Return the page that a template of this folder makes, by its name without its end."""
    loader = jinja2.PackageLoader(__package__, "")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, loader=loader)
    return environment.get_template(f"{template}.html.j2").render(language=language, words=words_in(language), **values)


def measured(
    report: SweepReport, words: SimpleNamespace, baselines: Mapping[tuple[Cell, str], float] | None = None
) -> dict[str, Any]:
    """Return what `measured.html.j2` shows; `baselines` are the means that cells are compared with, by cell and metric."""
    marks = [each.started for each in report.changes]
    return {
        "ladder": report.ladder,
        "missing": _missing(report),
        # matplotlib escapes the names in its SVG
        "figure": Markup(figure.svg(report.measured, report.noun)) if report.measured else "",  # noqa: S704
        "grids": [_cells(grid) for grid in report.grids],
        "number": _number,
        "legend": report.legend,
        "more": max(0, len(report.trends) - MOST_TRENDS),
        "slow": report.slow,
        "trends": Markup(figure.svg_of_trends(report.trends[:MOST_TRENDS], marks, baselines or {}))  # noqa: S704
        if report.trends
        else "",
        "changes": [{"when": when(each.started), "differs": each.differs} for each in reversed(report.changes)],
        "about": _about(report, words),
        "logs": report.logs,
    }


def markdown(report: SweepReport, language: str) -> str:
    """Return the report as Markdown, without the figures."""
    words = words_in(language)
    lines = [f"# {report.ladder.matrix}", "", f"{report.ladder.id}, {when(report.ladder.started)}", ""]
    lines += [f"- {sentence}" for sentence in report.sentences or (words.nothing,)]
    if report.missing:
        lines += ["", f"## {words.missing}", ""]
        lines += [
            f"- {gap['name']}: {words.of_runs.format(gap['failed'], gap['runs'])}: {gap['why']}"
            for gap in _missing(report)
        ]
    for grid in report.grids:
        rule = ["---:" if name in grid.numbers else "---" for name in grid.header]
        lines += ["", f"## {grid.title}", "", *(row(cells) for cells in (grid.header, rule, *grid.rows))]
    lines += ["", *(f"{line}\\" for line in report.legend.splitlines())]
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
    lines += ["", f"## {words.about}", "", *(f"- {name}: {text}" for name, text in _about(report, words)), ""]
    return "\n".join(lines)


def words_in(language: str) -> SimpleNamespace:
    """Return the words of a page, in one of LANGUAGES."""
    return SimpleNamespace(**{name: texts[LANGUAGES.index(language)] for name, texts in _WORDS.items()})


def _cells(grid: Grid) -> dict[str, Any]:
    rows = [list(zip(grid.header, row, strict=True)) for row in grid.rows]
    return {"title": grid.title, "header": grid.header, "rows": rows, "numbers": grid.numbers}


def _number(grid: dict[str, Any], name: str) -> str:
    return Markup(' class="number"') if name in grid["numbers"] else ""


def _missing(report: SweepReport) -> list[dict[str, Any]]:
    return [{"name": gap.cell.name, "failed": gap.failed, "runs": gap.runs, "why": gap.why} for gap in report.missing]


def _about(report: SweepReport, words: SimpleNamespace) -> list[tuple[str, str]]:
    ladder = report.ladder
    rows = [
        (words.sweep, ladder.id),
        (words.cluster, ladder.cluster),
        (words.hosts, ", ".join(report.hosts)),
        (words.gpu, report.gpu),
        (words.started, when(ladder.started)),
        (words.outcome, ladder.outcome),
    ]
    return [(name, text) for name, text in rows if text]


def row(cells: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
