"""-v and -vv: decisions and messages on stderr, with their times; stdout stays as it is."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from taco_launch.cli import verbs
from taco_launch.cli.main import cli
from tests.support.command_line import call

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", re.MULTILINE)


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("TACO_LAUNCH_INVENTORY", raising=False)
    monkeypatch.setenv("TOKEN", "hunter2")


@pytest.mark.parametrize(
    ("words", "decisions", "messages"), [((), 0, 0), (("-v",), 3, 0), (("-vv",), 3, 3), (("-v", "-v"), 3, 3)]
)
def test_how_much_is_said(words: tuple[str, ...], decisions: int, messages: int) -> None:
    done = call(*words, "list")
    said = TIME.split(done.stderr)[1:]
    assert (done.exit_code, done.stdout) == (0, "NAME  STATUS  LAUNCHER  RANKS  HOSTS  AGE\n")
    assert len([line for line in said if line.startswith(("sent ", "received "))]) == messages, said
    assert len([line for line in said if not line.startswith(("sent ", "received "))]) == decisions, said
    if decisions:
        assert said[0] == "localhost: list: the agent is called\n"
        assert "installing the agent" in said[2 if messages else 1]
        assert re.search(r"localhost: list: answered after \d+\.\d\d s", done.stderr)


def test_a_call_that_fails_has_its_time() -> None:
    assert re.search(r"localhost: get: failed after \d+\.\d\d s\nerror: ", call("-v", "get", "nosuch").stderr)


def test_where_facts_are_from() -> None:
    said = TIME.split(call("-v", "run", "--np", "2", "--dry-run", "--", "true").stderr)
    assert "inventory: this machine: hosts: 1, head: localhost\n" in said
    (facts,) = (line for line in said if line.startswith("facts: "))
    assert "slots of localhost" in facts
    assert ": from the agent of this machine; all else comes from the inventory or the caller" in facts


def leaves(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    command = command.load() if isinstance(command, verbs.Verb) else command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, *path, name)
    else:
        yield " ".join(path), command


def test_every_verb_takes_them() -> None:
    both = {("-v", "--verbose"), ("-q", "--quiet")}
    without = [name for name, verb in leaves(cli) if not both <= {tuple(each.opts) for each in verb.params}]
    assert without == []


def test_behind_the_verb_and_quiet() -> None:
    assert "sent logs (localhost): name='nosuch'" in call("logs", "-vv", "nosuch").stderr
    assert (
        call("-q", "logs", "-vv", "nosuch").stderr
        == "error: job 'nosuch' not found\nhint: list all jobs: taco-launch list (for jobs on a cluster: taco-launch -i FILE list)\n"
    )


@pytest.mark.parametrize("more", [("--attempt", "2"), ("--rank", "0"), ("--host", "n1")])
def test_the_agent_log_is_one(more: tuple[str, ...]) -> None:
    done = call("logs", "--agent", *more, "a")
    assert (done.exit_code, done.stderr.startswith("error: --"), "--agent" in done.stderr) == (2, True, True)


def test_no_variable_is_shown() -> None:
    done = call("-vv", "submit", "--np", "9999", "--no-wait", "-x", "TOKEN", "--", "true")
    assert "sent submit (localhost): spec=JobSpec, caller=(environment=(" in done.stderr
    assert "hunter2" not in done.stderr
