"""tensorboard: a job's TensorBoard, as a page of this machine."""

import signal
import socket
from typing import Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.jobs.forward import leave
from taco_launch.cli.options.common import (
    access_of,
    access_options,
    add_option,
    inventory_option,
    settings_of,
    talk_options,
)
from taco_launch.cli.options.completion import complete_job
from taco_launch.errors import UsageError

# TensorBoard's own.
_PORT = 6006
_MOST_PORT = 65535


@click.command()
@inventory_option
@talk_options
@access_options
@add_option(
    "--port",
    type=click.IntRange(0, _MOST_PORT),
    metavar="N",
    help="Port of this machine. Default: 6006, or any if that is in use.",
)
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
@click.pass_context
def tensorboard(ctx: click.Context, /, name: str, *, port: int | None, yes: bool, **access: Any) -> int:
    """Open a job's TensorBoard on this machine.

    Prints the address to open in a browser. TensorBoard runs on the head, of a job that was started with --tensorboard,
    until some time after the job's end. Only this machine can connect. Ctrl-C ends the command, not TensorBoard.

    \b
    Examples:
      taco-launch submit --name vgg16 --tensorboard --logdir runs -- python3 train.py
      taco-launch tensorboard vgg16
    """
    from taco_launch.flows import forward as flow

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    settings = settings_of(ctx)
    with _listen(port) as server:
        backend = settings.backend(access_of(access))
        named_jobs.agree(backend, name, "look at", "looked at", yes=yes)
        address = f"http://{flow.LOOPBACK}:{server.getsockname()[1]}/"
        flow.Forwarder(
            server,
            lambda: backend.forward_board(name),
            lambda: backend.get(name),
            settings.talk,
            lambda _host: click.echo(address),
            lambda job: job.tensorboard is None or job.tensorboard.port is None,
        ).run()
    settings.talk(f"job {name}: its TensorBoard has ended")
    return 0


def _listen(port: int | None) -> socket.socket:
    from taco_launch.flows import forward as flow

    if port is not None:
        return flow.listen(port)
    try:
        return flow.listen(_PORT)
    except UsageError:
        return flow.listen(0)
