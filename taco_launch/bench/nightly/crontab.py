"""Nights in the user's crontab: read and written by crontab(1), everything else in it left as it is."""

import re
import shlex

from taco_launch.bench.nightly.install_plan import ControllerState, FileChange, InstalledRun, InstallPlan, done, said
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun
from taco_launch.core.command import Command
from taco_launch.core.errors import TacoLaunchError
from taco_launch.hosts.remote.transport import Transport

_LIST, _WRITE, _REMOVE = ("crontab", "-l"), ("crontab", "-"), ("crontab", "-r")
_ENGLISH = (("LC_ALL", "C"),)


def start_cron(machine: ControllerState) -> str:
    """Return how to start cron on a machine."""
    return f"start cron: sudo {'service cron start' if machine.no_systemd else 'systemctl enable --now cron'}"


class Cron:
    """The crontab of the user who asks."""

    word = "cron"
    skips = False

    def __init__(self, remote: Transport, machine: ControllerState) -> None:
        """Read nothing yet."""
        self._remote = remote
        self._machine = machine

    def kept(self) -> tuple[InstalledRun, ...]:
        """Return all nightly runs: see `NightlyScheduler.kept`."""
        problem = "" if self._machine.cron_runs else f"cron is not running here: {start_cron(self._machine)}"
        return tuple(InstalledRun(name, self.word, text, problem) for name, text in blocks(self._read() or "").items())

    def installing(self, scheduled: ScheduledRun) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.installing`."""
        now = self._read()
        return self._plan(now, with_block(now or "", scheduled.name, block(scheduled, self._machine.user)))

    def removing(self, name: str) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.removing`."""
        now = self._read()
        return self._plan(now, without(now or "", name))

    def apply(self, plan: InstallPlan) -> None:
        """Write the crontab: see `NightlyScheduler.apply`."""
        for change in plan.changes:
            if self._read() != change.before:
                raise TacoLaunchError(
                    "the crontab was changed in the meantime: nothing was written", hint="try it again"
                )
            if change.after is None:
                done(self._remote, _REMOVE)
            else:
                done(self._remote, _WRITE, change.after.encode("utf-8", "surrogateescape"))
            if self._read() != change.after:
                raise TacoLaunchError(
                    "crontab accepted the new crontab, but its content is different now",
                    hint="check it with: crontab -l",
                )

    def _plan(self, now: str | None, wanted: str) -> InstallPlan:
        if wanted == (now or ""):
            return InstallPlan()
        if wanted and not wanted.endswith("\n"):
            wanted += "\n"  # Debian's crontab refuses a last line without one
        return InstallPlan(changes=(FileChange(f"crontab of {self._machine.user}", now, wanted or None),))

    def _read(self) -> str | None:
        """Return the crontab, None where the user has none.

        Raises:
            TacoLaunchError: it cannot be read: an empty one in its place would lose what exists.
        """
        result = self._remote.run(Command(_LIST, env=_ENGLISH, timeout=60))
        if result.exit_code == 0:
            return result.stdout.decode("utf-8", "surrogateescape")
        if b"no crontab for" in result.stderr:
            return None
        raise TacoLaunchError(
            f"the crontab of {self._machine.user} cannot be read: {said(result)}",
            hint="check that this user may use cron (/etc/cron.allow, /etc/cron.deny), and try: crontab -l",
        )


# A crontab's variables hold for every line below them. So a new entry goes above everything that is there, and has its
# environment in its own line.
# Vixie's cron, Debian's and cronie's: MAX_COMMAND 1000, with the zero at its end.
_LONGEST = 998
_MARK = r"^# taco-launch nightly ([A-Za-z0-9][A-Za-z0-9._-]*) "
_ANY_MARK = re.compile(rf"{_MARK}(?:begin|end)$", re.MULTILINE)
_BLOCK = re.compile(
    rf"{_MARK}begin\n(?:(?!# taco-launch nightly ).*\n)*# taco-launch nightly \1 end(?:\n|\Z)", re.MULTILINE
)


def command(scheduled: ScheduledRun) -> str:
    """Return what cron's shell is to read, before cron's own rule for `%`.

    Raises:
        TacoLaunchError: a word of it cannot stand in a crontab.
    """
    for word in scheduled.argv_with_env:
        if "\\" in word or any(ord(letter) < ord(" ") or ord(letter) == 0x7F for letter in word):
            raise TacoLaunchError(
                f"{word!r} is not allowed in a crontab: cron has rules of its own for backslashes and line breaks",
                hint="rename the file, or install the nightly run with the option --with systemd",
            )
    # cron makes the whole line the subject of its mail: the nightly run's name is what a person wants to see of it
    return f": night {scheduled.name}; {' '.join(map(shlex.quote, scheduled.argv_with_env))}"


def block(scheduled: ScheduledRun, owner: str) -> str:
    """Return the lines of a nightly run, the marks with them; `owner` is whose crontab it is, and gets cron's mail otherwise.

    Raises:
        TacoLaunchError: it cannot stand in a crontab, or is longer than cron takes.
    """
    line = command(scheduled).replace("%", r"\%")
    if len(line.encode("utf-8", "surrogateescape")) > _LONGEST:
        raise TacoLaunchError(
            f"the entry would be {len(line)} characters long, but cron accepts at most {_LONGEST}",
            hint="install it --with systemd, or with a shorter PATH: PATH=/usr/local/bin:/usr/bin:/bin taco-launch ...",
        )
    at = scheduled.schedule
    every = len(at.days) == len(Schedule(0, 0).days)
    # cron counts from Sunday, which is 0
    days = "*" if every else ",".join(str((day + 1) % 7) for day in at.days)
    lines = [f"{at.minute} {at.hour} * * {days} {line}"]
    if scheduled.mail is not None:
        lines = [f"MAILTO={scheduled.mail}", *lines, f"MAILTO={owner}"]
    return "".join(f"{each}\n" for each in (_mark(scheduled.name, "begin"), *lines, _mark(scheduled.name, "end")))


def blocks(crontab: str) -> dict[str, str]:
    """Return the texts of all nightly runs in a crontab, by name.

    Raises:
        TacoLaunchError: the marks do not pair, or two nightly runs have the same name.
    """
    texts: dict[str, str] = {}
    for block in _BLOCK.finditer(crontab):
        if block[1] in texts:
            raise _broken(block[1])
        texts[block[1]] = block[0]
    if torn := _ANY_MARK.search(_BLOCK.sub("", crontab)):
        raise _broken(torn[1])
    return texts


def with_block(crontab: str, name: str, text: str) -> str:
    """Return a crontab with the nightly run `name` as `text`: in its old place where it has one, else above everything.

    Raises:
        TacoLaunchError: as `blocks`.
    """
    old = blocks(crontab).get(name)
    return text + crontab if old is None else crontab.replace(old, text, 1)


def without(crontab: str, name: str) -> str:
    """Return a crontab without a nightly run, and everything else as it was.

    Raises:
        TacoLaunchError: as `blocks`.
    """
    return crontab.replace(blocks(crontab).get(name, ""), "", 1)


def _mark(name: str, which: str) -> str:
    return f"# taco-launch nightly {name} {which}"


def _broken(name: str) -> TacoLaunchError:
    return TacoLaunchError(
        f"the crontab has only a part of the nightly run {name}: its start and end marks do not match",
        hint=f"run crontab -e and delete what is left between: {_mark(name, 'begin')} ... end",
    )
