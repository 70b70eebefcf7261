"""Cluster and Job: what they ask of a backend, and that nothing is loaded or opened before it is needed."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from taco_launch import api
from taco_launch.api import Cluster, JobRequest
from taco_launch.core.errors import NoJobError, SpecError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Container
from taco_launch.core.model.job_view import JobView as Answer
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.jobs.backend import FollowListener, LogQuery, Outcomes, Output
from tests.support.fake_backend import FakeBackend
from tests.support.raisers import raiser

ENVIRON = {"PATH": "/usr/bin", "HOME": "/dev/null"}  # nothing is kept there
TWO = 'cluster: c\nhosts: {gpu1: {slots: 2}, gpu2: {slots: 2}}\nnetwork: {interface: eth0}\nversions: {openmpi: "4.1.4"}\ncontainer: {image: train:1}\n'


class Jobs(FakeBackend):
    """Keeps jobs in memory: each ends with code 3 when it is followed."""

    def __init__(self) -> None:
        self.kept: dict[str, Answer] = {}
        self.asked: list[LogQuery] = []

    def submit(self, spec: JobSpec, environ: Mapping[str, str]) -> Answer:
        assert environ is ENVIRON
        self.kept[spec.name] = Answer(spec, JobRecord("1", JobState.RUNNING, attempt=1), "/f")
        return self.kept[spec.name]

    def run(self, spec: JobSpec, environ: Mapping[str, str], output: Output, watch: FollowListener) -> Answer:
        watch.accepted()
        watch.job(self.submit(spec, environ))
        return self.follow(LogQuery(spec.name), output, watch)

    def get(self, name: str) -> Answer:
        if name not in self.kept:
            raise NoJobError(f"job {name} not found")
        return self.kept[name]

    def follow(self, query: LogQuery, output: Output, watch: FollowListener | None = None) -> Answer:
        self.asked.append(query)
        output(b"gpu1/0 | hello\n")
        if query.follow:
            (watch or FollowListener()).state("FAILED")
            self._becomes(query.name, JobState.FAILED, 3)
        return self.kept[query.name]

    def stop(
        self, names: Sequence[str], by: str, number: int, grace: float | None = None, owner: str | None = None
    ) -> Outcomes:
        assert by.endswith(" (taco-launch stop)")
        assert (number, grace, owner) == (15, 2.0, None)
        (name,) = names
        self._becomes(name, JobState.CANCELLED, 143)
        return Outcomes({name: self.kept[name]})

    def delete(self, names: Sequence[str], by: str | None = None, owner: str | None = None) -> Outcomes:
        assert (by, owner) == (None, None)
        (name,) = names
        return Outcomes({name: self.kept.pop(name)}, ("gpu2: no route to host",))

    def _becomes(self, name: str, state: JobState, code: int) -> None:
        record = replace(self.kept[name].record, state=state, exit_code=code)
        self.kept[name] = replace(self.kept[name], record=record)


@pytest.fixture
def backend() -> Jobs:
    return Jobs()


@pytest.fixture
def cluster(tmp_path: Path, backend: Jobs) -> Cluster:
    (tmp_path / "c.yaml").write_text(TWO)
    return Cluster(tmp_path / "c.yaml", environ=ENVIRON, backend=backend)


def test_a_job_is_started_waited_for_read_and_deleted(cluster: Cluster, backend: Jobs) -> None:
    job = cluster.submit(JobRequest(("python3", "train.py"), name="vgg", np=4))
    assert (job.name, job.state, job.exit_code) == ("vgg", JobState.RUNNING, None)
    assert ([host.name for host in job.spec.hosts], job.spec.np) == (["gpu1", "gpu2"], 4)
    assert job.logs(rank=1, tail=5) == b"gpu1/0 | hello\n"
    assert backend.asked[-1] == LogQuery("vgg", rank=1, tail=5, follow=False)
    with pytest.raises(TimeoutError, match="job vgg is RUNNING after 0 s"):
        job.wait(timeout=0)
    assert job.wait() == 3
    assert backend.asked[-1] == LogQuery("vgg", tail=0)
    assert repr(cluster.job("vgg")) == "<Job vgg: FAILED>"
    assert job.delete() == ("gpu2: no route to host",)
    with pytest.raises(NoJobError, match="job vgg not found"):
        job.refresh()


def test_run_follows_and_says_what_happens(cluster: Cluster) -> None:
    heard: list[bytes] = []
    states: list[str] = []
    job = cluster.run(JobRequest(("true",), name="a"), heard.append, FollowListener(state=states.append))
    assert (job.exit_code, heard, states) == (3, [b"gpu1/0 | hello\n"], ["FAILED"])


def test_stop_waits_for_the_end(cluster: Cluster, backend: Jobs) -> None:
    job = cluster.submit(JobRequest(("true",), name="a"))
    assert job.stop(grace=2.0) == 143
    assert backend.asked == []


def test_all_faults_of_a_request_are_told_at_once(cluster: Cluster) -> None:
    with pytest.raises((SpecError, UsageError)) as caught:
        cluster.submit(JobRequest(("true",), name="a b", launcher="env", transport="tcp", np=4, hosts=9, workers=2))
    assert "a b" in str(caught.value)
    assert "workers" in str(caught.value)


def test_a_plan_of_declared_hosts_asks_nobody(cluster: Cluster) -> None:
    found = cluster.plan(JobRequest(("true",), name="a", np=4, transport="tcp"))
    assert (found.plan.argv[0], found.plan.argv[-1]) == ("mpirun", "true")


def test_an_inventory_that_is_not_there() -> None:
    with pytest.raises(SpecError, match=r"file not found: /nowhere/c\.yaml"):
        _found = Cluster("/nowhere/c.yaml", environ=ENVIRON).inventory


def test_what_nobody_uses_is_not_loaded() -> None:
    script = (
        "import sys; from taco_launch import api;"
        "assert [m for m in sys.modules if m.startswith('taco_launch.')] == ['taco_launch.api'];"
        "api.Cluster, api.JobRequest;"
        "print(sorted({'yaml', 'pydantic', 'paramiko', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_other_names_are_no_part_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clusters'"):
        _found = api.Clusters  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", ["submit", "run"])
def test_a_job_that_could_not_start_is_an_error(call: str) -> None:
    class Refusing(Jobs):
        def submit(self, spec: JobSpec, environ: Mapping[str, str]) -> Answer:
            made = super().submit(spec, environ)
            record = replace(
                made.record,
                attempt=0,
                state=JobState.FAILED,
                exit_code=4,
                reason="99 ranks do not fit",
                hint="request less: --np 2",
            )
            return replace(made, record=record)

        def run(self, spec: JobSpec, environ: Mapping[str, str], *_given: object) -> Answer:
            return self.submit(spec, environ)

    request = JobRequest(command=("true",), name="big", np=99)
    with Cluster(backend=Refusing(), environ=ENVIRON) as cluster, pytest.raises(TacoLaunchError) as caught:
        getattr(cluster, call)(request)
    assert caught.value.hint == "request less: np=2"
    assert (caught.value.message, caught.value.exit_code) == ("job big: 99 ranks do not fit", 4)


def test_a_plan_that_does_not_fit_names_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "plan_of", raiser(UsageError("99 ranks do not fit", "request at most --np 2")))
    with Cluster(environ=ENVIRON) as cluster, pytest.raises(UsageError) as caught:
        cluster.plan(JobRequest(command=("true",), np=99))
    assert caught.value.hint == "request at most np=2"


def test_a_file_that_no_container_has_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    spec = JobSpec("a", ("python3", "train.py"), (), container=Container("image"))
    request = JobRequest(command=spec.command, written={"sync": "--sync"})
    with Cluster(environ=ENVIRON, say=said.append) as cluster:
        for _ in range(2):
            assert cluster.with_code(spec, request) is spec
    assert said == [
        "warning: train.py exists on this machine, but not in the job's containers; to copy this folder to the hosts: --sync ."
    ]


def test_delete_stops_a_job_that_runs_first(cluster: Cluster, backend: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `taco-launch delete` does."""
    stopped: list[str] = []
    job = cluster.submit(JobRequest(("true",), name="a"))
    stop = backend.stop

    def note(names: list[str], by: str, number: int, _grace: object) -> Outcomes:
        stopped.extend(names)
        return stop(names, by, number, 2.0)

    monkeypatch.setattr(backend, "stop", note)
    job.delete()
    assert (stopped, backend.kept) == (["a"], {})


