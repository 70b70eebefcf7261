"""What keeps nightly runs on a machine, what it keeps, and what would be changed there: shown first, then done."""

import difflib
from collections.abc import Mapping
from typing import Protocol

from taco_launch.bench.nightly.schedule import ScheduledRun
from taco_launch.core.command import Command, Result, shell
from taco_launch.core.errors import HostError, TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.remote.transport import Transport

# One line each. crond.pid is that of Debian's cron and of cronie; a user's own systemd is asked by way of its folder.
_LOOK = """id -u; id -un; printf '%s\\n' "$HOME"
run=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}
echo "$run"
if [ ! -d /run/systemd/system ]; then echo no systemd runs here
elif [ "$(id -u)" = 0 ] || XDG_RUNTIME_DIR=$run systemctl --user show-environment >/dev/null 2>&1; then echo
else echo "systemd keeps nothing for $(id -un) here: no session of this user was opened by a login"; fi
[ -e "/var/lib/systemd/linger/$(id -un)" ] && echo lingers || echo
command -v crontab || echo
cron=
for pid in $(pgrep -x 'cron|crond|fcron'; [ $? -gt 1 ] || [ ! -r /proc/1/comm ] && echo nobody-can-tell); do
  grep -q '^NSpid:.*[0-9][^0-9]*[[:space:]][0-9]' "/proc/$pid/status" || cron=runs # that of a container has two numbers
done
echo $cron
command -v sendmail || ls /usr/sbin/sendmail || echo
"""
_SECONDS = 60.0


@dataclass(frozen=True)
class ControllerState:
    """The controller, and which scheduler it has: `no_systemd` says why it is not systemd, empty where it is."""

    uid: int
    user: str
    home: str
    runtime: str
    no_systemd: str
    lingers: bool
    crontab: bool
    cron_runs: bool
    mails: bool


@dataclass(frozen=True)
class FileChange:
    """A file, or a crontab, before and after; None where there is none."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class InstallPlan:
    """What is to be done, in this order: programs, changes, more programs. Empty: all is as it should be."""

    before: tuple[tuple[str, ...], ...] = ()
    changes: tuple[FileChange, ...] = ()
    after: tuple[tuple[str, ...], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.before or self.changes or self.after)

    def text(self) -> str:
        """Return it as a person reads it: programs as they are typed, changes as unified diffs."""
        return "".join((*map(_typed, self.before), *map(_diff, self.changes), *map(_typed, self.after)))


@dataclass(frozen=True)
class InstalledRun:
    """A nightly run that a scheduler has, with the text of its entry; `problem` says why it will not run, "" if it will."""

    name: str
    scheduler: str
    text: str
    problem: str = ""


class NightlyScheduler(Protocol):
    """cron, or systemd."""

    @property
    def word(self) -> str:
        """`cron` or `systemd`."""

    @property
    def skips(self) -> bool:
        """Whether a time that the clocks leave out is skipped, and not made up for."""

    def kept(self) -> tuple[InstalledRun, ...]:
        """Return all its nightly runs.

        Raises:
            TacoLaunchError: they cannot be read.
        """

    def installing(self, scheduled: ScheduledRun) -> InstallPlan:
        """Return what is to be done so that it keeps this nightly run.

        Raises:
            TacoLaunchError: what exists cannot be read, or the nightly run cannot be written down.
        """

    def removing(self, name: str) -> InstallPlan:
        """Return what is to be done so that it keeps a nightly run no longer. Raises as `kept` does."""

    def apply(self, plan: InstallPlan) -> None:
        """Do it.

        Raises:
            TacoLaunchError: something of it failed, or what exists was changed since.
        """


def read_controller(remote: Transport) -> ControllerState:
    """See what there is to keep nightly runs.

    Raises:
        HostError: it gives no answer.
    """
    answer = remote.run(Command(("/bin/sh", "-c", f"{{ {_LOOK}}} 2>/dev/null"), timeout=_SECONDS)).stdout
    lines = answer.decode("utf-8", "surrogateescape").split("\n")
    if len(lines) != 10:  # nine, and what is behind the last
        raise HostError(f"{remote.name}: cannot see what runs here: {answer!r}")
    uid, user, home, runtime, no_systemd, lingers, crontab, cron_runs, mails, _ = lines
    return ControllerState(
        int(uid), user, home, runtime, no_systemd, bool(lingers), bool(crontab), bool(cron_runs), bool(mails)
    )


def done(
    remote: Transport,
    argv: tuple[str, ...],
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    hint: str | None = None,
) -> bytes:
    """Run a program that must succeed, its words in English, and give what it says; `hint` is for when it fails.

    Raises:
        TacoLaunchError: it failed.
    """
    variables = {"LC_ALL": "C", **(env or {})}
    result = remote.run(Command(argv, stdin, tuple(variables.items()), timeout=_SECONDS))
    if result.exit_code:
        raise TacoLaunchError(f"{shell(argv)}: {said(result)}", hint=hint or f"try it: {shell(argv)}")
    return result.stdout


def said(result: Result) -> str:
    """Return what a program that failed said, in one line."""
    lines = [line.strip() for line in result.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return "; ".join(lines) or f"exit code {result.exit_code}"


def _typed(argv: tuple[str, ...]) -> str:
    return f"$ {shell(argv)}\n"


def _diff(change: FileChange) -> str:
    old, new = (change.path if text is not None else "/dev/null" for text in (change.before, change.after))
    before, after = (
        (text or "").removesuffix("\n").split("\n") if text else [] for text in (change.before, change.after)
    )
    lines = difflib.unified_diff(before, after, old, new, lineterm="")
    return "".join(f"{line}\n" for line in lines)
