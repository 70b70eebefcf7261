"""Points of a log with times."""

from taco_launch.core.progress import lines
from taco_launch.jobs.progress_curve import Point, points, thinned

LOG = """\
2026-11-30T01:48:40.123456Z loading
2026-11-30T01:48:41.000000Z step 2/240 loss 3.5 30.5 img/s
2026-11-30T01:48:42.500000Z step 4/240 loss nan 31.5 img/s
step 6/240 loss 1.0
2026-11-30T25:00:00Z step 8/240 loss 1.0
"""


def test_lines_with_times_and_progress_are_points() -> None:
    first, second = points(LOG.replace("2026-11-30T25:00:00Z step 8/240 loss 1.0\n", ""), lines.read)
    assert (first.step, first.loss, second.step) == (2.0, 3.5, 4.0)
    assert second.time - first.time == 1.5


def test_a_time_that_is_none_is_no_point() -> None:
    assert len(points(LOG, lines.read)) == 2


def test_a_long_log_is_thinned_and_keeps_its_end() -> None:
    many = [Point(float(at), float(at), None, None, "") for at in range(10_001)]
    few = thinned(many)
    assert len(few) <= 400
    assert few[-1] == many[-1]
    assert thinned(many[:5]) == many[:5]
