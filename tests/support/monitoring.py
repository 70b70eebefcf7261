"""The expressions of the alert rules and dashboards that ship."""

import json
from pathlib import Path

import yaml

from taco_launch.jobs.metrics import MONITORING

RULES = MONITORING / "taco-launch.rules.yml"


def expressions(path: Path) -> list[str]:
    """Return the queries of a file of rules, or of a dashboard."""
    if path.suffix != ".json":
        return [rule["expr"] for group in yaml.safe_load(path.read_text("utf-8"))["groups"] for rule in group["rules"]]
    panels = json.loads(path.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]
