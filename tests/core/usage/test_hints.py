"""The hints of a job: which rule holds for which numbers, and what it says."""

from dataclasses import replace

import pytest

from taco_launch.core.model.job_view import Usage, check_usage
from taco_launch.core.usage import averages
from taco_launch.core.usage.cells import cells
from taco_launch.core.usage.hints import LEAST_SECONDS, hints

# A host whose GPUs are busy, and nothing else is.
FINE = Usage(
    1e9, 60, cpus=64, cpu=0.2, full_cpus=0, iowait=0.0, swap=0.0, received=1e6, sent=1e6, link=0.1, job_cpus=12.0,
    thread=0.6, gpus=8, gpu=0.95, gpu_memory=0.8, power=400, temperature=60, throttled=0.0,
)  # fmt: skip
CASES = [
    ("nothing", {}, ""),
    (
        "loader workers",
        {"gpu": 0.38, "full_cpus": 8},
        "n1: GPUs idle 62 % of the time while 8 of 64 CPUs are at 100 %: use more data loader workers",
    ),
    ("busy GPUs need no more data", {"full_cpus": 8}, ""),
    (
        "one thread",
        {"gpu": 0.4, "full_cpus": 1, "thread": 0.99, "cpu": 0.03},
        "n1: GPUs idle 60 % of the time while one CPU thread is at 99 % and the host's CPUs are 3 % busy: use more",
    ),
    ("a thread that waits for busy GPUs spins", {"full_cpus": 1, "thread": 1.0}, ""),
    (
        "one thread of a job without GPUs",
        {"gpus": 0, "gpu": None, "gpu_memory": None, "job_cpus": 1.0, "thread": 0.99},
        "n1: one CPU thread is at 99 %, and the job uses 1.0 of 64 CPUs: share the work",
    ),
    (
        "all CPUs",
        {"gpu": 0.5, "cpu": 0.97, "full_cpus": 60},
        "n1: GPUs idle 50 % of the time while the host's CPUs are 97 % busy: preprocess",
    ),
    ("disks", {"gpu": 0.5, "iowait": 0.05}, "n1: processes wait for disks: I/O wait is 5 % of 64 CPUs: copy the data"),
    ("disks behind busy GPUs", {"iowait": 0.05}, ""),
    ("network", {"link": 0.93}, "n1: the busiest network interface carries 93 % of its speed: copy the data"),
    ("batch", {"gpu": 0.8, "gpu_memory": 0.08}, "n1: 8 % of the GPU memory is used and GPUs idle 20 % of the time: raise"),
    ("swap", {"swap": 12.0 * (1 << 20)}, "n1: the host swaps 12 MiB/s: use fewer data loader workers"),
    (
        "throttled",
        {"throttled": 0.25, "temperature": 91},
        "n1: GPUs are throttled 25 % of the time, at 91 °C: cooling or power",
    ),
    (
        "ranks wait",
        {"gpu": 0.02, "cpu": 0.01, "thread": 0.1},
        "n1: GPUs idle 98 % of the time, and the host's CPUs are 1 % busy: the ranks wait",
    ),
    ("nothing known", dict.fromkeys(("cpu", "gpu", "iowait", "link", "thread", "swap", "throttled", "full_cpus")), ""),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_rule(changes: dict[str, float | None], told: str) -> None:
    found = hints((("n1", replace(FINE, **changes)),))  # type: ignore[arg-type]
    assert len(found) == bool(told), found
    assert "".join(found).startswith(told)


def test_less_than_a_minute_tells_nothing() -> None:
    swaps = replace(FINE, swap=1e9)
    assert hints((("n1", replace(swaps, seconds=LEAST_SECONDS)),))
    assert hints((("n1", replace(swaps, seconds=LEAST_SECONDS - 1)),)) == ()


def test_hosts_with_the_same_cause_are_one_line() -> None:
    hosts = tuple((f"n{number}", replace(FINE, link=0.9 + number / 100)) for number in range(1, 4))
    (told,) = hints((("n0", FINE), *hosts))
    assert told.startswith("n1 (as on 2 more): the busiest network interface carries 91 % of its speed: ")


# --- The use of hardware over time and hosts: means by their seconds, and a series that stays short


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
