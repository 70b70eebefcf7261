"""Stop, suspend, resume and delete of jobs in every state, and submit; no supervisor, no scheduler."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.hosts import Container
from taco_launch.core.model.jobs import JobSpec, JobState, Policy
from tests.support.agent_calls import HOSTS, PLACED, SUCCEEDED, call, locked, submitted

SUSPENDED: tuple[str, dict[str, Any]] = (state.SUSPENDED, {})
RESTARTING = (state.RESTARTING, {"delay": 60})
STOP: dict[str, Any] = {"by": "me", "signal": 15, "grace": None}


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No scheduler is started: how often one would have been."""
    found: list[str] = []

    def start(_jobs: Jobs, agent: str, lock: int) -> None:
        found.append(agent)
        os.close(lock)

    monkeypatch.setattr("taco_launch.agent.upkeep.scheduler_wakeup.start", start)
    return found


def state_of(folder: JobFolder) -> str:
    return records.record(folder).state.value


@pytest.mark.parametrize("events", [(), (SUSPENDED,), (RESTARTING,)], ids=["queued", "suspended", "restarting"])
def test_a_job_that_waits_is_stopped_at_once_and_can_be_deleted(jobs: Jobs, events: Any) -> None:
    folder = submitted(jobs, "a", *events)
    refused = call("delete", names=["a"])
    assert refused.error["hint"] == "taco-launch stop a"
    assert call("stop", names=["a"], **STOP).frames[-1]["job"]["record"]["state"] == "CANCELLED"
    assert call("delete", names=["a"]).whole
    assert not folder.path.exists()


def test_a_job_that_is_being_placed_is_stopped_by_its_supervisor(jobs: Jobs) -> None:
    folder = submitted(jobs, "a")
    lock = locked(folder)
    assert call("stop", names=["a"], **STOP).frames[-1]["job"]["record"]["state"] == "QUEUED"
    assert folder.stop.exists()
    os.close(lock)
    # it was about to say that there is no place: whoever looks next does it
    assert call("get", name="a").frames[-1]["job"]["record"]["state"] == "CANCELLED"


def test_a_running_job_is_asked_to_be_suspended(running: JobFolder) -> None:
    assert call("suspend", names=["running"], by="me").frames[-1]["job"]["record"]["state"] == "RUNNING"
    assert records.read_request(running, running.suspend) == records.StopRequest("me")
    refused = call("resume", names=["running"], by="me")
    assert refused.error["exit_code"] == 2
    assert refused.error["message"] == "job running: it is RUNNING, not SUSPENDED (it is being suspended)"


@pytest.mark.parametrize("events", [(), (RESTARTING,)], ids=["queued", "restarting"])
def test_a_job_that_waits_is_suspended_and_resumed(jobs: Jobs, woken: list[str], events: Any) -> None:
    folder = submitted(jobs, "a", *events)
    jobs.mark("a")
    assert call("suspend", names=["a"], by="me").frames[-1]["job"]["record"]["state"] == "SUSPENDED"
    assert call("suspend", names=["a"], by="me").frames[-1]["job"]["record"]["state"] == "SUSPENDED"
    woken.clear()
    resumed = call("resume", names=["a"], by="bob").frames[-1]["job"]["record"]
    assert (resumed["state"], resumed["reason"]) == ("QUEUED", "resumed by bob")
    assert woken == ["/agent.pyz"]
    assert state_of(folder) == "QUEUED"


@pytest.mark.parametrize("op", ["suspend", "resume"])
def test_what_has_ended_is_neither_suspended_nor_resumed(jobs: Jobs, op: str) -> None:
    submitted(jobs, "a", (state.PLACED, PLACED), SUCCEEDED)
    refused = call(op, names=["a"], by="me")
    assert refused.error["exit_code"] == 2
    assert "it is SUCCEEDED" in refused.error["message"]


def test_only_an_elastic_job_that_runs_is_resized(jobs: Jobs, running: JobFolder) -> None:
    def refused(name: str, hosts: int) -> str:
        return str(call("resize", names=[name], by="me", hosts=hosts).error["message"])

    assert refused("running", 1) == "job running: only an elastic job can change its number of hosts"
    spec = replace(records.read_spec(running), elastic=True, host_count=4, least_hosts=2)
    records.write_spec(running, spec)
    assert refused("running", 1) == "job running: 1 is not between 2 and 4, its --hosts MIN:MAX"
    assert refused("running", 5) == "job running: 5 is not between 2 and 4, its --hosts MIN:MAX"
    assert records.read_resize(running) is None
    assert call("resize", names=["running"], by="me", hosts=3).frames[-1]["job"]["record"]["state"] == "RUNNING"
    assert records.read_resize(running) == records.ResizeRequest("me", 3)
    records.write_spec(submitted(jobs, "a"), replace(spec, name="a"))
    assert refused("a", 3) == "job a: it is QUEUED, not RUNNING"


def test_whoever_calls_starts_the_scheduler_where_one_is_missing(jobs: Jobs, woken: list[str]) -> None:
    submitted(jobs, "a")
    assert call("list").whole
    assert woken == []
    jobs.mark("a")
    assert call("list").whole
    assert woken == ["/agent.pyz"]


# --- several jobs


