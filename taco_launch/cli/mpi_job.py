"""A job in the shape of the MPI Operator's MPIJob (kubeflow.org/v2beta1): conditions, replica statuses, run policy; pure.

The names are those of its types.go; what they mean there stands in mpi_job_controller_status.go. Two ends that it has
not are `Failed` with reasons of our own: MPIJobCancelled and MPIJobLost.
"""

import math
import time
from typing import Any

from taco_launch.model.jobs import JobRecord, JobSpec, JobState

_RUNS = frozenset((JobState.STARTING, JobState.RUNNING, JobState.STOPPING))
_ENDS = {
    JobState.SUCCEEDED: ("Succeeded", "MPIJobSucceeded"),
    JobState.FAILED: ("Failed", "MPIJobFailed"),
    JobState.CANCELLED: ("Failed", "MPIJobCancelled"),
    JobState.LOST: ("Failed", "MPIJobLost"),
}
_CLEAN_UP = {"running": "Running", "all": "All", "none": "None"}
_RESTART = {"never": "Never", "on-failure": "OnFailure", "exit-code": "ExitCode"}


def mpi_job(spec: JobSpec, record: JobRecord) -> dict[str, Any]:
    """Give apiVersion, kind, metadata, spec and status; what is not known or not set is left out, as there."""
    workers = [share.ranks for share in record.shares] or [0] * len(record.hosts)
    restart = _RESTART[spec.policy.restart.value]
    slots = max(workers, default=0) or spec.slots_per_host
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": _set(
            name=spec.name, namespace=spec.cluster, uid=record.id, creationTimestamp=_moment(record.submitted)
        ),
        "spec": {
            **_set(slotsPerWorker=slots),
            "runPolicy": run_policy(spec, record),
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": restart},
                "Worker": {"replicas": len(workers) or spec.host_count or len(spec.hosts), "restartPolicy": restart},
            },
        },
        "status": _set(
            conditions=conditions(record),
            replicaStatuses=_replicas(record),
            startTime=_moment(record.started),
            completionTime=_moment(record.ended),
        ),
    }


def run_policy(spec: JobSpec, record: JobRecord) -> dict[str, Any]:
    """Give runPolicy; times are whole seconds, rounded up. `suspend` is whether the job is suspended now."""
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


def conditions(record: JobRecord) -> list[dict[str, str]]:
    """Fold the job's changes of state to conditions, the one that changed last at the end.

    Of Running and Restarting there is only the later one. Running is no more true when the job has ended or is suspended.
    """
    found: dict[str, dict[str, str]] = {}

    def put(kind: str, status: bool, reason: str, message: str, when: float) -> None:
        found.pop(kind, None)
        found[kind] = {
            "type": kind,
            "status": "True" if status else "False",
            "reason": reason,
            "message": message,
            "lastUpdateTime": _moment(when) or "",
            "lastTransitionTime": _moment(when) or "",
        }

    for number, change in enumerate(record.transitions):
        when, state, message = change.time, change.state, change.reason
        if number == 0:
            put("Created", True, "MPIJobCreated", message, when)
        if state is JobState.SUSPENDED:
            if "Running" in found:
                put("Running", False, "MPIJobSuspended", message, when)
            put("Suspended", True, "MPIJobSuspended", message, when)
        elif found.get("Suspended", {}).get("status") == "True" and state not in _ENDS:
            put("Suspended", False, "MPIJobResumed", message, when)
        if state is JobState.RUNNING:
            found.pop("Restarting", None)
            put("Running", True, "MPIJobRunning", message, when)
        elif state is JobState.RESTARTING:
            found.pop("Running", None)
            put("Restarting", True, "MPIJobRestarting", message, when)
        elif state in _ENDS:
            kind, reason = _ENDS[state]
            for other in ("Running", "Restarting"):
                if found.get(other, {}).get("status") == "True":
                    put(other, False, reason, message, when)
            put(kind, True, reason, message, when)
    return list(found.values())


def _replicas(record: JobRecord) -> dict[str, dict[str, int]] | None:
    """Count launcher and workers (hosts) that are active or failed; workers that ended well are cleaned up, and no more."""
    hosts = len(record.shares) or len(record.hosts)
    if not hosts:
        return None
    if record.state in _RUNS:
        return {"Launcher": {"active": 1}, "Worker": {"active": hosts}}
    if record.state is JobState.SUCCEEDED:
        return {"Launcher": {"succeeded": 1}, "Worker": {}}
    failed = record.first_failure is not None
    return {
        "Launcher": {"failed": 1} if record.state.is_terminal else {},
        "Worker": {"failed": 1} if failed else {},
    }


def _moment(when: float | None) -> str | None:
    """Give a time as RFC 3339 says, in UTC and whole seconds."""
    return None if when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def _seconds(span: float | None) -> int | None:
    return None if span is None else math.ceil(span)


def _set(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
