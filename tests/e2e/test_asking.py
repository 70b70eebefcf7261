"""Job files, suspended jobs and other people's jobs, with the real mpirun."""

from pathlib import Path

import pytest

from tests.conftest import Taco

pytestmark = pytest.mark.e2e

JOB = """
name: greet
command: bash -c 'echo $GREETING $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'
hosts: 1
slotsPerHost: 2
env: {GREETING: hello}
runPolicy:
  schedulingPolicy: {queue: night, priority: 7, scheduleTimeoutSeconds: 1m}
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def test_a_job_out_of_a_file(taco: Taco, job: str) -> None:
    run = taco.ok("run", "-f", job, "-x", "GREETING=hi")
    assert sorted(run.stdout.splitlines()) == ["localhost/0 | hi 0 of 2", "localhost/1 | hi 1 of 2"]
    policy = taco.job("greet")["spec"]["policy"]
    assert (policy["queue"], policy["priority"], policy["queue_timeout"]) == ("night", 7, 60)
    again = taco("submit", "-f", job)
    assert again.returncode == 2
    assert "job greet: the name is taken: SUCCEEDED" in again.stderr


def test_a_file_on_standard_input(taco: Taco) -> None:
    run = taco.ok("run", "-f", "-", "--np", "1", input=JOB.replace("greet", "other"))
    assert run.stdout == "localhost/0 | hello 0 of 1\n"


def test_another_users_job(taco: Taco) -> None:
    assert taco("submit", "--name", "theirs", "--np", "1", "--", "sleep", "600").returncode == 0
    taco.env["LOGNAME"] = "bob"
    for words in (["stop", "theirs"], ["suspend", "theirs"], ["delete", "theirs"], ["exec", "theirs", "true"]):
        assert taco(*words).returncode == 2
    assert taco.job("theirs")["state"] in ("STARTING", "RUNNING")
    assert taco("stop", "--yes", "theirs").returncode == 0
    assert taco.job("theirs")["state"] == "CANCELLED"
