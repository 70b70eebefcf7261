"""A nightly run as a systemd timer and the service that it starts: their texts, and what such texts say."""

import re

from taco_launch.errors import TacoLaunchError
from taco_launch.nightly.schedule import DAYS, Schedule, ScheduledRun, night_of, parse_days, runs

PREFIX = "taco-launch-nightly-"
_CALENDAR = re.compile(r"OnCalendar=(?:([A-Za-z.,]+) )?\*-\*-\* (\d\d):(\d\d):00")
_PLAIN = re.compile(r'\\["\\]|%%|\$\$')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
# systemd.service(5): `%` starts a specifier, `$` a variable
_ESCAPED = {'"': '\\"', "\\": "\\\\", "%": "%%", "$": "$$"}


def service(scheduled: ScheduledRun) -> str:
    """Return the text of the service.

    Only the nightly run's own process ends with the service: what it has started on this machine may work for others too.

    Raises:
        TacoLaunchError: a word of it has a control character, or is not UTF-8.
    """
    lines = [
        "[Unit]",
        f"Description=taco-launch: the nightly run {scheduled.name}",
        "",
        "[Service]",
        "Type=oneshot",
        "KillMode=process",
        f"ExecStart={' '.join(map(_quote, scheduled.argv_with_env))}",
    ]
    return "".join(f"{line}\n" for line in lines)


def timer(scheduled: ScheduledRun) -> str:
    """Return the text of the timer. A nightly run that the machine slept through is not made up for: it would be in the day."""
    lines = [
        "[Unit]",
        f"Description=taco-launch: when the nightly run {scheduled.name} starts",
        "",
        "[Timer]",
        f"OnCalendar={_calendar(scheduled.schedule)}",
        "AccuracySec=1s",
        "Persistent=false",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "".join(f"{line}\n" for line in lines)


def read(name: str, timer_text: str, service_text: str) -> ScheduledRun | None:
    """Return the nightly run of two units; None where they were changed by hand into what is not ours."""
    found = _CALENDAR.search(timer_text)
    started = re.search(r"^ExecStart=(.*)$", service_text, re.MULTILINE)
    if found is None or started is None:
        return None
    try:
        days = tuple(range(len(DAYS))) if found[1] is None else parse_days(found[1].replace("..", "-"))
    except ValueError:
        return None
    words = tuple(_PLAIN.sub(lambda each: each[0][1], word) for word in _QUOTED.findall(started[1]))
    return night_of(name, Schedule(int(found[2]), int(found[3]), days), words)


def _calendar(schedule: Schedule) -> str:
    """Return it as systemd.time(7) has it, in the machine's own time zone."""
    at = f"*-*-* {schedule.hour:02}:{schedule.minute:02}:00"
    if len(schedule.days) == len(DAYS):
        return at
    days = (
        DAYS[first].capitalize() + (f"..{DAYS[last].capitalize()}" if last > first else "")
        for first, last in runs(schedule.days)
    )
    return f"{','.join(days)} {at}"


def _quote(word: str) -> str:
    if any(ord(letter) < ord(" ") or ord(letter) == 0x7F or 0xD800 <= ord(letter) < 0xE000 for letter in word):
        raise TacoLaunchError(
            f"{word!r} is not allowed in a unit of systemd, which accepts no control characters and only UTF-8",
            hint="rename the file",
        )
    return '"' + "".join(_ESCAPED.get(letter, letter) for letter in word) + '"'
