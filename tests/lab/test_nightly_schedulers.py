"""Nights kept by a real systemd and by Debian's cron on a host of the lab: root's, and those of a user who logs out."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from taco_launch.bench.nightly.crontab import Cron
from taco_launch.bench.nightly.install import schedulers
from taco_launch.bench.nightly.install_plan import NightlyScheduler, read_controller
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun, following
from taco_launch.bench.nightly.systemd_timer import Systemd
from taco_launch.core.command import Command
from taco_launch.core.errors import TacoLaunchError
from taco_launch.hosts.remote.transport import Transport
from tests.conftest import eventually
from tests.lab import logins
from tests.lab.logins import Person
from tests.lab.rig import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

# fixtures are found by their names here
keys, person = logins.keys, logins.person

# what quoting, cron and systemd could trip over, and what systemd would take for a variable and a specifier
ODD = "50% $HOME %h 'one' \"two\" ü ; # ${X}"
# cron takes no backslashes: the script is a file
SCRIPT = """cat >/tmp/night.sh <<'END'
printf "%s|%s|%s\\n" "$PWD" "$NIGHT_ENV" "$1" >>"$2"
[ -t 0 ] && echo terminal >>"$2"
read -r line && echo input >>"$2"
true
END
"""


@pytest.fixture(scope="module")
def addresses(lab: Lab, keys: Path) -> Iterator[dict[str, str]]:
    """Let the tests' keys in for root too."""
    with logins.users(lab, keys) as found:
        key = (keys / "login.pub").read_text().strip()
        lab.sh("gpu1", f"cp -p ~/.ssh/authorized_keys /root/before; echo '{key}' >>~/.ssh/authorized_keys")
        yield found
        lab.sh("gpu1", "mv /root/before ~/.ssh/authorized_keys")


@contextmanager
def host(person: Person, login: str) -> Iterator[Transport]:
    person.knows({"there": login})
    with person.connected() as fanout:
        yield fanout.transports[0]


def night(name: str, schedule: Schedule, log: str) -> ScheduledRun:
    argv = ("/bin/sh", "/tmp/night.sh", ODD, log)
    return ScheduledRun(name, schedule, "/tmp", argv, (("NIGHT_ENV", ODD), ("PATH", "/usr/bin:/bin")))


def install(scheduler: NightlyScheduler, entry: ScheduledRun) -> None:
    scheduler.apply(scheduler.installing(entry))
    assert scheduler.installing(entry).empty, "a second time there is nothing to do"
    (kept,) = scheduler.kept()
    assert (kept.name, kept.problem) == (entry.name, "")
    assert "/tmp/night.sh" in kept.text


@pytest.mark.nightly
def test_both_start_a_night_at_its_minute(lab: Lab, person: Person) -> None:
    lab.sh("gpu1", f"{SCRIPT}rm -f /root/*.log")
    with host(person, "root@gpu1") as remote:
        machine = read_controller(remote)
        assert (machine.uid, machine.no_systemd, machine.crontab, machine.cron_runs) == (0, "", True, True)
        by = {scheduler.word: scheduler for scheduler in schedulers(remote, machine)}
        assert list(by) == ["systemd", "cron"], "systemd is the better one"
        others = b'# Gr\xfc\xdfe\nMAILTO=""\n7 7 7 7 * true\n'
        remote.run(Command(("crontab", "-"), others))
        due = datetime.now(timezone.utc) + timedelta(seconds=75)
        later = Schedule((due.hour + 5) % 24, 0, (0, 1, 2, 3, 4))
        for word, scheduler in by.items():
            install(scheduler, night("late", later, f"/root/{word}.log"))
            install(scheduler, night("late", Schedule(due.hour, due.minute), f"/root/{word}.log"))
        expected = f"/tmp|{ODD}|{ODD}\n"
        said: dict[str, str] = {}

        def both() -> bool:
            for word in by:
                said[word] = remote.run(Command(("cat", f"/root/{word}.log"))).stdout.decode()
            return all(said.values())

        eventually(both, 120, "cron and systemd to start it")
        assert time.time() >= due.replace(second=0, microsecond=0).timestamp()
        assert said == {"systemd": expected, "cron": expected}
        for scheduler in by.values():
            scheduler.apply(scheduler.removing("late"))
            assert scheduler.kept() == ()
            assert scheduler.removing("late").empty
        assert remote.run(Command(("crontab", "-l"))).stdout == others
        left = remote.run(Command(("/bin/sh", "-c", "systemctl list-timers --all; ls /etc/systemd/system"))).stdout
        assert b"taco-launch-nightly" not in left
        remote.run(Command(("crontab", "-r")))


