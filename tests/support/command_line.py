"""The command line in this process, and every verb that it has."""

import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from taco_launch.cli.main import cli, main


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        _name, command, _rest = group.resolve_command(click.Context(group), [name])
        assert command is not None
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


VERBS = dict(commands())


def call(*args: str, env: dict[str, str] | None = None, stdin: str | None = None) -> Result:
    """Run the command line in this process as `main` does."""
    runner = CliRunner(env={"TACO_LAUNCH_INVENTORY": None, **(env or {})})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["taco-launch", *args])
        return runner.invoke(click.Command("main", callback=main), [], input=stdin)


def succeeding(*args: str, **more: Any) -> Result:
    """Run a command line that has to succeed."""
    result = call(*args, **more)
    assert result.exit_code == 0, result.output
    return result


def failing(*args: str, code: int = 2, **more: Any) -> str:
    """Run a command line that has to end with this exit code, and return its stderr."""
    result = call(*args, **more)
    assert result.exit_code == code, result.output
    return result.stderr
