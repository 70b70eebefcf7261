"""bench: measure a workload at several sizes, or read what somebody else measured."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from taco_launch.bench.compare import tables
from taco_launch.bench.compare.tables import UNNAMED, bars
from taco_launch.bench.history.history import LadderKind, open_history
from taco_launch.bench.logs import patterns
from taco_launch.bench.logs.parse import UNKNOWN_FORM, NoSample, Sample
from taco_launch.bench.logs.parse import parse as parse_log
from taco_launch.bench.logs.workloads import RATE, read, read_other, recognised
from taco_launch.bench.model.ladder import order
from taco_launch.bench.model.matrix import LogFormat, Workload
from taco_launch.bench.model.runs import Cell, Measurement, Run
from taco_launch.bench.run import run_ladder as flow
from taco_launch.bench.run.new_ladder import describe_few_repeats, ladders_folder, new_ladder, new_seed
from taco_launch.bench.run.run_environment import EnvironmentProbe
from taco_launch.bench.run.run_ladder import LadderPlan, LadderResult, Reader
from taco_launch.bench.stats.estimates import require
from taco_launch.cli.bench import export_import, history, ladder_output, report
from taco_launch.cli.bench.ladder import ladder
from taco_launch.cli.bench.workload_option import read_log, workload_of, workload_option
from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.job_options import JobCommand, job_options, request_of, spec_of
from taco_launch.cli.options.suggestions import SuggestingGroup, hidden_alias
from taco_launch.cli.output import render
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.jobs.request import job_names

# What a command line alone says has no name in a matrix.
_VARIANT = "as typed"
_OWN_FORMAT = (
    "for a program of your own, give a workload of kind regex with its pattern: --workload FILE:NAME; "
    "bench run --pattern 'throughput: ([0-9.]+)' measures it directly"
)


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Read numbers of ranks, such as 1,2,8."""
    words = value.split(",")
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= 1_000_000 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of numbers of ranks, such as 1,2,8", ctx, param)
    return tuple(dict.fromkeys(int(word) for word in words))


