"""What the agent answers to the controller: one function per operation, JSON in, frames out."""

import os
import time
from typing import IO, Any, Callable, Dict, Iterable, Mapping

from taco_launch.agent import counts, facts, orders, protocol, submission, tail, views, wake
from taco_launch.agent.folders import Jobs, state_folder
from taco_launch.errors import HostError, TacoLaunchError, UsageError
from taco_launch.model.codec import to_json

Frames = Iterable[Any]


def serve(op: str, agent: str, stdin: IO[bytes], stdout: IO[bytes]) -> int:
    """Answer one call: header and request on stdin, header and frames on stdout. An error is the last frame."""
    stdout.write(protocol.dump(protocol.header(op, agent)))
    request: Mapping[str, Any] = {}
    try:
        protocol.check(protocol.read(stdin), "the host", "the controller")
        request = protocol.read(stdin) or {}
        operation = _OPERATIONS.get(op, _unknown)
        jobs = Jobs(state_folder(os.environ, os.geteuid()))
        jobs.sweep(time.time())
        wake.ensure(jobs, agent)
        for frame in operation(jobs, agent, request):
            stdout.write(frame if isinstance(frame, bytes) else protocol.dump(frame))
            stdout.flush()
        stdout.write(protocol.dump(protocol.END))
        stdout.flush()
    except BrokenPipeError:  # the controller went away; what it asked for goes on without it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except TacoLaunchError as error:
        return _answer(stdout, error)
    except OSError as error:
        where = error.filename or state_folder(os.environ, os.geteuid())
        # Only who submits on this machine has a choice of the folder.
        chosen = request.get("caller", {}).get("inherit") is False
        hint = "free some space there" + (", or name another folder with TACO_LAUNCH_STATE" if chosen else "")
        return _answer(stdout, HostError(f"{where}: {error.strerror or error}", hint))
    except Exception as error:  # noqa: BLE001 - a bug: one line for the user, the traceback into a file
        return _answer(stdout, _bug(error))
    return 0


def _answer(stdout: IO[bytes], error: TacoLaunchError) -> int:
    stdout.write(protocol.dump(protocol.error_message(error)))
    stdout.flush()
    return error.exit_code


def _bug(error: Exception) -> TacoLaunchError:
    import tempfile  # noqa: PLC0415 - each call would load them, and take as long as it takes to answer
    import traceback  # noqa: PLC0415

    descriptor, path = tempfile.mkstemp(prefix="taco-launch-bug-", suffix=".log")
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
        traceback.print_exception(type(error), error, error.__traceback__, file=log)
    return TacoLaunchError(f"a bug in the agent: {type(error).__name__}: {error}", f"the details are in {path}")


def _facts(_jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    """Give what a plan has to know of this host, and of the Open MPI that a program on the caller's PATH is of."""
    openmpi, problem = None, ""
    try:
        openmpi = facts.openmpi(request["mpirun"], {**os.environ, "PATH": request["path"]})
    except HostError as error:
        problem = error.message
    found: Dict[str, Any] = {
        "host": facts.host(count_slots=request["count_slots"]),
        "openmpi": openmpi,
        "problem": problem,
    }
    if request.get("topology"):
        from taco_launch.agent import topology  # noqa: PLC0415 - only where it is asked for

        models, links = topology.told(state_folder(os.environ, os.geteuid()))
        found["host"]["models"], found["topology"] = models, to_json(links)
    yield found


def _unknown(_jobs: Jobs, agent: str, _request: Mapping[str, Any]) -> Frames:
    raise UsageError(f"{agent} does not know this operation", hint="upgrade taco-launch on this host")


_OPERATIONS: Dict[str, Callable[[Jobs, str, Mapping[str, Any]], Frames]] = {
    "submit": submission.submit,
    "facts": _facts,
    **counts.OPERATIONS,
    **orders.OPERATIONS,
    **tail.OPERATIONS,
    **views.OPERATIONS,
}
