"""exec: a command beside a rank of a running job."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, BinaryIO

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.options.common import (
    access_of,
    access_options,
    add_option,
    inventory_option,
    settings_of,
    talk_options,
)
from taco_launch.cli.options.completion import complete_job
from taco_launch.errors import SIGNAL_BASE
from taco_launch.remote.terminal import SafeStream


@click.command("exec")
@inventory_option
@talk_options
@access_options
@add_option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="The rank beside which.")
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def exec_(ctx: click.Context, /, name: str, command: tuple[str, ...], *, rank: int, yes: bool, **access: Any) -> int:
    """Run a command next to a rank of a running job.

    It belongs to the job, and is ended with it. It reads nothing from standard input. Ctrl-C ends it, not the job. The
    exit code is 125 where that rank does not run any more. Beside somebody else's job it asks first; without a terminal
    that takes --yes.

    \b
    Examples:
      taco-launch exec vgg16 -- nvidia-smi
      taco-launch exec vgg16 --rank 8 -- sh -c 'env | grep NCCL; ls -l /dev/infiniband'
    """
    from taco_launch.model.jobs import JobState

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    backend = settings_of(ctx).backend(access_of(access))
    named_jobs.agree(backend, name, "run a command in", "entered", lambda state: state is JobState.RUNNING, yes=yes)
    return backend.execute(name, rank, command, _to(sys.stdout.buffer), _to(sys.stderr.buffer))


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(SIGNAL_BASE + number)


def _to(stream: BinaryIO) -> Callable[[bytes], None]:
    safe = SafeStream() if stream.isatty() else bytes

    def write(data: bytes) -> None:
        stream.write(safe(data))
        stream.flush()

    return write
