"""A user sees the same of waiting jobs in our own queue and in a real Slurm of two nodes."""

import re

import pytest

from tests.conftest import Taco, eventually
from tests.e2e.queue_view import submit

pytestmark = pytest.mark.e2e


@pytest.fixture(params=["agent", "slurm"])
def cluster(taco: Taco, request: pytest.FixtureRequest) -> Taco:
    """The command line with either queue behind it."""
    if request.param == "agent":
        return taco
    environ = request.getfixturevalue("of_slurm")
    return Taco(taco.state, {**taco.env, **environ, "TACO_LAUNCH_INVENTORY": "slurm:"})


def hold(cluster: Taco, name: str = "holder") -> str:
    """Start a job that has all slots until it is stopped; return how many these are."""
    slots = "4" if "TACO_LAUNCH_INVENTORY" in cluster.env else "2"
    submit(cluster, name, "--np", slots, "--", "sleep", "600")
    is_in_state(cluster, name, "RUNNING")
    return slots


def is_in_state(cluster: Taco, name: str, state: str) -> None:
    eventually(lambda: cluster.job(name)["state"] == state, 60, f"{name} to be {state}")


def test_one_job_for_each_number(cluster: Taco) -> None:
    words = ("--name", "each", "--np", "1", "--launcher", "env", "--array", "3,5")
    started = cluster("submit", *words, "--", "sh", "-c", "echo $SLURM_ARRAY_TASK_ID")
    assert started.stdout.split() == ["each-3", "each-5"]
    assert cluster("wait", "each-*").returncode == 0
    assert [cluster("logs", f"each-{n}").stdout.partition("| ")[2] for n in (3, 5)] == ["3\n", "5\n"]
    assert cluster("delete", "each-*").returncode == 0
    assert "each-" not in cluster("list").stdout


def test_jobs_start_in_the_order_of_their_submission(cluster: Taco) -> None:
    slots = hold(cluster)
    for name in ("a", "b"):
        submit(cluster, name, "--np", slots, "--", "true")
    assert {cluster.job(name)["state"] for name in ("a", "b")} == {"QUEUED"}
    assert cluster("stop", "holder").returncode == 0
    assert {cluster.ended(name)["state"] for name in ("a", "b")} == {"SUCCEEDED"}
    assert cluster.job("a")["started"] < cluster.job("b")["started"]


def test_stop_of_a_job_that_waits(cluster: Taco) -> None:
    hold(cluster)
    submit(cluster, "first", "--np", "1", "--", "true")
    assert cluster("stop", "first").returncode == 0
    job = cluster.job("first")
    assert (job["state"], job["exit_code"], job["started"]) == ("CANCELLED", 143, None)
    assert cluster("wait", "first").returncode == 143
    assert cluster("delete", "first").returncode == 0


def test_a_job_that_is_suspended_gives_its_slots_to_others(cluster: Taco) -> None:
    slots = hold(cluster, "mine")
    assert cluster("suspend", "mine").returncode == 0
    is_in_state(cluster, "mine", "SUSPENDED")
    assert cluster("run", "--name", "other", "--np", slots, "--", "true").returncode == 0
    assert cluster("resume", "mine").returncode == 0
    is_in_state(cluster, "mine", "RUNNING")
    assert re.search(r"\[taco-launch: suspended by .*\]\n", cluster("logs", "mine").stdout)
    assert cluster("resume", "mine").returncode == 2
    assert cluster("stop", "mine").returncode == 0
    refused = cluster("suspend", "mine")
    assert (refused.returncode, "it is CANCELLED" in refused.stderr) == (2, True)


def test_suspend_of_a_job_that_waits(cluster: Taco) -> None:
    hold(cluster)
    for name in ("a", "b"):
        submit(cluster, name, "--np", "1", "--", "true")
    assert cluster("suspend", "a").returncode == 0
    assert cluster.job("a")["state"] == "SUSPENDED"
    assert cluster("stop", "holder").returncode == 0
    assert cluster.ended("b")["state"] == "SUCCEEDED"
    assert cluster.job("a")["state"] == "SUSPENDED"
    assert cluster("stop", "a").returncode == 0
    assert cluster.job("a")["state"] == "CANCELLED"
