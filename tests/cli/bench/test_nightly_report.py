"""nightly report: the page of a nightly run, the page of all, and what is refused."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from taco_launch.api import nightly_messages
from taco_launch.bench.history.history import open_history
from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.recorded_run import NightlyResult, record_run
from taco_launch.bench.nightly.summary import Summary
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.model.host.hosts import Notice
from tests.support.command_line import call
from tests.support.ladders import ladder, run
from tests.support.nights import NIGHT, SLOWER

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a history of two nightly runs, and write the summary of each, and the page of the last one."""
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    path, folder = tmp_path / "history.db", record.folder(os.environ, os.geteuid(), "taco")
    with open_history(path) as history:
        for number in (1, 2):
            runs = [run(100.0 + n, "RDMA", ranks, repeat=n) for ranks in (8, 16) for n in range(3)]
            history.merge(ladder(number, outcome="done", ended=number + 1.0), list(enumerate(runs)))
    warnings: list[str] = []
    for number, night in ((1, NIGHT), (2, replace(SLOWER, notes=(HOSTILE,)))):
        summary = replace(night, ladder=ladder(number).id, started=float(number), ended=number + 1.0)

        def publish(result: NightlyResult, number: int = number) -> None:
            if number == 2:
                nightly_messages.write_pages(result, path, warnings.append)

        record_run(folder, "taco", None, lambda _start, summary=summary: summary, publish)  # type: ignore[misc]
    assert warnings == []
    return path


@pytest.mark.parametrize(("language", "heading"), [("en", "What to do"), ("zh", "下一步")])
def test_the_page_of_the_last_night(db: Path, tmp_path: Path, language: str, heading: str) -> None:
    page = tmp_path / "n.html"
    done = call("nightly", "report", "taco", "--db", str(db), "--to", str(page), "--language", language)
    assert done.exit_code == 0, done.stderr
    text = page.read_text("utf-8")
    assert text.index("-8.0 %") < text.index(heading) < text.index("25 Gbit/s") < text.index("<svg")
    assert "taco-launch nightly baseline accept taco-000002" in text
    assert "index.html" not in text, "it lies elsewhere"
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert not [word for word in ("src=", "@import", 'href="http', "url(http") if word in text]


@pytest.mark.usefixtures("db")
def test_the_page_of_all_nights_links_to_those_with_a_page() -> None:
    folder = record.folder(os.environ, os.geteuid(), "taco")
    text = (folder / "index.html").read_text("utf-8")
    pages = [path.name for path in folder.glob("*-taco-*.html")]
    assert len(pages) == 1
    assert all('href="index.html"' in (folder / page).read_text("utf-8") for page in pages)
    assert all(f'href="{page}"' in text for page in pages)
    assert text.index("regression") < text.index("nothing was measured")


def test_another_night_and_other_formats(db: Path) -> None:
    done = call("nightly", "report", "taco", "--db", str(db), "--night", "taco-000001", "--format", "json")
    assert json.loads(done.stdout)["outcome"] == "ok"
    assert call("nightly", "report", "taco", "--format", "md").stdout.startswith("# Nightly run taco: regression\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nightly", "report", "other"), "other: no nightly run of this name has finished on this machine"),
        (("nightly", "report", "taco", "--night", "2020-01-01"), "--night 2020-01-01: taco has no such run"),
    ],
)
@pytest.mark.usefixtures("db")
def test_what_there_is_not(words: tuple[str, ...], says: str) -> None:
    done = call(*words)
    assert (done.exit_code, says in done.stderr) == (2, True)


def test_a_run_that_an_error_ended_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taco_launch.agent.messages.deliver._PAUSES", (0.0,))
    published: list[NightlyResult] = []

    def measure(_start: float) -> Summary:
        raise TacoLaunchError("the matrix is wrong")

    with pytest.raises(TacoLaunchError):
        record_run(tmp_path / "n", "n", None, measure, published.append)
    assert published[0].summary.broken == "the matrix is wrong"
    sent = tmp_path / "sent"
    program = tmp_path / "page"
    program.write_text(f"#!/bin/sh\ncat > {sent}\n")
    program.chmod(0o755)
    red, other = Notice(f"exec:{program}"), Notice("exec:/bin/false", ("night-change",))
    warnings: list[str] = []
    nightly_messages.send(published[0], "failed", (red, other), (), warnings.append)
    assert json.loads(sent.read_text())["reason"] == "the matrix is wrong"
    assert warnings == []
    nightly_messages.send(published[0], "failed", (Notice("file:/nowhere"),), (), warnings.append)
    assert warnings[0].startswith("file:/nowhere: the message was not delivered: /nowhere: No such file")


def test_markdown_and_json_need_no_extra(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jinja2", "matplotlib", "taco_launch.bench.report.night_page"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "# Nightly run taco: regression" in call("nightly", "report", "taco", "--format", "md").stdout
    assert json.loads(call("nightly", "report", "taco", "--format", "json").stdout)["outcome"] == "regression"
    done = call("nightly", "report", "taco", "--db", str(db), "--to", str(tmp_path / "n.html"))
    assert (done.exit_code, "error: reports need " in done.stderr) == (1, True)
