"""What taco-launch keeps is its user's alone, and what it writes for other programs is text to them: reviews L3, L6, L7."""

import csv
import io
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.agent.logs import segments
from taco_launch.agent.store.folders import write_private
from taco_launch.bench.history import exchange
from taco_launch.bench.history.history import open_history
from taco_launch.cli.main import cli
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.facts.system.docker import _values
from taco_launch.core.model import codec
from tests.support.ladders import ladder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_what_is_kept_is_private_whatever_the_umask(tmp_path: Path) -> None:
    with open_history(tmp_path / "state" / "history.db") as history:
        history.begin(ladder(1))
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    write_private(tmp_path / "text", "x")
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_log_that_a_rank_put_something_else_in_the_place_of(tmp_path: Path, kind: str) -> None:
    """A link would show any file that the reader may read, and a FIFO keep it waiting."""
    (tmp_path / "secret").write_text("root's\n")
    there = segments.segment(tmp_path / "rank-0", 0)
    make: dict[str, Callable[[], object]] = {
        "link": lambda: there.symlink_to(tmp_path / "secret"),
        "fifo": lambda: os.mkfifo(there),
        "folder": there.mkdir,
    }
    make[kind]()
    for read in (
        lambda: segments.SegmentReader(tmp_path / "rank-0").read(),
        lambda: segments.tail(tmp_path / "rank-0", 1),
    ):
        with pytest.raises(HostError, match="it cannot be read: "):
            read()


def test_a_history_that_was_empty_is_a_history(tmp_path: Path) -> None:
    """The file is made before SQLite opens it, and an interrupted call leaves it so."""
    (tmp_path / "history.db").touch()
    with open_history(tmp_path / "history.db") as history:
        history.begin(ladder(1))
    with sqlite3.connect(tmp_path / "history.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"


@given(st.text(st.sampled_from(f"{SIGNS};\t\r\n' x,\""), max_size=9))
@example("x;=1+2;y")
@example("x\t \t=1")
@example("\uff1d1")
@example("';'=1")
def test_a_spreadsheet_takes_no_text_for_a_formula(text: str) -> None:
    entry = exchange.HistoryEntry(replace(ladder(1), matrix=text or "x"), ())
    file = io.StringIO()
    exchange.write_csv([entry], file)
    (row,) = csv.DictReader(io.StringIO(file.getvalue(), newline=""))
    assert row["matrix"][0] not in "\t\r\n"
    cells = re.split(r"[;\t\r\n]", row["matrix"])
    assert not [cell for cell in cells if cell.lstrip(" ").startswith(tuple(SIGNS))]
    assert exchange._unmarked(row["matrix"]) == entry.ladder.matrix


@given(st.integers(1, 3000))
def test_depth_is_limited(depth: int) -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        text = opened * depth + "1" + closed * depth
        if depth <= 99:
            codec.load(text)
        elif depth > 100:
            with pytest.raises(ValueError, match="is nested in more than 100 levels"):
                codec.load(text.encode())


def test_what_an_engine_lists_may_be_nested() -> None:
    assert _values("[" * 100_000) == []


def test_documents_to_compare_with_may_hold_anything(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    for text in ("[" * 100_000, '{"hosts":' * 500 + "1" + "}" * 500, "\x00", "1e999"):
        file.write_text(text)
        done = CliRunner().invoke(cli, ["facts", "--compare", str(file)], standalone_mode=False)
        assert isinstance(done.exception, UsageError), done.exception


def test_every_row_of_the_threat_model_has_its_tests() -> None:
    rows = [
        line
        for page in sorted((ROOT / "docs/explanation").glob("threat-model*.md"))
        for line in page.read_text("utf-8").splitlines()
        if "`tests/" in line
    ]
    assert len(rows) == 32
    for path, _, name in re.findall(r"`(tests/[\w/.]+)(::(\w+))?`", "\n".join(rows)):
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8"), name
