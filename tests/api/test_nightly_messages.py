"""What people are sent about a nightly run, and when."""

from dataclasses import replace

import pytest

pytest.importorskip("scipy")

from taco_launch.api.nightly_messages import message, occasions
from taco_launch.bench.nightly.summary import NightlyOutcome, line
from taco_launch.bench.stats.verdicts import VerdictKind
from taco_launch.core.messages import words
from tests.support.nights import NIGHT, SLOWER, judged


@pytest.mark.parametrize(
    ("outcome", "before", "expected"),
    [
        (NightlyOutcome.OK, "ok", {"night"}),
        (NightlyOutcome.OK, "regression", {"night", "night-change"}),
        (NightlyOutcome.REGRESSION, "regression", {"night", "night-red"}),
        (NightlyOutcome.NOT_FIT, "", {"night", "night-red"}),
        (NightlyOutcome.NOT_FIT, "ok", {"night", "night-change", "night-red"}),
        (NightlyOutcome.PENDING, "pending", {"night"}),
    ],
)
def test_occasions(outcome: NightlyOutcome, before: str, expected: set[str]) -> None:
    assert set(occasions(outcome, before)) == expected


def test_a_message_has_the_worst_first_and_what_changed() -> None:
    text = words.text({**message(SLOWER, ["/n/x.html"]), "from": "ops1"})
    assert text.splitlines() == [
        "nightly taco: regression",
        "resnet50 RDMA at 8 ranks -8.0 % [-9.0, -7.0]",
        "changed since the last accepted run: gpu2: NIC rate eth0: 100 Gbit/s -> 25 Gbit/s",
        "hosts: gpu1, gpu2",
        "cluster: hcc",
        "cell                       verdict     this run       baseline       change",
        "resnet50 RDMA at 8 ranks   regression  828.0 img/sec  900.0 img/sec  -8.0 % [-9.0, -7.0]",
        "resnet50 RDMA at 16 ranks  ok          900.9 img/sec  900.0 img/sec  +0.1 % [-0.9, 1.1]",
        "taco-launch nightly report taco",
        "ops1:/n/x.html",
    ]
    assert "; ".join(text.splitlines()[1:3]) in line(SLOWER, "/n/x.md")


def test_cells_that_a_message_leaves_out_are_counted() -> None:
    many = replace(NIGHT, judged=tuple(judged(VerdictKind.OK, ranks=ranks) for ranks in range(1, 31)))
    table = message(many, ())["table"]
    assert (len(table), table[-1][0]) == (14, "and 18 more")
