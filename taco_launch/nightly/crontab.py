"""Nights in the user's crontab: read and written by crontab(1), everything else in it left as it is."""

from taco_launch.command import Command
from taco_launch.errors import TacoLaunchError
from taco_launch.nightly import crontab_entry
from taco_launch.nightly.install_plan import ControllerState, FileChange, InstalledRun, InstallPlan, done, said
from taco_launch.nightly.schedule import ScheduledRun
from taco_launch.remote.transport import Transport

_LIST, _WRITE, _REMOVE = ("crontab", "-l"), ("crontab", "-"), ("crontab", "-r")
_ENGLISH = (("LC_ALL", "C"),)
START = "start cron: sudo systemctl enable --now cron, or sudo service cron start"


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
        problem = "" if self._machine.cron_runs else f"cron is not running here: {START}"
        return tuple(
            InstalledRun(name, self.word, crontab_entry.read(name, text), text, problem)
            for name, text in crontab_entry.blocks(self._read() or "")
        )

    def installing(self, scheduled: ScheduledRun) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.installing`."""
        now = self._read()
        return self._plan(
            now, crontab_entry.with_block(now or "", scheduled.name, crontab_entry.block(scheduled, self._machine.user))
        )

    def removing(self, name: str) -> InstallPlan:
        """Return what is to be done: see `NightlyScheduler.removing`."""
        now = self._read()
        return self._plan(now, crontab_entry.without(now or "", name))

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
