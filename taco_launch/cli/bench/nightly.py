"""nightly: have a matrix measured every night, by cron or systemd, and see how the nightly runs go."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import click

from taco_launch.bench.history.history import open_history
from taco_launch.bench.nightly import install as flow
from taco_launch.bench.nightly import record, schedule
from taco_launch.bench.nightly import status as nightly_status
from taco_launch.bench.nightly.crontab import start_cron
from taco_launch.bench.nightly.install import InstallRequest, check_name, local_zone, schedulers
from taco_launch.bench.nightly.install_plan import NightlyScheduler, read_controller
from taco_launch.bench.nightly.status import NightlyStatus
from taco_launch.bench.nightly.writable_by_others import writable_by_others
from taco_launch.bench.run import matrix_file
from taco_launch.bench.stats.estimates import require
from taco_launch.cli.bench import baseline, ladder_output, nightly_report
from taco_launch.cli.bench import nightly_run as run
from taco_launch.cli.options.common import Seconds, Settings, access_of, add_option, complete_file, settings_of, verb
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.cli.output import render
from taco_launch.core.errors import FAILED, UsageError
from taco_launch.core.model.job_view import age
from taco_launch.hosts.remote.local import LocalTransport

_DAILY = "mon-sun"


@click.group(cls=SuggestingGroup)
def nightly() -> None:
    """Detect performance regressions with nightly runs."""


nightly.add_command(run.run)
nightly.add_command(baseline.baseline)
nightly.add_command(nightly_report.report)


@verb("install", group=nightly, inventory=True)
@click.argument("matrix", shell_complete=complete_file)
@add_option("--at", required=True, metavar="HH:MM", help="Time of day, by this machine's clock, such as 02:30.")
@add_option(
    "--days", default=_DAILY, show_default=True, metavar="DAYS", help="Days to run on, such as mon-fri or sat,sun."
)
@add_option(
    "--mail",
    metavar="ADDRESS",
    help="Address that cron mails the output to. Default: MAILTO of the crontab, or its owner.",
)
@add_option(
    "--with",
    "scheduler",
    type=click.Choice(["systemd", "cron"]),
    help="Scheduler to use. Default: the one that already starts this run. If none does: systemd if it runs here and --mail is not given, otherwise cron.",
)
@add_option("--name", help="Name of the nightly run: several may measure one matrix. Default: the matrix's name.")
@ladder_output.db_option
@add_option(
    "--deadline",
    type=Seconds(0),
    metavar="TIME",
    help="How long to wait for a busy cluster or an unreachable host. Default: as `nightly run`.",
)
@add_option(
    "--keep-logs",
    type=Seconds(1),
    metavar="TIME",
    help="Keep logs of nightly runs for this long. Default: as `nightly run`.",
)
@run.bisect_option
@add_option("--dry-run", is_flag=True, help="Show what would be changed, and do nothing.")
@add_option("--yes", is_flag=True, help="Do not ask.")
def install(ctx: click.Context, /, *, dry_run: bool, yes: bool, **options: Any) -> int:
    """Schedule nightly runs of MATRIX with cron or systemd.

    MATRIX is a file or the name of a matrix that comes with taco-launch. The change is shown first. Before anything is written, the entry is
    tested as cron or systemd would start it: without an SSH agent, without a terminal and with its own environment it
    must read inventory and matrix, open the history and reach the head. An SSH key with a passphrase does not work there. A
    warning names each file or folder through which others could change what the nightly run executes.

    It can be run again at any time: the same options change nothing, other options change only the entry of this name.

    \b
    Examples:
      taco-launch -i cluster.yaml nightly install taco --at 02:30
      taco-launch -i cluster.yaml nightly install matrix.yaml --at 02:30 --days mon-fri --mail team@example.com
      taco-launch -i cluster.yaml nightly install taco --at 02:30 --with cron --dry-run
    """
    settings = settings_of(ctx)
    mail, word = options["mail"], options["scheduler"]
    if mail is not None:
        flow.check_mail(mail)
    asked, argv, inventory = _asked(options), flow.program(sys.argv[0]), _inventory(settings)
    remote = LocalTransport()
    machine = read_controller(remote)
    there = flow.schedulers(remote, machine)
    kept = [nightly_run for each in there for nightly_run in each.kept() if nightly_run.name == asked.name]
    scheduler = flow.choose(there, machine, word, mail, kept, only_shown=dry_run)
    entry = flow.scheduled(asked, argv, inventory, os.environ, Path.cwd())
    plan = scheduler.installing(entry)
    run_folder = record.folder(os.environ, os.geteuid(), asked.name)
    if plan.empty:
        if not dry_run:
            flow.record_installation(scheduler, entry, run_folder)
        settings.talk(f"the nightly run {asked.name} is installed already with these settings: nothing was changed")
        return 0
    click.echo(_shown(plan.text()), nl=False)
    zone, zone_name = flow.local_zone()
    for remark in flow.remarks(scheduler, machine, entry, datetime.now(zone), zone_name):
        settings.talk(remark)
    for line in writable_by_others(flow.runs(asked, argv, inventory, entry), os.geteuid()):
        settings.talk(f"warning: {line}: users who can change it decide what runs as {machine.user} every night")
    if dry_run:
        if scheduler.word == "cron" and not machine.cron_runs:
            settings.talk(f"warning: cron is not running here: {start_cron(machine)}")
        return 0
    said = flow.prove(remote, machine, scheduler.word, entry, flow.check_argv(asked, argv, inventory))
    settings.talk(f"tested as {scheduler.word} would start it: {render.printable(said)}")
    if not _agreed("install it?", yes=yes):
        settings.talk("nothing was changed")
        return FAILED
    scheduler.apply(plan)
    flow.record_installation(scheduler, entry, run_folder)
    settings.talk(f"installed; its status: taco-launch nightly status {asked.name}")
    return 0


@verb("uninstall", group=nightly)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@add_option("--dry-run", is_flag=True, help="Show what would be changed, and do nothing.")
@add_option("--yes", is_flag=True, help="Do not ask.")
def uninstall(ctx: click.Context, names: tuple[str, ...], *, dry_run: bool, yes: bool) -> int:
    """Remove nightly schedules (default: the only one).

    Other entries of the crontab and the results of the nightly runs stay unchanged. A run in progress continues.

    \b
    Examples:
      taco-launch nightly uninstall taco --dry-run
      taco-launch nightly uninstall taco --yes
    """
    settings = settings_of(ctx)
    there = _schedulers()
    kept = [(scheduler, nightly_run) for scheduler in there for nightly_run in scheduler.kept()]
    wanted = names or tuple(nightly_run.name for _, nightly_run in kept)
    if not names and len(wanted) > 1:
        raise UsageError(
            f"several nightly runs are installed: {', '.join(wanted)}", hint="taco-launch nightly uninstall NAME..."
        )
    known = [nightly_run.name for _, nightly_run in kept]
    if unknown := [name for name in names if name not in known]:
        error = baseline.unknown_nightly_run(unknown[0], known)
        raise UsageError(f"{error.message} (neither cron nor systemd has it)", error.hint if known else None)
    if not wanted:
        settings.talk("no nightly run is installed")
        return 0
    for scheduler, nightly_run in kept:
        if nightly_run.name in wanted:
            click.echo(_shown(scheduler.removing(nightly_run.name).text()), nl=False)
    if dry_run:
        return 0
    if not _agreed("remove this?", yes=yes):
        settings.talk("nothing was changed")
        return FAILED
    for scheduler, nightly_run in kept:
        if nightly_run.name in wanted:
            scheduler.apply(scheduler.removing(nightly_run.name))
            record.forget_installed(record.folder(os.environ, os.geteuid(), nightly_run.name))
            settings.talk(f"{nightly_run.name}: removed from {nightly_run.scheduler}; its results stay")
    return 0


@verb("status", group=nightly, output=True)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(ctx: click.Context, names: tuple[str, ...]) -> int:
    """Show the schedule and last result of nightly runs.

    With NAME the entry of cron or systemd as well.

    \b
    Examples:
      taco-launch nightly status
      taco-launch nightly status taco --json
    """
    settings = settings_of(ctx)
    zone, zone_name = local_zone()
    found = nightly_status.status(_schedulers(), os.geteuid(), dict(os.environ), datetime.now(zone))
    known = [nightly_run.kept.name for nightly_run in found]
    if unknown := [name for name in names if name not in known]:
        error = baseline.unknown_nightly_run(unknown[0], known)
        hint = error.hint
        if record.folder(os.environ, os.geteuid(), unknown[0]).is_dir():
            hint = f"to see its last run that ended: taco-launch nightly report {unknown[0]} --format md"
        elif not known:
            hint = "runs that were started by hand are listed by their matrix: taco-launch nightly baseline show MATRIX"
        raise UsageError(f"{error.message} (neither cron nor systemd has it)", hint)
    shown = [nightly_run for nightly_run in found if not names or nightly_run.kept.name in names]
    if settings.output in ("json", "yaml"):
        render.data([_document(nightly_run, zone_name) for nightly_run in shown], settings.output)
        return 0
    if not shown:
        settings.talk("no nightly run is installed: taco-launch nightly install MATRIX --at 02:30")
        return 0
    header = ("NAME", "AT", "BY", "LAST RAN", "TOOK", "RESULT", "NEXT")
    render.table(header, [_row(nightly_run, zone) for nightly_run in shown])
    for nightly_run in shown:
        if nightly_run.why:
            settings.talk(f"{nightly_run.kept.name}: {render.printable(nightly_run.why)}")
        if nightly_run.last and nightly_run.last.summary and nightly_run.last.summary not in nightly_run.why:
            settings.talk(f"{nightly_run.kept.name}: its summary: {render.printable(nightly_run.last.summary)}")
    for nightly_run in shown if names else ():
        click.echo(f"\n{_shown(nightly_run.kept.text)}", nl=False)
    return 0


@verb("check", hidden=True, group=nightly, inventory=True, output=True)
@click.argument("matrix")
@ladder_output.db_option
@add_option("--name", expose_value=False, help="As in `nightly run`; it has no effect here.")
@add_option("--deadline", type=Seconds(0), expose_value=False, help="As in `nightly run`; it has no effect here.")
@add_option("--keep-logs", type=Seconds(1), expose_value=False, help="As in `nightly run`; it has no effect here.")
def check(ctx: click.Context, matrix: str, db: Path | None) -> int:
    """Check whether a nightly run could start: what `install` tries out as cron would start it, with the nightly run's own options.

    \b
    Example:
      taco-launch -i cluster.yaml nightly check taco
    """
    settings = settings_of(ctx)
    require()
    found = matrix_file.load(matrix, os.environ)
    inventory = settings.load()
    history = ladder_output.history_path(db)
    with open_history(history):  # which makes it where there is none
        pass
    host = flow.reach(settings.backend(access_of({})))
    words = f"the head {host} of {inventory.cluster} answers, the matrix {found.name} has no errors, the history is {history}"
    render.data({"message": words}, settings.output)
    return 0


def _asked(options: dict[str, Any]) -> InstallRequest:
    """Return what the options ask for; the matrix is read, so that its errors are reported before anything is shown."""
    try:
        hour, minute = schedule.parse_time(options["at"])
    except ValueError as error:
        raise UsageError(f"--at {options['at']!r}: {error}") from None
    try:
        days = schedule.parse_days(options["days"])
    except ValueError as error:
        raise UsageError(f"--days {options['days']!r}: {error}") from None
    matrix = options["matrix"]
    data, path = matrix_file.find(matrix)
    name = options["name"] or matrix_file.parse(data, path, os.environ).name
    check_name(name)
    more = [] if options["db"] is None else ["--db", str(options["db"].absolute())]
    for option in ("deadline", "keep_logs"):
        if options[option] is not None:
            more += [f"--{option.replace('_', '-')}", f"{options[option]:.0f}s"]
    more += ["--bisect"] if options["bisect"] else []
    found = str(Path(matrix).absolute()) if path == matrix else matrix
    return InstallRequest(name, found, schedule.Schedule(hour, minute, days), options["mail"], tuple(more))


def _inventory(settings: Settings) -> str | None:
    """Return what -i is to be in the entry: an absolute path, a lab's name, None for this machine; it is read first."""
    settings.load()
    named = settings.source
    if named is None or named.partition(":")[0] == "lab":
        return named
    return str(Path(named).absolute())


