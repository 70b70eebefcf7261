"""bench report and bench plot: pages and figures that need nothing else, and what is refused."""

import json
from pathlib import Path

import pytest

from taco_launch.bench.history.history import open_history
from taco_launch.bench.model.runs import MetricKey
from taco_launch.bench.stats.estimates import Interval
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from tests.support.command_line import call
from tests.support.ladders import ladder, run

HOSTILE = "</text><script>alert(1)</script>$x$ & |"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Return a history of two sweeps of two sizes and two variants, one of which has a hostile name."""
    path = tmp_path / "history.db"
    with open_history(path) as history:
        for number in (1, 2):
            rates = (("tcp", 1, 10.0), ("tcp", 16, 100.0), (HOSTILE, 16, 140.0))
            runs = [run(rate + n, variant, ranks, repeat=n) for variant, ranks, rate in rates for n in range(3)]
            history.merge(ladder(number, outcome="done", ended=number + 1.0, variants=("tcp",)), list(enumerate(runs)))
        key = MetricKey(("gpu1", "gpu2"), "A100", "horovod", "tcp", 16, "img/sec")
        change = Interval(-0.3, -0.31, -0.29)
        history.keep_verdicts(ladder(2).id, [Verdict(key, VerdictKind.REGRESSION, change, 1e-4, "30 % slower")])
    return path


@pytest.mark.parametrize(("language", "heading"), [("en", "Values and linear speedup"), ("zh", "数值与线性加速比")])
def test_a_page_needs_nothing_else(db: Path, tmp_path: Path, language: str, heading: str) -> None:
    page = tmp_path / "r.html"
    done = call("bench", "report", "--db", str(db), "--to", str(page), "--language", language)
    assert (done.exit_code, done.stderr) == (0, f"wrote {page}\n")
    text = page.read_text("utf-8")
    assert len(text) < 2 << 20
    assert heading in text
    assert text.index("REGRESSION: horovod, tcp, 16 ranks: 30 % slower") < text.index("<svg") < text.index("<table")
    assert "<script" not in text
    assert not [word for word in ("src=", "@import", 'href="http', "url(http") if word in text]


def test_markdown_and_json_are_printed(db: Path) -> None:
    words = ("bench", "report", "--db", str(db), "--format", "md")
    shown = call(*words, "--baseline", "tcp").stdout
    assert call(*words).stdout == shown, "the matrix's first variant"
    assert call(*words, "--baseline", HOSTILE).stdout != shown
    assert "| 16 | 101.0 ±2.5 | 62.3" in shown.replace("  ", " ") or "| 16 | 101.0 ±2.5 |" in shown
    assert "x$ & \\|" in shown
    data = json.loads(call("bench", "report", "--db", str(db), "--format", "json").stdout)
    assert data["ladder"]["id"] == ladder(2).id
    assert data["verdicts"][0]["kind"] == "regression"


@pytest.mark.parametrize(
    ("file", "words", "begins"),
    [
        ("r.md", (), "# taco\n"),
        ("r.json", (), "{"),
        ("r.html", (), "<!doctype html>"),
        ("r", (), "<!doctype html>"),
        ("r.html", ("--format", "md"), "# taco\n"),
        ("r.txt", ("--format", "md"), "# taco\n"),
    ],
)
def test_the_ending_of_a_file_is_its_format(
    file: str, words: tuple[str, ...], begins: str, db: Path, tmp_path: Path
) -> None:
    assert call("bench", "report", "--db", str(db), "--to", str(tmp_path / file), *words).exit_code == 0
    assert (tmp_path / file).read_text("utf-8").startswith(begins)


@pytest.mark.parametrize("words", [("bench", "report"), ("nightly", "report", "taco"), ("report", "vgg16")])
def test_an_ending_that_is_no_format_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    refused = call(*words, "--to", str(file))
    assert (refused.exit_code, file.exists()) == (2, False)
    assert refused.stderr == (
        f"error: --to {file}: .txt is not a format of a report\n"
        f"hint: use .html, .md or .json, or add --format html for the file {file}\n"
    )


def test_variants_are_in_the_order_of_the_matrix(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    variants = ("tcp", "rdma", "gdr")
    with open_history(path) as history:
        runs = [run(10.0 + n, variant, repeat=n) for n in range(2) for variant in sorted(variants)]
        history.merge(ladder(1, ended=2.0, variants=variants), list(enumerate(runs)))
    shown = call("bench", "report", "--db", str(path), "--format", "md").stdout
    assert "tcp to rdma: " in shown
    assert "rdma to gdr: " in shown
    points = json.loads(call("bench", "history", "--db", str(path), "--json").stdout)["points"]
    assert tuple(point["cell"]["variant"] for point in points) == variants
    exported = json.loads(call("bench", "export", "--db", str(path)).stdout)["ladders"]
    assert exported[0]["variants"] == [*variants]


@pytest.mark.parametrize(("end", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_figure_is_the_same_each_time(db: Path, tmp_path: Path, end: str, begins: bytes) -> None:
    contents = set()
    for name in ("a", "b"):
        file = tmp_path / f"{name}.{end}"
        assert call("bench", "plot", str(file), "--db", str(db)).exit_code == 0
        contents.add(file.read_bytes())
    (content,) = contents
    assert content.startswith(begins)


def test_what_is_refused(db: Path, tmp_path: Path) -> None:
    refused = call("bench", "plot", str(tmp_path / "a.gif"), "--db", str(db))
    assert (refused.exit_code, refused.stderr.splitlines()[1]) == (2, "hint: use .svg, .png, .pdf")
    unknown = call("bench", "report", "--db", str(db), "--baseline", "rdma")
    assert unknown.exit_code == 2
    assert "--baseline rdma: not in sweep" in unknown.stderr
    nowhere = call("bench", "report", "--db", str(db), "--to", str(tmp_path / "no" / "r.html"))
    assert (nowhere.exit_code, "No such file" in nowhere.stderr) == (1, True)
    with open_history(db) as history:
        history.merge(ladder(3, outcome="done", ended=4.0), [(0, run(None))])
    empty = call("bench", "plot", str(tmp_path / "a.svg"), "--db", str(db))
    assert (empty.exit_code, "has no samples to draw" in empty.stderr) == (1, True)
    page = tmp_path / "r.html"
    assert call("bench", "report", "--db", str(db), "--to", str(page)).exit_code == 0
    assert "job failed: exit code 1" in page.read_text("utf-8")


@pytest.mark.nightly
def test_cells_over_time_that_are_not_drawn_are_counted(tmp_path: Path) -> None:
    path, page = tmp_path / "history.db", tmp_path / "r.html"
    with open_history(path) as history:
        for number in (1, 2):
            runs = [run(10.0, f"v{variant:02}") for variant in range(26)]
            history.merge(ladder(number, outcome="done", ended=number + 1.0), list(enumerate(runs)))
    assert call("bench", "report", "--db", str(path), "--to", str(page)).exit_code == 0
    assert "2 more cells: taco-launch bench history" in page.read_text("utf-8")
