"""The MPI Operator's shape of a job: what kubectl would show of an MPIJob that fared so."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.cli.output.job_tables import job_data
from taco_launch.cli.output.mpi_job import conditions, mpi_job
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import CleanUp, Event, JobRecord, JobSpec, Policy, Restart

BEGIN = 1_562_710_551.0  # 2019-07-09T22:15:51Z, as in the operator's guide
SPEC = JobSpec(
    "tensorflow-benchmarks",
    ("python", "tf_cnn_benchmarks.py"),
    (Host("gpu1", "10.0.0.1", slots=2), Host("gpu2", "10.0.0.2", slots=2)),
    np=4,
    cluster="default",
)
SHARES = [{"host": "gpu1", "ranks": 2, "slots": []}, {"host": "gpu2", "ranks": 2, "slots": []}]
PLACED: dict[str, Any] = {"np": 4, "hosts": ["gpu1", "gpu2"], "line": "mpirun", "shares": SHARES}


def record(*events: tuple[float, str, dict[str, Any]]) -> JobRecord:
    submitted = Event(BEGIN, state.SUBMITTED, "why submitted", {"id": "1c5b"})
    return state.reduce([submitted, *(Event(BEGIN + at, kind, f"why {kind}", data) for at, kind, data in events)])


def ends(at: float, how: str, **more: Any) -> tuple[float, str, dict[str, Any]]:
    return at, state.ENDED, {"state": how, "exit_code": 1, **more}


RUNS: tuple[tuple[float, str, dict[str, Any]], ...] = ((1.0, state.PLACED, PLACED), (3.0, state.RUNNING, {}))


def told(found: JobRecord) -> list[tuple[str, str, str, str]]:
    return [(c["type"], c["status"], c["reason"], c["lastTransitionTime"][14:]) for c in conditions(SPEC, found)]


def test_a_job_that_succeeded_as_in_the_operators_guide() -> None:
    found = record(*RUNS, ends(75, "SUCCEEDED"))
    shape = mpi_job(SPEC, found)
    assert (shape["apiVersion"], shape["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert shape["metadata"] == {
        "name": "tensorflow-benchmarks",
        "namespace": "default",
        "uid": "1c5b",
        "creationTimestamp": "2019-07-09T22:15:51Z",
    }
    assert shape["status"] == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "MPIJobCreated",
                "message": "why submitted",
                "lastUpdateTime": "2019-07-09T22:15:51Z",
                "lastTransitionTime": "2019-07-09T22:15:51Z",
            },
            {
                "type": "Running",
                "status": "False",
                "reason": "MPIJobSucceeded",
                "message": "why ended",
                "lastUpdateTime": "2019-07-09T22:17:06Z",
                "lastTransitionTime": "2019-07-09T22:17:06Z",
            },
            {
                "type": "Succeeded",
                "status": "True",
                "reason": "MPIJobSucceeded",
                "message": "why ended",
                "lastUpdateTime": "2019-07-09T22:17:06Z",
                "lastTransitionTime": "2019-07-09T22:17:06Z",
            },
        ],
        "replicaStatuses": {"Launcher": {"succeeded": 1}, "Worker": {}},
        "startTime": "2019-07-09T22:15:52Z",
        "completionTime": "2019-07-09T22:17:06Z",
    }


def test_a_job_that_waits() -> None:
    found = record((2.0, state.WAITING, {"hosts": [["gpu1", "busy"]]}))
    assert told(found) == [("Created", "True", "MPIJobCreated", "15:51Z")]
    shape = mpi_job(SPEC, found)
    assert sorted(shape["status"]) == ["conditions"]
    assert [c["type"] for c in shape["status"]["conditions"]] == ["Created"]
    assert shape["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2


def test_a_job_that_runs() -> None:
    found = record(*RUNS)
    assert [(kind, status) for kind, status, _, _ in told(found)] == [("Created", "True"), ("Running", "True")]
    shape = mpi_job(SPEC, found)
    assert shape["status"]["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert shape["spec"]["slotsPerWorker"] == 2
    assert "completionTime" not in shape["status"]


@pytest.mark.parametrize(
    ("how", "reason"), [("FAILED", "MPIJobFailed"), ("CANCELLED", "MPIJobCancelled"), ("LOST", "MPIJobLost")]
)
def test_ends_that_are_no_success(how: str, reason: str) -> None:
    found = record(*RUNS, ends(75, how))
    assert told(found)[1:] == [("Running", "False", reason, "17:06Z"), ("Failed", "True", reason, "17:06Z")]
    assert mpi_job(SPEC, found)["status"]["replicaStatuses"] == {"Launcher": {"failed": 1}, "Worker": {}}


def test_the_worker_to_blame() -> None:
    found = record(*RUNS, ends(75, "FAILED", rank=3, host="gpu2"))
    assert mpi_job(SPEC, found)["status"]["replicaStatuses"] == {"Launcher": {"failed": 1}, "Worker": {"failed": 1}}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), {"Master": {"active": 1}, "Worker": {"active": 3}}),
        ((ends(75, "SUCCEEDED"),), {"Master": {"succeeded": 1}, "Worker": {"succeeded": 3}}),
        ((ends(75, "FAILED", rank=3, host="gpu2"),), {"Master": {}, "Worker": {"failed": 1}}),
        ((ends(75, "FAILED", rank=0, host="gpu1"),), {"Master": {"failed": 1}, "Worker": {}}),
    ],
)
def test_without_mpirun_it_is_a_pytorch_job(
    events: tuple[tuple[float, str, dict[str, Any]], ...], expected: dict[str, Any]
) -> None:
    spec = replace(SPEC, launcher="env")
    shape = mpi_job(spec, record(*RUNS, *events))
    assert (shape["apiVersion"], shape["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert {name: part["replicas"] for name, part in shape["spec"]["pytorchReplicaSpecs"].items()} == {
        "Master": 1,
        "Worker": 3,
    }
    assert "slotsPerWorker" not in shape["spec"]
    assert shape["status"]["replicaStatuses"] == expected
    assert {c["reason"][:10] for c in shape["status"]["conditions"]} == {"PyTorchJob"}
    waits = mpi_job(replace(spec, slots_per_worker=2), record((2.0, state.WAITING, {"hosts": []})))
    assert waits["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1


def test_a_job_that_was_suspended_and_resumed() -> None:
    events = [*RUNS, (10.0, state.SUSPENDED, {})]
    assert told(record(*events))[1:] == [
        ("Running", "False", "MPIJobSuspended", "16:01Z"),
        ("Suspended", "True", "MPIJobSuspended", "16:01Z"),
    ]
    assert mpi_job(SPEC, record(*events))["spec"]["runPolicy"]["suspend"] is True
    events += [(20.0, state.RESUMED, {}), (21.0, state.PLACED, PLACED), (22.0, state.RUNNING, {})]
    found = record(*events)
    assert told(found)[1:] == [
        ("Suspended", "False", "MPIJobResumed", "16:11Z"),
        ("Running", "True", "MPIJobRunning", "16:13Z"),
    ]
    assert mpi_job(SPEC, found)["spec"]["runPolicy"]["suspend"] is False


def test_a_job_that_is_stopped_while_it_is_suspended_was_not_resumed() -> None:
    found = record((1.0, state.SUSPENDED, {}), ends(5, "CANCELLED"))
    assert [(kind, status) for kind, status, _, _ in told(found)] == [
        ("Created", "True"),
        ("Suspended", "True"),
        ("Failed", "True"),
    ]


def test_of_running_and_restarting_there_is_only_the_later() -> None:
    again = (10.0, state.RESTARTING, {"delay": 10, "exit_code": 1})
    assert [kind for kind, _, _, _ in told(record(*RUNS, again))] == ["Created", "Restarting"]
    found = record(*RUNS, again, (20.0, state.PLACED, PLACED), (21.0, state.RUNNING, {}))
    assert [kind for kind, _, _, _ in told(found)] == ["Created", "Running"]
    assert told(found)[-1][-1] == "16:12Z"
    assert mpi_job(SPEC, record(*RUNS, again))["status"]["replicaStatuses"] == {"Launcher": {}, "Worker": {}}


def test_a_restart_that_comes_to_nothing() -> None:
    found = record(*RUNS, (10.0, state.RESTARTING, {"delay": 10, "exit_code": 1}), ends(15, "FAILED"))
    assert [(kind, status) for kind, status, _, _ in told(found)[1:]] == [("Restarting", "False"), ("Failed", "True")]


def test_the_run_policy() -> None:
    policy = Policy(
        timeout=90.5,
        queue="night",
        priority=-3,
        queue_timeout=0.0,
        clean_up=CleanUp.ALL,
        restart=Restart.EXIT_CODE,
        backoff_limit=4,
        ttl=100.0,
    )
    shape = mpi_job(replace(SPEC, policy=policy), record())
    assert shape["spec"]["runPolicy"] == {
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 100,
        "activeDeadlineSeconds": 91,
        "backoffLimit": 4,
        "suspend": False,
        "schedulingPolicy": {"queue": "night", "priorityClass": "-3", "scheduleTimeoutSeconds": 0},
    }
    assert shape["spec"]["mpiReplicaSpecs"]["Launcher"] == {"replicas": 1, "restartPolicy": "ExitCode"}
    plain = mpi_job(SPEC, record())["spec"]["runPolicy"]
    assert plain == {
        "cleanPodPolicy": "Running",
        "backoffLimit": 0,
        "suspend": False,
        "schedulingPolicy": {"queue": "default"},
    }


def test_one_document_has_both_shapes() -> None:
    found = record(*RUNS)
    data = job_data(JobView(SPEC, found, "/f", (Event(BEGIN, "submitted"),)))
    assert data["state"] == "RUNNING"
    assert data["status"]["conditions"][-1]["type"] == "Running"
    assert data["spec"]["command"] == ["python", "tf_cnn_benchmarks.py"]
    assert data["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"
    assert data["events"][0]["kind"] == "submitted"
