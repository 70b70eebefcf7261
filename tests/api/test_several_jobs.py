"""Several jobs from Python: one for each combination of values, and the wait for their ends."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from taco_launch.api import Cluster, Job, JobRequest
from taco_launch.api.several_jobs import ARRAY, combinations
from taco_launch.core.errors import NoJobError, TacoLaunchError, UsageError
from taco_launch.core.model.engines import SlurmArray
from taco_launch.core.model.job_rows import JobRow, row_of
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.jobs.request.python_values import coerce_fields
from tests.support.fake_backend import FakeBackend


class Jobs(FakeBackend):
    """Keeps jobs in memory; each time that they are listed the next one of `ends` has ended."""

    def __init__(self, *ends: str) -> None:
        self.kept: dict[str, JobView] = {}
        self.ends = list(ends)

    def submit(self, spec: JobSpec, _environ: Mapping[str, str]) -> JobView:
        if spec.name == "t-3":
            raise TacoLaunchError("the disk is full")
        self.kept[spec.name] = JobView(spec, JobRecord("1", JobState.RUNNING, attempt=1), "/f")
        return self.kept[spec.name]

    def get(self, name: str) -> JobView:
        return self.kept[name]

    def list(self) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
        if self.ends:
            name = self.ends.pop(0)
            code = int(name.partition("-")[2])
            record = replace(self.kept[name].record, state=JobState.FAILED, exit_code=code, ended=float(code))
            self.kept[name] = replace(self.kept[name], record=record)
        return tuple(row_of(job.spec, job.record) for job in self.kept.values()), ()


def cluster(backend: Jobs, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("taco_launch.api.several_jobs._POLL_SECONDS", (0.001, 0.001))
    found = Cluster()
    found.__dict__["backend"] = backend
    return found


def test_a_job_for_each_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Jobs("t-2", "t-1")
    here = cluster(backend, monkeypatch)
    request = JobRequest(command=("train", "--lr={LR}", "{OTHER}"), name="t", np=1, env=(("A", "b"),))
    jobs = here.map(request, {"LR": [0.1, "1e-3"]})
    assert [(job.name, job.spec.command) for job in jobs] == [
        ("t-1", ("train", "--lr=0.1", "{OTHER}")),
        ("t-2", ("train", "--lr=1e-3", "{OTHER}")),
    ]
    assert dict(jobs[1].spec.env) == {"A": "b", "LR": "1e-3"}
    assert [job.name for job in here.as_completed(jobs)] == ["t-2", "t-1"]
    assert here.wait_all(jobs) == (1, 2)


def test_an_array_is_named_by_its_numbers() -> None:
    request = JobRequest(command=("train",), array=SlurmArray(limit=2))
    each = [coerce_fields(job) for job in combinations(request, {ARRAY: [2, 7]})]
    base = str(each[0].name).removesuffix("-2")
    assert base.startswith("train-")
    assert [job.name for job in each] == [f"{base}-2", f"{base}-7"]
    assert [job.array and (job.array.count, job.array.limit) for job in each] == [(2, 2), (2, 2)]
    assert len({job.array and job.array.id for job in each}) == 1
    others = (*combinations(request, {ARRAY: ["a"]}), *combinations(request, {ARRAY: ["07"]}))
    assert {job.array.count if job.array else 0 for job in others} == {0}


def test_the_jobs_of_an_array_have_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = cluster(Jobs(), monkeypatch).map(JobRequest(command=("true",), name="t", np=1), {ARRAY: ["0", "7"]})
    assert [(job.name, dict(job.spec.env)[ARRAY]) for job in jobs] == [("t-0", "0"), ("t-7", "7")]


def test_values_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster(Jobs(), monkeypatch)
    with pytest.raises(UsageError, match=r"matrix: LR: '0\.1': must be a list of values"):
        here.map(JobRequest(command=("true",)), {"LR": "0.1"})
    with pytest.raises(UsageError, match="must be a list of values"):
        here.map(JobRequest(command=("true",)), {"LR": 5})  # type: ignore[dict-item]


def test_a_job_that_cannot_start_names_those_that_have(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster(Jobs(), monkeypatch)
    with pytest.raises(TacoLaunchError, match=r"^the disk is full; started before it: t-1, t-2$"):
        here.map(JobRequest(command=("true",), name="t", np=1), {"A": [1, 2], "B": [3, 4]})


def test_waits_end(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Jobs()
    here = cluster(backend, monkeypatch)
    jobs: list[Job] = here.map(JobRequest(command=("true",), name="t", np=1), {"A": [1, 2]})
    with pytest.raises(TimeoutError, match=r"^t-1, t-2: not ended after 0\.01 s$"):
        here.wait_all(jobs, timeout=0.01)
    del backend.kept["t-1"]
    with pytest.raises(NoJobError, match=r"^t-1: deleted while they were waited for$"):
        here.wait_all(jobs)


def test_a_name_in_the_command_that_is_nearly_one_of_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Jobs()
    with pytest.raises(UsageError, match=r"^command: \{LRR\}: the matrix has no such name$") as error:
        cluster(backend, monkeypatch).map(JobRequest(command=("train", "{LRR}"), np=1), {"LR": [0.1]})
    assert (error.value.hint, backend.kept) == ("did you mean {LR}?", {})