def _pattern(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check a regular expression with one group."""
    if value is not None:
        try:
            patterns.compiled(value)
        except ValueError as error:
            raise click.BadParameter(
                f"{value!r} {error}; use a pattern such as 'throughput: ([0-9.]+)'", ctx, param
            ) from None
    return value


@click.group(cls=SuggestingGroup)
def bench() -> None:
    """Run benchmarks, compare variants, query the history."""


for command in (ladder, *history.VERBS, *export_import.VERBS, *report.VERBS):
    bench.add_command(command)
# What the documents call a sweep.
bench.add_command(hidden_alias(ladder, "sweep"))


@verb("run", cls=JobCommand, group=bench, access=True, output=True)
@add_option("--np", "sizes", callback=_sizes, required=True, metavar="N,N...", help="Numbers of ranks to measure.")
@add_option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="How many times each number of ranks is measured, in shuffled order; 2 or more give confidence intervals.",
)
@add_option(
    "--pattern",
    callback=_pattern,
    metavar="REGEX",
    help="Regular expression with one group that finds the result in your program's output. If several lines match, the last one counts.",
)
@add_option("--unit", metavar="NAME", help="With --pattern: the number's unit, such as tokens/s. Default: value.")
@add_option("--chart", is_flag=True, help="Print the rates as bars as well. Default on a terminal.")
@ladder_output.db_option
@job_options
def run(
    ctx: click.Context,
    /,
    command: tuple[str, ...],
    *,
    sizes: tuple[int, ...],
    repeats: int,
    pattern: str | None,
    unit: str | None,
    chart: bool,
    db: Path | None,
    **options: Any,
) -> int:
    """Run COMMAND at each number of ranks and print how it scales.

    COMMAND prints what Horovod's synthetic benchmark prints, or tf_cnn_benchmarks, or a line that --pattern names: one
    rank prints the number of all ranks together. The linear speedup is the total of n ranks over n times the total of one:
    it needs 1 among the sizes. What is measured is kept in the history; a run that fails does not end the rest, one whose
    output cannot be read does. `bench ladder` compares several ways to run it.

    \b
    Examples:
      taco-launch bench run --np 1,2 -- python3 scripts/pytorch_synthetic_benchmark.py --model tiny
      taco-launch bench run --np 1,2 --repeats 5 -- python3 scripts/pytorch_synthetic_benchmark.py --model tiny
      taco-launch bench run --np 1,2 --pattern 'throughput: ([0-9.]+)' --unit tokens/s -- python3 bench.py

    \b
    Exit codes: 0 each number of ranks has a sample, 1 some have none, 5 the head was lost, or no host could be used, before
    anything was measured, 130 Ctrl-C.
    """
    settings = settings_of(ctx)
    if unit is not None and pattern is None:
        raise click.UsageError("--unit requires --pattern", ctx)
    request = request_of(settings, command, options)
    # Slurm refuses a job without a size; each cell has its own.
    spec = spec_of(settings, replace(request, np=max(sizes)), sized=False)
    if repeats > 1:
        require()
    if advice := describe_few_repeats(repeats):
        render.warning(settings, advice)
    name = job_names.stem(command) if options["name"] is None else spec.name
    access = access_of(options)
    cluster = settings.cluster(access)
    spec = cluster.with_code(spec, request)
    specs = {Cell(name, _VARIANT, np): replace(spec, np=np) for np in sizes}
    around = EnvironmentProbe(settings.load(), spec.hosts, access, str(Path.cwd()), settings.talk)
    around.refresh()
    room = flow.slots(spec, around.facts)
    if max(sizes) > room:
        fitting = ",".join(str(np) for np in sizes if np <= room)
        ways = [f"--np {fitting}"] if fitting else []
        ways += [f"-H localhost:{max(sizes)} for more ranks than slots"] if settings.source is None else []
        problem = f"{max(sizes)} ranks do not fit: the hosts have {render.counted(room, 'slot')}"
        raise UsageError(problem, hint=", or ".join(ways) or None)
    seed = new_seed() if repeats > 1 else 0
    one = new_ladder(name, LadderKind.RUN, "", seed, settings.load().cluster)
    with open_history(ladder_output.history_path(db)) as history:
        history.begin(one)
        steps = order(tuple(specs), repeats, 0, seed)
        plan = flow.LadderPlan(
            one,
            steps,
            specs,
            _reader(pattern, unit or UNNAMED),
            ladders_folder(os.environ) / one.id,
            ends_unread=True,
        )
        return ladder_output.measure(settings, plan, history, around, cluster.backend, "", partial(_show, chart=chart))


def _reader(pattern: str | None, unit: str) -> Reader:
    """Return what reads the logs: any form that `bench parse` knows, or what a pattern finds."""
    if pattern is None:
        return _read_rate
    return lambda cell, text: read(
        Workload(cell.workload, LogFormat.REGEX, (), pattern, unit, last=True), text, cell.ranks
    )


def _read_rate(cell: Cell, text: str) -> tuple[Measurement, ...] | NoSample:
    """Read a log of any form that `bench parse` knows."""
    if (known := recognised(text)) is not None:
        return read(known, text, cell.ranks)
    if (readings := read_other(text)) is not None:
        return readings
    sample = parse_log(text)
    kind = LogFormat.TF_CNN if isinstance(sample, Sample) and sample.half_width is None else LogFormat.HOROVOD
    found = read(Workload(cell.workload, kind, ()), text, cell.ranks)
    if isinstance(found, NoSample) and isinstance(sample, NoSample):
        return NoSample(f"{sample.why}; for a program of your own, use bench run --pattern 'throughput: ([0-9.]+)'")
    return found


@verb("parse", group=bench, output=True)
@workload_option
@add_option(
    "--np",
    "ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of ranks that ran.",
)
@click.argument("log", type=click.Path(allow_dash=True))
def parse(ctx: click.Context, log: str, workload: str | None, ranks: int | None) -> int:
    """Read the benchmark result from a log.

    LOG is a file, or - for standard input. Reads what Horovod's synthetic benchmark, tf_cnn_benchmarks, nccl-tests and perftest (ib_write_bw, ...) print, with or
    without the labels of mpirun, horovodrun, torchrun, srun, Hydra, kubectl, docker compose or taco-launch; what --workload says else. A
    log without a whole result gives "no sample" and the reason, and exit code 1. --np says how many ranks ran: a log
    of another number is no sample.

    \b
    Examples:
      taco-launch logs night | taco-launch bench parse - --json
      taco-launch logs busbw | taco-launch bench parse - --np 16
      taco-launch bench parse night.log --workload ./mine.yaml:latency
    """
    text = read_log(log)
    known = recognised(text) if workload is None else workload_of(workload)
    readings = read_other(text) if known is None else read(known, text, ranks)
    if readings is not None:
        return _print_readings(settings_of(ctx), log, readings)
    sample = parse_log(text)
    if ranks is not None and isinstance(sample, Sample) and sample.ranks != ranks:
        sample = NoSample(f"the log shows {sample.ranks} rank{'s' * (sample.ranks != 1)}, not the {ranks} of --np")
    if isinstance(sample, NoSample):
        raise TacoLaunchError(
            f"{log}: no sample: {sample.why}", hint=_OWN_FORMAT if sample.why.endswith(UNKNOWN_FORM) else None
        )
    cell = Cell("", "", sample.ranks)
    run = Run(cell, 0, False, "", 0.0, 0.0, (), "", (Measurement(RATE, sample.img_per_sec),), "", "")
    _print(settings_of(ctx).output, (cell,), (run,), {})
    return 0


def _print_readings(settings: Settings, log: str, readings: tuple[Measurement, ...] | NoSample) -> int:
    if isinstance(readings, NoSample):
        raise TacoLaunchError(f"{log}: no sample: {readings.why}")
    if settings.output in ("json", "yaml"):
        rows = [{**asdict(reading.metric), "value": reading.value} for reading in readings]
        render.data({"readings": rows}, settings.output)
        return 0
    lines = [[reading.metric.name, f"{reading.value:g}", reading.metric.unit] for reading in readings]
    render.table(["METRIC", "VALUE", "UNIT"], lines, numbers=["VALUE"])
    return 0


def _show(settings: Settings, plan: LadderPlan, measured: LadderResult, *, chart: bool) -> None:
    """Print how the rate grows with the number of ranks."""
    chart = chart or sys.stdout.isatty()
    _print(settings.output, tuple(plan.specs), measured.runs, {"ladder": plan.ladder.id}, chart=chart)


def _print(
    output: str, cells: Sequence[Cell], runs: Sequence[Run], more: dict[str, Any], *, chart: bool = False
) -> None:
    found = tables.tables(cells, runs)
    entries = sorted(found[0].entries, key=lambda entry: entry.cell.ranks) if found else []
    if output in ("json", "yaml"):
        unit = found[0].metric.unit if found else ""
        render.data({**more, "rows": [tables.row_data(entry, unit) for entry in entries]}, output)
        return
    if not entries:
        return
    unit = found[0].metric.unit.upper()
    header = ["RANKS", unit, f"{unit} PER RANK", "LINEAR SPEEDUP"]
    rows = [tables.row(entry) for entry in entries]
    render.table(header, rows, numbers=header)
    if chart and len(rows) > 1:
        click.echo()
        drawn = [
            (ranks, bar, rate, row[-1]) for (ranks, _variant, bar, rate), row in zip(bars(found[0]), rows, strict=True)
        ]
        render.table([header[0], "", unit, header[-1]], drawn, numbers=[header[0], unit, header[-1]])
    if any(len(entry.values) > 1 for entry in entries):
        click.echo(tables.legend(found))
