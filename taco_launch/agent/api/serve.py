"""What the agent replies to the controller: one function per kind of request, which yields the replies."""

import importlib
import os
import socket
import time
from typing import IO, Any, Callable, Iterator, Mapping, Optional, Tuple, Type

from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError, write_hint
from taco_launch.core.protocol import framing as protocol
from taco_launch.core.protocol.calls import EndOfReplies, Failure, Reply, Request, request_of

# What the caller goes on to send follows the request, where that takes it (agent/rank/caller_stream.py).
Operation = Callable[..., Iterator[Reply]]


def serve(op: str, agent: str, stdin: IO[bytes], stdout: IO[bytes]) -> int:
    """Answer one call: header and request on stdin, header and replies on stdout."""
    # Loaded before anything is read: the controller may still be making up what it asks.
    operation = _operation(op)
    stdout.write(protocol.dump(protocol.header(op, agent)))
    request: Optional[Request] = None
    try:
        first = protocol.read(stdin)
        if first is None:  # started ahead by a controller that did not need it
            stdout.flush()
            return 0
        protocol.check(first, "the host", "the controller")
        request = _request(op, stdin)
        jobs = Jobs(state_folder(os.environ, os.geteuid()))
        jobs.sweep(time.time())
        _ensure(jobs, agent)
        if request.takes_input:  # the caller says nothing more before it is answered
            stdout.flush()
        for reply in operation(jobs, agent, request, *_caller(request, stdin)):
            stdout.write(reply.encode())
            stdout.flush()
        stdout.write(EndOfReplies().encode())
        stdout.flush()
    except BrokenPipeError:  # the controller went away; what it requested continues without it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except TacoLaunchError as error:
        return _answer(stdout, error)
    except OSError as error:
        where = error.filename or state_folder(os.environ, os.geteuid())
        # Only who submits on this machine has a choice of the folder.
        caller = getattr(request, "caller", None)
        chosen = caller is not None and not caller.inherit
        hint = write_hint(error, str(where), "name another folder with TACO_LAUNCH_STATE" if chosen else "")
        return _answer(stdout, HostError(f"{where}: {error.strerror or error}", hint))
    except Exception as error:  # noqa: BLE001 - a bug: one line for the user, the traceback into a file
        return _answer(stdout, _bug(error))
    return 0


def _answer(stdout: IO[bytes], error: TacoLaunchError) -> int:
    stdout.write(Failure.of(error).encode())
    stdout.flush()
    return error.exit_code


def _bug(error: Exception) -> TacoLaunchError:
    from taco_launch.agent.store import bug_log  # noqa: PLC0415 - each call would load it, and take as long as it takes to answer

    path = bug_log.write(error)
    return TacoLaunchError(f"a bug in the agent: {type(error).__name__}: {error}", f"the details are in {path}")


def _unknown(_jobs: Jobs, agent: str, _request: Request) -> Iterator[Reply]:
    raise UsageError(f"{agent} does not know this operation", hint="upgrade taco-launch on this host")


def _request(op: str, stdin: IO[bytes]) -> Request:
    line = protocol.read(stdin) or {}
    try:
        return request_of(op, line)
    except ValueError as error:
        raise UsageError(
            f"the agent on {socket.gethostname()} cannot read this request: {error}: its version differs from the caller's",
            hint="install the same version on both machines: taco-launch version",
        ) from None


def _caller(request: Request, stdin: IO[bytes]) -> Tuple[Any, ...]:
    if not request.takes_input:
        return ()
    from taco_launch.agent.rank.caller_stream import CallerStream  # noqa: PLC0415 - few calls have one

    return (CallerStream(stdin),)


def _ensure(jobs: Jobs, agent: str) -> None:
    """Start a scheduler where a job needs one; what tells that is only loaded where there are jobs that may."""
    if jobs.pending():
        from taco_launch.agent.upkeep import scheduler_wakeup  # noqa: PLC0415

        scheduler_wakeup.ensure(jobs, agent)


def _operation(op: str) -> Operation:
    """Load an operation, and no other's modules."""
    modules = next((modules for ops, modules in _MODULES.items() if op in ops), ())
    found = [importlib.import_module(f"taco_launch.agent.{name}") for name in modules]
    operations: Mapping[Type[Request], Operation] = found[0].OPERATIONS if found else {}
    return next((operation for kind, operation in operations.items() if kind.op == op), _unknown)


# Which module has an operation, and what is loaded besides: a supervisor and its guard are forked from who submits.
_MODULES: Mapping[Tuple[str, ...], Tuple[str, ...]] = {
    ("submit",): ("api.submission", "supervisor.supervisor", "guard.guard"),
    ("facts",): ("api.head_facts",),
    ("stop", "suspend", "resume", "resize", "delete"): ("api.job_control",),
    ("logs",): ("api.log_stream",),
    ("variant", "variants"): ("api.job_containers",),
    ("snapshot-prune",): ("api.snapshot_upload",),
    ("usage", "list", "live", "get", "metrics", "top", "prune"): ("api.queries",),
    ("stacks",): ("api.stacks",),
    ("exec", "read-files", "write-files"): ("api.rank_access",),
    ("message",): ("api.messages",),
}