def test_all_jobs_are_told_before_a_scheduler_looks(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [submitted(jobs, name) for name in "abc"]
    looks: list[tuple[list[bool], tuple[str, ...]]] = []
    notify = "taco_launch.agent.upkeep.scheduler_wakeup.notify"
    monkeypatch.setattr(
        notify, lambda _jobs, *names: looks.append(([folder.stop.exists() for folder in folders], names))
    )
    found = call("stop", names=["a", "b", "nosuch", "c"], **STOP)
    assert looks == [([True, True, True], ("a", "b", "nosuch", "c"))]
    assert [frame["op"] for frame in found.frames] == ["job", "job", "not-done", "job"]
    assert [state_of(folder) for folder in folders] == ["CANCELLED"] * 3


@pytest.mark.parametrize("op", ["stop", "suspend", "resume", "delete"])
@pytest.mark.parametrize(("owner", "refused"), [("alice", False), (None, False), ("bob", True)])
def test_a_job_of_another_user(jobs: Jobs, op: str, owner: str | None, refused: bool) -> None:
    assert call("submit", **request("a", suspend=True)).whole  # no scheduler looks at it
    found = call(op, names=["a"], by="me", signal=15, owner=owner)
    assert ([frame["op"] for frame in found.frames][-1] == "not-done") is refused
    if refused:
        assert (found.error["kind"], found.error["message"]) == ("not-the-owner", "job a is alice's")
        assert not jobs.get("a").stop.exists()


@pytest.mark.parametrize(("op", "kind"), [("stop", None), ("suspend", "usage"), ("resume", "usage")])
def test_of_an_ended_job_nobody_asks_whose_it_is(jobs: Jobs, op: str, kind: str | None) -> None:
    assert call("submit", **request("a", suspend=True)).whole
    records.ended(records.Events(jobs.get("a")), JobState.CANCELLED, 143, "stopped")
    found = call(op, names=["a"], by="me", signal=15, owner="bob")
    assert found.frames[-1].get("failure", {}).get("kind") == kind


def test_delete_stops_what_runs_and_removes_what_has_ended(jobs: Jobs, running: JobFolder) -> None:
    submitted(jobs, "old", (state.PLACED, PLACED), SUCCEEDED)
    found = call("delete", names=["running", "old"], by="delete of me")
    assert [frame["op"] for frame in found.frames] == ["job", "deleted"]
    assert found.frames[0]["job"]["record"]["state"] == "RUNNING"
    assert records.read_json(running.stop) == {"by": "delete of me", "signal": 15, "grace": None}
    assert not (jobs.path / "old").exists()


# --- submit


def request(name: str, **policy: Any) -> dict[str, Any]:
    spec = JobSpec(name=name, command=("true",), hosts=HOSTS, policy=Policy(**policy), owner="alice")
    return {"spec": to_json(spec), "caller": {"environment": {}, "umask": 0o022}, "follow": False}


def test_a_job_that_is_submitted_to_wait(jobs: Jobs, woken: list[str]) -> None:
    found = call("submit", **request("a", suspend=True))
    assert found.frames[0] == {"op": "accepted", "name": "a"}
    assert found.frames[1]["job"]["record"]["state"] == "SUSPENDED"
    assert woken == []
    assert jobs.pending() == ["a"]


def test_a_used_name_says_which_job_has_it_and_only_ones_own_that_does_not_run_may_be_removed(jobs: Jobs) -> None:
    assert call("submit", **request("a", suspend=True)).whole
    refused = call("submit", **request("a"))
    assert refused.error["message"] == "job a: the name is taken: SUSPENDED, of alice, submitted 0 s ago"
    own = "choose another --name, or remove the old one: taco-launch delete a"
    assert refused.error["hint"] == own
    assert state_of(jobs.get("a")) == "SUSPENDED"
    records.ended(records.Events(jobs.get("a")), JobState.CANCELLED, 143, "stopped")
    assert (
        call("submit", **request("a")).error["hint"]
        == "choose another --name, or add --replace: it deletes the old one"
    )
    of_bob = request("a")
    of_bob["spec"]["owner"] = "bob"
    assert call("submit", **of_bob).error["hint"] == "choose another --name"


@pytest.mark.usefixtures("running")
def test_ones_own_that_runs_is_to_be_ended_first() -> None:
    again = request("running")
    again["spec"]["owner"] = ""
    hint = "choose another --name, or end the old one first: taco-launch stop running"
    assert call("submit", **again).error["hint"] == hint


@pytest.mark.parametrize(
    ("wanted", "told"),
    [("train:1", ""), ("docker.io/library/train:1", ""), ("train:2", "the inventory's image is train:2")],
)
def test_an_inventory_that_names_another_image_than_the_containers_have(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: str, told: str
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "image").write_text(f"sha256:{'a' * 64}\ntrain:1\n")
    monkeypatch.setattr("taco_launch.agent.host.containers._CLUSTERS", str(tmp_path))
    monkeypatch.setenv("TACO_LAUNCH_CLUSTER", "c")
    job = request("a", suspend=True)
    job["spec"]["container"] = to_json(Container(image=wanted))
    found = call("submit", **job)
    assert found.whole == (not told)
    if told:
        assert found.error["message"] == f"{told}, but the containers were created from train:1"
        assert list(jobs.all()) == []


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("change", [{"launcher": "slurm"}, {"hosts": []}, {"procs_per_gpu": 0}, {"name": "../a"}])
def test_a_job_that_cannot_be_shown_is_refused(jobs: Jobs, change: dict[str, Any]) -> None:
    bad = request("bad")
    bad["spec"].update(change)
    assert "cannot read this request" in call("submit", **bad).error["message"]
    assert list(jobs.all()) == []