def _schedulers() -> tuple[NightlyScheduler, ...]:
    remote = LocalTransport()
    return schedulers(remote, read_controller(remote))


def _agreed(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "stdin is not a terminal, so you cannot confirm", hint="check the changes shown above, then add --yes"
        )
    return click.confirm(question, err=True)


def _shown(text: str) -> str:
    return "".join(f"{render.file_line(line)}\n" for line in text.split("\n")[:-1])


def _row(nightly_run: NightlyStatus, zone: tzinfo) -> Sequence[str]:
    kept, last = nightly_run.kept, nightly_run.last
    took = "-" if last is None or last.seconds is None else age(last.seconds)
    if last is not None and nightly_run.is_running:
        of = "" if last.before is None else f" of about {age(last.before)}"
        took = f"{age(time.time() - last.started)}{of}"
    return (
        kept.name,
        str(nightly_run.scheduled.schedule) if nightly_run.scheduled else nightly_status.DIFFERS,
        kept.scheduler,
        f"{datetime.fromtimestamp(last.started, zone):%Y-%m-%d %H:%M}" if last else "-",
        took,
        nightly_run.state,
        f"{nightly_run.next:%a %Y-%m-%d %H:%M}" if nightly_run.next else "-",
    )


def _document(nightly_run: NightlyStatus, zone: str) -> dict[str, Any]:
    kept, entry = nightly_run.kept, nightly_run.scheduled
    return {
        "name": kept.name,
        "by": kept.scheduler,
        "at": str(entry.schedule) if entry else None,
        "zone": zone,
        "argv": list(entry.argv) if entry else None,
        "environment": dict(entry.env) if entry else None,
        "mail": entry.mail if entry else None,
        "entry": kept.text,
        "state": nightly_run.state,
        "why": nightly_run.why,
        "last": asdict(nightly_run.last) if nightly_run.last else None,
        "due": nightly_run.due.isoformat() if nightly_run.due else None,
        "next": nightly_run.next.isoformat() if nightly_run.next else None,
        "folder": str(nightly_run.folder),
    }
