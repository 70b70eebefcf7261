"""bench ladder: measure a matrix, several times in shuffled order, and compare its variants."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import click

from taco_launch.api.cluster import Cluster
from taco_launch.api.matrix_jobs import prepare_jobs
from taco_launch.bench.history.history import History, Ladder, LadderKind, open_history
from taco_launch.bench.logs.workloads import reader
from taco_launch.bench.model.ladder import LadderStep, order
from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.model.runs import Cell, when
from taco_launch.bench.run import run_ladder as flow
from taco_launch.bench.run.matrix_file import load, shipped
from taco_launch.bench.run.new_ladder import describe_few_repeats, ladders_folder, new_ladder, new_seed
from taco_launch.bench.stats.estimates import require
from taco_launch.cli.bench import ladder_output
from taco_launch.cli.options.common import Seconds, Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_host_list
from taco_launch.cli.options.job_options import spec_of
from taco_launch.cli.output import plan_tables, render
from taco_launch.core.command import shell
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.dry_run import Planned


@verb(access=True, output=True)
@click.argument("name", metavar="MATRIX", required=False)
@add_option(
    "-H",
    "--host",
    "hosts",
    multiple=True,
    metavar="H1:8,H2:8",
    shell_complete=complete_host_list,
    help="Hosts and groups of hosts to use, and slots on each, instead of those of the matrix.",
)
@add_option(
    "--repeats",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Number of measured runs of each cell; warm-ups are not counted. Default: the matrix's.",
)
@add_option(
    "--time-budget",
    type=Seconds(1),
    metavar="TIME",
    help="How long all runs may take together, such as 2h, without waits in the queue and the time between runs. Default: the matrix's.",
)
@add_option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    metavar="N",
    help="Seed for the order of the runs; 0 keeps the order of the matrix. Default: random.",
)
@add_option("--fresh", is_flag=True, help="Start over even if the same sweep was interrupted.")
@add_option(
    "--dry-run", is_flag=True, help="Show the cells, their order and each job's command line, and start nothing."
)
@add_option("--schema", is_flag=True, help="Print the JSON Schema of a matrix, for an editor's completion.")
@ladder_output.db_option
def ladder(ctx: click.Context, /, name: str | None, *, schema: bool, dry_run: bool, **options: Any) -> int:
    """Measure a benchmark matrix and compare its variants.

    MATRIX is a YAML file or the name of a matrix that comes with taco-launch. Each cell (a workload, a variant, a number of ranks) is a job; all are run once, in shuffled order, then once more, and
    so on, so that slow changes favour no variant. Runs are kept in the history as they end. After Ctrl-C, a broken connection
    or a power cut, the same command continues where it stopped. A run that fails is kept with the reason, and the rest continues.

    \b
    Examples:
      taco-launch -i lab bench ladder lab
      taco-launch -i hosts.yaml bench ladder taco --time-budget 2h
      taco-launch -i hosts.yaml bench ladder my.yaml --dry-run
      taco-launch bench ladder --schema > matrix.schema.json

    \b
    Exit codes: 0 each cell has a sample, 1 some have none, 5 the head was lost, or no host could be used, before anything
    was measured, 130 Ctrl-C.
    """
    settings = settings_of(ctx)
    if schema:
        from taco_launch.bench.run.matrix_schema import json_schema  # noqa: PLC0415 - pydantic takes long to import

        render.data(json_schema(), "json")
        return 0
    if name is None:
        raise click.UsageError(f"MATRIX is missing: name a file, or one of {', '.join(shipped())}", ctx)
    return _measured(settings, name, dry_run=dry_run, options=options)


def _measured(settings: Settings, name: str, *, dry_run: bool, options: dict[str, Any]) -> int:
    matrix = _with(load(name, os.environ), options)
    if matrix.repeats > 1:
        require()
    if advice := describe_few_repeats(matrix.repeats):
        render.warning(settings, advice)
    access = access_of(options)
    cluster = settings.cluster(access)
    jobs = prepare_jobs(
        cluster,
        matrix,
        options["hosts"],
        resolve=partial(spec_of, settings, sized=False),
        warn=partial(render.warning, settings),
        say=settings.talk,
        look=not dry_run,
    )
    specs = jobs.specs
    if dry_run:
        _print_dry_run(settings, matrix, specs, access)
        return 0
    _warn_of_equal_lines(settings, specs, _plans(cluster, matrix, specs, jobs.around.facts))
    digest = flow.digest(LadderKind.LADDER, matrix, specs)
    with (
        flow.exclusive_lock(ladders_folder(os.environ), digest),
        open_history(ladder_output.history_path(options["db"])) as history,
    ):
        one = _begun(settings, history, matrix, digest, len(specs), fresh=options["fresh"])
        steps = _steps(matrix, tuple(specs), one.seed)
        logs = ladders_folder(os.environ) / one.id
        plan = flow.LadderPlan(one, steps, specs, reader(matrix), logs, matrix.time_budget)
        again = shell(("bench", "ladder", name, *_typed(options)))
        return ladder_output.measure(settings, plan, history, jobs.around, cluster.backend, f"{settings.typed} {again}")


def _with(matrix: Matrix, options: dict[str, Any]) -> Matrix:
    """Return a matrix with what the command line says of it."""
    given = {key: options[key] for key in ("repeats", "time_budget", "seed") if options[key] is not None}
    return replace(matrix, **given)


def _typed(options: dict[str, Any]) -> list[str]:
    """Return the options that the same ladder is gone on with."""
    words = [word for host in options["hosts"] for word in ("-H", host)]
    for key in ("repeats", "time_budget", "seed", "db"):
        if options[key] is not None:
            value = options[key]
            words += [f"--{key.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def _steps(matrix: Matrix, cells: tuple[Cell, ...], seed: int) -> tuple[LadderStep, ...]:
    return order(cells, matrix.repeats, matrix.warm_ups, seed)


def _begun(settings: Settings, history: History, matrix: Matrix, digest: str, cells: int, *, fresh: bool) -> Ladder:
    """Return the ladder to continue with, or a new one."""
    while earlier := history.resumable(digest):
        if not fresh:
            of = cells * (matrix.repeats + matrix.warm_ups)
            done = len(history.runs(earlier.id))
            settings.talk(
                f"continuing sweep {earlier.id} of {when(earlier.started)}: {done} of {of} runs done (--fresh starts over)"
            )
            return earlier
        history.end(earlier.id, flow.GIVEN_UP)
    seed = new_seed() if matrix.seed is None else matrix.seed
    one = new_ladder(matrix.name, LadderKind.LADDER, digest, seed, settings.load().cluster, matrix.variants)
    history.begin(one)
    runs = cells * (matrix.repeats + matrix.warm_ups)
    settings.talk(f"sweep {one.id}: {render.counted(cells, 'cell')}, {render.counted(runs, 'run')}, seed {seed}")
    return one


def _plans(
    cluster: Cluster, matrix: Matrix, specs: dict[Cell, JobSpec], facts: Sequence[HostFacts] = ()
) -> dict[Cell, Planned]:
    """Plan each workload and variant at its largest size, by the facts of hosts where these are known.

    Raises:
        TacoLaunchError: a variant requests what the hosts do not have.
    """
    largest = {(cell.workload, cell.variant): cell for cell in sorted(specs, key=lambda cell: cell.ranks)}
    return {cell: cluster.plan_of(replace(specs[cell], name=matrix.name), facts=facts) for cell in largest.values()}


def _warn_of_equal_lines(settings: Settings, specs: dict[Cell, JobSpec], plans: dict[Cell, Planned]) -> None:
    """Warn of variants of a workload that start the same job on these hosts, as far as that is known before the start."""
    alike: dict[Any, list[str]] = {}
    for cell, planned in plans.items():
        if planned.notes:
            continue
        spec = specs[cell]
        line = plan_tables.lines(planned.plan, spec.launcher)
        alike.setdefault((cell.workload, cell.ranks, line, spec.container, spec.code), []).append(cell.variant)
    for (workload, *_rest), variants in alike.items():
        if len(variants) > 1:
            names = ", ".join(variants)
            render.warning(
                settings, f"{workload}: the variants {names} start the same job on these hosts: they cannot differ"
            )


def _print_dry_run(settings: Settings, matrix: Matrix, specs: dict[Cell, JobSpec], access: Credentials) -> None:
    """Show the runs in their order, and the line of each workload and variant at its largest size."""
    seed = new_seed() if matrix.seed is None else matrix.seed
    steps = _steps(matrix, tuple(specs), seed)
    shown, lines = ladder_output.ProgressDisplay(settings, tuple(specs)), []
    plans = _plans(settings.cluster(access), matrix, specs)
    _warn_of_equal_lines(settings, specs, plans)
    for cell, found in plans.items():
        for warning in found.plan.warnings:
            render.warning(settings, f"{shown.cell(cell)}: {warning}")
        for note in found.notes:
            settings.talk(f"note: {shown.cell(cell)}: {note}")
        lines.append((cell, plan_tables.lines(found.plan, specs[cell].launcher)))
    if settings.output in ("json", "yaml"):
        _print_data(settings, seed, steps, lines)
        return
    size = f"{render.counted(len(specs), 'cell')}, {render.counted(len(steps), 'run')}"
    again = "" if matrix.seed is not None else f"; without --seed {seed} the next run uses another order"
    click.echo(f"{size}, in the order of seed {seed}{again}:")
    rows = [
        [str(step.position + 1), step.cell.workload, step.cell.variant, str(step.cell.ranks), _count(step)]
        for step in steps
    ]
    render.table(["RUN", "WORKLOAD", "VARIANT", "RANKS", "REPEAT"], rows, numbers=("RUN", "RANKS"))
    for cell, line in lines:
        click.echo(f"\n{shown.cell(cell)}:\n{line}")


def _print_data(settings: Settings, seed: int, steps: tuple[LadderStep, ...], lines: list[tuple[Cell, str]]) -> None:
    runs = [
        {"run": step.position + 1, **asdict(step.cell), "repeat": step.repeat + 1, "warm_up": step.warm_up}
        for step in steps
    ]
    render.data(
        {"seed": seed, "runs": runs, "lines": [{**asdict(cell), "line": line} for cell, line in lines]}, settings.output
    )


def _count(step: LadderStep) -> str:
    return "warm-up" if step.warm_up else str(step.repeat + 1)
