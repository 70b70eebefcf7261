"""A job that fails is explained beside its own text: cause and next step on stderr, in `get` and in its record."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Taco
from tests.support.patience import patience

pytestmark = pytest.mark.e2e


def told(stderr: str) -> dict[str, str]:
    """Return the lines of stderr by their first word."""
    return dict(line.split(": ", 1) for line in stderr.splitlines() if ": " in line)


def test_a_traceback_is_shown_once(taco: Taco) -> None:
    """Where all goes to one place and it stands right above; elsewhere its last lines are repeated."""
    job = taco.argv(
        "run", "--name", "boom", "--replace", "--np", "2", "--", sys.executable, "-c", "raise ValueError(7)"
    )
    mixed = subprocess.run(job, env=taco.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert " | ValueError: 7\n" in mixed.stdout
    assert "the last lines of rank" not in mixed.stdout
    assert "the last lines of rank" in taco("run", *job[job.index("run") + 1 :]).stderr


def test_a_command_that_does_not_exist(taco: Taco) -> None:
    answer = taco("run", "--name", "gone", "--np", "2", "--", "nosuchprogram", "--lr", "1")
    assert answer.returncode == 127
    assert "nosuchprogram" in told(answer.stderr)["cause"]
    assert "not on your PATH" in told(answer.stderr)["next"]
    job = taco.job("gone")
    assert job["findings"][0]["signature"] == "command-missing"
    assert sorted(job["findings"][0]) == ["cause", "host", "line", "next", "signature"]
    shown = taco("get", "gone").stdout
    assert f"\nCAUSE: {told(answer.stderr)['cause']}\n" in shown
    assert f"\nNEXT: {told(answer.stderr)['next']}\n" in shown
    # `wait` and `logs -f` end as `run` does, and the original text is where it was.
    assert told(taco("wait", "gone").stderr)["cause"] == told(answer.stderr)["cause"]
    logs = taco("logs", "-f", "gone", "-v")
    assert told(logs.stderr)["next"] == told(answer.stderr)["next"]
    # what mpirun prints of it is in the log, and in the output with -v only
    assert "localhost/mpirun | " in logs.stdout
    kept = [line for line in logs.stdout.splitlines() if "/mpirun | " not in line]
    assert kept == answer.stdout.splitlines()
    loud = taco("-v", "run", "--name", "loud", "--np", "2", "--", "nosuchprogram")
    assert "localhost/mpirun | " in loud.stdout


def test_an_error_of_the_program(taco: Taco) -> None:
    script = "import os\nif os.environ['RANK'] == '1': raise KeyError('lr')\nimport time; time.sleep(600)"
    answer = taco("run", "--name", "error", "--np", "2", "--", sys.executable, "-c", script)
    assert answer.returncode == 1
    assert told(answer.stderr)["cause"] == "The program raised KeyError: 'lr'."
    finding = taco.job("error")["findings"][0]
    line = taco("logs", "--rank", "1", "error").stdout.splitlines()[finding["line"] - 1]
    assert line == "KeyError: 'lr'"
    assert finding["host"] == "localhost"


def test_a_rank_that_is_killed(taco: Taco) -> None:
    answer = taco("run", "--np", "1", "--", "bash", "-c", "echo 'RuntimeError: CUDA out of memory.'; kill -9 $$")
    assert answer.returncode == 137
    assert told(answer.stderr)["cause"] == "A GPU of localhost ran out of memory."


def test_no_rank_ever_ran(taco: Taco) -> None:
    taco.env["OMPI_MCA_orte_tmpdir_base"] = "/proc/nosuch"
    answer = taco("run", "--name", "none", "--np", "1", "--", "true")
    assert answer.returncode == 125
    assert taco.job("none")["reason"].startswith("no rank started: ")
    assert answer.stderr.count("no rank started: ") == 1
    assert "cause" not in told(answer.stderr)
    assert "df -h" in told(answer.stderr)["next"]
    assert "A call to mkdir was unable to create the desired directory" in answer.stdout


def test_a_job_that_succeeds_or_is_stopped_is_not_explained(taco: Taco) -> None:
    answer = taco("run", "--name", "fine", "--np", "1", "--", "echo", "RuntimeError: CUDA out of memory.")
    assert answer.returncode == 0
    assert taco.job("fine")["findings"] == []
    assert "cause" not in told(answer.stderr)


def test_a_job_that_ran_out_of_its_time_is_explained_by_what_came_before(taco: Taco) -> None:
    stall = "by subset of ranks"
    script = f"echo 'submitted to be reduced, gathered or broadcasted {stall}'; echo 'Missing ranks:'; echo '1: [a]'; sleep 600"
    words = ("--name", "late", "--np", "1", "--timeout", f"{patience(4):.0f}", "--grace", "0.5")
    answer = taco("run", *words, "--", "bash", "-c", script)
    assert (answer.returncode, taco.job("late")["state"]) == (124, "FAILED")
    assert told(answer.stderr)["cause"].startswith("Rank 1 has not reached the collective a")


def test_mpiruns_own_text_without_us(taco: Taco, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        done = subprocess.run(
            ["mpirun", "--allow-run-as-root", "-np", "64", "-H", "localhost:2", "true"],
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert done.returncode == 1
    assert [entry["signature"] for entry in json.loads(taco("explain", "--json", str(log)).stdout)] == [
        "not-enough-slots"
    ]
