"""Nightly runs that tests describe, show and send."""

from dataclasses import replace

from taco_launch.bench.compare.differences import Difference
from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.nightly.summary import JudgedMetric, Summary
from taco_launch.bench.stats.estimates import Interval
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind

START = 1_790_000_000.0


def judged(
    kind: VerdictKind,
    change: float = 0.0,
    *,
    ranks: int = 16,
    why: str = "so it is",
    hosts: tuple[str, ...] = ("gpu1", "gpu2"),
) -> JudgedMetric:
    key = MetricKey(hosts, "A100", "resnet50", "RDMA", ranks, "img/sec")
    interval = Interval(change, change - 0.01, change + 0.01)
    return JudgedMetric(Verdict(key, kind, interval, 0.001, why), 900 * (1 + change), 900.0, "img/sec")


NIGHT = Summary("taco", "taco", "hcc", "taco-3fa2c1", START, START + 3600, logs="/state/ladders/taco-3fa2c1")
SLOWER = replace(
    NIGHT,
    judged=(judged(VerdictKind.OK, 0.001), judged(VerdictKind.REGRESSION, -0.08, ranks=8)),
    green="taco-111111",
    differences=(Difference("NIC rate eth0", ("gpu2",), "100 Gbit/s", "25 Gbit/s"),),
)
