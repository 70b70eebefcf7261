"""metrics on the command line: what it takes, what it says, what it writes."""

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.record import LastRun
from taco_launch.cli.hosts.export import monitoring
from taco_launch.cli.hosts.metrics import metrics
from taco_launch.cli.verbs import all_verbs
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_counts import JobCounts
from taco_launch.core.model.slots import Occupancy, SlotState
from taco_launch.jobs.backend import Counters, HostOccupancy
from taco_launch.jobs.metrics import MONITORING, families
from taco_launch.jobs.metrics import collect as flow
from tests.conftest import eventually
from tests.support.fake_backend import FakeBackend
from tests.support.monitoring import RULES, expressions
from tests.support.paths import ROOT
from tests.support.raisers import raiser


def call(*args: str) -> Any:
    return CliRunner().invoke(metrics, list(args), standalone_mode=False)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "collect", lambda *_head, **_more: (b"a 1\n", ("gpu2: no answer\x1b[31m",)))
    monkeypatch.setattr("taco_launch.cli.hosts.metrics._of_nights", lambda: (b"", ()))
    monkeypatch.delenv("TACO_LAUNCH_INVENTORY", raising=False)


@pytest.mark.usefixtures("collected")
def test_on_stdout() -> None:
    result = call()
    assert (result.stdout, result.stderr) == ("a 1\n", "warning: gpu2: no answer\\x1b[31m\n")


def test_nightly_runs_come_too_and_what_cannot_be_read_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(flow, "collect", lambda *_head, **_more: (b"a 1\n", ()))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path))
    record.write(tmp_path / "nights" / "taco", LastRun(1.0, 1, 2.0, 0, "drift"))
    (tmp_path / "nights" / "odd").mkdir()
    (tmp_path / "nights" / "odd" / "last.json").write_text("{")
    result = call()
    assert result.stdout.startswith("a 1\n")
    assert 'taco_launch_night_outcome{night="taco",outcome="drift"} 1.0\n' in result.stdout
    assert "warning: nightly run odd: " in result.stderr
    monkeypatch.setattr(flow, "collect", raiser(HostError("head: no route to host", "is it up?")))
    assert 'taco_launch_night_end_timestamp_seconds{night="taco"} 2.0\n' in call().stdout


@pytest.mark.usefixtures("collected")
def test_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "taco.prom"
    path.write_bytes(b"before\n")
    assert call("--textfile", str(path)).exception is None
    assert path.read_bytes() == b"a 1\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["taco.prom"]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "taco.prom"
    path.mkdir()
    for place in (path, tmp_path / "nosuch" / "taco.prom"):
        with pytest.raises(UsageError, match=re.escape(str(place))) as error:
            flow.write(place, b"a 1\n")
        assert error.value.hint is not None
        assert "textfile" in error.value.hint
    assert os.listdir(tmp_path) == ["taco.prom"]


def test_who_reads_the_file_sees_all_of_it_or_what_was_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "taco.prom"
    path.write_bytes(b"before\n")
    seen: list[bytes] = []
    replace = Path.replace

    def look(part: Path, target: Path) -> Path:
        seen.extend((path.read_bytes(), part.read_bytes()))
        assert part.parent == tmp_path
        assert not part.name.endswith(".prom")
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", look)
    flow.write(path, b"after\n")
    assert seen == [b"before\n", b"after\n"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("localhost:80", ("localhost", 80)),
        ("[::]:9464", ("::", 9464)),
    ],
)
@pytest.mark.usefixtures("collected")
def test_where_it_listens(monkeypatch: pytest.MonkeyPatch, text: str, place: tuple[str, int]) -> None:
    asked: list[tuple[str, int]] = []

    def server(address: str, port: int, _collect: object, _names: object) -> None:
        asked.append((address, port))
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("taco_launch.cli.hosts.metrics.Server", server)
    result = call("--listen", text)
    assert asked == [place]
    assert str(result.exception) == f"--listen {place[0]} port {place[1]}: Address already in use"


