"""nightly install, uninstall, status: what is shown, written and left alone; a nightly run that cannot start is not installed."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from taco_launch.bench.nightly import record
from taco_launch.bench.nightly.install import local_zone
from taco_launch.bench.nightly.record import Installation, LastRun
from tests.conftest import Taco
from tests.support.crontabs import crontab, status

OTHERS = "# Grüße, m h dom mon dow\nMAILTO=me\n0 1 * * * tar \\% -- 'x'\n\n@daily y # no line end".encode() + b" \xff"
MATRIX = """name: mine
workloads: {w: {kind: horovod, command: python3 bench.py}}
sizes: [1]
variants: {plain: {}}
"""


@pytest.fixture
def kept(taco: Taco, tmp_path: Path) -> Path:
    file = crontab(tmp_path / "bin")
    taco.env["PATH"] = f"{tmp_path / 'bin'}:{taco.env['PATH']}"
    taco.env.pop("SSH_AUTH_SOCK", None)
    return file


Install = Callable[..., Any]


@pytest.fixture
def install(taco: Taco, kept: Path) -> Install:  # noqa: ARG001 - no real crontab is written
    return lambda *args: taco("nightly", "install", "--with", "cron", *args, stdin=-3)


def test_without_a_cron_that_runs_nothing_is_installed(
    taco: Taco, kept: Path, install: Install, tmp_path: Path
) -> None:
    (tmp_path / "bin" / "pgrep").write_text("#!/bin/sh\nexit 1\n")
    done = install("lab", "--at", "02:30", "--yes")
    assert (done.returncode, done.stdout, kept.exists()) == (2, "", False)
    assert (
        "error: cron is not running here, so the nightly run would never start\nhint: start cron: sudo service cron start"
        in done.stderr
    )
    assert not (taco.state / "nights").exists()
    (tmp_path / "bin" / "pgrep").write_text("#!/bin/sh\nexit 3\n")
    assert install("lab", "--at", "02:30", "--yes").returncode == 0, "where that cannot be seen, it is believed"


def test_a_night_comes_and_goes_and_nothing_else_is_touched(taco: Taco, kept: Path, install: Install) -> None:
    kept.write_bytes(OTHERS)
    shown = install("lab", "--at", "02:30", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "+30 2 * * * : night lab; /usr/bin/env -C " in shown.stdout
    assert shown.stdout.startswith("--- crontab of ")
    refused = install("lab", "--at", "02:30")
    assert (refused.returncode, kept.read_bytes()) == (2, OTHERS)
    assert "stdin is not a terminal" in refused.stderr
    done = install("lab", "--at", "02:30", "--yes")
    assert done.returncode == 0, done.stderr
    assert "tested as cron would start it: the head localhost of local answers" in done.stderr
    first = kept.read_bytes()
    assert first.endswith(OTHERS + b"\n")
    again = install("lab", "--at", "02:30", "--yes")
    assert (again.returncode, again.stdout, kept.read_bytes()) == (0, "", first)
    assert "installed already with these settings: nothing was changed" in again.stderr
    db = taco.state / "h.db"
    other = (
        "lab",
        "--name",
        "second",
        "--at",
        "3:05",
        "--days",
        "sat,sun",
        "--deadline",
        "90m",
        "--db",
        os.path.relpath(db),
        "--yes",
    )
    assert install(*other).returncode == 0
    assert install("lab", "--at", "04:00", "--yes").returncode == 0
    nights = {night["name"]: night for night in status(taco)}
    assert {name: night["at"] for name, night in nights.items()} == {"lab": "04:00", "second": "03:05 sat-sun"}
    tail = ["nightly", "run", "-q", "lab", "--name", "second", "--db", str(db), "--deadline", "5400s"]
    assert list(map(os.path.normpath, nights["second"]["argv"][-len(tail) :])) == tail
    assert nights["lab"]["environment"]["TACO_LAUNCH_STATE"] == str(taco.state)
    assert taco("nightly", "uninstall", "--yes").returncode == 2, "which of them?"
    assert taco("nightly", "uninstall", "second", "lab", "--yes").returncode == 0
    assert kept.read_bytes() == OTHERS + b"\n"
    assert taco("nightly", "uninstall", "lab", "--yes").returncode == 2
    assert status(taco) == []


def test_a_crontab_that_was_not_there_is_not_there_afterwards(taco: Taco, kept: Path, install: Install) -> None:
    assert install("lab", "--at", "2:30", "--mail", "team@example.com", "--yes").returncode == 0
    lines = kept.read_text().splitlines()
    assert [line.partition("=")[0] for line in lines if line.startswith("MAILTO")] == ["MAILTO", "MAILTO"]
    assert lines[1] == "MAILTO=team@example.com"
    assert taco("nightly", "uninstall", "--yes").returncode == 0
    assert not kept.exists()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("lab", "--at", "25:00"), 2, "must be a time of day"),
        (("lab", "--at", "2:30", "--days", "daily"), 2, "must be days"),
        (("lab", "--at", "2:30", "--name", "a b"), 2, "the name of a nightly run has letters"),
        (("lab", "--at", "2:30", "--mail", "a b@c"), 2, "in an address"),
        (
            ("lab", "--at", "2:30", "--with", "systemd", "--mail", "a@b"),
            2,
            "systemd sends no mail: the output of a nightly run is in the journal (journalctl), and its summary in a file",
        ),
        (("nosuch.yaml", "--at", "2:30"), 2, "nosuch.yaml"),
    ],
)
def test_what_is_refused(kept: Path, install: Install, args: tuple[str, ...], code: int, words: str) -> None:
    done = install(*args, "--yes")
    assert (done.returncode, kept.exists()) == (code, False)
    assert words in done.stderr


def test_a_crontab_that_cannot_be_read_is_not_written(kept: Path, install: Install) -> None:
    kept.write_bytes(OTHERS)
    program = kept.with_name("crontab")
    program.write_text("#!/bin/sh\necho 'You (me) are not allowed to use this program (crontab)' >&2; exit 1\n")
    done = install("lab", "--at", "2:30", "--yes")
    assert (done.returncode, kept.read_bytes()) == (1, OTHERS)
    assert "cannot be read: You (me) are not allowed" in done.stderr


def test_what_a_night_lacks_in_crons_environment(taco: Taco, kept: Path, install: Install, tmp_path: Path) -> None:
    matrix = tmp_path / "100% mine.yaml"
    matrix.write_text(MATRIX + "job: {env: {DATA_TOKEN: null}}\n")
    taco.env["DATA_TOKEN"] = "only-here"
    assert install(str(matrix), "--at", "2:30", "--dry-run").returncode == 0, "here it has no faults"
    done = install(str(matrix), "--at", "2:30", "--yes")
    assert (done.returncode, kept.exists()) == (1, False)
    assert "error: a test start of the nightly run, done as cron would do it, failed (exit code 2)" in done.stderr
    assert "DATA_TOKEN" in done.stderr
    assert "only-here" not in done.stdout + done.stderr
    matrix.write_text(MATRIX)
    (taco.state / "history.db").write_text("no database")
    done = install(str(matrix), "--at", "2:30", "--yes")
    assert (done.returncode, kept.exists()) == (1, False)
    assert str(taco.state / "history.db") in done.stderr


def test_what_is_wrong_or_little_is_told_before_anything_is_measured(taco: Taco, tmp_path: Path) -> None:
    matrix = tmp_path / "mine.yaml"
    matrix.write_text(MATRIX.replace("[1]", "[9999]") + "repeats: 1\n")
    refused = taco("nightly", "run", str(matrix), "--junit", str(tmp_path / "none" / "x.xml"))
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error: --junit {tmp_path}/none/x.xml: there is no folder {tmp_path}/none\nhint: mkdir -p {tmp_path}/none\n"
    )
    assert not (taco.state / "nights").exists()
    few = taco("nightly", "run", str(matrix))
    assert (few.returncode, few.stdout) == (2, ""), "the cluster is too small"
    assert "only large differences will show (repeats: 5 in the matrix)" in few.stderr


def test_an_entry_is_compared_with_what_was_installed(taco: Taco, kept: Path, install: Install) -> None:
    assert install("lab", "--at", "02:30", "--yes").returncode == 0
    entry, recorded = kept.read_text(), taco.state / "nights" / "lab" / "installed.json"
    assert status(taco)[0]["entry"] == json.loads(recorded.read_text())["text"] == entry
    kept.write_text(entry.replace("30 2 ", "31 2 "))
    changed = status(taco)[0]
    assert (changed["at"], changed["argv"], changed["next"]) == (None, None, None)
    assert changed["why"] == "its entry differs from what was installed: its time is unknown"
    assert "  differs from what was installed  " in taco("nightly", "status").stdout
    assert install("lab", "--at", "02:30", "--yes").returncode == 0
    assert (kept.read_text(), status(taco)[0]["at"]) == (entry, "02:30")


def test_an_entry_of_an_earlier_version_has_no_record(taco: Taco, kept: Path, install: Install) -> None:
    assert install("lab", "--at", "02:30", "--yes").returncode == 0
    entry, recorded = kept.read_bytes(), taco.state / "nights" / "lab" / "installed.json"
    recorded.unlink()
    assert status(taco)[0]["at"] is None
    assert install("lab", "--at", "02:30", "--dry-run").returncode == 0
    assert not recorded.exists()
    assert "nothing was changed" in install("lab", "--at", "02:30", "--yes").stderr
    assert (kept.read_bytes(), status(taco)[0]["at"]) == (entry, "02:30"), "the record was written"
    recorded.unlink()
    by_hand = b"# taco-launch nightly lab begin\n@daily other\n# taco-launch nightly lab end\n"
    kept.write_bytes(by_hand + OTHERS)
    assert taco("nightly", "uninstall", "--yes").returncode == 0
    assert kept.read_bytes() == OTHERS + b"\n"
    assert install("lab", "--at", "02:30", "--yes").returncode == 0
    recorded.write_text("{}")
    unreadable = status(taco)[0]
    assert (unreadable["state"], unreadable["why"]) == ("unknown", f"{recorded}: is not in the format of this version")
    assert taco("nightly", "uninstall", "--yes").returncode == 0
    assert not recorded.exists()


def test_how_the_last_night_went(taco: Taco, kept: Path, install: Install) -> None:
    # an hour that was not a moment ago, and will not come while this runs
    hour = (datetime.now(local_zone()[0]).hour - 3) % 24
    assert install("lab", "--at", f"{hour}:00", "--yes").returncode == 0
    folder = taco.state / "nights" / "lab"
    assert status(taco)[0]["state"] == "never ran"
    began = time.time() - 86400
    installation = record.read(folder, Installation)
    assert installation is not None
    record.write(folder, replace(installation, installed=began))
    assert status(taco)[0]["state"] == "missed", "it was due three hours ago"
    last = LastRun(time.time() - 3 * 3600, 1)
    record.write(folder, last)
    assert status(taco)[0]["state"] == "broken off"
    record.write(folder, LastRun(last.started, 1, last.started + 120, 6, "regression", "w/plain -9 %", "/n/s.md"))
    found = status(taco)[0]
    assert (found["state"], found["last"]["exit_code"]) == ("regression", 6)
    assert found["why"].startswith("w/plain -9 %")
    table = taco("nightly", "status")
    assert table.stdout.splitlines()[0].split() == ["NAME", "AT", "BY", "LAST", "RAN", "TOOK", "RESULT", "NEXT"]
    assert " 2m    regression  " in table.stdout
    assert "w/plain -9 %" in table.stderr
    assert "its summary: /n/s.md" in table.stderr
    assert record.usual_seconds(folder) == 120
    record.write(folder, LastRun(time.time() - 600, os.getpid(), before=record.usual_seconds(folder)))
    with (folder / record.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert " 10m of about 2m  running " in taco("nightly", "status").stdout
    (folder / "last.json").write_text("{}")
    assert status(taco)[0]["state"] == "unknown"
    entry = taco("nightly", "status", "lab").stdout
    assert kept.read_text() in entry
