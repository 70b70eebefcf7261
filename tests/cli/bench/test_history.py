"""taco-launch bench history, show, diff, export, import: what they print of a history, and what they refuse."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from taco_launch.bench.history.history import open_history
from taco_launch.bench.model.runs import Measurement, Metric, MetricKey, RunEnvironment
from taco_launch.bench.stats.estimates import Interval
from taco_launch.bench.stats.verdicts import Verdict, VerdictKind
from taco_launch.cli.main import cli
from tests.support.command_line import call, failing
from tests.support.ladders import ladder, run
from tests.support.raisers import raiser

BEGIN = 1_795_000_000.0
WHEN = time.strftime("%Y-%m-%d %H:%M", time.localtime(BEGIN))


def _on(driver: str) -> RunEnvironment:
    return RunEnvironment(
        (("", "command", "python3 train.py"), *((host, "driver", driver) for host in ("gpu1", "gpu2")))
    )


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Return a history of two nightly runs, in the second of which one cell is slower, with another driver."""
    path = tmp_path / "history.db"
    with open_history(path) as history:
        for number, driver, rates in ((1, "535.1", (99.0, 100.0, 101.0)), (2, "550.2", (69.0, 70.0, 71.0))):
            begin = BEGIN + 86400 * (number - 1)
            night = ladder(number, started=begin, ended=begin + 60, outcome="ok", accepted=number == 1)
            on: dict[str, Any] = {"circumstances": _on(driver), "seconds": 55.0}
            runs = [run(5.0, warm_up=True, **on), *(run(rate, repeat=n, **on) for n, rate in enumerate(rates))]
            runs += [run(50.0 + n / 10, "rdma", repeat=n, **on) for n in range(2)] + [run(None, "rdma", repeat=2, **on)]
            history.merge(night, list(enumerate(runs)))
        key = MetricKey(("gpu1", "gpu2"), "A100", "horovod", "tcp", 16, "img/sec")
        change = Interval(-0.3, -0.31, -0.29)
        history.keep_verdicts(ladder(2).id, [Verdict(key, VerdictKind.REGRESSION, change, 1e-4, "30 % slower")])
    return str(path)


def bench(verb: str, db: str, *args: str) -> Result:
    return call("bench", verb, "--db", db, *args)


def rows(result: Result) -> list[list[str]]:
    """Split a table into its cells."""
    assert result.exit_code == 0, result.output
    return [[cell for cell in line.split("  ") if cell] for line in result.stdout.splitlines()]


def test_history_shows_cells_over_time(db: str) -> None:
    table = rows(bench("history", db, "--variant", "tcp"))
    assert [[cell.strip() for cell in row] for row in table] == [
        ["WORKLOAD", "VARIANT", "RANKS", "HOSTS", "METRIC", "SWEEP", "STARTED", "N", "MEAN", "LEAST", "GREATEST", "CHANGE"],
        ["horovod", "tcp", "16", "gpu[1-2]", "img/sec", "taco-000001", WHEN, "3", "100", "99", "101", "-"],
        ["horovod", "tcp", "16", "gpu[1-2]", "img/sec", "taco-000002", table[2][6].strip(), "3", "70", "69", "71", "-30.0%"],
    ]  # fmt: skip
    every = rows(bench("history", db))
    changes = [(row[1].strip(), row[5].strip(), row[-1].strip()) for row in every[1:]]
    assert changes[2:] == [("rdma", "taco-000002", "+0.0%"), ("tcp", "taco-000002", "-30.0%")]
    both = rows(bench("history", db, "--last", "1"))
    assert [(row[1].strip(), row[5].strip()) for row in both[1:]] == [("rdma", "taco-000002"), ("tcp", "taco-000002")]
    found = json.loads(bench("history", db, "--host", "gpu2", "--json").stdout)["points"]
    assert [(one["cell"]["variant"], one["mean"]) for one in found] == [
        *(("rdma", 50.05), ("tcp", 100.0), ("rdma", 50.05), ("tcp", 70.0)),  # the sweeps one after the other
    ]
    nothing = bench("history", db, "--np", "4")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (
        0,
        "",
        "no measured run matches; taco-launch bench show lists the runs of a sweep, warm-ups included\n",
    )


