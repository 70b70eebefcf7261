"""When a nightly run is next: by a clock on the wall, also on the two nightly runs of a year on which the clocks change."""

import re
import shutil
import subprocess
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.nightly import schedule
from taco_launch.bench.nightly.schedule import Schedule

# In 2027 the clocks there go from 02:00 to 03:00 on March 28, and from 03:00 to 02:00 on October 31.
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(("text", "days"), [
    ("mon-fri", (0, 1, 2, 3, 4)), ("sat,sun", (5, 6)), ("fri-mon", (0, 4, 5, 6)), ("WED", (2,)), ("mon-sun", tuple(range(7))),
])  # fmt: skip
def test_days(text: str, days: tuple[int, ...]) -> None:
    assert schedule.parse_days(text) == days


@pytest.mark.parametrize("text", ["", "daily", "mon-", "-fri", "mon-wed-fri", "1-5", "mon,,tue", "montag"])
def test_what_are_no_days(text: str) -> None:
    with pytest.raises(ValueError, match="must be days"):
        schedule.parse_days(text)


@pytest.mark.parametrize("text", ["", "2", "24:00", "02:60", "2:3", "02:30:00", "-1:00", "٠٢:٣٠"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="must be a time of day"):
        schedule.parse_time(text)


def test_the_next_and_the_last_time() -> None:
    weekdays = Schedule(2, 30, (0, 1, 2, 3, 4))
    friday = at("2026-11-20T02:30")
    assert schedule.following(weekdays, friday, skipping=True) == at("2026-11-23T02:30")
    assert schedule.latest(weekdays, friday, skipping=True) == friday
    assert schedule.latest(weekdays, at("2026-11-20T02:29"), skipping=True) == at("2026-11-19T02:30")
    assert str(weekdays) == "02:30 mon-fri"


def test_a_time_that_the_clocks_leave_out() -> None:
    every, before = Schedule(2, 30), at("2027-03-27T12:00")
    assert schedule.following(every, before, skipping=True) == at("2027-03-29T02:30")
    # cron(8): "those jobs which would have run in the time that was skipped will be run soon after the change"
    assert schedule.following(every, before, skipping=False).isoformat() == "2027-03-28T03:00:00+02:00"
    assert schedule.change(every, before) == schedule.ClockChange(date(2027, 3, 28), date(2027, 10, 31))
    assert schedule.change(Schedule(4, 0), before) == schedule.ClockChange(None, None)
    assert schedule.change(Schedule(2, 30, (0, 1)), before) == schedule.ClockChange(None, None)


def test_a_time_that_comes_twice_counts_once() -> None:
    first = schedule.following(Schedule(2, 30), at("2027-10-30T12:00"), skipping=True)
    assert first.isoformat() == "2027-10-31T02:30:00+02:00"
    assert schedule.following(Schedule(2, 30), first, skipping=True).isoformat() == "2027-11-01T02:30:00+01:00"
    between = first.replace(minute=10, fold=1)  # 40 minutes later
    assert schedule.latest(Schedule(2, 30), between, skipping=True) == first
    assert schedule.following(Schedule(2, 30), between, skipping=True).day == 1


@given(
    st.builds(
        Schedule,
        st.integers(0, 23),
        st.integers(0, 59),
        st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))),
    ),
    st.integers(1_767_222_000, 1_893_452_400).map(lambda seconds: datetime.fromtimestamp(seconds, BERLIN)),
    st.booleans(),
)
def test_the_last_and_the_next_have_no_other_between(night: Schedule, now: datetime, skipping: bool) -> None:
    last, coming = (search(night, now, skipping=skipping) for search in (schedule.latest, schedule.following))
    assert last.timestamp() <= now.timestamp() < coming.timestamp()
    assert schedule.following(night, last, skipping=skipping) == coming
    assert coming.weekday() in night.days


def test_systemd_says_the_same() -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("cannot: there is no systemd-analyze")
    for begin in ("2027-03-26 12:00", "2027-10-30 12:00"):
        done = subprocess.run(
            ("systemd-analyze", "calendar", "--iterations=4", f"--base-time={begin}", "Mon,Wed..Sun *-*-* 02:30:00"),
            env={"TZ": "Europe/Berlin", "PATH": "/usr/bin:/bin", "LC_ALL": "C"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode and "base-time" in done.stderr:
            pytest.skip("cannot: this systemd-analyze knows no --base-time")
        told = re.findall(r"\(in UTC\): \w+ (\S+ \S+) UTC", done.stdout)
        now, found = at(begin.replace(" ", "T")), []
        for _ in range(4):
            now = schedule.following(Schedule(2, 30, (0, 2, 3, 4, 5, 6)), now, skipping=True)
            found.append(now.astimezone(ZoneInfo("UTC")).strftime("%Y-%m-%d %H:%M:%S"))
        assert found == told
