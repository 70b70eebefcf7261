"""Nights as timers of systemd: root's are the machine's own, another user's are kept by the systemd of that user."""

from taco_launch.bench.nightly.install_plan import ControllerState, FileChange, InstalledRun, InstallPlan, done
from taco_launch.bench.nightly.schedule import DAYS, Schedule, ScheduledRun, runs
from taco_launch.core.command import Command, shell
from taco_launch.core.errors import TacoLaunchError
from taco_launch.hosts.remote.transport import Transport

_FIND = 'for file in "$1"/"$2"*.timer; do [ ! -e "$file" ] || printf "%s\\n" "${file##*/}"; done'
_LOGINCTL = "loginctl"
_MISSING = 44
_READ = f'[ -e "$1" ] || exit {_MISSING}; exec cat -- "$1"'


class Systemd:
    """The timers of the user who asks."""

    word = "systemd"
    skips = True

    def __init__(self, remote: Transport, machine: ControllerState) -> None:
        """Read nothing yet."""
        self._remote = remote
        self._machine = machine
        root = machine.uid == 0
        self._folder = "/etc/systemd/system" if root else f"{machine.home}/.config/systemd/user"
        self._systemctl = ("systemctl",) if root else ("systemctl", "--user")
        self._env = {} if root else {"XDG_RUNTIME_DIR": machine.runtime}

    def kept(self) -> tuple[InstalledRun, ...]:
        """Return all nightly runs: see `NightlyScheduler.kept`."""
        said = done(self._remote, ("/bin/sh", "-c", _FIND, "find", self._folder, PREFIX)).decode()
        names = [line[len(PREFIX) : -len(".timer")] for line in said.splitlines()]
        return tuple(map(self._kept, names))

    def installing(self, scheduled: ScheduledRun) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.installing`."""
        texts = {"service": service(scheduled), "timer": timer(scheduled)}
        changes = tuple(
            FileChange(self._path(scheduled.name, kind), now, text)
            for kind, text in texts.items()
            if (now := self._read(scheduled.name, kind)) != text
        )
        unit = self._unit(scheduled.name)
        on = not changes and all(self._is(word, unit) for word in ("active", "enabled"))
        told = ((*self._systemctl, "daemon-reload"),) if changes else ()
        started = () if on else ((*self._systemctl, "enable", unit), (*self._systemctl, "restart", unit))
        # Without it a user's systemd ends with the last login, and starts nothing.
        stays = self._machine.uid == 0 or self._machine.lingers
        linger = () if stays else ((_LOGINCTL, "enable-linger", self._machine.user),)
        return InstallPlan(linger, changes, (*told, *started))

    def removing(self, name: str) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.removing`."""
        changes = tuple(
            FileChange(self._path(name, kind), now, None)
            for kind in ("service", "timer")
            if (now := self._read(name, kind)) is not None
        )
        if not changes:
            return InstallPlan()
        off = (*self._systemctl, "disable", "--now", self._unit(name))
        return InstallPlan((off,), changes, ((*self._systemctl, "daemon-reload"),))

    def apply(self, plan: InstallPlan) -> None:
        """Write the units and tell systemd: see `NightlyScheduler.apply`."""
        for change in plan.changes:
            if self._text(change.path) != change.before:
                raise TacoLaunchError(
                    f"{change.path} was changed in the meantime: nothing was done", hint="try it again"
                )
        for argv in plan.before:
            hint = f"run sudo {shell(argv)}, then repeat this command" if argv[0] == _LOGINCTL else None
            done(self._remote, argv, env=self._env, hint=hint)
        for change in plan.changes:
            if change.after is None:
                done(self._remote, ("rm", "-f", "--", change.path))
            else:
                self._remote.put(change.after.encode(), change.path, 0o644)
        for argv in plan.after:
            done(self._remote, argv, env=self._env)

    def _kept(self, name: str) -> InstalledRun:
        service, when = self._read(name, "service") or "", self._read(name, "timer") or ""
        text = f"# {self._path(name, 'service')}\n{service}\n# {self._path(name, 'timer')}\n{when}"
        problem = (
            ""
            if self._is("active", self._unit(name))
            else f"its timer is not active: systemctl status {self._unit(name)}"
        )
        return InstalledRun(name, self.word, text, problem)

    def _is(self, what: str, unit: str) -> bool:
        command = Command((*self._systemctl, f"is-{what}", "--quiet", unit), env=tuple(self._env.items()), timeout=60)
        return self._remote.run(command).exit_code == 0

    def _read(self, name: str, kind: str) -> str | None:
        return self._text(self._path(name, kind))

    def _text(self, path: str) -> str | None:
        argv = ("/bin/sh", "-c", _READ, "read", path)
        result = self._remote.run(Command(argv, timeout=60))
        if result.exit_code == _MISSING:
            return None
        if result.exit_code:
            raise TacoLaunchError(f"{path} cannot be read", hint=f"ls -l {path}")
        return result.stdout.decode("utf-8", "replace")

    def _path(self, name: str, kind: str) -> str:
        return f"{self._folder}/{PREFIX}{name}.{kind}"

    def _unit(self, name: str) -> str:
        return f"{PREFIX}{name}.timer"


PREFIX = "taco-launch-nightly-"
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
