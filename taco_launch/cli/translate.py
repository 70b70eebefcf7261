"""translate: what people type or keep for other launchers, as it is typed here."""

import os
from pathlib import Path
from typing import Any

import click

from taco_launch.cli.jobs.run import run, submit
from taco_launch.cli.options.common import Settings, settings_of, verb
from taco_launch.cli.options.job_options import request_of
from taco_launch.cli.options.nested_launcher import typed
from taco_launch.cli.output import render
from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line import nested_launcher
from taco_launch.hosts.inventory.load import read_file
from taco_launch.jobs import translate as flow
from taco_launch.jobs.documents import job_writer
from taco_launch.jobs.translate import Translated, TranslatedJob

_HEADER = ("ORIGINAL", "HERE", "WHY")


@verb(output=True)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE | -- LINE...")
def translate(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Translate another launcher's command, script or manifest.

    LINE is a command of mpirun, mpiexec.hydra, horovodrun, torchrun, deepspeed, accelerate, srun or Arena. FILE is a shell,
    sbatch, PBS, LSF, Grid Engine or PJM script, an MPIJob, PyTorchJob, TrainJob or Volcano Job, a task of SkyPilot, or a
    configuration of horovodrun. Nothing is run.

    The command to type comes first. The table below it has each option of the original, what it is here, and why. An empty
    cell means that the job does not have it. -o yaml prints a job file instead.

    \b
    Examples:
      taco-launch translate -- mpirun -np 16 -H gpu1:8,gpu2:8 -x NCCL_DEBUG=INFO python3 train.py
      taco-launch translate job.sbatch
      taco-launch translate -o yaml -- torchrun --nnodes 2 --nproc-per-node 8 train.py

    \b
    Exit codes: 2 where nothing in it starts ranks in a way that is known.
    """
    settings = settings_of(ctx)
    if not words:
        raise click.UsageError("Name a FILE, or put -- before the line of a launcher.", ctx)
    is_file = len(words) == 1 and Path(words[0]).is_file()
    is_quoted = len(words) == 1 and not is_file and _starts_a_launcher(words[0].split())
    if len(words) == 1 and not is_file and not is_quoted:
        raise UsageError(
            f"{words[0]}: no such file",
            hint="name a script that exists, or put a whole line behind --: taco-launch translate -- mpirun -np 2 python3 train.py",
        )
    if is_file:
        translated = flow.of_file(read_file(words[0], "FILE"), words[0])
    elif is_quoted:  # as a shell would read it
        translated = flow.of_file(os.fsencode(words[0]), "LINE")
    else:
        translated = flow.of_line(words)
    if settings.output == "yaml":
        _print_job_file(translated)
    elif settings.output == "json":
        render.data(_as_data(settings, translated), "json")
    else:
        _print(settings, translated)


def _starts_a_launcher(words: list[str]) -> bool:
    return any(nested_launcher.inner(words[at:]) for at in range(len(words) - 1))


def _print(settings: Settings, translated: Translated) -> None:
    for number, job in enumerate(translated.jobs):
        if number:
            click.echo()
        if job.place and len(translated.jobs) > 1:
            click.echo(f"# {job.place}")
        click.echo(_line(settings, job))
    rows = [*(row for job in translated.jobs for row in job.rows), *translated.rows]
    if rows:
        click.echo()
        render.table(_HEADER, [(row.original, row.here, row.why) for row in dict.fromkeys(rows)])


def _print_job_file(translated: Translated) -> None:
    if len(translated.jobs) != 1:
        raise UsageError(f"it starts {len(translated.jobs)} jobs, and a job file has one", hint="omit -o yaml")
    (job,) = translated.jobs
    rows = [row for row in (*job.rows, *translated.rows) if not row.here]
    reasons = {row.original: render.printable(row.why) for row in rows if row.original in job.program}
    for row in rows:
        if row.original not in reasons:
            click.echo(f"# left out: {render.printable(row.original)}: {render.printable(row.why)}")
    click.echo(job_writer.text(job_writer.document(_request(job)), reasons), nl=False)


def _request(job: TranslatedJob) -> Any:
    """Return the request that the command line would make of a job."""
    parent = click.get_current_context()
    with _verb(job).make_context("run", [*job.options, "--", *job.program], parent=parent) as context:
        command, options = context.params.pop("command"), context.params
        return request_of(settings_of(parent), command, options)


def _verb(job: TranslatedJob) -> click.Command:
    return submit if "--suspend" in job.options else run


def _as_data(settings: Settings, translated: Translated) -> dict[str, Any]:
    def rows(parts: Any) -> list[dict[str, str]]:
        return [{"original": row.original, "here": row.here, "why": row.why} for row in parts]

    jobs = [
        {
            "place": job.place,
            "line": _line(settings, job),
            "options": list(job.options),
            "command": list(job.program),
            "hostfile": job.hostfile or None,
            "parts": rows(job.rows),
        }
        for job in translated.jobs
    ]
    return {"kind": translated.kind, "jobs": jobs, "rest": rows(translated.rows)}


def _line(settings: Settings, job: TranslatedJob) -> str:
    return typed(f"{settings.typed} {_verb(job).name}", (), job.options, job.program, job.hostfile)
