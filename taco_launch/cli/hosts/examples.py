"""init --example: a folder with a job, its program and an inventory to edit, copied from those that are shipped."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import taco_launch
from taco_launch.cli.options.common import settings_of
from taco_launch.core.errors import TacoLaunchError, UsageError

LIST = "list"
_FOLDER = Path(taco_launch.__file__).with_name("examples")


def names() -> list[str]:
    """Return the names of the examples, in their order."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/README.md"))


def title(name: str) -> str:
    """Return what an example shows: the first line of its README, without the name."""
    first = (_FOLDER / name / "README.md").read_text("utf-8").partition("\n")[0]
    return first.partition(": ")[2]


def complete_example(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of the examples."""
    return [CompletionItem(name, help=title(name)) for name in names() if name.startswith(incomplete)]


def copy_example(ctx: click.Context, name: str, words: Sequence[str]) -> None:
    """Copy an example to the folder that the words name, or print the list of all.

    Raises:
        UsageError: the name is unknown, the folder has files, or an option is given that has no effect.
        TacoLaunchError: a file cannot be written.
    """
    _refuse_others(ctx)
    if len(words) > 1:
        raise UsageError(f"--example copies to one FOLDER, not {len(words)}: {' '.join(words)}")
    if name == LIST and not words:
        width = max(map(len, names()))
        for each in names():
            click.echo(f"{each:{width}}  {title(each)}")
        return
    if name not in names():
        raise UsageError(f"--example: there is no example {name!r}", hint=f"examples: {', '.join(names())}")
    target = Path(words[0] if words else name)
    copy_files(_FOLDER / name, target, "name a folder that does not exist: --example NAME FOLDER")
    click.echo(f"{target}: {title(name)}")
    settings_of(ctx).talk(f"next: read {target / 'README.md'}")


def _refuse_others(ctx: click.Context) -> None:
    """Refuse options for an inventory, which would have no effect.

    Raises:
        UsageError: one is on the command line.
    """
    typed = click.core.ParameterSource.COMMANDLINE
    for param in ctx.command.params:
        if param.name in ("hosts", "example", "quiet", "verbose", "debug") or param.name is None:
            continue
        if ctx.get_parameter_source(param.name) == typed:
            raise UsageError(f"{param.opts[0]} is for an inventory and has no effect with --example")


def copy_files(source: Path, target: Path, hint: str) -> None:
    """Copy the files of a folder that is shipped to another one, and overwrite none; `hint` is for one that is not empty.

    Raises:
        UsageError: the folder has files, or is not a folder.
        TacoLaunchError: a file cannot be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise UsageError(f"{target} is not empty", hint=hint)
        for file in sorted(path for path in source.iterdir() if path.is_file()):
            with (target / file.name).open("xb") as copy:
                copy.write(file.read_bytes())
    except FileExistsError as error:
        raise UsageError(f"{error.filename} exists", hint="nothing is overwritten: name another FOLDER") from None
    except OSError as error:
        raise TacoLaunchError(f"{error.filename or target}: {error.strerror}") from None
