"""A job whose supervisor is gone is ended and recorded as lost, by whoever notices it first; or it is tried again.

A job that waits has no supervisor, and is left alone; only what somebody asks of it, to be stopped or suspended, is done.
"""

import contextlib
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.host import facts, processes
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import SIGNAL_BASE, JobEnd, NoJobError, TacoLaunchError
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.retries import AttemptResult, Retry, decide
from taco_launch.core.model.jobs import Event, JobRecord, JobSpec, JobState
from taco_launch.core.protocol.relay_messages import Cleared

# A host that is being ended has 10 of them for that, and the connection to it 10 more.
_CLEAR_SECONDS = 25.0


def current_record(folder: JobFolder) -> JobRecord:
    """Return a job's record, true at this moment: a job that nobody supervises any more is ended first.

    Raises:
        NoJobError: somebody removed it meanwhile.
    """
    found = records.record(folder)
    try:
        if not found.id:
            folder.path.stat()
        if found.state.is_terminal or (found.state.waits and not is_asked(folder)):
            return found
        if not found.state.waits and folder.slurm.exists():
            # Its supervisor is on another node: a lock tells nothing of it.
            tell_slurm(folder, "end-if-gone")
            return records.record(folder)
        lock = records.try_lock(folder)
    except FileNotFoundError:
        raise NoJobError(f"job {folder.name}: another process removed it") from None
    if lock is None:
        return found
    close(folder, lock)
    return records.record(folder)


def is_asked(folder: JobFolder) -> bool:
    """Return whether somebody asks that the job is stopped or suspended."""
    return folder.stop.exists() or folder.suspend.exists()


def close(folder: JobFolder, lock: int, roots: Iterable[Tuple[int, int]] = ()) -> None:
    """End all that belongs to the job, record it as lost or to be tried again, let go of `lock`.

    Of a job that waits there is nothing to be ended: what somebody asks of it is done.
    """
    try:
        found = records.record(folder)
        if found.state.is_terminal:
            return
        if found.state.waits:
            apply_stop_or_suspend(folder, found)
            return
        if folder.slurm.exists():  # it has begun on another node since the caller looked
            return
        _lose(folder, found, roots)
    finally:
        os.close(lock)
    jobs = Jobs(folder.path.parent.parent)
    scheduler_wakeup.notify(jobs, folder.name)
    scheduler_wakeup.ensure(jobs, os.path.realpath(folder.agent))


def apply_stop_or_suspend(folder: JobFolder, found: JobRecord) -> None:
    """Do what somebody asks of a job that waits, whose lock the caller has."""
    stop, suspend = records.read_request(folder, folder.stop), records.read_request(folder, folder.suspend)
    if stop is not None:
        tell_slurm(folder, "cancel")
        records.ended(records.Events(folder), JobState.CANCELLED, SIGNAL_BASE + stop.signal, f"stopped by {stop.by}")
        folder.caller.unlink(missing_ok=True)
    elif suspend is not None and found.state is JobState.RESTARTING and folder.slurm.exists():
        return  # it has nodes: what runs on them does it
    elif suspend is not None:
        if found.state is not JobState.SUSPENDED:
            tell_slurm(folder, "hold")
            records.Events(folder).add(state.SUSPENDED, f"suspended by {suspend.by}")
        folder.suspend.unlink(missing_ok=True)


def tell_slurm(folder: JobFolder, what: str) -> None:
    """Do one of `slurm_job.REQUESTS` with a job that is in Slurm's queue. Raises as `programs.jobs` does."""
    if folder.slurm.exists():
        from taco_launch.agent.slurm import slurm_job  # noqa: PLC0415 - other jobs need none of it

        slurm_job.REQUESTS[what](folder)


