"""What the agent answers to the controller: one function per operation, JSON in, frames out."""

import math
import os
import subprocess
import tempfile
import time
import traceback
import uuid
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Mapping, Optional

from taco_launch import state
from taco_launch.agent import facts, logs, program, protocol, records, recovery, ssh
from taco_launch.agent.folders import JobFolder, Jobs, state_folder
from taco_launch.errors import CANNOT_PLACE, HOST_FAILED, HostError, TacoLaunchError, UsageError
from taco_launch.launch.env import JOB_ID, JOB_NAME
from taco_launch.model.codec import from_json, to_json
from taco_launch.model.jobs import JobRecord, JobSpec, JobState

_POLL_SECONDS = (0.005, 0.1)  # while something comes, and when nothing has come for a while
_PLACE_SECONDS = 60.0
# How often a follower makes sure that somebody still supervises the job.
_LOOK_SECONDS = 1.0
_REMOVE_SECONDS = 25.0

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
    descriptor, path = tempfile.mkstemp(prefix="taco-launch-bug-", suffix=".log")
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
        traceback.print_exception(type(error), error, error.__traceback__, file=log)
    return TacoLaunchError(f"a bug in the agent: {type(error).__name__}: {error}", f"the details are in {path}")


def _submit(jobs: Jobs, agent: str, request: Mapping[str, Any]) -> Frames:
    """Make the job's folder, start its supervisor, wait until it has a place or has ended; then follow it, if asked."""
    spec, caller = from_json(JobSpec, request["spec"]), dict(request["caller"])
    if caller.pop("inherit", False):  # the caller is elsewhere: the job has what this process was started with
        caller["environment"] = {**os.environ, **caller["environment"]}
        spec = replace(spec, cwd=spec.cwd or str(Path.cwd()))
    with jobs.create(spec.name) as draft:
        draft.agent.symlink_to(agent)
        records.write_spec(draft, spec)
        records.write_json(draft.caller, caller)
        records.Events(draft).add(state.SUBMITTED, "waiting for its supervisor", id=uuid.uuid4().hex)
        lock = records.try_lock(draft)
        folder = jobs.publish(draft, spec.name)
    environment = {name: value for name, value in os.environ.items() if name not in (JOB_ID, JOB_NAME)}
    with open(folder.debug, "ab", opener=_private) as debug:
        subprocess.Popen(
            program.argv(agent, "run", str(folder.path)),
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=debug,
            stderr=debug,
            pass_fds=() if lock is None else (lock,),
            start_new_session=True,
        )
    if lock is not None:
        os.close(lock)
    deadline = time.monotonic() + _PLACE_SECONDS
    while records.record(folder).state is JobState.QUEUED and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS[0])
        recovery.look(folder)
    job = _shown(folder)
    if job["record"]["exit_code"] in (CANNOT_PLACE, HOST_FAILED) and job["record"]["started"] is None:
        jobs.remove(folder)  # it never began, and the answer says why
        yield {"job": job}
        return
    yield {"job": job}
    if request["follow"]:
        what = {"name": spec.name, "rank": None, "offset": 0, "tail": None, "follow": True}
        yield from _logs(jobs, agent, {**what, "seconds": request.get("seconds")})


def _list(jobs: Jobs, _agent: str, _request: Mapping[str, Any]) -> Frames:
    for folder in jobs.all():
        try:
            yield {"job": _shown(folder)}
        except TacoLaunchError as error:
            yield {"warning": error.message}