def test_a_timer_of_a_user_outlives_the_logout(lab: Lab, person: Person) -> None:
    lab.sh("gpu1", f"{SCRIPT}loginctl disable-linger plain")
    entry = night("own", Schedule(2, 30, (0, 1, 2, 3, 4)), "/home/plain/own.log")
    unit = "taco-launch-nightly-own"
    try:
        with host(person, "plain@gpu1") as remote:
            machine = read_controller(remote)
            assert (machine.no_systemd, machine.lingers) == ("", False)
            scheduler = Systemd(remote, machine)
            plan = scheduler.installing(entry)
            assert "$ loginctl enable-linger plain\n" in plan.text()
            # there is no polkit here, which would let users do this for themselves
            with pytest.raises(TacoLaunchError, match="Access denied") as caught:
                scheduler.apply(plan)
            assert caught.value.hint == "run sudo loginctl enable-linger plain, then repeat this command"
            assert scheduler.kept() == ()
            lab.sh("gpu1", "loginctl enable-linger plain")
            scheduler = Systemd(remote, read_controller(remote))
            install(scheduler, entry)
            coming = user(remote, machine.runtime, "show", f"{unit}.timer", "--property=NextElapseUSecRealtime")
            expected = following(entry.schedule, datetime.now(timezone.utc), skipping=True)
            assert coming.partition("=")[2].strip() == f"{expected:%a %Y-%m-%d %H:%M:%S %Z}"
            user(remote, machine.runtime, "start", f"{unit}.service")
            log = remote.run(Command(("cat", "/home/plain/own.log"))).stdout.decode()
            assert log == f"/tmp|{ODD}|{ODD}\n"
        eventually(lambda: not sessions(lab), 30, "the logout")
        with host(person, "root@gpu1") as remote:
            as_plain = ("runuser", "-u", "plain", "--", "env", f"XDG_RUNTIME_DIR={machine.runtime}")
            shown = remote.run(Command((*as_plain, "systemctl", "--user", "is-active", f"{unit}.timer"))).stdout
            assert shown == b"active\n"
        with host(person, "plain@gpu1") as remote:
            scheduler = Systemd(remote, read_controller(remote))
            scheduler.apply(scheduler.removing("own"))
            assert scheduler.kept() == ()
    finally:
        lab.sh("gpu1", "loginctl disable-linger plain")


def user(remote: Transport, runtime: str, *words: str) -> str:
    done = remote.run(Command(("systemctl", "--user", *words), env=(("XDG_RUNTIME_DIR", runtime), ("LC_ALL", "C"))))
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode()


def sessions(lab: Lab) -> list[str]:
    return [line for line in lab.sh("gpu1", "loginctl list-sessions --no-legend").splitlines() if " plain " in line]


def test_a_crontab_that_a_user_may_not_have_is_left_alone(lab: Lab, person: Person) -> None:
    lab.sh("gpu1", "echo plain >>/etc/cron.deny")
    try:
        with host(person, "plain@gpu1") as remote:
            scheduler = Cron(remote, read_controller(remote))
            with pytest.raises(TacoLaunchError, match=r"crontab of plain cannot be read: .*not allowed"):
                scheduler.kept()
    finally:
        lab.sh("gpu1", "sed -i /plain/d /etc/cron.deny")
