"""How a launch plan looks: the line as it is typed, or each word of it with where it comes from."""

from collections.abc import Sequence

import click

from taco_launch.cli.output import choice_tables, render
from taco_launch.core.command import shell
from taco_launch.core.launch.plan import line
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.plans import LaunchPlan
from taco_launch.jobs.dry_run import NearHcas


def lines(found: LaunchPlan, launcher: str) -> str:
    """Return what starts a job as it is typed: mpirun's line, or that of each host behind its name."""
    return (
        shell(found.argv)
        if LAUNCHERS[launcher].is_single
        else "\n".join(f"{one.host}  {line(one)}" for one in found.commands)
    )


def show_script(spec: JobSpec, output: str, *, explain: bool) -> None:
    """Print the batch script that Slurm would get, or with `explain` why each of its lines is there; JSON has both."""
    from taco_launch.core.slurm import batch_script  # noqa: PLC0415 - other plans need none of it

    directives = batch_script.directives(spec, f"jobs/{spec.name}/debug.log")
    text = batch_script.script(directives, "agent.pyz", f"jobs/{spec.name}")
    if output in ("json", "yaml"):
        render.data({"script": text, "directives": [each._asdict() for each in directives]}, output)
    elif explain:
        render.table(["OPTION", "WHY"], [[each.option, each.why] for each in directives])
    else:
        click.echo(text, nl=False)


def show(
    found: LaunchPlan,
    launcher: str,
    output: str,
    *,
    explain: bool,
    choices: Sequence[tuple[str, GpuChoice]] = (),
    nearest: Sequence[tuple[str, tuple[NearHcas, ...]]] = (),
) -> None:
    """Print the line of a plan, or with `explain` where each word comes from; JSON has all of it.

    `choices` say of hosts which of their GPUs it is to be, `nearest` which HCAs are the nearest to these.

    Where a job has a line on each host, it stands behind the host's name.
    """
    text = shell(found.argv)
    if output in ("json", "yaml"):
        commands = [
            {"host": one.host, "line": line(one), "executed": list(one.argv)}
            | {"env": dict(one.env), "passed": list(one.passed), "ranks": list(one.ranks)}
            for one in found.commands
        ]
        more = {"executed": list(found.executed), "env": dict(found.env), "commands": commands}
        chosen = {"choices": {host: to_json(choice) for host, choice in choices}} if choices else {}
        hcas = {"nearest_hcas": {host: to_json(ranks) for host, ranks in nearest}} if nearest else {}
        render.data({"line": text, **to_json(found), **more, **chosen, **hcas}, output)
        return
    if not explain:
        click.echo(lines(found, launcher))
        return
    render.table(["WORD", "SOURCE", "WHY"], [[shell([token.text]), token.source, token.why] for token in found.tokens])
    for one in found.commands if not LAUNCHERS[launcher].is_single else ():
        click.echo(f"\n{one.host}: {line(one)}")
    click.echo(f"\nExecuted:    {shell(found.executed)}")
    for name, value in found.env:
        click.echo(f"Environment: {shell([f'{name}={value}'])}")
    for host, values in found.host_env:
        click.echo(f"On {host}:    {shell([f'{name}={value}' for name, value in values])}")
    for host, choice in choices:
        click.echo(f"\nGPUs of {host} for this job, if no other job uses any:\n{choice_tables.text(choice)}")
    click.echo(choice_tables.nearest(nearest), nl=False)
    for file in found.files:
        click.echo(f"\n{render.printable(file.path)}:")
        click.echo("".join(f"  {each}\n" for each in file.text.splitlines()), nl=False)
