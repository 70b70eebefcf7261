"""What the agent answers to the controller: one function per operation, JSON in, frames out."""

import importlib
import os
import time
from typing import IO, Any, Callable, Iterable, Mapping, Tuple

from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.errors import HostError, TacoLaunchError, UsageError
from taco_launch.protocol import framing as protocol

Frames = Iterable[Any]
Operation = Callable[[Jobs, str, Mapping[str, Any]], Frames]


def serve(op: str, agent: str, stdin: IO[bytes], stdout: IO[bytes]) -> int:
    """Answer one call: header and request on stdin, header and frames on stdout. An error is the last frame."""
    # Loaded before anything is read: the controller may still be making up what it asks.
    operation = _operation(op)
    stdout.write(protocol.dump(protocol.header(op, agent)))
    request: Mapping[str, Any] = {}
    try:
        protocol.check(protocol.read(stdin), "the host", "the controller")
        request = protocol.read(stdin) or {}
        jobs = Jobs(state_folder(os.environ, os.geteuid()))
        jobs.sweep(time.time())
        _ensure(jobs, agent)
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


def _unknown(_jobs: Jobs, agent: str, _request: Mapping[str, Any]) -> Frames:
    raise UsageError(f"{agent} does not know this operation", hint="upgrade taco-launch on this host")


def _ensure(jobs: Jobs, agent: str) -> None:
    """Start a scheduler where a job needs one; what tells that is only loaded where there are jobs that may."""
    if jobs.pending():
        from taco_launch.agent import scheduler_wakeup  # noqa: PLC0415

        scheduler_wakeup.ensure(jobs, agent)


def _operation(op: str) -> Operation:
    """Load an operation, and no other's modules."""
    modules = next((modules for ops, modules in _MODULES.items() if op in ops), ())
    if not modules:
        return _unknown
    found = [importlib.import_module(f"taco_launch.agent.{name}") for name in modules]
    operation: Operation = found[0].OPERATIONS[op]
    return operation


# Which module has an operation, and what is loaded besides: a supervisor and its guard are forked from who submits.
_MODULES: Mapping[Tuple[str, ...], Tuple[str, ...]] = {
    ("submit",): ("api.submission", "supervisor.supervisor", "guard.guard"),
    ("facts",): ("host.facts",),
    ("metrics",): ("store.job_counters",),
    ("stop", "suspend", "resume", "delete"): ("api.commands",),
    ("logs",): ("api.log_stream",),
    ("list", "get", "top", "prune", "exec", "exec-end"): ("api.queries",),
}
