"""The options that say what a job runs in: its container with image, data and /dev/shm, its code, and the folder it starts in."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from taco_launch.cli.options.common import complete_file
from taco_launch.cli.options.option_groups import OptionGroup, option, options_of_group

F = TypeVar("F", bound=Callable[..., Any])


class Size(click.types.IntParamType):
    """A size in bytes, written as 500m, 2g or a number."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a size; a number is one already."""
        from taco_launch.hosts.inventory.schema.mounts import parse_size

        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error.args[0]}", param, ctx)


_OPTIONS = (
    option(
        "--image",
        metavar="NAME",
        help="Image that the job runs in; its containers are prepared on the hosts first. Default: the inventory's.",
    ),
    option(
        "--image-from",
        metavar="registry|controller|FILE",
        help="Where hosts get --image from: a registry, this machine's Docker Engine (controller), or a tar file here. Default: this "
        "machine, if `image build` made the image here, else as for the inventory's image.",
    ),
    option("--worker-image", metavar="NAME", help="Image of the workers; must be the same as --image."),
    option(
        "--data",
        multiple=True,
        metavar="PATH:PATH[:ro]",
        help="Folder on the hosts that the ranks see: HOST_PATH:CONTAINER_PATH, below data_roots of the inventory, or "
        "NAME:CONTAINER_PATH of a data set (`taco-launch data list`); :ro makes it read-only. Repeatable.",
    ),
    option("--shm-size", metavar="SIZE", help="Size of /dev/shm, such as 64g. Default: the inventory's."),
    option(
        "--workdir",
        "--working-dir",
        "workdir",
        metavar="PATH",
        help="Folder that the ranks start in: an absolute path, or with --sync a folder in the code. Default: the code's folder, else the "
        "image's, or without a container your current folder.",
    ),
)


_CODE = (
    option(
        "--sync",
        metavar="DIR|git+URL[@REF]",
        shell_complete=complete_file,
        help="Copy a folder or a git repository to every host and start the ranks in it. .gitignore and .tacoignore are obeyed.",
    ),
    option(
        "--sync-max",
        type=Size(),
        metavar="SIZE",
        help="Maximum size that --sync copies, such as 500m or 2g. Default: 1g.",
    ),
    option(
        "--config-file",
        "config_files",
        multiple=True,
        metavar="SRC:DST",
        help="Copy the file SRC to every host, to the absolute path DST or to DST in the code; at most 1 MiB. Repeatable.",
    ),
    option(
        "--env-file",
        "env_files",
        multiple=True,
        metavar="FILE",
        shell_complete=complete_file,
        help="Read environment variables for the ranks from FILE, with lines NAME=VALUE or NAME; -x overrides them. Repeatable.",
    ),
)


_ARENAS = (
    option(
        "--sync-mode",
        type=click.Choice(["git", "rsync"]),
        hidden=True,
        help="Arena's: what --sync-source is, a repository or a folder.",
    ),
    option(
        "--sync-source",
        metavar="URL|DIR",
        hidden=True,
        help="Arena's: a repository or a folder, which is put at code/NAME below --workdir.",
    ),
)


def container_options(function: F) -> F:
    """Add them."""
    return options_of_group(OptionGroup.CONTAINER, _OPTIONS, function)


def code_options(function: F) -> F:
    """Add those of code and files, and Arena's, which no help shows."""
    return options_of_group(OptionGroup.CODE, (*_CODE, *_ARENAS), function)
