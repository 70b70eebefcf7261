"""How many ranks a request asks for, and where they may be: counted as ranks, as hosts, or as Arena's workers."""

from typing import Any

from taco_launch.errors import UsageError
from taco_launch.model.job_request import JobRequest
from taco_launch.model.launchers import LAUNCHERS

# Each of these groups says how many ranks there are.
_WAYS = (("np",), ("hosts", "slots_per_host"), ("workers", "gpus"))


def sizes(request: JobRequest) -> dict[str, Any]:
    """Return what a JobSpec says of its size, by its fields.

    Raises:
        UsageError: two fields say how many ranks there are, or the launcher cannot do what is asked.
    """
    _refuse_two(request)
    shared = _shared(request)
    if request.workers is None and request.gpus is None:
        found: dict[str, Any] = {"np": request.np, **shared}
        found["slots_per_host" if request.np is None else "most_per_host"] = request.slots_per_host
        if isinstance(request.hosts, tuple):
            return {**found, "least_hosts": request.hosts[0], "host_count": request.hosts[1]}
        return {**found, "host_count": request.hosts}
    workers, gpus = request.workers or 1, request.gpus or 1
    if request.per_host:
        return {"host_count": workers, "slots_per_host": gpus, **shared}
    return {"np": workers * gpus, "slots_per_worker": gpus, **shared}


def _refuse_two(request: JobRequest) -> None:
    given = [[name for name in way if getattr(request, name) is not None] for way in _WAYS]
    said = [found[0] for found in given if found]
    if said == ["np", "slots_per_host"]:
        return
    if len(said) > 1:
        called = " and ".join(map(request.called, said))
        raise UsageError(f"{called}: each says how many ranks there are", hint="leave one of them out")


def _shared(request: JobRequest) -> dict[str, Any]:
    count, launcher = request.procs_per_gpu or 1, request.launcher or "mpirun"
    shares, mps, starts = (request.called(name) for name in ("procs_per_gpu", "mps", "launcher"))
    if request.mps and count == 1:
        raise UsageError(f"{mps}: a GPU of a job is shared only by {shares} N", hint=f"add it, or leave {mps} out")
    if count > 1 and not LAUNCHERS[launcher].is_ours:
        why = f"{starts} {launcher} gives each slot one rank"
        raise UsageError(f"{shares}: {why}", hint=f"add {starts} env, or omit it")
    if count > 1 and request.per_host:
        raise UsageError(
            f"{shares} and {request.called('per_host')}: one starts several processes for a slot, the other one for all of a "
            "host's",
            hint="leave one of them out",
        )
    return {"procs_per_gpu": count, "mps": request.mps}