def _lose(folder: JobFolder, found: JobRecord, roots: Iterable[Tuple[int, int]]) -> None:
    """End what is left of a job without a supervisor, everywhere; record that."""
    recorded = [event.data for event in _of_last_attempt(folder) if "boot" in event.data]
    here = [data for data in recorded if facts.is_this_boot(data["boot"])]
    gone = processes.end(found.mark, (*roots, *roots_of(folder, here)))
    here_left = describe_leftovers([entry.pid for entry in gone.found], gone.unknown)
    notes = [here_left, *_elsewhere(folder, found, recorded)]
    events = records.Events(folder)
    reason = "the head or its container restarted" if len(here) < len(recorded) else "its supervisor was killed"
    with contextlib.suppress(OSError):
        if words := untrusted.last_line(folder.debug):
            reason += f" (its last output: {words}; see {folder.debug})"
    reason = "; ".join(filter(None, (reason, *notes)))
    code = JobEnd.LOST
    again = None if is_asked(folder) else _again(folder, found)
    if again is not None:
        events.add(state.RESTARTING, reason, delay=again.delay, left_out=again.left_out, exit_code=code)
    elif folder.suspend.exists() and not folder.stop.exists():
        events.add(state.SUSPENDED, reason)
        folder.suspend.unlink(missing_ok=True)
    else:
        records.ended(events, JobState.LOST, code, reason)
        folder.caller.unlink(missing_ok=True)


def _again(folder: JobFolder, found: JobRecord) -> Optional[Retry]:
    try:
        policy = records.read_spec(folder).policy
    except TacoLaunchError:  # it cannot be tried without
        return None
    return decide(policy, found, AttemptResult(JobState.LOST, JobEnd.LOST)).retry


def clear(hosts: Sequence[str], agent: str, folder: JobFolder, mark: str, seconds: float = _CLEAR_SECONDS) -> List[str]:
    """End an attempt on other hosts, without their guards; say what is left there, and what could not be reached."""
    answers = ssh.ask(hosts, agent, Cleared, "clear", str(folder.path), mark, seconds=seconds)
    words = []
    for host, answer in answers:
        if isinstance(answer, str):
            words.append(describe_leftovers((), answer, host))
        else:
            words.append(describe_leftovers(answer.left, answer.unknown, host))
    return [word for word in words if word]


def describe_leftovers(pids: Sequence[int], unknown: str, host: str = "") -> str:
    """Return what is left of a job in words: its processes, and why there may be more (`unknown`)."""
    where = f" on {host}" if host else ""
    words = []
    if pids:
        words.append(f"still alive{where}: {', '.join(map(str, pids))}")
    if unknown:
        words.append(f"its processes{where} may still be running: {unknown}")
    return "; ".join(words)


def elsewhere(spec: JobSpec, record: JobRecord) -> List[str]:
    """Name the hosts of a job's last attempt that are not this one."""
    here = {host.name for host in spec.hosts if spec.is_here(host)}
    return [name for name in record.hosts if name not in here]


def guests(folder: JobFolder, spec: JobSpec) -> Dict[str, str]:
    """Name the other hosts that any attempt of a job ran on, each with the mark of the last one that did."""
    here = {host.name for host in spec.hosts if spec.is_here(host)}
    record = records.record(folder)
    placed = [event.data for event in records.read_events(folder) if event.kind == state.PLACED]
    with records.intact(folder, folder.events):
        return {
            str(host): str(data.get("mark", record.id)) for data in placed for host in data["hosts"] if host not in here
        }


def roots_of(folder: JobFolder, recorded: Iterable[Mapping[str, Any]]) -> List[Tuple[int, int]]:
    """Return the first processes, (pid, start), that events of a job tell of. Raises as `records.intact` does."""
    with records.intact(folder, folder.events):
        return [(int(pid), int(start)) for data in recorded for pid, start in data["roots"]]


def _of_last_attempt(folder: JobFolder) -> List[Event]:
    """Return the events from the last placement on."""
    found: List[Event] = []
    for event in records.read_events(folder):
        if event.kind == state.PLACED:
            found = []
        found.append(event)
    return found


def _elsewhere(folder: JobFolder, found: JobRecord, recorded: Sequence[Mapping[str, Any]]) -> List[str]:
    agent = next((data["agent"] for data in recorded if "agent" in data), None)
    if agent is None:  # no rank was ever started
        return []
    hosts = elsewhere(records.read_spec(folder), found)
    return clear(hosts, str(agent), folder, found.mark) if hosts else []
