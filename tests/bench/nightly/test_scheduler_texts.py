"""A nightly run's text in a crontab and in systemd's units: others' entries stay, and each run's text is separate."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.nightly import crontab, systemd_timer
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun
from taco_launch.core.errors import TacoLaunchError

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
# what a folder may be called, and quoting, cron and systemd could trip over
WORDS = st.text(st.sampled_from("ab %$\"'#;&|<>*?~`!(){}=:ü\u2028\u00a0,-"), min_size=1, max_size=8).map(
    lambda word: f"/{word}"
)
DAYS = st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days)))
SCHEDULES = st.builds(Schedule, st.integers(0, 23), st.integers(0, 59), DAYS)
MAILS = st.none() | st.just("night@example.com")
ENV = st.lists(st.tuples(st.sampled_from(("PATH", "LANG", "TACO_LAUNCH_STATE")), WORDS), max_size=3).map(tuple)
NIGHTS = st.builds(
    ScheduledRun, NAMES, SCHEDULES, WORDS, st.lists(WORDS, min_size=1, max_size=4).map(tuple), ENV, MAILS
)
# other people's lines, some without a line end, some not even UTF-8
OTHERS = st.binary(max_size=60).map(
    lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
) | st.sampled_from(("", "MAILTO=me\n0 1 * * * a%b\n", "# Grüße\r\n@daily x", "# taco-launch nightly\n\n\n", "\n\n"))
NIGHT = ScheduledRun(
    "lab",
    Schedule(2, 30),
    "/home/ann",
    ("/opt/taco launch/taco-launch", "nightly", "run", "/m/100%.yaml"),
    (("PATH", "/usr/bin"),),
)


def test_the_entry_as_a_person_reads_it() -> None:
    assert crontab.block(NIGHT, "root") == (
        "# taco-launch nightly lab begin\n"
        "30 2 * * * : night lab; /usr/bin/env -C /home/ann PATH=/usr/bin '/opt/taco launch/taco-launch' nightly run /m/100\\%.yaml\n"
        "# taco-launch nightly lab end\n"
    )
    weekdays = ScheduledRun("w", Schedule(0, 5, (0, 1, 2, 3, 4, 6)), "/", ("/t",), (), "team@example.com")
    assert crontab.block(weekdays, "ann").splitlines()[1:4] == [
        "MAILTO=team@example.com",
        "5 0 * * 1,2,3,4,5,0 : night w; /usr/bin/env -C / /t",
        "MAILTO=ann",
    ]


@given(NIGHTS, NIGHTS, OTHERS)
def test_a_crontab_keeps_what_is_not_of_the_night(one: ScheduledRun, two: ScheduledRun, others: str) -> None:
    with_one = crontab.with_block(others, one.name, crontab.block(one, "me"))
    assert crontab.without(with_one, one.name) == others
    assert crontab.with_block(with_one, one.name, crontab.block(one, "me")) == with_one, "a second time changes nothing"
    both = crontab.with_block(with_one, two.name, crontab.block(two, "me"))
    assert crontab.blocks(both) == {one.name: crontab.block(one, "me")} | {two.name: crontab.block(two, "me")}
    if one.name != two.name:
        assert crontab.without(both, two.name) == with_one
        moved = ScheduledRun(one.name, Schedule(4, 4), one.folder, one.argv, one.env)
        changed = crontab.with_block(both, one.name, crontab.block(moved, "me"))
        assert changed.index(f"nightly {one.name} begin") == both.index(f"nightly {one.name} begin"), "in its old place"
        assert crontab.without(changed, one.name) == crontab.without(both, one.name)


@given(NIGHTS)
def test_a_shell_reads_the_command_as_it_was_meant(night: ScheduledRun) -> None:
    script = f"printf '%s\\0' {crontab.command(night).removeprefix(f': night {night.name}; ')}"
    said = subprocess.run(("/bin/sh", "-c", script), capture_output=True, check=True).stdout
    assert tuple(said.decode().split("\0")[:-1]) == night.argv_with_env


@pytest.mark.parametrize("text", [
    "# taco-launch nightly a begin\n1 2 * * * x\n",
    "1 2 * * * x\n# taco-launch nightly a end\n",
    "# taco-launch nightly a begin\n# taco-launch nightly b begin\n# taco-launch nightly b end\n# taco-launch nightly a end\n",
    "# taco-launch nightly a begin\n# taco-launch nightly b end\n",
    "# taco-launch nightly a begin\n# taco-launch nightly a end\n" * 2,
])  # fmt: skip
def test_marks_that_do_not_pair_are_refused(text: str) -> None:
    with pytest.raises(TacoLaunchError, match="marks do not match"):
        crontab.with_block(text, "a", "x\n")
    with pytest.raises(TacoLaunchError, match="marks do not match"):
        crontab.without(text, "a")


def test_what_no_crontab_can_hold_is_refused() -> None:
    for word in ("/a\\b", "/a\nb", "/a\x7f"):
        with pytest.raises(TacoLaunchError, match="is not allowed in a crontab"):
            crontab.block(ScheduledRun("n", NIGHT.schedule, "/", (word,)), "me")
    fits = ScheduledRun("n", NIGHT.schedule, "/", ("/" + "x" * (998 - len(": night n; /usr/bin/env -C / /")),))
    assert fits.argv[0] in crontab.block(fits, "me")
    with pytest.raises(TacoLaunchError, match="999 characters long, but cron accepts at most 998"):
        crontab.block(ScheduledRun("n", NIGHT.schedule, "/", (fits.argv[0] + "x",)), "me")


def test_units_take_no_line_end_and_no_broken_text() -> None:
    for word in ("/a\nb", "/a\udcff"):
        with pytest.raises(TacoLaunchError, match="is not allowed in a unit"):
            systemd_timer.service(ScheduledRun("n", NIGHT.schedule, "/", (word,)))


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("cannot: there is no systemd-analyze")
    night = ScheduledRun(
        "odd", Schedule(23, 5, (0, 2, 3, 4, 6)), "/a b", ("/bin/echo", "$HOME 100% \"q\" 'q' ü"), (("A", '$x %h "y"'),)
    )
    for kind, text in (("service", systemd_timer.service(night)), ("timer", systemd_timer.timer(night))):
        (tmp_path / f"{systemd_timer.PREFIX}odd.{kind}").write_text(text, encoding="utf-8")
    done = subprocess.run(
        ("systemd-analyze", "verify", "--man=no", str(tmp_path / f"{systemd_timer.PREFIX}odd.timer")),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if str(tmp_path) in line]) == (0, []), (
        done.stderr
    )
    found = re.search(r"OnCalendar=(.*)", systemd_timer.timer(night))
    assert found
    said = subprocess.run(("systemd-analyze", "calendar", found[1]), capture_output=True, text=True, check=True).stdout
    assert "Mon,Wed..Fri,Sun *-*-* 23:05:00" in said
