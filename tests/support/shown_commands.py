"""Commands that pages show, and what is wrong with them."""

import re
import shlex
from collections.abc import Iterator

import click

from taco_launch.cli.main import cli
from taco_launch.cli.verbs import Verb
from taco_launch.core.errors import TacoLaunchError

VALUE = "gpu1"
_OPERATORS = frozenset("|&;<>()")


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell line, without what sets variables before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= _OPERATORS:
            if words:
                yield words
            words = []
        elif words or not re.match(r"\w+=", word):
            words.append(word)


def options_of(context: click.Context) -> dict[str, click.Option]:
    """Return the options of a command by each of their names."""
    found = [param for param in context.command.get_params(context) if isinstance(param, click.Option)]
    return {name: option for option in found for name in (*option.opts, *option.secondary_opts)}


def loaded(command: click.Command) -> click.Command:
    """Return a verb with its options; the list of all verbs has them by name and help alone."""
    return command.load() if isinstance(command, Verb) else command


def fault(words: list[str]) -> str:
    """Return what is wrong with the words of a `taco-launch` call up to `--`; "" when nothing is.

    A word in capitals, or in brackets, stands for any.
    """
    context = top()
    rest = [word.strip("[]") for word in words[1:]]
    while rest and rest[0] != "--":
        word = rest.pop(0)
        options = options_of(context)
        name, has_value, _ = word.partition("=")
        if name.startswith("-") and name != "-":
            together = [name] if name.startswith("--") else [f"-{letter}" for letter in name[1:]]
            unknown = [one for one in together if one not in options]
            if unknown:
                return f"{context.command_path}: no option {unknown[0]}"
            last = options[together[-1]]
            if not (last.is_flag or last.count or has_value):
                del rest[: last.nargs]
        elif isinstance(context.command, click.Group):
            if word.isupper() or word == "...":
                return ""
            command = context.command.get_command(context, word)
            if command is None:
                return f"{context.command_path}: no command {word}"
            context = click.Context(loaded(command), info_name=word, parent=context)
    return ""


def refusal(words: list[str]) -> str:
    """Return why click's parser refuses the words of a `taco-launch` call; "" where only a value is not right here.

    A word in capitals, or VALUE, stands for any, so files that do not exist are no fault.
    """
    try:
        context = cli.make_context("taco-launch", words[1:])
        # Before 8.2 click keeps the name of the command apart.
        while isinstance(context.command, click.Group) and (
            rest := [*vars(context).get("_protected_args", ()), *context.args]
        ):
            if rest[0].isupper() or rest[0] == VALUE:
                return ""
            try:
                name, command, rest = context.command.resolve_command(context, rest)
            except (click.UsageError, TacoLaunchError) as error:
                return str(error)
            assert command is not None
            context = loaded(command).make_context(name, rest, parent=context)
    except (click.NoSuchOption, click.MissingParameter, click.BadOptionUsage) as error:
        return error.format_message()
    except (click.ClickException, click.exceptions.Exit, TacoLaunchError):
        pass
    return ""


def top() -> click.Context:
    return click.Context(cli, info_name="taco-launch", **cli.context_settings)
