"""run and submit: one way to start a job; run follows it besides."""

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from taco_launch.cli import render
from taco_launch.cli.options import (
    Seconds,
    Settings,
    complete_file,
    inventory_option,
    output_options,
    settings_of,
    talk_options,
)
from taco_launch.errors import SIGNAL_BASE, UsageError

if TYPE_CHECKING:
    from taco_launch.flows.jobs import Job
    from taco_launch.model.jobs import JobSpec

F = TypeVar("F", bound=Callable[..., Any])


np_option = click.option("--np", "np", type=click.IntRange(min=1), help="Number of ranks. Default: every slot.")


def job_options(function: F) -> F:
    """Add the options that describe a job, whatever its number of ranks."""
    options = (
        click.option("--name", help="Name of the job. Default: from its command, and four random characters."),
        click.option("-H", "--host", "hosts", metavar="H1:8,H2:8", help="Hosts to use, and slots on each."),
        click.option(
            "-x",
            "env",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Environment variable for the ranks; without a value the caller's. Repeatable.",
        ),
        click.option("--timeout", type=Seconds(0.001), metavar="SECONDS", help="Seconds after which the job is ended."),
        click.option(
            "--grace",
            type=Seconds(),
            metavar="SECONDS",
            default=10.0,
            show_default=True,
            help="Seconds between TERM and KILL when the job is ended.",
        ),
        click.option(
            "--host-loss-timeout",
            type=Seconds(1),
            metavar="SECONDS",
            default=60.0,
            show_default=True,
            help="Seconds of silence after which a host is lost and the job is ended.",
        ),
        click.option(
            "--log-max-bytes",
            type=click.IntRange(min=4096),
            default=1 << 30,
            show_default=True,
            help="Most bytes kept of each rank's log; the oldest go first.",
        ),
        click.argument(
            "command",
            nargs=-1,
            required=True,
            type=click.UNPROCESSED,
            shell_complete=complete_file,
            metavar="-- COMMAND...",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def spec_of(settings: Settings, command: tuple[str, ...], options: dict[str, Any]) -> "JobSpec":
    """Build the JobSpec of a job from its options.

    Raises:
        SpecError: an option or the inventory is wrong.
    """
    import getpass
    import socket

    from taco_launch.flows import jobs
    from taco_launch.inventory import names, select
    from taco_launch.inventory.load import SHIPPED
    from taco_launch.model.jobs import JobSpec, Policy

    try:
        folder = os.getcwd()  # noqa: PTH109 - bytes that are no UTF-8 stay as they are
    except FileNotFoundError:
        raise UsageError("the current folder is gone", hint="cd to one that exists") from None
    inventory = settings.load()
    name = jobs.default_name(command) if options["name"] is None else names.job_name(options["name"], "--name")
    wanted = options["hosts"]
    if wanted is None:
        hosts = inventory.hosts
    elif inventory.source == SHIPPED:
        hosts = select.hosts_of(wanted, frozenset((socket.gethostname(), socket.getfqdn())))
    else:
        hosts = select.choose(inventory, wanted)
    env = dict(names.parse_env(text) for text in options["env"])
    unset = [variable for variable, value in env.items() if value is None and variable not in os.environ]
    if unset:
        raise UsageError(f"-x {unset[0]}: it is not set here", hint=f"set it, or give it a value: -x {unset[0]}=VALUE")
    return JobSpec(
        name=name,
        command=command,
        hosts=hosts,
        np=options.get("np"),
        env=tuple(env.items()),
        cwd=folder,
        mpirun=inventory.mpirun,
        cluster=inventory.cluster,
        owner=getpass.getuser(),
        policy=Policy(**{name: options[name] for name in ("grace", "timeout", "host_loss_timeout", "log_max_bytes")}),
    )


@click.command()
@inventory_option
@talk_options
@click.option("--dry-run", is_flag=True, help="Print the mpirun line that would start the job, and start nothing.")
@np_option
@job_options
@click.pass_context
def run(ctx: click.Context, /, command: tuple[str, ...], *, dry_run: bool, **options: Any) -> int:
    """Run COMMAND as a job: start it, follow its output, exit with its code.

    Ctrl-C stops the job, a second one kills it; a closed terminal or a kill of this command only leaves it
    (`taco-launch logs -f NAME`). The ranks read nothing from standard input.

    \b
    Examples:
      taco-launch run --np 2 -- python3 train.py --epochs 1
      taco-launch run --np 4 -H localhost:4 -x OMP_NUM_THREADS=1 -- python3 train.py
      taco-launch run --np 2 --dry-run -- python3 train.py
    """
    settings = settings_of(ctx)
    spec = spec_of(settings, command, options)
    if dry_run:
        _print_plan(settings, spec)
        return 0
    return _run(settings, spec).record.exit_code or 0


@click.command()
@inventory_option
@output_options
@talk_options
@np_option
@job_options
@click.pass_context
def submit(ctx: click.Context, /, command: tuple[str, ...], **options: Any) -> int:
    """Start COMMAND as a job and return; it goes on by itself.

    Prints the job's name.

    \b
    Example:
      taco-launch submit --name vgg16 --np 2 -- python3 train.py
      taco-launch logs -f vgg16
    """
    settings = settings_of(ctx)
    from taco_launch.flows import jobs

    job = jobs.submit(settings.head(), spec_of(settings, command, options), os.environ)
    _require_started(job)
    if settings.output in ("json", "yaml"):
        render.data(render.job_data(job), settings.output)
    else:
        click.echo(job.spec.name)
        settings.talk(f"follow it: taco-launch logs -f {job.spec.name}")
    return 0


def _require_started(job: "Job") -> None:
    """Make an error of a job that ended before its ranks could start, with its reason and code."""
    from taco_launch.errors import TacoLaunchError

    record = job.record
    if record.state.is_terminal and record.started is None and record.exit_code:
        message, _, hint = record.reason.partition("\nhint: ")
        error = TacoLaunchError(f"job {job.spec.name}: {message}", hint or None)
        error.exit_code = record.exit_code
        raise error


def _print_plan(settings: Settings, spec: "JobSpec") -> None:
    from taco_launch.flows import plan
    from taco_launch.launch.mpirun import line

    missing = plan.needs(spec)
    if missing:
        settings.talk(f"asking the head for: {', '.join(missing)}")
    launch = plan.dry_run(spec, lambda: int(settings.head().call("facts")[-1]["slots"]), root=os.geteuid() == 0)
    click.echo(line(launch.tokens))


def _run(settings: Settings, spec: "JobSpec") -> "Job":
    """Start a job, follow it to its end, say how it ended."""
    from taco_launch.flows import jobs

    signals = _Signals(settings, spec.name)

    def started(job: "Job") -> None:
        _require_started(job)
        signals.job_started()
        if settings.verbose:
            settings.talk(f"job {spec.name}: {job.record.line}")

    with render.waiting(settings.quiet, spec.name) as wait:
        out = render.LogOutput(sys.stdout.buffer, wait.hide)
        job = jobs.run(settings.head(), spec, os.environ, out.write, started, wait.state)
    render.ending(settings, job)
    return job


class _Signals:
    """Ctrl-C stops the job that is followed, a second one kills it, a third leaves it; TERM and HUP leave it.

    What is said goes by os.write: the signal may have come in the middle of a buffered write.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._presses = 0
        self._started = False
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGTERM, self._on_leave)
        signal.signal(signal.SIGHUP, self._on_leave)

    def job_started(self) -> None:
        """Say that there is a job now; an earlier Ctrl-C reaches it."""
        self._started = True
        if self._presses:
            self._stop()

    def _on_interrupt(self, number: int, _frame: object) -> None:
        self._presses += 1
        if self._presses > 2:
            os.write(2, f"\nleaving job {self._name} to its supervisor: taco-launch get {self._name}\n".encode())
            os._exit(SIGNAL_BASE + number)
        how = "stopping job {} (Ctrl-C again kills it)" if self._presses == 1 else "killing job {}"
        os.write(2, f"\n{how.format(self._name)}\n".encode())
        if self._started:
            self._stop()

    def _stop(self) -> None:
        from taco_launch.flows import jobs

        grace = None if self._presses == 1 else 0.0
        jobs.stop(self._settings.head(), self._name, "Ctrl-C", signal.SIGINT, grace)

    def _on_leave(self, number: int, _frame: object) -> None:
        os.write(2, f"\njob {self._name} goes on: taco-launch logs -f {self._name}\n".encode())
        os._exit(SIGNAL_BASE + number)


VERBS = (run, submit)
