"""Nights as timers of systemd: root's are the machine's own, another user's are kept by the systemd of that user."""

from taco_launch.command import Command, shell
from taco_launch.errors import TacoLaunchError
from taco_launch.nightly import timer_unit
from taco_launch.nightly.install_plan import ControllerState, FileChange, InstalledRun, InstallPlan, done
from taco_launch.nightly.schedule import ScheduledRun
from taco_launch.remote.transport import Transport

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
        said = done(self._remote, ("/bin/sh", "-c", _FIND, "find", self._folder, timer_unit.PREFIX)).decode()
        names = [line[len(timer_unit.PREFIX) : -len(".timer")] for line in said.splitlines()]
        return tuple(map(self._kept, names))

    def installing(self, scheduled: ScheduledRun) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.installing`."""
        texts = {"service": timer_unit.service(scheduled), "timer": timer_unit.timer(scheduled)}
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
        return InstalledRun(name, self.word, timer_unit.read(name, when, service), text, problem)

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
        return f"{self._folder}/{timer_unit.PREFIX}{name}.{kind}"

    def _unit(self, name: str) -> str:
        return f"{timer_unit.PREFIX}{name}.timer"