def _get(jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    folder = jobs.get(request["name"])
    yield {"job": {**_shown(folder), "events": to_json(records.read_events(folder))}}


def _logs(jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    """Give a log from an offset on as frames `{"offset", "bytes"}` with the bytes behind, and the job at its end.

    Where `seconds` are given, the answer ends without the job after so long: who follows asks again, and a follower
    that has gone leaves nothing behind for longer.
    """
    folder = jobs.get(request["name"])
    reader = logs.Reader(_stem(folder, request["rank"]), _offset(folder, request))
    if request["tail"] is not None:
        yield {"offset": reader.offset, "bytes": 0}
    until = time.monotonic() + (request.get("seconds") or math.inf)
    look_at, shown, pause = 0.0, "", _POLL_SECONDS[0]
    while True:
        if time.monotonic() >= look_at:
            record = recovery.look(folder)
            look_at = time.monotonic() + _LOOK_SECONDS
        else:
            record = records.record(folder)
        # The record was read before the log: when it says the job has ended, what follows is all there will be.
        data = reader.read()
        pause = _POLL_SECONDS[0] if data else min(2 * pause, _POLL_SECONDS[1])
        while data:
            if reader.skipped:
                yield {"skipped": reader.skipped}
                reader.skipped = 0
                data = data[data.find(b"\n") + 1 :]  # what was dropped ended in the middle of a line
            yield {"offset": reader.offset, "bytes": len(data)}
            yield data
            data = reader.read()
        if not request["follow"] or record.state.is_terminal:
            yield {"job": _shown(folder)}
            return
        if time.monotonic() > until:
            return
        if record.state.value != shown:
            shown = record.state.value
            yield {"state": shown}
        time.sleep(pause)


def _stem(folder: JobFolder, rank: Optional[int]) -> Path:
    if rank is None:
        return folder.merged
    count = records.record(folder).np
    if count and rank >= count:
        raise UsageError(f"job {folder.name}: it has no rank {rank}", hint=f"its ranks are 0 to {count - 1}")
    return folder.rank(rank)


def _offset(folder: JobFolder, request: Mapping[str, Any]) -> int:
    lines = request["tail"]
    if lines is None:
        return int(request["offset"])
    return logs.tail(_stem(folder, request["rank"]), lines)


def _stop(jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    """Ask a job's supervisor to end it; a job that has ended stays as it is."""
    folder = jobs.get(request["name"])
    if not recovery.look(folder).state.is_terminal:
        records.write_json(folder.stop, {key: request[key] for key in ("by", "signal", "grace")})
    yield {"job": _shown(folder)}


def _delete(jobs: Jobs, agent: str, request: Mapping[str, Any]) -> Frames:
    """Remove what is kept of a job that has ended, on its other hosts as well where they can be reached."""
    folder = jobs.get(request["name"])
    record = recovery.look(folder)
    if not record.state.is_terminal:
        raise UsageError(f"job {folder.name}: it is {record.state.value}", hint=f"taco-launch stop {folder.name}")
    shown = _shown(folder)
    hosts = recovery.elsewhere(records.read_spec(folder), record)
    if hosts:
        for host, answer in ssh.ask(hosts, agent, "remove", str(folder.path), record.id, seconds=_REMOVE_SECONDS):
            if isinstance(answer, str):
                yield {"warning": f"host {host}: what it keeps of job {folder.name} is still there: {answer}"}
    jobs.remove(folder)
    yield {"job": shown}


def _facts(_jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    """Give what a plan has to know of this host, and of the Open MPI that a program on the caller's PATH is of."""
    openmpi, problem = None, ""
    try:
        openmpi = facts.openmpi(request["mpirun"], {**os.environ, "PATH": request["path"]})
    except HostError as error:
        problem = error.message
    yield {"host": facts.host(count_slots=request["count_slots"]), "openmpi": openmpi, "problem": problem}


def _shown(folder: JobFolder) -> Dict[str, Any]:
    spec = records.read_spec(folder)
    record: JobRecord = recovery.look(folder)
    return {"spec": to_json(spec), "record": to_json(record), "folder": str(folder.path)}


def _unknown(_jobs: Jobs, agent: str, _request: Mapping[str, Any]) -> Frames:
    raise UsageError(f"{agent} does not know this operation", hint="upgrade taco-launch on this host")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


_OPERATIONS: Dict[str, Callable[[Jobs, str, Mapping[str, Any]], Frames]] = {
    "submit": _submit,
    "list": _list,
    "get": _get,
    "logs": _logs,
    "stop": _stop,
    "delete": _delete,
    "facts": _facts,
}