@pytest.mark.parametrize("accepted", [True, False])
def test_ctrl_c_stops_the_job_that_run_follows(
    cluster: Cluster, backend: Jobs, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    """Not another job, which has the same name."""
    stopped: list[str] = []

    def interrupted(spec: JobSpec, environ: Mapping[str, str], _output: Output, watch: FollowListener) -> Answer:
        backend.submit(spec, environ)
        if accepted:
            watch.accepted()
        raise KeyboardInterrupt

    def stop(names: Sequence[str], by: str, number: int) -> Outcomes:
        assert (by, number) == ("Ctrl-C", 2)
        stopped.extend(names)
        return Outcomes({name: backend.kept[name] for name in names})

    monkeypatch.setattr(backend, "run", interrupted)
    monkeypatch.setattr(backend, "stop", stop)
    with pytest.raises(KeyboardInterrupt):
        cluster.run(JobRequest(("true",), name="a"))
    assert stopped == ["a"] * accepted
    assert backend.asked == [LogQuery("a", tail=0)] * accepted


def test_every_public_name_is_imported_by_a_star() -> None:
    names: dict[str, object] = {}
    exec("from taco_launch.api import *", names)
    assert names["Cluster"] is Cluster
    assert set(vars(api)["_MODULES"]) <= set(names)


@pytest.mark.parametrize(
    ("where", "notify", "typed"),
    [
        ("my hosts.yaml", None, ""),
        ("my hosts.yaml", "mailto:a@example.com", "taco-launch -i '{folder}/my hosts.yaml'"),
        (None, "mailto:a@example.com", ""),
    ],
)
def test_messages_name_the_inventory_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None, notify: str | None, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if where is not None:
        Path(where).write_text("cluster: c\nhosts: {gpu1: {slots: 2}}\n")
    spec = Cluster(where, environ=ENVIRON).resolve(JobRequest(command=("true",), np=1, notify=notify))
    assert spec.policy.typed == typed.format(folder=tmp_path)


def test_the_containers_of_slurm_are_by_a_known_program() -> None:
    with pytest.raises(UsageError, match="'docker' is neither apptainer nor pyxis"):
        Cluster("slurm:", slurm_containers="docker")
