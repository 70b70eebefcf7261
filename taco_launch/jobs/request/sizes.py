"""How many ranks a request asks for, and where they may be: counted as ranks, as hosts, or as Arena's workers."""

import re
from typing import Any

from taco_launch.core.errors import UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.launchers import LAUNCHERS

# Each of these groups says how many ranks there are.
_WAYS = (("np",), ("hosts", "slots_per_host"), ("workers", "gpus", "slots_per_worker"))


def sizes(request: JobRequest) -> dict[str, Any]:
    """Return what a JobSpec says of its size, by its fields.

    Raises:
        UsageError: two fields say how many ranks there are, or the launcher cannot do what is asked.
    """
    _refuse_two(request)
    found = _counted(request)
    _refuse_fewer(request, found)
    _check_elastic(request, found)
    return {**found, **_shared(request), "elastic": request.elastic}


def _counted(request: JobRequest) -> dict[str, Any]:
    if (request.workers, request.gpus, request.slots_per_worker) == (None, None, None):
        found: dict[str, Any] = {"np": request.np}
        found["slots_per_host" if request.np is None else "most_per_host"] = request.slots_per_host
        if isinstance(request.hosts, tuple):
            return {**found, "least_hosts": request.hosts[0], "host_count": request.hosts[1]}
        return {**found, "host_count": request.hosts}
    workers, slots = request.workers or 1, request.gpus or request.slots_per_worker or 1
    if request.per_host:
        return {"host_count": workers, "slots_per_host": slots}
    return {"np": workers * slots, "slots_per_worker": slots}


def _refuse_two(request: JobRequest) -> None:
    given = [[name for name in way if getattr(request, name) is not None] for way in _WAYS]
    said = [found[0] for found in given if found]
    if said == ["np", "slots_per_host"]:
        return
    said = said if len(said) > 1 else [name for name in given[-1] if name != "workers"]
    if len(said) > 1:
        called = " and ".join(map(request.called, said))
        raise UsageError(f"{called}: each sets how many ranks there are", hint="leave one of them out")


def _refuse_fewer(request: JobRequest, found: dict[str, Any]) -> None:
    """Refuse hosts or workers with fewer ranks than the line of mpirun in an MPIJob asks for.

    Raises:
        UsageError: there are fewer.
    """
    if request.line_np is None:
        return
    hosts, each = found.get("least_hosts") or found.get("host_count"), found.get("slots_per_host")
    ranks = found.get("np") or (hosts * each if hosts and each else 0)
    if ranks < request.line_np:
        given = " and ".join(
            request.called(name) for way in _WAYS for name in way if getattr(request, name) is not None
        )
        makes = f"only {ranks} with {given}" if ranks else f"{given} alone does not set their number"
        ways = f"omit {given} to keep {request.line_np}, or give {request.called('np')} N instead"
        raise UsageError(f"the mpirun line of the file starts {request.line_np} ranks: {makes}", hint=ways)


def _check_elastic(request: JobRequest, found: dict[str, Any]) -> None:
    """Check that a job that gains and loses hosts has a range of them, and a launcher that can start ranks while it runs.

    Raises:
        UsageError: it does not.
    """
    elastic, hosts, launcher = map(request.called, ("elastic", "hosts", "launcher"))
    own = LAUNCHERS[request.launcher or "mpirun"]
    if request.elastic and not own.is_elastic:
        hint = (
            f"add {launcher} torchrun, or for a program that uses hvd.elastic {launcher} horovod; {own.name} cannot start ranks "
            "on other hosts while a job runs"
        )
        raise UsageError(f"{elastic}: requires {launcher} torchrun or horovod", hint=hint)
    if own.is_always_elastic and not request.elastic:
        hint = f"add {elastic} {hosts} MIN:MAX, or for a program that does not use hvd.elastic omit {launcher}"
        raise UsageError(f"{launcher} {own.name}: requires {elastic}", hint=hint)
    if request.elastic and found.get("least_hosts") in (None, found.get("host_count")):
        raise UsageError(f"{elastic}: requires a range of hosts", hint=f"for example: {hosts} 2:4")


def _shared(request: JobRequest) -> dict[str, Any]:
    count, launcher = request.procs_per_gpu or 1, request.launcher or "mpirun"
    shares, mps, starts = (request.called(name) for name in ("procs_per_gpu", "mps", "launcher"))
    if request.mps and count == 1:
        raise UsageError(
            f"{mps}: processes share a GPU of a job only with {shares} N", hint=f"add {shares} N, or leave {mps} out"
        )
    if count > 1 and not LAUNCHERS[launcher].is_ours:
        why = f"{starts} {launcher} gives each slot one rank"
        raise UsageError(f"{shares}: {why}", hint=f"add {starts} env, or omit it")
    if count > 1 and request.per_host:
        one = request.called("per_host")
        raise UsageError(
            f"{shares} and {one} cannot be combined: {shares} starts several processes per slot, {one} starts one process per host",
            hint="omit one of them",
        )
    return {"procs_per_gpu": count, "mps": request.mps}


PATTERN = "[0-9]{1,7}:[0-9]{1,7}"
MOST_HOSTS = 1_000_000


def parse_range(text: str) -> tuple[int, int]:
    """Return the least and the most hosts that a text stands for.

    Raises:
        ValueError: it stands for no such numbers; says what is allowed.
    """
    if not re.fullmatch(PATTERN, text):
        raise ValueError("must be a whole number, or a range MIN:MAX such as 2:4")
    least, most = map(int, text.split(":"))
    if not 1 <= least <= most <= MOST_HOSTS:
        raise ValueError(f"must be MIN:MAX with MIN at least 1, MAX at least MIN and at most {MOST_HOSTS}")
    return least, most
