"""export: what other programs read of a cluster."""

import os
from pathlib import Path
from typing import Any

import click

from taco_launch.cli.hosts.examples import copy_files
from taco_launch.cli.options.common import access_of, add_option, complete_file, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.options.job_options import file_option, request_of, spec_of
from taco_launch.cli.options.suggestions import SuggestingGroup
from taco_launch.core.errors import UsageError
from taco_launch.jobs import sbatch_script
from taco_launch.jobs.metrics import MONITORING
from taco_launch.setup import export_ssh


@click.group(cls=SuggestingGroup)
def export() -> None:
    """Write what other programs need, such as an ssh configuration or alert rules.

    \b
    Examples:
      taco-launch -i hosts.yaml export ssh-config --to hcc.ssh
      taco-launch export sbatch -f job.yaml > job.sbatch
      taco-launch export monitoring monitoring
    """


@verb("ssh-config", group=export, access=True)
@add_option(
    "--to",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    shell_complete=complete_file,
    help="Write the configuration to FILE (mode 0600).",
)
@add_option(
    "--job",
    metavar="NAME",
    shell_complete=complete_job,
    help="Print entries NAME-HOST for the containers of this job, such as a job with its own --image or --data.",
)
def ssh_config(ctx: click.Context, /, *, to: str | None, job: str | None, **more: Any) -> None:
    """Print an ssh configuration for the training containers.

    Each container has an entry CLUSTER-HOST that leads there through the head: for ssh -F FILE, scp, rsync and the remote
    mode of editors. ~/.ssh is not changed. The cluster's key, which opens all of its containers, and their host keys are
    written to taco-launch's state folder, readable for you alone.

    \b
    Examples:
      taco-launch -i hosts.yaml export ssh-config --to hcc.ssh
      taco-launch -i hosts.yaml export ssh-config --job vgg16 --to vgg16.ssh
      ssh -F hcc.ssh hcc-gpu2
      scp -F hcc.ssh hcc-gpu1:/root/run.log .
      rsync -e 'ssh -F hcc.ssh' -a src/ hcc-gpu1:/root/src/
    """
    settings = settings_of(ctx)
    inventory, access = settings.load(), access_of(more)
    called = job or inventory.cluster
    if job is not None:
        inventory = export_ssh.of_job(inventory, settings.backend(access).get(job))
    found, left_out = export_ssh.ssh_config(inventory, access, os.environ, called)
    for words in left_out:
        settings.talk(f"left out: {words}")
    if to is None:
        click.echo(found, nl=False)
        return
    export_ssh.write(found, Path(to))
    host = next((line.split()[1] for line in reversed(found.splitlines()) if line.startswith("Host ")), "")
    settings.talk(f"wrote {to}; try it: ssh -F {to} {host}")


@verb("sbatch", group=export, access=True)
@click.argument("name", required=False, shell_complete=complete_job)
@file_option
def sbatch(ctx: click.Context, /, *, name: str | None, file: str | None, **more: Any) -> None:
    """Print a script that sbatch runs without taco-launch.

    The job is one that was submitted (NAME) or that of a file. The script requests its nodes and starts its ranks with the
    same launcher. It has no queue, retries, verification or log per rank; stderr shows what else is missing.

    \b
    Examples:
      taco-launch export sbatch vgg16 > vgg16.sbatch
      taco-launch -i slurm: export sbatch -f job.yaml > job.sbatch
    """
    settings = settings_of(ctx)
    if (name is None) == (file is None):
        raise UsageError("export sbatch requires a job", hint="give either the NAME of a job, or -f FILE")
    if name is not None:
        spec = settings.backend(access_of(more)).get(name).spec
        code = "" if spec.code is None else spec.code.source
    else:
        request = request_of(settings, (), {"file": file})
        spec, code = spec_of(settings, request), request.sync or ""
        code = code if ":" in code or not code else str(Path(code).absolute())
    text, missing = sbatch_script.script(spec, code)
    click.echo(text, nl=False)
    for words in missing:
        settings.talk(f"not in the script: {words}")


@verb("monitoring", group=export)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def monitoring(ctx: click.Context, folder: Path) -> None:
    """Write alert rules for Prometheus and dashboards for Grafana.

    DIR gets taco-launch.rules.yml for `rule_files` of Prometheus, and the dashboards cluster.json, jobs.json and nights.json
    for Grafana. Each alert has an annotation `runbook` with the command to type. DIR must be empty or missing.

    \b
    Examples:
      taco-launch export monitoring monitoring
      taco-launch export monitoring /etc/prometheus/taco-launch
    """
    copy_files(MONITORING, folder, "name a folder that does not exist")
    settings_of(ctx).talk(
        f"wrote alert rules and dashboards to {folder}; check the rules: promtool check rules {folder}/*.yml"
    )
