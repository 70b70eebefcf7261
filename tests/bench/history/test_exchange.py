"""Exports of the history, and what is read from them and from the logs that somebody brings."""

import contextlib
import csv
import io
import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.bench.history import exchange
from taco_launch.bench.history.exchange import HistoryEntry
from taco_launch.bench.history.external_logs import ExternalLog, of_logs
from taco_launch.bench.history.history import LadderKind, open_history
from taco_launch.bench.model.matrix import LogFormat, Workload
from taco_launch.bench.model.runs import Cell, Measurement, Metric, RunEnvironment
from taco_launch.core.errors import TacoLaunchError
from tests.support.ladders import LADDERS, RUNS, ladder, run

ENTRIES = st.lists(
    st.builds(
        HistoryEntry,
        LADDERS,
        st.lists(RUNS, max_size=4).map(lambda runs: tuple((3 * n, one) for n, one in enumerate(runs))),
    ),
    max_size=3,
    unique_by=lambda entry: entry.ladder.id,
).map(tuple)
TWO = (
    HistoryEntry(ladder(1), ((0, run(100.5)), (1, run(None, why='exit 1, "x"\r\nor so')))),
    HistoryEntry(ladder(2, ended=9.5, outcome="ok", accepted=True), ()),
)


def written(write: Callable[..., None], entries: tuple[HistoryEntry, ...], path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        write(entries, file)
    return path


@pytest.mark.parametrize("write", [exchange.write_json, exchange.write_csv])
def test_what_is_exported_and_imported_is_the_same(write: Callable[..., None], tmp_path: Path) -> None:
    @given(entries=ENTRIES)
    def check(entries: tuple[HistoryEntry, ...]) -> None:
        assert exchange.read(written(write, entries, tmp_path / "export")) == entries

    check()


def test_it_is_the_same_through_two_histories(tmp_path: Path) -> None:
    for name, write in (("json", exchange.write_json), ("csv", exchange.write_csv)):
        with open_history(tmp_path / f"{name}.db") as history:
            for _ in range(2):
                for entry in exchange.read(written(write, TWO, tmp_path / name)):
                    history.merge(*entry)
            found = tuple(HistoryEntry(one, history.runs(one.id)) for one in reversed(history.ladders()))
            assert found == tuple(HistoryEntry(replace(one, imported=True), runs) for one, runs in TWO)


@pytest.mark.parametrize(("baseline", "known"), [({}, ()), ({"baseline": "plain"}, ("plain",))])
def test_a_file_of_an_earlier_version_is_the_same_sweep(
    baseline: dict[str, str], known: tuple[str, ...], tmp_path: Path
) -> None:
    one = HistoryEntry(ladder(1, variants=("plain", "slow")), TWO[0].runs)
    rows = list(csv.DictReader(written(exchange.write_csv, (one,), tmp_path / "new.csv").open(newline="")))
    with (tmp_path / "old.csv").open("w", newline="") as file:
        names = [name for name in exchange.COLUMNS if name != "variants"]
        writer = csv.DictWriter(file, [*names, *baseline], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, **baseline} for row in rows)
    document = json.loads(written(exchange.write_json, (one,), tmp_path / "new.json").read_text())
    del document["ladders"][0]["variants"]
    document["ladders"][0] |= baseline
    (tmp_path / "old.json").write_text(json.dumps(document))
    with open_history(tmp_path / "history.db") as history:
        history.merge(*one)
        for name, variants in (("old.csv", known), ("old.json", known), ("new.csv", ("plain", "slow"))):
            (entry,) = exchange.read(tmp_path / name)
            assert entry.ladder.variants == variants
            assert history.merge(*entry) == 0


@pytest.mark.parametrize("name", ["/home/ann", "../../etc", ".", "", "a/b", "taco-$(id)", "x" * 64])
def test_an_id_that_would_be_a_path_is_refused(name: str, tmp_path: Path) -> None:
    """A ladder's logs are in a folder of its id, which a nightly run removes when it is old."""
    entries = (HistoryEntry(replace(ladder(1), id=name), ()),)
    for write in (exchange.write_json, exchange.write_csv):
        with pytest.raises(TacoLaunchError, match="is not a valid sweep id"):
            exchange.read(written(write, (*entries, *TWO), tmp_path / "export"))


