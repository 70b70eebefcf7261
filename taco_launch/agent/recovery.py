"""A job whose supervisor is gone is ended and recorded as lost, by whoever notices it first."""

import os
from typing import Any, Iterable, List, Mapping, Sequence, Tuple

from taco_launch import state
from taco_launch.agent import facts, processes, records, ssh
from taco_launch.agent.folders import JobFolder
from taco_launch.errors import FAILED, NO_JOB, NoJobError
from taco_launch.model.jobs import JobRecord, JobSpec, JobState

# A host that is being ended has 10 of them for that, and the connection to it 10 more.
_CLEAR_SECONDS = 25.0


def look(folder: JobFolder) -> JobRecord:
    """Give a job's record, true at this moment: a job that nobody supervises any more is ended first.

    Raises:
        NoJobError: somebody removed it meanwhile.
    """
    found = records.record(folder)
    if found.state.is_terminal:
        return found
    try:
        lock = records.try_lock(folder)
    except FileNotFoundError:
        raise NoJobError(f"job {folder.name}: somebody removed it") from None
    if lock is None:
        return found
    close(folder, lock)
    return records.record(folder)


def close(folder: JobFolder, lock: int, roots: Iterable[Tuple[int, int]] = ()) -> None:
    """End all that belongs to the job, record it as lost, let go of `lock`."""
    try:
        found = records.record(folder)
        if found.state.is_terminal:
            return
        recorded = [event.data for event in records.read_events(folder) if "boot" in event.data]
        here = [data for data in recorded if data["boot"] == facts.boot_id()]
        known = [(int(pid), int(start)) for data in here for pid, start in data["roots"]]
        gone = processes.end(found.id, (*roots, *known))
        told = {"left": [entry.pid for entry in gone.found], "unknown": gone.unknown}
        notes = [left(told), *_elsewhere(folder, found, recorded)]
        events = records.Events(folder)
        reason = "the host restarted" if len(here) < len(recorded) else "its supervisor was killed"
        debug = folder.debug.read_text(encoding="utf-8", errors="replace").splitlines() if folder.debug.exists() else []
        if debug:
            reason += f" (its last words: {debug[-1]}; see {folder.debug})"
        reason = "; ".join(filter(None, (reason, *notes)))
        code = FAILED if found.started else NO_JOB
        events.add(state.ENDED, reason, state=JobState.LOST.value, exit_code=code)
        folder.caller.unlink(missing_ok=True)
    finally:
        os.close(lock)


def clear(hosts: Sequence[str], agent: str, folder: JobFolder, job_id: str) -> List[str]:
    """End a job on other hosts, without their guards; say what is left there, and what could not be reached."""
    answers = ssh.ask(hosts, agent, "clear", str(folder.path), job_id, seconds=_CLEAR_SECONDS)
    words = []
    for host, answer in answers:
        told = {"left": (), "unknown": answer} if isinstance(answer, str) else answer
        words.append(left(told, host))
    return [word for word in words if word]


def left(answer: Mapping[str, Any], host: str = "") -> str:
    """Say what is left of a job: process numbers in `left`, and in `unknown` why there may be more."""
    where = f" on {host}" if host else ""
    words = []
    if answer["left"]:
        words.append(f"still alive{where}: {', '.join(map(str, answer['left']))}")
    if answer["unknown"]:
        words.append(f"not proven gone{where}: {answer['unknown']}")
    return "; ".join(words)


def elsewhere(spec: JobSpec, record: JobRecord) -> List[str]:
    """Name the hosts of a job that are not this one."""
    here = {host.name for host in spec.hosts if spec.is_here(host)}
    return [name for name in record.hosts if name not in here]


def _elsewhere(folder: JobFolder, found: JobRecord, recorded: Sequence[Mapping[str, Any]]) -> List[str]:
    agent = next((data["agent"] for data in recorded if "agent" in data), None)
    if agent is None:  # no rank was ever started
        return []
    hosts = elsewhere(records.read_spec(folder), found)
    return clear(hosts, str(agent), folder, found.id) if hosts else []
