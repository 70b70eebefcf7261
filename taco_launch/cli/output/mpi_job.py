"""A job in the shape of Kubeflow's MPIJob (v2beta1) or PyTorchJob (v1): conditions, replica statuses, run policy; pure.

The names are those of the operators' types.go; what they mean there stands in mpi_job_controller_status.go and
pytorchjob_controller.go. Two ends that these have not are `Failed` with reasons of our own: MPIJobCancelled and MPIJobLost.
"""

import calendar
import math
import time
from typing import Any

from taco_launch.core.model.instances import instances
from taco_launch.core.model.jobs import JobRecord, JobSpec, JobState
from taco_launch.core.model.launchers import launcher_of

_RFC_3339 = "%Y-%m-%dT%H:%M:%SZ"
_RUNS = frozenset((JobState.STARTING, JobState.RUNNING, JobState.STOPPING))
_ENDS = {
    JobState.SUCCEEDED: ("Succeeded", "Succeeded"),
    JobState.FAILED: ("Failed", "Failed"),
    JobState.CANCELLED: ("Failed", "Cancelled"),
    JobState.LOST: ("Failed", "Lost"),
}
_CLEAN_UP = {"running": "Running", "all": "All", "none": "None"}
_RESTART = {"never": "Never", "on-failure": "OnFailure", "exit-code": "ExitCode"}


def kind_of(spec: JobSpec) -> str:
    """Name the kind of object that such a job would be."""
    return launcher_of(spec).kind


def mpi_job(spec: JobSpec, record: JobRecord) -> dict[str, Any]:
    """Return apiVersion, kind, metadata, spec and status; what is not known or not set is left out, as there."""
    parts = instances(spec, record)
    workers = parts[1:]
    restart = _RESTART[spec.policy.restart.value]
    mpi = launcher_of(spec).is_mpi
    slots = (
        max((len(part.ranks) for part in workers), default=0)
        or spec.slots_per_worker
        or spec.slots_per_host
        or spec.most_per_host
    )
    many = len(workers) if parts else _workers(spec)
    return {
        "apiVersion": "kubeflow.org/v2beta1" if mpi else "kubeflow.org/v1",
        "kind": kind_of(spec),
        "metadata": _set(
            name=spec.name, namespace=spec.cluster, uid=record.id, creationTimestamp=_moment(record.submitted)
        ),
        "spec": {
            **(_set(slotsPerWorker=slots) if mpi else {}),
            "runPolicy": run_policy(spec, record),
            "mpiReplicaSpecs" if mpi else "pytorchReplicaSpecs": {
                _first(spec): {"replicas": 1, "restartPolicy": restart},
                **({} if many is None else {"Worker": {"replicas": many, "restartPolicy": restart}}),
            },
        },
        "status": _set(
            conditions=conditions(spec, record),
            replicaStatuses=_replicas(spec, record),
            startTime=_moment(record.started),
            completionTime=_moment(record.ended),
        ),
    }


def run_policy(spec: JobSpec, record: JobRecord) -> dict[str, Any]:
    """Return runPolicy; times are whole seconds, rounded up. `suspend` is whether the job is suspended now."""
    policy = spec.policy
    return _set(
        cleanPodPolicy=_CLEAN_UP[policy.clean_up.value],
        ttlSecondsAfterFinished=_seconds(policy.ttl),
        activeDeadlineSeconds=_seconds(policy.timeout),
        backoffLimit=policy.backoff_limit,
        suspend=record.state is JobState.SUSPENDED,
        schedulingPolicy=_set(
            queue=policy.queue,
            priorityClass=str(policy.priority) if policy.priority else None,
            scheduleTimeoutSeconds=_seconds(policy.queue_timeout),
        ),
    )


def conditions(spec: JobSpec, record: JobRecord) -> list[dict[str, str]]:
    """Fold the job's changes of state to conditions, the one that changed last at the end.

    Of Running and Restarting there is only the later one. Running is no more true when the job has ended or is suspended.
    """
    found: dict[str, dict[str, str]] = {}

    def put(kind: str, status: bool, reason: str, message: str, when: float) -> None:
        found.pop(kind, None)
        found[kind] = {
            "type": kind,
            "status": "True" if status else "False",
            "reason": f"{kind_of(spec)}{reason}",
            "message": message,
            "lastUpdateTime": _moment(when) or "",
            "lastTransitionTime": _moment(when) or "",
        }

    for number, change in enumerate(record.transitions):
        when, state, message = change.time, change.state, change.reason
        if number == 0:
            put("Created", True, "Created", message, when)
        if state is JobState.SUSPENDED:
            if "Running" in found:
                put("Running", False, "Suspended", message, when)
            put("Suspended", True, "Suspended", message, when)
        elif found.get("Suspended", {}).get("status") == "True" and state not in _ENDS:
            put("Suspended", False, "Resumed", message, when)
        if state is JobState.RUNNING:
            found.pop("Restarting", None)
            put("Running", True, "Running", message, when)
        elif state is JobState.RESTARTING:
            found.pop("Running", None)
            put("Restarting", True, "Restarting", message, when)
        elif state in _ENDS:
            kind, reason = _ENDS[state]
            for other in ("Running", "Restarting"):
                if found.get(other, {}).get("status") == "True":
                    put(other, False, reason, message, when)
            put(kind, True, reason, message, when)
    return list(found.values())


def _first(spec: JobSpec) -> str:
    return "Launcher" if launcher_of(spec).is_mpi else "Master"


def _workers(spec: JobSpec) -> int | None:
    """Count the workers of a job that never had a place, but for a master; None where that is told by its hosts."""
    if launcher_of(spec).is_mpi:
        by_worker = None if spec.np is None or spec.slots_per_worker is None else spec.np // spec.slots_per_worker
        return by_worker or spec.host_count or len(spec.hosts)
    if spec.per_host:
        return (spec.host_count or len(spec.hosts)) - 1
    return None if spec.np is None else spec.np // (spec.slots_per_worker or 1) - 1


def _replicas(spec: JobSpec, record: JobRecord) -> dict[str, dict[str, int]] | None:
    """Count the parts that are active, failed or succeeded; an MPI job's workers that ended well are cleaned up, and no more."""
    parts = instances(spec, record)
    if not parts:
        return None
    first, workers = parts[0], parts[1:]
    mpi = launcher_of(spec).is_mpi
    if record.state in _RUNS:
        return {_first(spec): {"active": 1}, "Worker": {"active": len(workers)}}
    if record.state is JobState.SUCCEEDED:
        return {_first(spec): {"succeeded": 1}, "Worker": {} if mpi else {"succeeded": len(workers)}}
    failure = record.first_failure
    of_first = failure is not None and failure.rank in first.ranks
    return {
        _first(spec): {"failed": 1} if of_first or (mpi and record.state.is_terminal) else {},
        "Worker": {"failed": 1} if failure is not None and not of_first else {},
    }


def _moment(when: float | None) -> str | None:
    """Return a time as RFC 3339 says, in UTC and whole seconds."""
    return None if when is None else time.strftime(_RFC_3339, time.gmtime(when))


def moment(text: str) -> float:
    """Read a time that a condition has."""
    return calendar.timegm(time.strptime(text, _RFC_3339))


def _seconds(span: float | None) -> int | None:
    return None if span is None else math.ceil(span)


def _set(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