def test_a_ladder_that_had_not_ended_elsewhere_is_not_ours_to_end(tmp_path: Path) -> None:
    one = ladder(1)
    with open_history(tmp_path / "history.db") as history:
        history.merge(one, [(0, run(1.0))])
        (found,) = history.ladders()
        assert (found.broke_off, found.imported, found.ended) == (False, True, None)
        assert history.resumable(one.digest) is None
        history.begin(ladder(2))
        assert [each.broke_off for each in history.ladders()] == [True, False]


def test_an_id_in_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.merge(ladder(1), [])
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE ladder SET id = '/home/ann'")
        database.commit()
    with open_history(path) as history, pytest.raises(TacoLaunchError, match="a sweep with the invalid id '/home/ann'"):
        history.ladders()


def test_csv_has_a_row_for_each_reading(tmp_path: Path) -> None:
    two = Measurement(Metric("busbw 8 B", "GB/s"), 0.25)
    entries = (
        HistoryEntry(ladder(1), ((0, run(None, why="", readings=(two, two))), (4, run(None)))),
        HistoryEntry(ladder(2), ()),
    )
    lines = written(exchange.write_csv, entries, tmp_path / "x.csv").read_text().splitlines()
    assert json.loads(f"[{lines[0]}]") == list(exchange.COLUMNS)
    places = [exchange.COLUMNS.index(name) for name in ("ladder", "position", "metric", "value")]
    ends = [line.replace('"[""gpu2"", ""gpu1""]"', "HOSTS").replace('"', "").split(",") for line in lines[1:]]
    assert [[words[place] for place in places] for words in ends] == [
        *2 * [["taco-000001", "0", "busbw 8 B", "0.25"]],
        ["taco-000001", "4", "", ""],
        ["taco-000002", "", "", ""],
    ]


def _document(change: Callable[[Any], None]) -> str:
    file = io.StringIO()
    exchange.write_json(TWO, file)
    document = json.loads(file.getvalue())
    change(document)
    return json.dumps(document)


def _reading(value: float) -> str:
    return _document(lambda it: it["ladders"][0]["runs"][0]["readings"][0].update(value=value))


