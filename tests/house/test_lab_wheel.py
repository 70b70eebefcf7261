"""The lab has a wheel of its own: what the main one says of it, in which version, and what is said without it."""

import configparser
import re
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import taco_launch
from taco_launch.api.cluster import Cluster
from taco_launch.cli.main import cli
from taco_launch.cli.verbs import all_verbs
from taco_launch.core.errors import TacoLaunchError
from tests.support.command_line import call

ROOT = Path(__file__).parents[2]
HINT = "in a checkout: pip install -e '.[bench]'; with wheels: pip install 'taco-launch[lab]'"


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lab's package be missing."""
    for name in list(sys.modules):
        if name.startswith(("taco_launch.lab.", "taco_launch.cli.hosts.lab")):
            monkeypatch.delitem(sys.modules, name)
    placeholder = next(verb for verb in all_verbs() if verb.name == "lab")
    monkeypatch.setitem(cli.commands, "lab", placeholder)
    monkeypatch.delattr(taco_launch, "lab", raising=False)
    monkeypatch.setitem(sys.modules, "taco_launch.lab", None)


def test_the_extra_is_of_this_version() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    assert setup["options.extras_require"]["lab"].strip() == f"taco-launch-lab =={taco_launch.__version__}"


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize(
    "line",
    [
        "lab up --dry-run",
        "lab down",
        "lab status",
        "lab push mine:1",
        "lab exec gpu1 -- true",
        "lab fault gpu1 cut",
        "-i lab list",
        "-i lab:big facts",
    ],
)
def test_without_it_one_error_says_what_to_type(line: str) -> None:
    refused = call(*line.split())
    assert refused.exit_code == 1
    assert re.fullmatch(rf"error: the lab is not installed: .+\nhint: {re.escape(HINT)}\n", refused.stderr)


@pytest.mark.usefixtures("without_lab")
def test_from_python() -> None:
    with Cluster("lab") as cluster, pytest.raises(TacoLaunchError, match="the lab is not installed") as refused:
        _ = cluster.inventory
    assert refused.value.hint == HINT


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize(
    "line", ["--help", "lab --help", "lab up --help", "lab fault --help", "help lab", "--help-all", "doctor"]
)
def test_help_needs_none(line: str) -> None:
    assert call(*line.split()).exit_code == 0


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [
        ([], "la", ["lab"]),
        (["lab"], "sta", []),
        (["-i"], "la", ["la"]),  # a file
        (["lab", "down", "--name"], "", []),
        (["lab", "exec"], "", []),
        (["lab", "fault", "gpu1"], "", []),
    ],
)
def test_completion_needs_none(words: list[str], begun: str, offered: list[str]) -> None:
    completed = ShellComplete(cli, {}, "taco-launch", "_TACO_LAUNCH_COMPLETE").get_completions(words, begun)
    assert [item.value for item in completed] == offered
