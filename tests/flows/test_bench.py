"""bench run: what is told of a run that failed."""

from typing import Any

import pytest

from taco_launch.errors import TacoLaunchError
from taco_launch.flows import bench, jobs
from taco_launch.flows.follow import Job
from taco_launch.model.hosts import Host
from taco_launch.model.jobs import Finding, JobRecord, JobSpec, JobState
from taco_launch.remote.head import Head
from taco_launch.remote.local import Local
from taco_launch.remote.seat import on_host


def test_a_run_that_failed_says_what_to_do_and_where_its_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = JobSpec("b", ("python3", "x.py"), (Host("gpu1", "gpu1"),), head="gpu1")
    finding = Finding("script-missing", "Python finds no script /x.py on gpu1.", "Mount or copy it there.", "gpu1", 1)
    record = JobRecord("1", JobState.FAILED, exit_code=2, reason="rank 0 on gpu1 exited with 2", findings=(finding,))

    def run(_head: Head, one: JobSpec, *_more: Any) -> Job:
        return Job(one, record, "/")

    monkeypatch.setattr(jobs, "run", run)
    head = Head(Local("gpu1"), on_host(), "taco-launch -i c.yaml")
    with pytest.raises(TacoLaunchError) as caught:
        bench.run(head, spec, (1,), {}, lambda _progress: None, lambda _words: None)
    reason = "job b-np1: rank 0 on gpu1 exited with 2\ncause: Python finds no script /x.py on gpu1."
    assert (caught.value.message, caught.value.exit_code) == (reason, 2)
    assert caught.value.hint == "Mount or copy it there. Its log: taco-launch -i c.yaml logs b-np1"
