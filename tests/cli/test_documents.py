"""--json prints one document, also of an error, and commands work with closed descriptors."""

import json
import subprocess
import sys

import click
import pytest

from taco_launch.cli.main import cli
from taco_launch.cli.options.common import settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import TacoLaunchError
from tests.support.command_line import call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--np", "0", "--json", "--", "true"), "0 is not in the range"),
        (("run", "--nosuch", "--json", "--", "true"), "No such option '--nosuch'"),
        (("-o", "json", "run", "--nosuch", "--", "true"), "No such option '--nosuch'"),
        (("list", "--output=json", "--nosuch"), "No such option '--nosuch'"),
        (("list", "-ojson", "--nosuch"), "No such option '--nosuch'"),
        (("list", "--json", "--state", "odd"), "unknown state 'odd'"),
    ],
)
def test_what_cannot_be_read_is_an_error_for_programs_too(words: tuple[str, ...], message: str) -> None:
    done = call(*words)
    found = json.loads(done.stdout)["error"]
    assert (done.exit_code, found["kind"], found["exit_code"]) == (2, "usage", 2)
    assert message in found["message"]
    assert f"error: {found['message']}\n" in done.stderr


def test_words_of_the_command_ask_for_nothing() -> None:
    assert call("run", "--nosuch", "--", "train", "--json").stdout == ""


def test_an_error_is_part_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    @verb("half", output=True)
    def half(ctx: click.Context, /) -> None:
        render.data({"rows": []}, settings_of(ctx).output)
        raise TacoLaunchError("there is no sample")

    monkeypatch.setitem(cli.commands, "half", half)
    done = call("half", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["rows"], found["error"]["message"]) == (1, [], "there is no sample")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_works_with_closed_descriptors(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m taco_launch knobs --json {closed}'],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
