"""bench: measure a workload at several sizes, or read what somebody else measured."""

import os
from typing import TYPE_CHECKING, Any

import click

from taco_launch.cli import render
from taco_launch.cli.options import (
    access_of,
    access_options,
    inventory_option,
    output_options,
    settings_of,
    talk_options,
)
from taco_launch.cli.spec import JobCommand, job_options, spec_of
from taco_launch.errors import FAILED

if TYPE_CHECKING:
    from taco_launch.bench.scaling import Row

# More than any guide's log, and still read in a second.
_LOG_LIMIT = 256 << 20


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Read numbers of ranks, such as 1,2,8."""
    words = value.split(",")
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= 1_000_000 for word in words):
        raise click.BadParameter(f"{value!r} is no list of numbers of ranks, such as 1,2,8", ctx, param)
    return tuple(dict.fromkeys(int(word) for word in words))


@click.group()
def bench() -> None:
    """Run benchmarks and read their logs."""


@bench.command("run", cls=JobCommand)
@inventory_option
@output_options
@talk_options
@access_options
@click.option("--np", "sizes", callback=_sizes, required=True, metavar="N,N...", help="Numbers of ranks to measure.")
@job_options
@click.pass_context
def run(ctx: click.Context, /, command: tuple[str, ...], *, sizes: tuple[int, ...], **options: Any) -> int:
    """Run COMMAND at each number of ranks and print how it scales.

    COMMAND prints what Horovod's synthetic benchmark prints, or tf_cnn_benchmarks. The linear speedup is the total of
    n ranks over n times the total of one: it needs 1 among the sizes.

    \b
    Example:
      taco-launch bench run --np 1,2 -- python3 scripts/pytorch_synthetic_benchmark.py --model tiny
    """
    from taco_launch.bench import scaling
    from taco_launch.flows import bench as flow

    settings = settings_of(ctx)
    spec = spec_of(settings, command, options)
    head = settings.head(access_of(options))
    said: set[str] = set()
    with render.waiting(settings.quiet, spec.name) as wait:

        def report(progress: flow.Progress) -> None:
            for warning in progress.warnings:
                if warning not in said:
                    render.warning(settings, warning)
                    said.add(warning)
            if progress.state == "SUCCEEDED":
                settings.talk(f"np {progress.np}: {progress.line}")
            wait.state(f"np {progress.np}: {progress.state} {render.printable(progress.line)}"[:100])
            if settings.verbose and progress.line:
                settings.talk(render.printable(progress.line))

        samples = flow.run(head, spec, sizes, os.environ, report, settings.talk)
    _print(scaling.rows(samples), settings.output)
    return 0


@bench.command("parse")
@output_options
@click.argument("log", type=click.Path(allow_dash=True))
@click.pass_context
def parse(ctx: click.Context, log: str) -> int:
    """Read the benchmark result out of LOG, a file or - for standard input.

    Reads what Horovod's synthetic benchmark and tf_cnn_benchmarks print, with or without the rank tags of mpirun,
    horovodrun or taco-launch. A log without a whole result gives "no sample" and the reason, and exit code 1.

    \b
    Example:
      taco-launch logs night | taco-launch bench parse - --json
    """
    from taco_launch.bench import scaling
    from taco_launch.bench.parse import NoSample
    from taco_launch.bench.parse import parse as parse_log

    sample = parse_log(_read(log))
    if isinstance(sample, NoSample):
        click.echo(f"{log}: no sample: {sample.why}", err=True)
        return FAILED
    _print(scaling.rows((sample,)), settings_of(ctx).output)
    return 0


def _read(log: str) -> str:
    try:
        with click.open_file(log, "rb") as file:
            content: bytes = file.read(_LOG_LIMIT + 1)
    except OSError as error:
        raise click.UsageError(f"{log}: {error.strerror}") from None
    if len(content) > _LOG_LIMIT:
        raise click.UsageError(f"{log}: larger than {_LOG_LIMIT >> 20} MiB: cut it to the run that counts")
    return content.decode("utf-8", "replace")


def _print(rows: "tuple[Row, ...]", output: str) -> None:
    from taco_launch.bench import scaling

    if output in ("json", "yaml"):
        render.data(scaling.to_json(rows), output)
        return
    header = ["RANKS", "IMG/SEC", "IMG/SEC PER RANK", "LINEAR SPEEDUP"]
    cells = [
        [
            str(row.np),
            f"{row.img_per_sec:.1f}",
            f"{row.img_per_sec_per_rank:.1f}",
            "-" if row.linear_speedup is None or row.np == 1 else f"{row.linear_speedup:.2%}",
        ]
        for row in rows
    ]
    render.table(header, cells, numbers=header)