def _csv(old: str, new: str) -> str:
    file = io.StringIO()
    exchange.write_csv(TWO, file)
    assert old in file.getvalue()
    return file.getvalue().replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column ladder"),
        ("a,b\n1,2\n", "no column ladder"),
        ("{}", '"format" must be "taco-launch history" and "version" must be 1'),
        ('{"format": ', "Expecting value"),
        ("[" * 100_000, "no column ladder"),
        ('{"a":' * 100_000, "recursion"),
        (_document(lambda it: it.update(version=2)), '"format" must be "taco-launch history"'),
        (_document(lambda it: it.update(ladders=7)), r"document.ladders: 7 is not of type list"),
        (_document(lambda it: it["ladders"][0].pop("seed")), r"ladders\[0\].seed: None is not of type int"),
        (_document(lambda it: it["ladders"][0].update(seed=True)), r"ladders\[0\].seed: True is not of type int"),
        (_document(lambda it: it["ladders"][1].update(kind="dream")), "'dream' is not a valid LadderKind"),
        (_reading(-1.0), r"ladders\[0\].runs\[0\].readings\[0\].value: -1.0 is not a reading"),
        (_reading(math.nan), r"readings\[0\].value: nan is not a reading"),
        (_reading(math.inf), r"readings\[0\].value: inf is not a reading"),
        (_document(lambda it: it["ladders"][0]["runs"][1].update(position=0)), r"ladders\[0\]: a position occurs twice"),
        (_document(lambda it: it["ladders"][0]["runs"][0].update(circumstances=2)), r"runs\[0\].circumstances: index 2 does not exist"),
        (_document(lambda it: it["ladders"][0]["runs"][0].update(hosts=[1])), r"runs\[0\].hosts: must be a list of host names"),
        (_document(lambda it: it["circumstances"][0].append(["a"])), r"circumstances\[0\].*must be a list of \[host, what, value\]"),
        (_csv('"d",1,', '"d",x,'), r"line 2: seed: 'x' is not valid"),
        (_csv("55.25", "long"), r"line 2: seconds: 'long' is not valid"),
        (_csv("False", "no"), r"line 2: accepted: 'no' is not valid"),
        (_csv(',"taco","night"', ',"taco"'), r"line 2: expected 29 columns"),
        (_csv('"[""gpu2"", ""gpu1""]"', "gpu2"), r"line 2: hosts: 'gpu2' is not valid"),
        (_csv("or so", 'or so"'), r"not a history export, or is damaged"),
    ],
)  # fmt: skip
def test_what_is_no_export_is_told(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_text(text, newline="")
    with pytest.raises(TacoLaunchError, match=said) as told:
        exchange.read(path)
    assert told.value.message.startswith(f"{path}: is not a history export, or is damaged: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TacoLaunchError, match=r"no: No such file or directory"):
        exchange.read(tmp_path / "no")
    (tmp_path / "binary").write_bytes(b"PAR1\xff")
    with pytest.raises(TacoLaunchError, match=r"not UTF-8 at byte 4"):
        exchange.read(tmp_path / "binary")


HOROVOD = """Model: resnet50
Batch size: 64
Number of GPUs: 2
Iter #0: 150.0 img/sec per GPU
Img/sec per GPU: 150.0 +-0.0
Total img/sec on 2 GPU(s): {} +-0.0
"""


def test_logs_of_somebody_are_repeats_of_a_cell() -> None:
    logs = [
        ExternalLog("/home/a/1.log", HOROVOD.format("300.0"), 50.0),
        ExternalLog("/home/a/2.log", HOROVOD.format("300.1"), 40.0),
    ]
    workload = Workload("resnet", LogFormat.HOROVOD, ())
    found = of_logs(logs, workload, "tcp", None, ("gpu1", "gpu2"))
    assert [one.readings[0].value for _, one in found.runs] == [300.0, 300.1]
    assert [(place, one.repeat, one.log, one.started) for place, one in found.runs] == [
        (0, 0, "/home/a/1.log", 50.0),
        (1, 1, "/home/a/2.log", 40.0),
    ]
    first = found.runs[0][1]
    assert (first.cell, first.hosts) == (Cell("resnet", "tcp", 2), ("gpu1", "gpu2"))
    assert first.circumstances == RunEnvironment()
    one = found.ladder
    assert (one.kind, one.matrix, one.started, one.ended) == (LadderKind.IMPORT, "resnet", 40.0, 50.0)
    again = of_logs(logs, workload, "tcp", None, ("gpu1", "gpu2")).ladder.id
    others = (
        of_logs(logs[:1], workload, "tcp", None, ("gpu1", "gpu2")).ladder.id,
        of_logs(logs, workload, "rdma", None, ("gpu1", "gpu2")).ladder.id,
        of_logs(logs, workload, "tcp", None, ()).ladder.id,
    )
    assert again == one.id
    assert one.id not in others


@pytest.mark.parametrize(
    ("text", "kind", "ranks", "said"),
    [
        (HOROVOD.format("300.0"), LogFormat.HOROVOD, 4, "/log: no sample: 4 ranks ran, but the log shows 2"),
        (HOROVOD.format("300"), LogFormat.HOROVOD, None, "/log: no sample: line 6: "),
        (
            "total images/sec: 300.00\n",
            LogFormat.REGEX,
            None,
            "/log: a regex log does not show the number of ranks: add --np N",
        ),
    ],
)
def test_a_log_without_a_sample_is_refused(text: str, kind: LogFormat, ranks: int | None, said: str) -> None:
    workload = Workload("mine", kind, (), pattern=r"images/sec: (\S+)", unit="img/sec")
    with pytest.raises(ValueError, match=f"^{said}"):
        of_logs([ExternalLog("/log", text, 1.0)], workload, "tcp", ranks, ())
