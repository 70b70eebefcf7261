"""An empty value, as that of a variable that is not set: refused by every option, and the next word is not taken for it."""

import click
import pytest

from taco_launch.cli.main import cli
from taco_launch.cli.options.common import add_option
from tests.support.command_line import VERBS, call


@click.command()
@add_option("--a")
def _ours(a: str) -> None:
    """Have one option of ours."""


def test_every_option_that_takes_a_value_is_ours() -> None:
    assert len(VERBS) > 30
    ours = type(_ours.params[0])
    others = [
        (path, option.opts)
        for path, command in (*VERBS.items(), ((), cli))
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag and not isinstance(option, ours)
    ]
    assert others == []


@pytest.mark.parametrize(
    "words",
    [
        ("--name", ""),
        ("--name=",),
        ("--np=", "2"),
        ("--name", "", "--np", "2"),
        ("-x", ""),
        ("--mca", "", "3"),
        ("--mca", "btl", ""),
        ("--timeout", ""),
    ],
)
@pytest.mark.parametrize("verb", ["run", "submit"])
def test_empty_values_of_a_job(verb: str, words: tuple[str, ...]) -> None:
    result = call(verb, "--dry-run", *words, "--", "true") if verb == "run" else call(verb, *words, "--", "true")
    assert result.exit_code == 2
    assert words[0].rstrip("=") in result.stderr
    assert "the value is empty" in result.stderr


def test_an_empty_inventory_and_an_empty_variable() -> None:
    assert "the value is empty" in call("-i", "", "list").stderr
    assert "the value is empty" not in call("inventory", "--schema", env={"TACO_LAUNCH_INVENTORY": ""}).stderr
