"""run_nightly: what the summary of a nightly run names."""

from pathlib import Path
from typing import Any

import pytest

from taco_launch.api import nightly
from taco_launch.api.cluster import Cluster
from taco_launch.bench.nightly.summary import Summary


def test_the_summary_types_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Summary] = []

    def record(_folder: Path, name: str, _junit: Path | None, measure: Any) -> None:
        assert name == "lab"
        made.append(measure(0.0))

    monkeypatch.setattr(nightly, "record_run", record)
    monkeypatch.setattr(
        nightly._NightlyWork, "_measure", lambda _work, _matrix, name: Summary(name, name, "c", "lab-1", 0.0, 1.0)
    )
    cluster = Cluster(typed="taco-launch -i b.yaml", environ={"TACO_LAUNCH_STATE": str(tmp_path)})
    nightly.run_nightly(cluster, "lab")
    assert made[0].typed == "taco-launch -i b.yaml"