def test_show_tells_of_each_run_and_of_the_verdicts(db: str) -> None:
    result = bench("show", db)
    lines = result.stdout.splitlines()
    assert lines[0] == "Sweep:   taco-000002"
    assert lines[4] == "Outcome: ok"
    assert "1  horovod   tcp         16  warm-up   55s  gpu[1-2]  5 img/sec" in result.stdout
    assert "7  horovod   rdma        16  3         55s  gpu[1-2]  no sample: job failed: exit code 1" in result.stdout
    assert "/var/lib/taco-launch/ladders/taco/r1.log" in result.stdout
    assert lines[-1].split() == ["horovod", "tcp", "16", "img/sec", "REGRESSION", "30", "%", "slower"]
    first = bench("show", db, "taco-000001").stdout
    assert first.startswith("Sweep:   taco-000001 (accepted: counts in baselines)\n")
    assert "VERDICT" not in first
    told = json.loads(bench("show", db, "last", "--json").stdout)
    assert (told["ladder"]["id"], len(told["runs"]), told["verdicts"][0]["kind"]) == ("taco-000002", 7, "regression")
    assert told["runs"][1]["circumstances"]["facts"][1] == ["gpu1", "driver", "550.2"]


def test_show_cuts_many_readings_short_unless_it_is_wide(db: str) -> None:
    readings = tuple(Measurement(Metric(f"busbw {size} B", "GB/s"), size / 8) for size in (8, 16, 32))
    with open_history(Path(db)) as history:
        history.begin(ladder(3, started=BEGIN * 2))
        history.add(ladder(3).id, 0, run(None, why="", readings=readings))
    assert "1 GB/s (busbw 8 B) and 2 more" in bench("show", db).stdout
    assert [line.split("  ")[-2].strip() for line in bench("show", db, "-o", "wide").stdout.splitlines()[-3:]] == [
        *("1 GB/s (busbw 8 B)", "2 GB/s (busbw 16 B)", "4 GB/s (busbw 32 B)"),
    ]
    assert "has not ended: it is still running or was interrupted" in bench("show", db).stdout


def test_diff_says_what_differs_and_how_the_readings_changed(db: str) -> None:
    lines = bench("diff", db, "taco-000001", "last").stdout.splitlines()
    assert lines[0] == f"A: taco-000001: taco (night), {WHEN}"
    assert lines[1].startswith("B: last, which is taco-000002: taco (night), ")
    assert [line.split() for line in lines[3:5]] == [
        ["WHAT", "HOSTS", "A", "B"],
        ["driver", "gpu[1-2]", "535.1", "550.2"],
    ]
    # Student's t of 2 degrees of freedom is 4.303; each mean is known to 0.05 of 50.05
    assert lines[-2].endswith("  50.05 (2)  50.05 (2)  +0.0 % [-0.6, 0.6]: no difference shown")
    assert "  100 (3)     70 (3)  -30.0 % [" in lines[-1]
    found = json.loads(bench("diff", db, "taco-000001", "taco-000002", "--json").stdout)
    assert found["before"]["id"] == "taco-000001"
    assert found["differs"][0]["difference"]["what"] == "driver"
    assert found["changed"][1]["ratio"]["value"] == pytest.approx(0.7)


def test_diff_of_cells_and_of_runs(db: str) -> None:
    cells = bench("diff", db, "last:horovod/tcp/16", "last:horovod/rdma/16").stdout
    assert "no known difference between the environments of A and B" in cells
    assert "tcp -> rdma" in cells
    runs = bench("diff", db, "taco-000001:2", "last:7").stdout.splitlines()
    assert runs[-1].endswith("99 (1)  no sample  -")
    told = bench("diff", db, "last:1", "last:7").stderr.splitlines()
    assert told == [
        "warning: A (last:1) is a warm-up: it measured a cold start",
        "warning: B (last:7) has no sample, so only its environment is compared: job failed: exit code 1",
    ]
    assert bench("diff", db, "taco-000001", "last").stderr == ""
    runs = bench("diff", db, "taco-000001:2", "last:2").stdout.splitlines()
    assert runs[-1].endswith("-30.3 % (no interval: one side has only one value)")


