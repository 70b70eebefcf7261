"""What a job used, as it lies in the job's folder: a series, and each host's last minute."""

from collections.abc import Iterable

import pytest

from taco_launch.agent.store import usage_series
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import DamagedRecordError
from taco_launch.core.model.job_view import Usage


def keep(keeper: usage_series.UsageKeeper, times: Iterable[float], **hosts: float) -> None:
    for now in times:
        for host, cpu in hosts.items():
            keeper.note(host, Usage(1.0, 10, cpus=4, cpu=cpu), now)
        keeper.step(now)


def test_what_was_kept_is_read(folder: JobFolder) -> None:
    assert usage_series.read(folder) is None
    keeper = usage_series.UsageKeeper(folder)
    keeper.step(5.0)
    assert usage_series.read(folder) is None
    keep(keeper, range(10, 101, 10), a=0.2, b=0.6)
    found = usage_series.read(folder)
    assert found is not None
    assert [point.time for point in found.series] == list(range(10, 101, 10)), "the head's clock counts"
    assert {(point.cpu, point.seconds) for point in found.series} == {(0.4, 10)}
    assert [(host, usage.cpu, usage.seconds) for host, usage in found.hosts] == [("a", 0.2, 60), ("b", 0.6, 60)]


def test_another_attempt_continues_the_series(folder: JobFolder) -> None:
    keep(usage_series.UsageKeeper(folder), (10, 20), a=0.2)
    keep(usage_series.UsageKeeper(folder), (110,), b=0.6)
    found = usage_series.read(folder)
    assert found is not None
    assert [point.cpu for point in found.series] == [0.2, 0.2, 0.6]
    assert [host for host, _usage in found.hosts] == ["b"]


def test_a_host_that_sends_too_often_is_not_listened_to(folder: JobFolder) -> None:
    keeper = usage_series.UsageKeeper(folder)
    keep(keeper, (number / 10 for number in range(1, 301)), a=0.2)
    found = usage_series.read(folder)
    assert found is not None
    assert len(found.series) == 3
    assert sum(point.seconds for point in found.series) <= 60
    assert found.hosts[0][1].seconds <= 60


@pytest.mark.parametrize("text", ["", "[]", '{"every": 1}', '{"every": 10, "series": [{"time": "x"}], "hosts": []}'])
def test_a_damaged_file_is_told_and_replaced(folder: JobFolder, text: str) -> None:
    folder.usage.write_text(text, "ascii")
    with pytest.raises(DamagedRecordError, match=r"usage\.json is damaged"):
        usage_series.read(folder)
    keep(usage_series.UsageKeeper(folder), (10,), a=0.2)
    found = usage_series.read(folder)
    assert found is not None
    assert len(found.series) == 1
