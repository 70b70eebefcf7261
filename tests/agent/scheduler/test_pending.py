"""What the scheduler takes of a job's spec for the queue."""

from pathlib import Path

from taco_launch.agent.scheduler.pending import PendingJobs
from taco_launch.agent.scheduler.slot_watch import HERE
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import GpuConstraints, Host
from taco_launch.core.model.jobs import JobSpec


def test_what_a_job_may_have_of_its_hosts_and_where_these_are(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "state")
    here = Host("me", "127.0.0.1", connection="local", constraints=GpuConstraints(only=(1,), without=(0,)))
    far = Host("gpu2", "10.0.0.2", slots=2, labels=(("leaf", "a"),), constraints=GpuConstraints(without=(1,)))
    with jobs.create("a") as draft:
        records.write_spec(draft, JobSpec("a", ("true",), (here, far), np=1, exclusive=True))
        records.Events(draft).add(state.SUBMITTED, "why", id="id-a")
        jobs.mark("a")
        jobs.publish(draft, "a")
    shelf = PendingJobs(jobs)
    shelf.scan(0.0)
    found = shelf.entries["a"].waiting({}, again=False)
    assert (found.constraints, found.leaves, found.wanted.exclusive) == (
        ((HERE, here.constraints), ("gpu2", far.constraints)),
        (("gpu2", "a"),),
        True,
    )
