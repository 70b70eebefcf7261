"""Print a launch plan: the line as it is typed, or each word of it with where it comes from."""

from collections.abc import Sequence
from dataclasses import replace

import click

from taco_launch.api.cluster import Cluster
from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import choice_tables, render
from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.core.launch.plan import line
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.core.model.plans import LaunchPlan
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs import dry_run
from taco_launch.jobs.dry_run import NearHcas


def plan(settings: Settings, spec: JobSpec, access: Credentials, out: str, *, explain: bool) -> None:
    """Print how a job would start, and write the files of its plan into the folder `out`, "" for nowhere.

    Raises:
        UsageError: `out` does not apply to this job.
    """
    if spec.slurm is not None:
        if out:
            raise UsageError("--to does not apply to Slurm", hint="the whole script is printed: redirect it to a file")
        show_script(spec, settings.output, explain=explain)
        return
    cluster = settings.cluster(access)
    if spec.container is not None and spec.container.variant:
        spec = _planned_container(settings, cluster, spec) if explain else _own_container(settings, spec)
    found = cluster.plan_of(spec, folder=out, explain=explain)
    launch = found.plan
    for warning in launch.warnings:
        render.warning(settings, warning)
    for note in found.notes:
        settings.talk(f"note: {note}")
    if out:
        for path in dry_run.write_files(launch, spec, out):
            settings.talk(f"wrote {path}")
    elif any(file.path in launch.argv for file in launch.files):
        settings.talk(f"the command line names a file; write it with --to DIR, for example --to {spec.name}")
    show(launch, spec.launcher, settings.output, explain=explain, choices=found.choices, nearest=found.nearest)


def _own_container(settings: Settings, spec: JobSpec) -> JobSpec:
    """Return a job as if the cluster's own container had its image; no host is asked."""
    assert spec.container is not None
    settings.talk(
        f"hosts without a container of {spec.container.image} prepare one first; to see what they prepare, add --explain"
    )
    return replace(spec, container=replace(spec.container, variant=""))


def _planned_container(settings: Settings, cluster: Cluster, spec: JobSpec) -> JobSpec:
    """Tell which container a job would get, and what would be prepared for it; return the job with that container."""
    from taco_launch.cli.output import setup_output  # noqa: PLC0415 - few jobs have a container of their own

    spec, plans = cluster.planned_container(spec)
    assert spec.container is not None
    key, image = spec.container.variant, spec.container.image
    todo = any(plan.ops or plan.problems for plan in plans)
    settings.talk(f"container {key} of {image}: {'would be prepared first' if todo else 'is there'}")
    for text in setup_output.plan_lines(setup_output.folded(plans)):
        settings.talk(text)
    for plan in plans:
        for problem in plan.problems:
            render.error(f"{plan.host}: {problem.message}", problem.hint or None)
    if todo:  # it does not exist yet
        settings.talk("note: until it is prepared, the software versions shown are those of the inventory's image")
        spec = replace(spec, container=replace(spec.container, variant=""))
    return spec


def lines(found: LaunchPlan, launcher: str) -> str:
    """Return what starts a job as it is typed: mpirun's line, or that of each host behind its name."""
    return (
        shell(found.argv)
        if LAUNCHERS[launcher].is_single
        else "\n".join(f"{one.host}  {line(one)}" for one in found.commands)
    )


def show_script(spec: JobSpec, output: str, *, explain: bool) -> None:
    """Print the batch script that Slurm would get, or with `explain` why each of its lines is there; JSON has both."""
    from taco_launch.core.slurm import batch_script, container_lines  # noqa: PLC0415 - other plans need none of it

    directives = batch_script.directives(spec, f"jobs/{spec.name}/debug.log")
    text = batch_script.script(directives, "agent.pyz", f"jobs/{spec.name}")
    container = container_lines.shown(spec)
    if container is not None:
        text += f"# {container.why}: {container.option}\n"
        directives = (*directives, container)
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
