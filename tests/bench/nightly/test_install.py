"""Who keeps a nightly run, and what its user is told of clocks that change, of mail, and of a cron that does not exist."""

import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from taco_launch.bench.nightly.install import carried, choose, program, remarks, schedulers
from taco_launch.bench.nightly.install_plan import (
    ControllerState,
    FileChange,
    InstalledRun,
    InstallPlan,
    read_controller,
)
from taco_launch.bench.nightly.schedule import Schedule, ScheduledRun
from taco_launch.bench.nightly.writable_by_others import writable_by_others
from taco_launch.core.errors import UsageError
from taco_launch.hosts.remote.local import LocalTransport

HERE = ControllerState(1000, "ann", "/home/ann", "/run/user/1000", "", False, True, True, True)
NO = "no systemd runs here"
NO_SYSTEMD, STOPPED = replace(HERE, no_systemd=NO), replace(HERE, cron_runs=False)
TWICE = "already, so it would run twice"
NEITHER = replace(NO_SYSTEMD, crontab=False)
NIGHT = ScheduledRun("n", Schedule(2, 30), "/", ("/t",))
BEFORE = datetime(2027, 3, 1, tzinfo=ZoneInfo("Europe/Berlin"))


def who(machine: ControllerState, word: str | None = None, mail: str | None = None, by: str | None = None) -> str:
    kept = () if by is None else (InstalledRun("n", by, ""),)
    return choose(schedulers(LocalTransport(), machine), machine, word, mail, kept).word


def test_who_keeps_a_night() -> None:
    assert (who(HERE), who(NO_SYSTEMD), who(HERE, mail="a@b")) == ("systemd", "cron", "cron")
    assert (who(HERE, by="cron"), who(HERE, "cron", by="cron")) == ("cron", "cron"), "whoever has it keeps it"
    assert who(replace(HERE, crontab=False)) == "systemd"


