"""exec and shell: a command, or a shell, beside a rank of a running job."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import click

from taco_launch.cli.jobs import named_jobs, own_terminal
from taco_launch.cli.jobs.own_terminal import piped
from taco_launch.cli.jobs.start_job import launcher_errors
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.options.option_groups import SeparatedCommand
from taco_launch.core.errors import SIGNAL_BASE, NoJobError, TacoLaunchError, UsageError
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls.exec_command import Exec
from taco_launch.hosts.remote.terminal import SafeStream
from taco_launch.jobs.backend import Backend

# What the image has; a login shell would set the rank's environment anew.
_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec /bin/sh")


class _ExecCommand(SeparatedCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        separated = "--" in args
        if not separated and not ctx.resilient_parsing:
            self.refuse_options_behind(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            if separated:  # what stands behind it was taken for the job
                raise click.UsageError("Missing argument 'NAME': the job, before --", ctx) from None
            raise


@verb("exec", cls=_ExecCommand, access=True, inventory="--inventory")
@add_option("-i", "--stdin", is_flag=True, help="Pass standard input on to the command.")
@add_option("-t", "--tty", is_flag=True, help="Give the command a terminal of the same size as yours.")
@named_jobs.rank_options
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(ctx: click.Context, /, name: str, command: tuple[str, ...], *, stdin: bool, tty: bool, **options: Any) -> int:
    """Run a command next to a rank of a running job.

    It runs on the rank's host, in its container, folder and environment. It belongs to the job and ends with it.
    Without -i it reads nothing from standard input, and Ctrl-C ends it, not the job. With -it every key goes to it, and
    `~.` at the beginning of a line leaves it. The exit code is the
    command's, or 125 if the job was not found, or the job or the rank does not run, or 2 if the job has no such rank.
    For another user's job it asks first; without a terminal that requires --yes.

    An inventory is named before the verb: taco-launch -i hosts.yaml exec NAME ...

    \b
    Examples:
      taco-launch exec vgg16 -- nvidia-smi
      taco-launch exec vgg16 --rank 8 -- sh -c 'env | grep NCCL; ls -l /dev/infiniband'
      taco-launch exec -it vgg16 -- python3
      tar c data | taco-launch exec vgg16 -i -- tar x
    """
    settings = settings_of(ctx)
    if stdin and tty and not os.isatty(0):
        raise UsageError("-t: standard input is not a terminal", hint="leave -t out: -i alone passes standard input on")
    try:
        return _run(settings, name, command, options, stdin=stdin, tty=tty)
    except TacoLaunchError as error:
        if stdin and error.kind == NoJobError.kind and _is_inventory(name):
            typed = f"taco-launch -i {name} exec -i {' '.join(command[:1])} -- ..."
            raise UsageError(
                f"job {name!r} not found: -i of exec is for standard input",
                hint=f"name the inventory before the verb: {typed}",
            ) from None
        raise


@verb(access=True)
@named_jobs.rank_options
@named_jobs.yes_option
@click.argument("name", shell_complete=complete_job)
def shell(ctx: click.Context, /, name: str, **options: Any) -> int:
    """Open a shell next to a rank of a running job.

    bash, or sh, on the rank's host, in its container, folder and environment. Every key goes to it; `~.` at the beginning
    of a line leaves it where it hangs. It is ended with the job. Without a terminal it reads commands from standard
    input.

    \b
    Examples:
      taco-launch shell vgg16
      taco-launch shell vgg16 --rank 8
      taco-launch shell vgg16 --instance vgg16-worker-1
    """
    return _run(settings_of(ctx), name, _SHELL, options, stdin=True, tty=os.isatty(0))


def _run(
    settings: Settings, name: str, command: tuple[str, ...], options: dict[str, Any], *, stdin: bool, tty: bool
) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with launcher_errors():  # a command may have the codes of errors
        return _beside_rank(settings, name, command, options, stdin=stdin, tty=tty)


def _beside_rank(
    settings: Settings, name: str, command: tuple[str, ...], options: dict[str, Any], *, stdin: bool, tty: bool
) -> int:
    backend = settings.backend(access_of(options))
    named_jobs.agree(
        backend, name, "run a command in", "entered", lambda state: state is JobState.RUNNING, yes=options["yes"]
    )
    rank = named_jobs.rank_of(backend, name, options)
    request = Exec(name=name, rank=rank, command=[*command])
    if tty:
        return _on_terminal(backend, request, typed=stdin)
    given = piped(0) if stdin else ()
    return backend.at_rank(request, given, _to(sys.stdout.buffer), _to(sys.stderr.buffer))


def _on_terminal(backend: Backend, request: Exec, *, typed: bool) -> int:
    out = _write_to(sys.stdout.buffer)
    with own_terminal.OwnTerminal(typed=typed) as mine:
        request = request.replace(terminal=own_terminal.terminal())
        return backend.at_rank(request, mine.frames(), out, _to(sys.stderr.buffer))


def _is_inventory(name: str) -> bool:
    return name.partition(":")[0] == "lab" or name.endswith((".yaml", ".yml")) or Path(name).exists()


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(SIGNAL_BASE + number)


def _write_to(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write


def _to(stream: BinaryIO) -> Callable[[bytes], None]:
    """Return what writes; safe on a terminal, to which a program that has none says nothing else."""
    write = _write_to(stream)
    if not stream.isatty():
        return write
    safe = SafeStream()
    return lambda data: write(safe(data))
