"""export monitoring: rules and dashboards that name metrics which exist, and commands which do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from taco_launch.cli.hosts.export import monitoring
from taco_launch.cli.verbs import all_verbs
from taco_launch.core.errors import UsageError
from taco_launch.jobs.metrics import MONITORING
from tests.support.monitoring import RULES, expressions
from tests.support.paths import ROOT

DASHBOARDS = sorted(MONITORING.glob("*.json"))
# The labels of each family of the reference.
FAMILIES = {
    name: set(re.findall(r"`(\w+)`", labels))
    for name, labels in re.findall(
        r"^\| `(\w+)` \| \w+ \|([^|]*)\|", (ROOT / "docs/reference/metrics.md").read_text("utf-8"), re.MULTILINE
    )
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", [RULES, *DASHBOARDS], ids=lambda path: path.name)
def test_every_metric_is_one_of_the_reference_and_has_the_labels_that_are_named(path: Path) -> None:
    named = expressions(path)
    assert len(named) > 5
    for expression in named:
        for name, labels in re.findall(r"(taco_launch_\w+)(?:\{([^}]*)\})?", expression):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert family in FAMILIES, (path.name, name)
            assert set(re.findall(r"(\w+)=", labels)) <= FAMILIES[family], (path.name, expression)


def test_every_family_is_in_a_dashboard() -> None:
    shown = " ".join(expression for path in DASHBOARDS for expression in expressions(path))
    assert [name for name in FAMILIES if name not in shown] == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_runbook_names_a_command_that_exists(rule: dict[str, Any]) -> None:
    words = rule["annotations"]["runbook"]
    named = re.findall(r"taco-launch (?:-i INVENTORY )?([a-z]+)", words)
    assert named, words
    assert set(named) <= {verb.name for verb in all_verbs()}, words


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_have_places_of_their_own(path: Path) -> None:
    panels = json.loads(path.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + row)
        for panel in panels
        for column in range(panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(column for column, _row in places) < 24


def test_the_files_are_written_and_none_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    result = CliRunner().invoke(monitoring, [str(folder)], standalone_mode=False)
    assert result.exception is None
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in MONITORING.iterdir()
    }
    (folder / "cluster.json").write_text("mine")
    again = CliRunner().invoke(monitoring, [str(folder)], standalone_mode=False)
    assert isinstance(again.exception, UsageError)
    assert (folder / "cluster.json").read_text() == "mine"