@pytest.mark.parametrize(
    ("machine", "asked_for", "message", "hint"),
    [
        (NEITHER, {}, "no systemd runs here; crontab is not installed here", "apt-get install cron"),
        (NO_SYSTEMD, {"word": "systemd"}, "no systemd runs here", "--with cron"),
        (replace(HERE, crontab=False), {"word": "cron"}, "crontab is not installed here", "dnf install cronie"),
        (
            STOPPED,
            {"word": "cron"},
            "cron is not running here, so the nightly run would never start",
            "start cron: sudo",
        ),
        (replace(STOPPED, no_systemd=NO), {}, "no systemd runs here; cron is not running here", "start cron: sudo"),
        (
            replace(STOPPED, no_systemd=NO),
            {"word": "systemd"},
            "no systemd runs here",
            "service cron start; then use --with cron",
        ),
        (HERE, {"word": "systemd", "mail": "a@b"}, "systemd sends no mail", "--with cron"),
        (HERE, {"word": "systemd", "by": "cron"}, f"is installed with cron {TWICE}", "nightly uninstall n"),
        (HERE, {"mail": "a@b", "by": "systemd"}, f"is installed with systemd {TWICE}", "nightly uninstall n"),
    ],
)
def test_who_cannot(machine: ControllerState, asked_for: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        who(machine, **asked_for)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_cron_in_a_container_is_not_this_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In NSpid of its status a process has one number for each namespace of process numbers that it is in (proc(5))."""
    pgrep = tmp_path / "pgrep"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for status, runs in (("NSpid:\t4711\n", True), ("NSpid:\t4711\t12\n", False), ("of an old kernel\n", True)):
        (tmp_path / "status").write_text(status)
        pgrep.write_text(f"#!/bin/sh\necho ..{tmp_path}\n")  # below /proc
        pgrep.chmod(0o755)
        assert read_controller(LocalTransport()).cron_runs is runs, status
    pgrep.write_text("#!/bin/sh\nexit 1\n")
    assert not read_controller(LocalTransport()).cron_runs


def told(machine: ControllerState, word: str) -> list[str]:
    scheduler = choose(schedulers(LocalTransport(), machine), machine, word, None, ())
    return list(remarks(scheduler, machine, NIGHT, BEFORE, "Europe/Berlin"))


def test_what_is_said_of_a_night() -> None:
    assert told(HERE, "cron") == [
        "cron starts it at 02:30, by this machine's clock (Europe/Berlin): next Mon 2027-03-01 02:30",
        "on 2027-03-28 the clock change skips 02:30: cron starts it as soon as the clock has moved forward",
        "on 2027-10-31 the clock change repeats 02:30: cron starts it once",
    ]
    by_systemd = told(HERE, "systemd")
    assert by_systemd[1] == "on 2027-03-28 the clock change skips 02:30: systemd skips that nightly run"
    assert "(journalctl --user -u taco-launch-nightly-n)" in by_systemd[3]
    assert "lingering is switched on" in by_systemd[4]
    assert (
        "which is not installed: the output of the nightly run is lost" in told(replace(HERE, mails=False), "cron")[3]
    )


def test_what_a_night_brings_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "bin:/usr/bin:bin", "SSH_AUTH_SOCK": "/s", "LANG": "", "TACO_LAUNCH_SUDO_PASSWORD": "secret"}
    environ["TACO_LAUNCH_STATE"] = "/state"
    assert carried(environ) == (("PATH", f"{tmp_path}/bin:/usr/bin"), ("TACO_LAUNCH_STATE", "/state"))
    (tmp_path / "taco-launch").touch()
    assert program("taco-launch") == (str(tmp_path / "taco-launch"),)
    assert program("/x/taco_launch/__main__.py")[1:] == ("-I", "-m", "taco_launch")
    with pytest.raises(
        UsageError,
        match="must be a file",
    ):
        program("taco")


def test_a_plan_as_it_is_shown() -> None:
    plan = InstallPlan(
        (("loginctl", "enable-linger", "ann"),), (FileChange("/a b", None, "x\n\ny\n"), FileChange("/c", "x", None))
    )
    assert plan.text() == (
        "$ loginctl enable-linger ann\n"
        "--- /dev/null\n+++ /a b\n@@ -0,0 +1,3 @@\n+x\n+\n+y\n"
        "--- /c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )


# --- Who may change what a program reads: each step on the way to a file counts, as the kernel resolves it


OWN = os.geteuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder below which only what a test makes may be written by others; what is above is not its business."""
    found = tmp_path / "a" / "b"
    found.mkdir(parents=True)
    for each in (found.parent, found):
        each.chmod(0o755)
    return found


def below(folder: Path, *paths: Path) -> list[str]:
    top = str(folder.parent)
    return [line.replace(top, "") for line in writable_by_others(paths, OWN) if line.startswith((f"{top}/", f"{top} "))]


@pytest.mark.parametrize(
    ("mode", "others", "writable"),
    [(0o644, "not there/at all", []), (0o666, "file", ["/b/file is writable by everyone"])],
)
def test_what_is_ones_own_or_everybodys(folder: Path, mode: int, others: str, writable: list[str]) -> None:
    file = folder / "file"
    file.write_text("")
    file.chmod(mode)
    assert below(folder, file, folder / others) == writable


def test_a_folder_on_the_way(folder: Path) -> None:
    (folder / "file").write_text("")
    (folder / "file").chmod(0o600)
    folder.chmod(0o777)
    assert below(folder, folder / "file") == ["/b is writable by everyone"]
    folder.chmod(0o1777)  # as /tmp is: the file is its owner's
    assert below(folder, folder / "file") == []


def test_the_way_of_a_link(folder: Path) -> None:
    real = folder / "real"
    real.mkdir(mode=0o755)
    (real / "file").write_text("")
    (real / "file").chmod(0o644)
    real.chmod(0o777)
    (folder / "link").symlink_to("real")
    (folder / "absolute").symlink_to(real)
    (folder / "up").symlink_to("../b/real/../link")
    for name in ("link", "absolute", "up"):
        assert below(folder, folder / name / "file") == ["/b/real is writable by everyone"]


def test_links_that_go_round(folder: Path) -> None:
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    assert below(folder, folder / "one" / "file") == []


@pytest.mark.skipif(OWN != 0, reason="cannot: only root gives files away")
def test_what_belongs_to_others(folder: Path) -> None:
    file = folder / "file"
    file.write_text("")
    os.chown(file, 12345, 0)
    assert below(folder, file) == ["/b/file belongs to user 12345"]
    os.chown(file, 0, 12345)
    file.chmod(0o664)
    assert below(folder, file) == [
        "/b/file is writable by the group 12345, or by those that its access control list names"
    ]
    file.chmod(0o644)
    assert below(folder, file) == []


def test_what_is_not_there_in_a_folder_like_tmp(folder: Path) -> None:
    folder.chmod(0o1777)
    assert below(folder, folder / "new" / "bin") == ["/b/new does not exist, and anyone can create it"]


@pytest.mark.skipif(OWN != 0, reason="cannot: only root gives files away")
def test_a_link_of_another_user(folder: Path) -> None:
    folder.chmod(0o1777)
    (folder / "real").write_text("")
    (folder / "real").chmod(0o600)
    (folder / "link").symlink_to("real")
    os.lchown(folder / "link", 12345, 12345)
    assert below(folder, folder / "link") == ["/b/link belongs to user 12345"]