@pytest.mark.parametrize("text", ["", ":9464", "9464:", "::1", "[::1]", "65536", "a:b", "-1", "1:2:3"])
def test_what_is_no_place(text: str) -> None:
    assert isinstance(call("--listen", text).exception, click.BadParameter)


@pytest.mark.usefixtures("collected")
def test_one_way_at_a_time(tmp_path: Path) -> None:
    assert isinstance(call("--listen", "1", "--textfile", str(tmp_path / "a")).exception, UsageError)


def test_help_names_every_metric_and_the_mpi_operators() -> None:
    text = call("--help").output
    ours = re.findall(r"^# TYPE (\S+)", families.text((), JobCounts(), {}, "1").decode(), re.MULTILINE)
    assert [name for name in ours if name not in text] == []
    pairs = re.findall(r"^ +(taco_launch_\S+) +(mpi_operator_\S+)$", text, re.MULTILINE)
    assert [(mine.removeprefix("taco_launch_"), theirs.removeprefix("mpi_operator_")) for mine, theirs in pairs] == [
        (name, name)
        for name in ("jobs_created_total", "jobs_successful_total", "jobs_failed_total", "job_info{launcher,namespace}")
    ]


class _Slow(FakeBackend):
    """A backend whose look at its hosts continues until somebody says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.looks = threading.Event(), 0
        self.answer: tuple[HostOccupancy, ...] = (
            HostOccupancy(Host("n1", "10.0.0.1"), True, Occupancy("n1", (SlotState("slot-0"),))),
        )
        monkeypatch.setattr(flow, "_PATIENCE_SECONDS", 0.01)

    def nodes(self, _inventory: object) -> tuple[HostOccupancy, ...]:
        self.looks += 1
        assert self.go.wait(10)
        if not self.answer:
            raise HostError("n1: no route to host", "is it up?")
        return self.answer

    def counters(self) -> Counters:
        return Counters((), JobCounts(created=3))


def test_of_a_head_that_does_not_answer_that_alone_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(flow, "collect", raiser(HostError("head: no route to host", "is it up?")))
    result = call()
    assert "error: head: no route to host" in result.stderr
    assert 'taco_launch_host_ready{host="localhost"} 0.0\n' in result.stdout
    assert "_total" not in result.stdout  # a counter of 0 would be a reset
    call("--textfile", str(tmp_path / "a.prom"))
    assert (tmp_path / "a.prom").read_text() == result.stdout


def test_the_rules_are_those_of_export_monitoring() -> None:
    assert call("--rules").stdout == (MONITORING / "taco-launch.rules.yml").read_text("utf-8")


def test_hosts_that_nobody_asks_are_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = _Slow(monkeypatch)
    slow.go.set()
    slow.answer = (*slow.answer, HostOccupancy(Host("n2", "10.0.0.2"), False, None, "no answer"))
    found, warnings = flow.collect(slow, None)  # type: ignore[arg-type]
    assert b'host_ready{host="n2"} 0.0\n' in found
    assert warnings == ("host n2: no answer",)
    slow.answer = (slow.answer[0], replace(slow.answer[1], is_used=False))
    found, warnings = flow.collect(slow, None)  # type: ignore[arg-type]
    assert b'host_ready{host="n1"} 1.0\n' in found
    assert b"n2" not in found
    assert warnings == ()


def test_a_host_that_does_not_answer_delays_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = _Slow(monkeypatch)
    collector = flow.Collector(slow, None)  # type: ignore[arg-type]
    for _scrape in range(3):
        found, warnings = collector.collect()
        assert b"\ntaco_launch_jobs_created_total 3.0\n" in found
        assert b"slots{" not in found
    assert (slow.looks, warnings) == (1, ())
    slow.go.set()
    eventually(lambda: b'taco_launch_slots{host="n1",state="total"} 1.0\n' in collector.collect()[0])
    slow.answer = ()  # the head's own connection is lost for a moment: slots are as last looked at
    assert b'slots{host="n1",state="total"} 1.0\n' in collector.collect()[0]


# --- export monitoring: rules and dashboards that name metrics which exist, and commands which do


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
