"""The words of reports in each language, and rows of Markdown."""

from collections.abc import Sequence
from types import SimpleNamespace

LANGUAGES = ("en", "zh")
_WORDS = {
    "verdict": ("Verdict", "结论"),
    "nothing": (
        "Nothing is compared: only one variant, or none, has samples.",
        "没有可比较的内容: 有样本的变体不足两个",
    ),
    "missing": ("No sample", "没有样本"),
    "of_runs": ("{} of {} runs gave no sample", "{} / {} 次运行没有样本"),
    "figure": ("Values and linear speedup", "数值与线性加速比"),
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
    "unfinished": ("has not ended: it is still running or was interrupted", "尚未结束: 仍在运行, 或被中断"),
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


def words_in(language: str) -> SimpleNamespace:
    """Return the words of a page, in one of LANGUAGES."""
    return SimpleNamespace(**{name: texts[LANGUAGES.index(language)] for name, texts in _WORDS.items()})


def row(cells: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
