"""A night that is installed: its name, when it runs, and the command with the folder and environment that it brings along."""

import re
from collections.abc import Sequence

from taco_launch.frozen import dataclass
from taco_launch.nightly.schedule import Schedule

# By its path: systemd looks for no other way, and cron's PATH has it too.
_ENV = ("/usr/bin/env", "-C")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class ScheduledRun:
    """What cron or systemd is to start, and when.

    `argv` has only absolute paths and is started in `folder`, which is absolute too, with `env`: (name, value) besides
    what cron or systemd have. `mail` is whom cron mails what the nightly run prints; None leaves that to cron's own rule.
    """

    name: str
    schedule: Schedule
    folder: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    mail: str | None = None

    @property
    def argv_with_env(self) -> tuple[str, ...]:
        """The argv that brings folder and environment along."""
        return (*_ENV, self.folder, *(f"{name}={value}" for name, value in self.env), *self.argv)


def night_of(name: str, schedule: Schedule, words: Sequence[str], mail: str | None = None) -> ScheduledRun | None:
    """Return the nightly run whose `words` these are; None where they are no night's."""
    if tuple(words[:2]) != _ENV or len(words) < 4:
        return None
    folder, rest = words[2], list(words[3:])
    env = []
    while rest and (assigned := _ASSIGNED.fullmatch(rest[0])):
        env.append((assigned[1], assigned[2]))
        rest = rest[1:]
    return ScheduledRun(name, schedule, folder, tuple(rest), tuple(env), mail)
