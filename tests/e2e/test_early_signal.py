"""--signal: ranks save before they are ended, under each launcher, by a stop, a suspension or the end of their time."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import Taco, eventually
from tests.support.patience import HANG

pytestmark = pytest.mark.e2e

SAVER = Path(__file__).with_name("saver.py")
WHAT = "USR1@30"
MPICH = "TACO_LAUNCH_MPICH"


def start(taco: Taco, folder: Path, *options: str, seconds: str = "0.3", code: str = "0", signal: str = WHAT) -> None:
    """Start a job of two ranks, each behind a shell that has no handler."""
    line = f'{sys.executable} {SAVER} {folder} {seconds} {code}; exit "$?"'
    taco.ok("submit", "--name", "j", "--np", "2", "--signal", signal, *options, "--", "sh", "-c", line)
    eventually(lambda: (folder / "ready-0").exists() and (folder / "ready-1").exists(), 40)


def kinds(taco: Taco) -> list[str]:
    return [event["kind"] for event in taco.job("j")["events"]]


def told(taco: Taco, kind: str) -> str:
    """Return the reason of the one event of a kind."""
    (found,) = (event["reason"] for event in taco.job("j")["events"] if event["kind"] == kind)
    return str(found)


def prepared(taco: Taco, folder: Path, launcher: str) -> None:
    """Have a launcher be found."""
    if launcher == "torchrun":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("cannot: there is no torch")
        (folder / "bin").mkdir()
        (folder / "bin/torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        (folder / "bin/torchrun").chmod(0o755)
        taco.env["PATH"] = f"{folder}/bin:{taco.env['PATH']}"
    if launcher == "hydra":
        if MPICH not in os.environ:
            pytest.skip(f"cannot: {MPICH} is not set")
        inventory = f"cluster: m\nmpirun: {os.environ[MPICH]}\nhosts: {{localhost: {{slots: 2, connection: local}}}}\n"
        (folder / "hosts.yaml").write_text(inventory)
        taco.env["TACO_LAUNCH_INVENTORY"] = str(folder / "hosts.yaml")
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("cannot: there is no mpirun")


@pytest.mark.parametrize("code", ["0", "3"])
@pytest.mark.parametrize("launcher", ["env", "mpirun", "hydra", pytest.param("torchrun", marks=pytest.mark.nightly)])
def test_a_stop_waits_for_all_ranks(taco: Taco, tmp_path: Path, launcher: str, code: str) -> None:
    """Also where the first one ends with an error, after which mpirun or torchrun would end the others at once."""
    prepared(taco, tmp_path, launcher)
    start(taco, tmp_path, "--launcher", launcher, seconds="1.5", code=code)
    taco.ok("stop", "j")
    job = taco.ended("j")
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    assert [(tmp_path / f"saved-{rank}").read_text() for rank in (0, 1)] == ["saved", "saved"]
    assert told(taco, "signalled").startswith("stopped by ")
    assert told(taco, "signalled").endswith("; sent USR1 to its ranks; TERM follows after 30 s")
    assert "signal-not-caught" not in kinds(taco)


def test_a_suspension(taco: Taco, tmp_path: Path) -> None:
    start(taco, tmp_path, "--launcher", "env")
    assert taco("suspend", "j").returncode == 0
    assert taco.job("j")["state"] == "SUSPENDED"
    assert (tmp_path / "saved-1").exists()


def test_the_end_of_its_time(taco: Taco, tmp_path: Path) -> None:
    """It comes before that, and a job that ends then has ended by itself."""
    start(taco, tmp_path, "--launcher", "env", "--timeout", "60", signal="USR1@56")
    job = taco.ended("j", 40)
    assert (job["state"], job["exit_code"]) == ("SUCCEEDED", 0)
    assert told(taco, "signalled").startswith("sent USR1 to its ranks, 5")


def test_ranks_that_do_not_save_in_time(taco: Taco, tmp_path: Path) -> None:
    start(taco, tmp_path, "--launcher", "env", seconds="600", signal="USR1@1")
    assert taco("stop", "j").returncode == 0
    job = taco.ended("j")
    assert (job["state"], job["exit_code"]) == ("CANCELLED", 143)
    assert kinds(taco)[-3:] == ["signalled", "stopping", "ended"]
    assert not list(tmp_path.glob("saved-*"))


def test_a_second_stop_does_not_wait(taco: Taco, tmp_path: Path) -> None:
    start(taco, tmp_path, "--launcher", "env", seconds="600", signal="USR1@900")
    with taco.start("stop", "j") as first:
        eventually(lambda: "signalled" in kinds(taco))
        assert taco("stop", "--grace", "0", "j").returncode == 0
        assert first.wait(HANG) == 0
    assert taco.ended("j")["state"] == "CANCELLED"


def test_a_rank_without_a_handler_goes_on(taco: Taco) -> None:
    """The signal would only end it; that is told."""
    words = ("--name", "j", "--launcher", "env", "--np", "2", "--signal", "USR1@2", "--", "sleep", "600")
    assert taco("submit", *words).returncode == 0
    eventually(lambda: taco.job("j")["state"] == "RUNNING")
    assert taco("stop", "j").returncode == 0
    assert taco.ended("j")["exit_code"] == 143
    assert told(taco, "signal-not-caught").startswith("ranks 0, 1 ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--signal", "KILL@5"), "--signal: 'KILL@5': must be one of USR1, USR2, HUP, INT, TERM"),
        (("--signal", "USR1@"), "--signal: 'USR1@': must be seconds, or a number and s, m, h or d"),
        (("--signal", "USR1@0"), "must be more than 0 s before TERM"),
        (("--signal", "USR1@60", "--timeout", "60"), "--signal: 60 s before the end of a job that may run for 60 s"),
    ],
)
def test_what_is_refused(taco: Taco, words: tuple[str, ...], why: str) -> None:
    done = taco("submit", *words, "--np", "1", "--", "true")
    assert done.returncode == 2
    assert why in done.stderr
