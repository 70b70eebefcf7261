"""nightly install, uninstall: who keeps a nightly run, what its entry is, and the proof that it can start without a person."""

import re
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from taco_launch.bench.nightly import crontab, record, schedule
from taco_launch.bench.nightly.crontab import Cron, start_cron
from taco_launch.bench.nightly.install_plan import ControllerState, InstalledRun, NightlyScheduler
from taco_launch.bench.nightly.record import Installation
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun
from taco_launch.bench.nightly.systemd_timer import Systemd
from taco_launch.core.command import Command
from taco_launch.core.errors import HOST_FAILED, HostError, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.protocol import framing
from taco_launch.hosts.remote.transport import Transport
from taco_launch.jobs.backend import Backend

# What the caller has besides a bare environment and a nightly run needs too; no agent, no terminal, no secret.
CARRIED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "DOCKER_HOST"),
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TACO_LAUNCH_STATE", "TACO_LAUNCH_LEASES"),
)
_PATHS = frozenset(("PATH", "LD_LIBRARY_PATH", "PYTHONPATH"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# What cronie takes in MAILTO, and Debian's cron as well.
_MAIL = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9@!:%.,_+-]{0,199}")
_PROVE_SECONDS = 300.0
_INSTALL_CRON = "install cron: sudo apt-get install cron (Debian, Ubuntu), sudo dnf install cronie (Fedora, RHEL)"
_ZONE = Path("/etc/localtime")


@dataclass(frozen=True)
class InstallRequest:
    """A nightly run as its user asks for it; `matrix` is an absolute path or the name of one that is shipped, `options` continue."""

    name: str
    matrix: str
    schedule: Schedule
    mail: str | None = None
    options: tuple[str, ...] = ()


def check_name(name: str) -> None:
    """Refuse what cannot be a nightly run's name.

    Raises:
        UsageError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r}: the name of a nightly run has letters, digits and . _ -, at most 63, and starts with a letter or digit"
        )


def check_mail(address: str) -> None:
    """Refuse what cron would take for no address.

    Raises:
        UsageError: it would.
    """
    if not _MAIL.fullmatch(address):
        raise UsageError(f"--mail {address!r}: cron accepts letters, digits and @ ! : % . , _ + - in an address")


def schedulers(remote: Transport, machine: ControllerState) -> tuple[NightlyScheduler, ...]:
    """Return what can keep nightly runs on this machine, the better first."""
    found: list[NightlyScheduler] = [] if machine.no_systemd else [Systemd(remote, machine)]
    return (*found, Cron(remote, machine)) if machine.crontab else tuple(found)


def choose(
    there: Sequence[NightlyScheduler],
    machine: ControllerState,
    word: str | None,
    mail: str | None,
    kept: Sequence[InstalledRun],
    *,
    only_shown: bool = False,
) -> NightlyScheduler:
    """Return who is to keep a nightly run: whom the user names, else whoever has it already, else the first that can.

    `kept` are the nightly runs of this name. With `only_shown`, nothing is installed, and cron need not run.

    Raises:
        UsageError: there is none, it cannot, or another has a nightly run of this name.
    """
    if mail is not None and word == "systemd":
        raise UsageError(
            "--mail: systemd sends no mail: the output of a nightly run is in the journal (journalctl), and its summary in a file",
            hint="to get mail, use --with cron",
        )
    wanted = word or ("cron" if mail is not None else kept[0].scheduler if kept else None)
    can = [scheduler for scheduler in there if only_shown or scheduler.word != "cron" or machine.cron_runs]
    found = next((scheduler for scheduler in can if wanted in (None, scheduler.word)), None)
    if found is None:
        no_cron = "cron is not running here" if machine.crontab else "crontab is not installed here"
        reasons = {"systemd": machine.no_systemd, "cron": no_cron}
        told = "; ".join(reasons[each] for each in ([wanted] if wanted else reasons))
        otherwise = start_cron(machine) if machine.crontab else _INSTALL_CRON
        if wanted == "systemd":
            ready = machine.crontab and machine.cron_runs
            otherwise = "use --with cron" if ready else f"{otherwise}; then use --with cron"
        raise UsageError(f"{told}, so the nightly run would never start", hint=otherwise)
    if other := next((each for each in kept if each.scheduler != found.word), None):
        raise UsageError(
            f"the nightly run {other.name} is installed with {other.scheduler} already, so it would run twice",
            hint=f"taco-launch nightly uninstall {other.name}",
        )
    return found


def carried(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what a nightly run needs of the caller's environment, its folders absolute."""
    pairs = ((name, environ[name]) for name in CARRIED if environ.get(name))
    return tuple((name, _absolute(value) if name in _PATHS else value) for name, value in pairs)


def program(called: str) -> tuple[str, ...]:
    """Return the absolute argv of taco-launch, as which it was `called` (sys.argv[0]).

    Raises:
        UsageError: that is not a file, or none that env(1) starts.
    """
    path = Path(called).absolute()
    found = (sys.executable, "-I", "-m", "taco_launch") if path.name == "__main__.py" else (str(path),)
    if not Path(found[0]).is_file() or "=" in found[0]:
        raise UsageError(
            f"{found[0]}: the path of taco-launch, which starts a nightly run, must be a file and contain no = (env would take "
            "it for a variable)"
        )
    return found


def scheduled(
    asked: InstallRequest, argv: Sequence[str], inventory: str | None, environ: Mapping[str, str], folder: Path
) -> ScheduledRun:
    """Compose what is to be started: `argv` is taco-launch's own, `inventory` a path or `lab:NAME`, `folder` where."""
    line = _line(asked, argv, inventory, "run")
    return ScheduledRun(asked.name, asked.schedule, str(folder), line, carried(environ), asked.mail)


def prove(remote: Transport, machine: ControllerState, scheduler: str, entry: ScheduledRun, argv: Sequence[str]) -> str:
    """Start `argv`, the check of a nightly run, as its scheduler would start the nightly run, and give what it says.

    Nobody is there: no agent of SSH, no terminal, nothing on stdin, and of the environment only what the entry has.

    Raises:
        TacoLaunchError: it fails; says what it said.
    """
    checked = replace(entry, argv=tuple(argv))
    started = ("/bin/sh", "-c", crontab.command(checked)) if scheduler == "cron" else checked.argv_with_env
    script = 'home=$1 user=$2; shift 2; cd -- "$home" && exec env -i "HOME=$home" "LOGNAME=$user" '
    script += 'SHELL=/bin/sh PATH=/usr/bin:/bin LANG=C "$@" </dev/null'
    result = remote.run(
        Command(("/bin/sh", "-c", script, "bare", machine.home, machine.user, *started), timeout=_PROVE_SECONDS)
    )
    answer = framing.parsed(result.stdout) or {}
    if result.exit_code == 0 and "message" in answer:
        return str(answer["message"])
    # A program that never came to its own errors, such as an interpreter without the package, has them on stderr only.
    reason = answer.get("error") or {"message": result.stderr.decode("utf-8", "replace"), "hint": None}
    lines = "\n".join(f"  {line}" for line in reason["message"].splitlines() if line.strip())
    error = TacoLaunchError(
        f"a test start of the nightly run, done as {scheduler} would do it, failed (exit code {result.exit_code}):\n{lines}",
        hint=reason["hint"],
    )
    error.exit_code = HOST_FAILED if result.exit_code == HOST_FAILED else error.exit_code
    raise error


def record_installation(scheduler: NightlyScheduler, entry: ScheduledRun, run_folder: Path) -> None:
    """Record the entry that a scheduler has now, and its settings, unless that record exists.

    Raises:
        TacoLaunchError: the entry or the record cannot be read, or the record cannot be written.
    """
    current = next(each for each in scheduler.kept() if each.name == entry.name)
    recorded = record.read(run_folder, Installation)
    if recorded is None or not recorded.matches(current) or recorded.scheduled != entry:
        record.write(run_folder, Installation(scheduler.word, current.text, entry, time.time()))


def runs(asked: InstallRequest, argv: Sequence[str], inventory: str | None, entry: ScheduledRun) -> tuple[Path, ...]:
    """Return the files and folders that decide what a nightly run runs: program, interpreter, package, inventory, matrix, PATH."""
    named = (*argv, inventory or "", asked.matrix)
    package = Path(__file__).parents[2]
    libraries = map(sysconfig.get_path, ("purelib", "platlib"))  # which it imports
    folders = (folder for name, value in entry.env if name in _PATHS for folder in value.split(":"))
    env = dict(entry.env)
    home = [env[name] for name in ("HOME", "XDG_CONFIG_HOME", "TACO_LAUNCH_STATE") if name in env]
    words = (word for word in (sys.executable, *named, *folders, *home) if word.startswith("/"))
    return (*map(Path, dict.fromkeys((*words, *libraries))), package)


def check_argv(asked: InstallRequest, argv: Sequence[str], inventory: str | None) -> tuple[str, ...]:
    """Return the argv of the check of a nightly run: see `scheduled`."""
    return (*_line(asked, argv, inventory, "check"), "--json")


def remarks(
    scheduler: NightlyScheduler, machine: ControllerState, entry: ScheduledRun, now: datetime, zone: str
) -> tuple[str, ...]:
    """Return what a user should know of a nightly run that is to be installed."""
    coming = schedule.following(entry.schedule, now, skipping=scheduler.skips)
    found = [
        f"{scheduler.word} starts it at {entry.schedule}, by this machine's clock ({zone}): next {coming:%a %Y-%m-%d %H:%M}"
    ]
    changes = schedule.change(entry.schedule, now)
    if changes.skipped is not None:
        does = "skips that nightly run" if scheduler.skips else "starts it as soon as the clock has moved forward"
        found.append(f"on {changes.skipped} the clock change skips {_at(entry)}: {scheduler.word} {does}")
    if changes.twice is not None:
        found.append(f"on {changes.twice} the clock change repeats {_at(entry)}: {scheduler.word} starts it once")
    if scheduler.word == "systemd":
        found.append(
            "systemd sends no mail: the output of the nightly run is in the journal "
            f"(journalctl {'' if machine.uid == 0 else '--user '}-u taco-launch-nightly-{entry.name})"
        )
        if machine.uid and not machine.lingers:
            found.append(f"lingering is switched on, so that systemd keeps working for {machine.user} after logout")
    if scheduler.word == "cron" and not machine.mails:
        found.append(
            "cron sends mail with sendmail, which is not installed: the output of the nightly run is lost, but not its summary"
        )
    return tuple(found)


def local_zone() -> tuple[tzinfo, str]:
    """Return the time zone that cron and systemd go by, and its name: this machine's, whatever the caller's TZ says."""
    try:
        with _ZONE.open("rb") as file:
            name = str(_ZONE.resolve()).partition("/zoneinfo/")[2] or "local time"
            return ZoneInfo.from_file(file, name), name
    except (OSError, ValueError):  # a machine without it keeps UTC (tzset(3))
        return timezone.utc, "UTC"


def _line(asked: InstallRequest, argv: Sequence[str], inventory: str | None, verb: str) -> tuple[str, ...]:
    # -q: cron mails all that is printed, and that is to be the one line on how the nightly run went, and errors
    named = () if inventory is None else ("-i", inventory)
    return (*argv, *named, "nightly", verb, "-q", asked.matrix, "--name", asked.name, *asked.options)


def _at(entry: ScheduledRun) -> str:
    return f"{entry.schedule.hour:02}:{entry.schedule.minute:02}"


def _absolute(folders: str) -> str:
    return ":".join(dict.fromkeys(str(Path(folder).absolute()) for folder in folders.split(":") if folder))


# As hosts/ssh/keys.py says it.
_LOCKED = re.compile(r"not offered: (.+?) is encrypted")


def reach(backend: Backend) -> str:
    """Ask the head for its jobs, and give its name.

    Raises:
        TacoLaunchError: it does not answer; of a key with a passphrase it says what to do.
    """
    try:
        backend.list()
    except HostError as error:
        locked = _LOCKED.search(error.message)
        if locked is None:
            raise
        raise HostError(
            f"{error.message}\n  the key {locked[1]} has a passphrase, and a nightly run has no one to type it and no "
            "ssh-agent that holds the unlocked key",
            hint="create a key without a passphrase (ssh-keygen -t ed25519 -N '' -f ~/.ssh/taco-night), authorize it on the "
            'hosts for this machine only (authorized_keys: from="ADDRESS",restrict ssh-ed25519 ...), and set it as '
            "identity_file in the inventory",
        ) from None
    return backend.name
