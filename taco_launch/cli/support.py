"""support: pack what is known of a job into one archive for a colleague."""

import os
import time
from pathlib import Path
from typing import Any

import click

from taco_launch.cli.options.common import access_of, add_option, complete_file, settings_of, verb
from taco_launch.cli.options.completion import complete_job
from taco_launch.cli.output import job_tables, render
from taco_launch.core.manifest import size_text
from taco_launch.jobs import support_archive


@verb(access=True, output=True)
@add_option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    shell_complete=complete_file,
    help="File to write. Default: NAME-support.tar.gz in this folder.",
)
@click.argument("name", shell_complete=complete_job)
def support(ctx: click.Context, /, name: str, *, to: Path | None, **access: Any) -> None:
    """Collect a job's record, logs and stacks in one archive.

    It has the job's record, its command line, its events, the ends of its logs, the stacks of a running job, facts of the
    head and versions: at most 20 MB. No file is replaced.

    These are masked, also in logs: values of variables and options whose names tell that they are secrets (password, token, secret,
    credential, ..._KEY, ..._PASS, ..._PWD, ..._AUTH, ..._CREDS, sig); Authorization and Cookie headers; passwords and
    secrets in addresses, and all but the host of the address of --notify; passwords
    on command lines of programs such as curl, mysql and docker login; addresses of chat webhooks; tokens of known forms; private keys.
    Look through the archive before you send it to others.

    \b
    Examples:
      taco-launch support vgg16
      taco-launch -i hosts.yaml support vgg16 --to /tmp/vgg16.tar.gz
    """
    settings = settings_of(ctx)
    path = to or Path(f"{name}-support.tar.gz")
    support_archive.require_free(path)
    backend = settings.backend(access_of(access))
    found = support_archive.collect(
        backend, name, os.environ, lambda job: click.unstyle(job_tables.one_job(job, time.time(), wide=True))
    )
    size = support_archive.pack(found, path)
    for why in found.missing:
        render.warning(settings, f"left out: {why}")
    if settings.output in ("json", "yaml"):
        files = [{"name": file, "bytes": len(content)} for file, content in found.files.items()]
        told = {"file": str(path), "bytes": size, "files": files, "missing": list(found.missing)}
        render.data(told, settings.output)
        return
    rows = [[file, size_text(len(content))] for file, content in found.files.items()]
    click.echo(render.columns(["FILE", "SIZE"], rows))
    click.echo(f"\n{render.printable(str(path))}: {size_text(size)}")
