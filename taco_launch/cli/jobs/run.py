"""run and submit: start a job; run also follows it."""

from collections.abc import Callable
from typing import Any

import click

from taco_launch.cli.options.common import access_of, add_option, settings_of, verb
from taco_launch.cli.options.job_field_options import OF_QUEUED_JOBS, options_of
from taco_launch.cli.options.job_options import JobCommand, file_option, job_options, request_of, spec_of
from taco_launch.cli.options.option_groups import OptionGroup, option, options_of_group
from taco_launch.cli.output import render
from taco_launch.core.errors import UsageError
from taco_launch.jobs.request.job_fields import Part

_DRY_RUN = (
    option(
        "--dry-run",
        is_flag=True,
        help="Print the command line that would start the job (one per host if mpirun is not used) and start nothing.",
    ),
    option(
        "--explain", is_flag=True, help="With --dry-run: show where each part of the command line comes from, and why."
    ),
    option(
        "--to",
        "out",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="With --dry-run: write the files that the command line names (a hostfile for 64 or more hosts) to DIR. Without mpirun, write "
        "each host's command line there as HOST.sh.",
    ),
)


def _dry_run_options(function: Callable[..., int]) -> Callable[..., int]:
    return options_of_group(OptionGroup.DRY_RUN, _DRY_RUN, function)


@verb(cls=JobCommand, access=True, output=True)
@_dry_run_options
@file_option
@options_of(Part.SIZE)
@job_options
@options_of(*OF_QUEUED_JOBS)
def run(
    ctx: click.Context, /, command: tuple[str, ...], *, dry_run: bool, explain: bool, out: str | None, **options: Any
) -> int:
    """Run a job, follow its output and exit with its code.

    Ctrl-C stops the job, a second one kills it; so does SIGTERM, which `timeout` and CI systems send. Closing the terminal
    (SIGHUP), SIGKILL or losing the head for minutes ends only the output; the job continues (`taco-launch logs -f NAME`).
    The ranks read nothing from standard input. What a launcher prints about a rank that failed is shown with -v only, by
    `logs -v` too. With --json the output goes to stderr, and the job, or the error, to stdout.

    With an inventory that names a container, the job runs in the containers that `setup` made, in their environment and
    folder: -x NAME takes a variable of yours there.

    \b
    Examples:
      taco-launch run --np 2 -- python3 train.py --epochs 1
      taco-launch run --np 4 -H localhost:4 -x OMP_NUM_THREADS=1 -- python3 train.py
      taco-launch run --np 2 --dry-run -- python3 train.py
      taco-launch -i hosts.yaml run --np 16 --dry-run --explain -- python3 train.py
      taco-launch -i hosts.yaml run --hosts 2 --slots-per-host 8 --queue-timeout 3h -- python3 train.py
      taco-launch -i hosts.yaml run -f job.yaml --np 8
      taco-launch -i hosts.yaml run --launcher torchrun --hosts 2 -- python3 train.py
      taco-launch -i hosts.yaml run --launcher env --workers 3 --gpus 1 -- python3 mnist.py --backend nccl
      taco-launch run --launcher env --np 1 --procs-per-gpu 3 -- python3 mytask.py --lr 0.1
      taco-launch -i hosts.yaml run --launcher env --per-host --hosts 2 --slots-per-host 8 -- bash -c \\
        'python3 -m torch.distributed.launch --nproc_per_node=8 --nnodes=$WORLD_SIZE --node_rank=$RANK \\
        --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'
    """
    settings = settings_of(ctx)
    if not dry_run and (explain or out):
        raise UsageError(
            f"{'--explain' if explain else '--to'} requires --dry-run", hint="add --dry-run: it starts nothing"
        )
    request = request_of(settings, command, options)
    spec = spec_of(settings, request)
    if spec.policy.suspend and not dry_run:
        raise UsageError("a suspended job has no output to follow", hint="start it with submit instead of run")
    if dry_run:
        if spec.policy.suspend:
            settings.talk(f"note: job {spec.name} would stay suspended until `taco-launch resume {spec.name}`")
        if request.sync is not None:
            settings.talk(
                f"note: {request.sync} is copied to each host when the job starts, and the ranks start in the copy"
            )
        from taco_launch.cli.output import plan_tables

        plan_tables.plan(settings, spec, access_of(options), out or "", explain=explain)
        return 0
    from taco_launch.cli.jobs import start_job

    return start_job.run(settings, access_of(options), spec, request)


@verb(cls=JobCommand, access=True, output=True)
@file_option
@options_of(Part.SIZE)
@job_options
@options_of(*OF_QUEUED_JOBS, Part.SUSPEND)
@add_option(
    "--each",
    multiple=True,
    metavar="NAME=V,V...",
    help="Start a job for each value of NAME: a variable of the job's environment, and {NAME} in COMMAND. Given several times: for each combination.",
)
@add_option(
    "--array",
    metavar="RANGE",
    help="Start a job for each number, such as 0-3 or 0-99:10,5. SLURM_ARRAY_TASK_ID is the number. On Slurm it is one job array, and 0-99%4 runs at most 4 of its jobs at a time.",
)
@add_option("--schema", is_flag=True, help="Print the JSON Schema of a job file, for an editor's completion.")
def submit(
    ctx: click.Context,
    /,
    command: tuple[str, ...],
    *,
    schema: bool,
    each: tuple[str, ...],
    array: str | None,
    **options: Any,
) -> int:
    """Start a job in the background and print its name.

    With --each or --array, starts a job for each value, and prints their names: NAME-1, NAME-2 and so on.

    \b
    Examples:
      taco-launch submit --name vgg16 --np 2 -- python3 train.py
      taco-launch logs -f vgg16
      taco-launch -i hosts.yaml submit --hosts 2 --priority 10 --backoff-limit 3 --ttl 2d -- python3 train.py
      taco-launch -i hosts.yaml submit -f job.yaml
      taco-launch submit --name sweep --np 2 --each lr=0.1,0.01 --each seed=1,2 -- python3 train.py --lr {lr} --seed {seed}
      taco-launch submit --name part --np 1 --array 0-3 -- sh -c 'python3 preprocess.py --part $SLURM_ARRAY_TASK_ID'
      taco-launch submit --schema > job.schema.json
    """
    settings = settings_of(ctx)
    if schema:
        from taco_launch.jobs.documents.job_schema import json_schema

        render.data(json_schema(), "json")
        return 0
    request = request_of(settings, command, options)
    if each or array is not None:
        from taco_launch.cli.jobs import submit_each

        matrix = submit_each.matrix_of(each, array)
        submit_each.submit(settings, access_of(options), submit_each.limited(request, matrix, array), matrix)
    else:
        from taco_launch.cli.jobs import start_job

        start_job.submit(settings, access_of(options), spec_of(settings, request), request)
    return 0
