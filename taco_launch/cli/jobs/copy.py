"""cp: files and folders between this machine and a rank's host."""

import re
from pathlib import Path
from typing import Any

import click

from taco_launch.cli.jobs import named_jobs
from taco_launch.cli.options.common import access_of, add_option, complete_file, settings_of, verb
from taco_launch.core.errors import UsageError
from taco_launch.core.manifest import size_text
from taco_launch.core.model.jobs import JobState
from taco_launch.jobs import copy_files

_REMOTE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62}):(.*)", re.DOTALL)
_SIZE = re.compile(r"([0-9]{1,12})([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class Size(click.ParamType):  # type: ignore[type-arg]  # before click 8.4 it took none
    """A size in bytes, written as 500m, 10g or 2t (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a size; a number is one already."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value)
        if not found or not int(found[1]):
            self.fail(f"{value!r} is not a size: write it as 500m, 10g or 2t", param, ctx)
        return int(found[1]) << _UNITS[found[2].lower()]


@verb(access=True)
@named_jobs.rank_options
@add_option(
    "--max", "most", type=Size(), default="10g", show_default=True, metavar="SIZE", help="Copy no more than this."
)
@named_jobs.yes_option
@click.argument("source", shell_complete=complete_file)
@click.argument("target", shell_complete=complete_file)
def cp(ctx: click.Context, /, source: str, target: str, *, most: int, yes: bool, **options: Any) -> None:
    """Copy files between this machine and a job.

    One of SOURCE and TARGET is NAME:PATH: a path on the host of a rank (--rank, by default 0), from the folder of the rank
    on. Files of a job that has ended can be copied until the job is deleted. Folders are copied with all below them. A copy
    appears whole, or not at all; a file replaces a file, a folder replaces an empty folder only. Links that lead out of what is copied
    are left out. Start a local path that has a colon with ./ or /.

    \b
    Examples:
      taco-launch cp vgg16:checkpoints/last.pt .
      taco-launch cp vgg16:runs ./runs-of-vgg16
      taco-launch cp --rank 8 vgg16:/tmp/core.1234 /tmp
      taco-launch cp weights.pt vgg16:weights.pt
    """
    there, here = _REMOTE.fullmatch(source), _REMOTE.fullmatch(target)
    if (there is None) == (here is None):
        raise UsageError(
            f"{source} and {target}: {'both are' if there else 'neither is'} NAME:PATH",
            hint="exactly one of the two must be a path of a job, for example: taco-launch cp vgg16:results .",
        )
    settings = settings_of(ctx)
    found = there or here
    assert found is not None
    name, path = found[1], found[2] or "."
    backend = settings.backend(access_of(options))
    named_jobs.agree(backend, name, "copy files to or from", "copied", lambda state: state is JobState.RUNNING, yes=yes)
    rank = named_jobs.rank_of(backend, name, options)
    if there:
        place, copied = copy_files.fetch(backend, name, rank, path, Path(target), most, settings.talk)
        settings.talk(f"{place}: {_told(copied.files, copied.size)}")
    else:
        copied = copy_files.send(backend, name, rank, Path(source), path, most, settings.talk)
        settings.talk(f"{name}:{path}: {_told(copied.files, copied.size)}")


def _told(files: int, size: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}, {size_text(size)}"