@pytest.mark.parametrize(
    ("verb", "args", "said", "hint"),
    [
        ("show", ("nobody",), "nobody: not found in ", "taco-launch bench history lists the sweeps"),
        ("show", ("taco",), "taco: 2 sweeps start with this: taco-000002, taco-000001", "type more of the id"),
        ("show", ("",), ": not found in ", "taco-launch bench history lists the sweeps"),
        ("diff", ("last:9", "last"), "last:9: sweep taco-000002 has no such run or cell", "taco-000002 has horovod/rdma/16, horovod/tcp/16"),
        ("diff", ("last:0", "last"), "last:0: sweep taco-000002 has no such run or cell", "taco-000002 has"),
        ("diff", ("last:horovod/tcp/8", "last"), "last:horovod/tcp/8: sweep", "taco-000002 has"),
        ("import", ("--name", "x", "f.csv"), "--name needs --workload", "name the workload of the logs: --workload horovod|tf_cnn|nccl-tests|MATRIX:NAME"),
        ("import", ("--workload", "horovod", "f.log"), "--workload needs --variant", "name the variant that was measured: --variant NAME"),
        ("import", ("--workload", "horovod", "--variant", "t", "-H", "gpu[2-1]", "/dev/null"), "--host gpu[2-1]: ", None),
    ],
)  # fmt: skip
def test_what_is_refused(verb: str, args: tuple[str, ...], said: str, hint: str | None, db: str) -> None:
    result = bench(verb, db, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: {said}" in result.stderr
    assert hint is None or f"hint: {hint}" in result.stderr


@pytest.mark.parametrize(("verb", "args"), [("history", ()), ("show", ()), ("diff", ("a", "b")), ("export", ())])
def test_a_reader_makes_no_history(verb: str, args: tuple[str, ...], tmp_path: Path) -> None:
    result = failing("bench", verb, *args, env={"TACO_LAUNCH_STATE": str(tmp_path / "state")}, code=1)
    assert result.startswith(
        f"error: {tmp_path}/state/history.db: there is no history yet\nhint: measure first: taco-launch bench"
    )
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_an_export_is_imported_once(ending: str, db: str, tmp_path: Path) -> None:
    file, other = str(tmp_path / f"x.{ending}"), str(tmp_path / "new" / "other.db")
    assert bench("export", db, "--to", file).stderr == f"2 sweeps written to {file}\n"
    added = "14 runs added, 0 were already in the history; sweeps: taco-000001, taco-000002\n"
    assert bench("import", other, "--baseline", file).stderr == added
    assert (
        bench("import", other, file).stderr
        == "0 runs added, 14 were already in the history; sweeps: taco-000001, taco-000002\n"
    )
    assert bench("export", other, "-o", ending).stdout == Path(file).read_text()
    strange = str(tmp_path / "strange.db")  # nightly runs of other machines, perhaps: they count in no baseline
    assert bench("import", strange, file).stderr == added
    found = json.loads(bench("export", strange).stdout)["ladders"]
    assert [ladder["accepted"] for ladder in found] == [False, False]
    late = bench("import", strange, "--baseline", file).stderr
    assert f"nightly baseline accept taco-000001 --db {strange}" in late
    one = bench("export", db, "taco-000001").stdout
    assert [found["id"] for found in json.loads(one)["ladders"]] == ["taco-000001"]
    assert [found["id"] for found in json.loads(bench("export", db, "--last", "1").stdout)["ladders"]] == [
        "taco-000002"
    ]


def test_an_export_of_nothing_is_refused(db: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    refused = bench("export", db, "--matrix", "nope", "--to", str(file))
    assert (refused.exit_code, file.exists()) == (2, False)
    assert refused.stderr.startswith("error: nothing to export: no sweep of matrix nope\n")


def test_an_export_takes_nobodys_place(db: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("mine")
    result = bench("export", db, "--to", str(file))
    assert (result.exit_code, file.read_text()) == (2, "mine")
    assert result.stderr == f"error: {file} exists\nhint: choose another name, or replace it: --force\n"
    assert bench("export", db, "--to", str(file), "--force").exit_code == 0
    assert file.read_text().startswith('"ladder",')
    nowhere = bench("export", db, "--to", str(tmp_path / "no" / "x.csv"))
    assert (nowhere.exit_code, nowhere.stderr) == (1, f"error: {tmp_path}/no/x.csv: No such file or directory\n")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".x")] == []


def test_a_file_that_comes_up_meanwhile_stays(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    monkeypatch.setattr("taco_launch.bench.history.exchange.write_json", lambda *_args: file.write_text("theirs"))
    result = bench("export", db, "--to", str(file))
    assert (result.exit_code, result.stderr) == (1, f"error: {file}: File exists\n")
    assert file.read_text() == "theirs"
    assert bench("export", db, "--to", str(file), "--force").exit_code == 0
    assert file.read_text() == ""


def test_a_failed_export_leaves_the_file_that_was_there(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.json"
    file.write_text("mine")
    monkeypatch.setattr("taco_launch.bench.history.exchange.write_json", raiser(OSError(28, "No space left on device")))
    result = bench("export", db, "--to", str(file), "--force")
    assert (result.exit_code, result.stderr) == (1, f"error: {file}: No space left on device\n")
    assert file.read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir() if "x" in one.name) == ["x.json"]


LOG = "Number of GPUs: 2\nIter #0: 150.0 img/sec per GPU\nImg/sec per GPU: 150.0 +-0.0\nTotal img/sec on 2 GPU(s): 300.0 +-0.0\n"


def test_logs_of_somebody_are_imported(tmp_path: Path) -> None:
    db, log = str(tmp_path / "history.db"), tmp_path / "a.log"
    log.write_text(LOG)
    args = ("--workload", "horovod", "--name", "resnet", "--variant", "theirs", "-H", "gpu[1-2],head", str(log))
    added = bench("import", db, *args)
    assert added.exit_code == 0
    assert added.stderr.startswith("1 run added, 0 were already in the history; sweeps: import-")
    assert bench("import", db, *args).stderr.startswith("0 runs added, 1 were already in the history; sweeps: import-")
    table = rows(bench("history", db))
    assert [cell.strip() for cell in table[1][:5]] == ["resnet", "theirs", "2", "gpu[1-2],head", "img/sec"]
    assert str(log) in bench("show", db).stdout
    log.write_text(LOG[:-10])
    cut = bench("import", db, *args)
    assert cut.exit_code == 1
    assert cut.stderr.startswith(f"error: {log}: no sample: line 4: ")
    assert len(rows(bench("history", db))) == 2


def test_ladders_are_completed_newest_first(db: str, tmp_path: Path) -> None:
    def offered(*words: str) -> list[str]:
        complete = ShellComplete(cli, {}, "taco-launch", "_X")
        return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]

    assert offered("bench", "show", "--db", db, "") == ["taco-000002", "taco-000001"]
    assert offered("bench", "diff", "--db", db, "last", "taco-000001") == ["taco-000001"]
    assert offered("bench", "show", "--db", str(tmp_path / "none.db"), "") == []


def test_a_long_list_tells_how_many_it_leaves_out(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.db") as history:
        for number in range(7):
            history.begin(ladder(number))
    refused = bench("show", str(tmp_path / "h.db"), "taco").stderr
    assert "taco: 7 sweeps start with this: taco-000006, " in refused
    assert ", taco-000002 and 2 more\n" in refused


def test_names_cannot_move_a_terminal(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.db") as history:
        history.merge(replace(ladder(1), matrix="\x1b[2J"), [(0, run(1.0, "\x1b[31m", log="\x1b]0;x\x07"))])
    for verb, args in (("history", ()), ("show", ()), ("diff", ("last", "last"))):
        result = bench(verb, str(tmp_path / "h.db"), *args)
        assert result.exit_code == 0
        assert "\x1b" not in result.output


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_ends_quietly_when_its_reader_is_gone(form: str, tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    with open_history(path) as history:
        history.merge(ladder(1), [(number, run(float(number + 1))) for number in range(1000)])
    words = [sys.executable, "-m", "taco_launch", "bench", "export", "--db", str(path), "-o", form]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)
