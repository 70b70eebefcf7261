"""The use of hardware over time and hosts: means by their seconds, and a series that stays short."""

import pytest

from taco_launch.core.model.job_view import Usage, check_usage
from taco_launch.core.usage import averages
from taco_launch.core.usage.cells import cells


def test_a_mean_is_weighted_and_leaves_out_what_is_not_known() -> None:
    first = Usage(100, 10, cpus=4, cpu=0.1, gpu=0.5, temperature=70)
    last = Usage(130, 30, cpus=4, cpu=0.5, temperature=60)
    assert averages.over_time((first, last)) == Usage(130, 40, cpus=4, cpu=0.4, gpu=0.5, temperature=70)
    assert averages.over_hosts((first, last)).seconds == 30


def test_a_series_of_any_length_stays_short_and_keeps_all_of_the_time() -> None:
    every, series = 10.0, ()  # type: tuple[float, tuple[Usage, ...]]
    samples = 20_000
    for number in range(1, samples + 1):
        every, series = averages.with_point(series, every, Usage(10.0 * number, 10, cpu=number / samples))
        assert len(series) <= averages.MOST_POINTS
    assert len(series) > averages.MOST_POINTS / 4
    assert sum(point.seconds for point in series) == 10 * samples
    times = [point.time for point in series]
    assert times == sorted(times)
    assert times[-1] == 10 * samples
    assert all(point.seconds <= every for point in series)
    assert averages.over_time(series).cpu == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(1, 0),
        Usage(1, 1e6),
        Usage(1, 10, cpu=1.01),
        Usage(1, 10, sent=-1),
        Usage(1, 10, sent=float("nan")),
        Usage(1e300, 10),
        Usage(1, 10, gpus=1 << 60),
    ],
)
def test_what_no_host_can_have_is_refused(usage: Usage) -> None:
    with pytest.raises(ValueError, match=" is "):
        check_usage(usage)


def test_cells() -> None:
    gpu = Usage(
        1, 10, cpus=8, cpu=0.5, iowait=0.011, received=2.5e9, sent=3e3, gpus=2, gpu=0.38, power=311.4, temperature=66
    )
    job = Usage(1, 10, cpus=8, job_cpus=3.14, received=2e6)
    names, rows = cells((gpu, job, None))
    assert names == ("GPU USE", "GPU MEM", "POWER", "TEMP", "CPU", "IO WAIT", "RECEIVE", "SEND")
    assert rows[0] == ["38 %", "-", "311 W", "66 °C", "50 %", "1 %", "2.5 GB/s", "3 kB/s"]
    assert rows[1] == ["-", "-", "-", "-", "3.1 of 8", "-", "2 MB/s", "-"]
    assert rows[2] == ["-"] * 8
    assert cells((job,))[0] == names[4:]
