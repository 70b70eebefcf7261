"""forward, tensorboard: a port of a rank's host, or a job's TensorBoard, on this machine's loopback."""

import re
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import job_output, render
from taco_launch.core.errors import SIGNAL_BASE
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs import forward_ports as flow

if TYPE_CHECKING:
    from taco_launch.core.model.job_view import JobView
    from taco_launch.hosts.remote.credentials import Credentials
    from taco_launch.jobs.forward_ports import Forwarding, Place

_PORTS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_MOST = 65535
# Of TensorBoard.
_BOARD_PORT = 6006
# TensorBoard imports for half a minute on a busy machine.
_BOARD_SECONDS = 60


class Ports(click.ParamType):  # type: ignore[type-arg]  # before click 8.4 it took none
    """A port, and the port of this machine for it: PORT or PORT:LOCAL."""

    name = "ports"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Read them."""
        if isinstance(value, tuple):
            return value[0], value[1]
        found = _PORTS.fullmatch(value)
        port, local = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not (0 < port <= _MOST and local <= _MOST):
            self.fail(f"{value!r} is not a port: write PORT or PORT:LOCAL, such as 6006 or 8888:9999", param, ctx)
        return port, local


@verb(access=True)
@named_jobs.rank_options
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
@click.argument("ports", type=Ports(), metavar="PORT[:LOCAL]")
def forward(ctx: click.Context, /, name: str, ports: tuple[int, int], *, yes: bool, **options: Any) -> int:
    """Forward a port of a rank's host to this machine.

    Connections to 127.0.0.1:LOCAL, by default the same number, lead to PORT on the loopback of the rank's host. PORT:0
    takes any free port here. The address is printed when connections can be made. Only this machine can connect. They go by
    SSH to the host, or through the head, and on Slurm by srun on the login node; a lost connection is made again. Ctrl-C or the end of the job ends the command.

    \b
    Examples:
      taco-launch forward vgg16 8888
      taco-launch forward vgg16 6006:9090 --rank 8
    """
    settings, access = settings_of(ctx), access_of(options)
    port, local = ports
    backend = settings.backend(access)
    named_jobs.agree(backend, name, "connect to", "entered", lambda state: state is JobState.RUNNING, yes=yes)
    rank = named_jobs.rank_of(backend, name, options)
    job = _forward(
        settings,
        access,
        lambda: backend.get(name),
        lambda job: flow.rank_place(job, rank, port),
        lambda job: job.record.state.is_terminal,
    ).run((local,), lambda here, host: click.echo(render.printable(f"{flow.LOOPBACK}:{here} -> {host}:{port}")))
    job_output.ending(settings, job)
    return 0


def _forward(
    settings: Settings,
    access: "Credentials",
    look: "Callable[[], JobView]",
    find: "Callable[[JobView], Place]",
    is_over: "Callable[[JobView], bool]",
) -> "Forwarding":
    """Prepare to forward a port of a job; signals that end a session end the command."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    inventory = None if settings.source is None else settings.load()
    return flow.Forwarding(
        look,
        find,
        lambda place: flow.reach(inventory, access, place),
        is_over,
        settings.talk,
    )


def _leave(number: int, _frame: FrameType | None) -> None:
    """End the command by a signal."""
    raise SystemExit(SIGNAL_BASE + number)


@verb(access=True)
@add_option(
    "--port",
    type=click.IntRange(0, _MOST),
    metavar="N",
    help="Port on this machine. Default: 6006, or any free port if that is in use.",
)
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
def tensorboard(ctx: click.Context, /, name: str, *, port: int | None, yes: bool, **access: Any) -> int:
    """Open a job's TensorBoard on this machine.

    Prints the address to open in a browser. The job must have been started with --tensorboard; one that starts is waited
    for. TensorBoard runs on the head, and stops some time after the job. Only this machine can connect. Ctrl-C ends the
    command, not TensorBoard.

    \b
    Examples:
      taco-launch submit --name vgg16 --tensorboard --logdir runs -- python3 train.py
      taco-launch tensorboard vgg16
    """
    settings, credentials = settings_of(ctx), access_of(access)
    backend = settings.backend(credentials)
    named_jobs.agree(backend, name, "look at", "looked at", yes=yes)

    def job_with_board() -> "JobView":
        until = time.monotonic() + _BOARD_SECONDS
        job = backend.get(name)
        if flow.board_starts(job):
            settings.talk(f"job {name}: waiting for its TensorBoard, at most {_BOARD_SECONDS} s")
        while flow.board_starts(job) and time.monotonic() < until:
            time.sleep(1)
            job = backend.get(name)
        return job

    def shown(here: int, _host: str) -> None:
        click.echo(f"http://{flow.LOOPBACK}:{here}/")
        settings.talk("Ctrl-C ends this command; TensorBoard itself runs for --tensorboard-grace after the job")

    _forward(
        settings,
        credentials,
        job_with_board,
        flow.board_place,
        lambda job: job.tensorboard is None or job.tensorboard.port is None,
    ).run((_BOARD_PORT, 0) if port is None else (port,), shown)
    settings.talk(f"job {name}: its TensorBoard has ended")
    return 0
