"""The number that Slurm gave a job, kept in the job's folder; and what Slurm tells of it."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.slurm import programs
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, JobEnd, UsageError
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.slurm import batch_script, job_states

_ON_NODES = "/tmp/taco-launch-{}"  # noqa: S108 - a folder of another user is refused
# Seconds between two questions about running jobs.
_LOOK_SECONDS, _SILENT_SECONDS = 5.0, 30.0
# The last events of a supervisor on another node come through the shared file system; seconds.
_LAST_WORDS_SECONDS = 15.0


def number_of(folder: JobFolder) -> Optional[int]:
    """Return the number of a job in Slurm, None before it was submitted there. Raises as `records.intact` does."""
    number = _read(folder).get("job")
    return None if number is None else int(number)


def _read(folder: JobFolder) -> Dict[str, Any]:
    """Return what is kept of a job in Slurm: `cluster`, `job` once its number is known, `end` once it was told to end."""
    with records.intact(folder, folder.slurm):
        return dict(records.read_json(folder.slurm) or {})


def submit(folder: JobFolder, spec: JobSpec) -> int:
    """Submit a job to Slurm, and return its number there. Raises as `programs.submit` does.

    Where an earlier try had no answer, the job may be there: it is looked for by its mark, which is its comment.
    """
    mark = f"taco-launch:{records.record(folder).id}"
    number = programs.find(mark) if folder.slurm.exists() else None
    if number is None:
        records.write_json(folder.slurm, {"cluster": programs.cluster()})
        lines = batch_script.directives(spec, str(folder.debug), mark)
        script = batch_script.script(lines, os.path.realpath(folder.agent), str(folder.path))
        number = programs.submit(script, records.read_caller(folder).environment)
    records.write_json(folder.slurm, {**_read(folder), "job": number})
    return number


def expect_end(folder: JobFolder, end: job_states.SlurmEnd) -> None:
    """Keep how a job that Slurm ends will have ended, for the time when Slurm does not know it any more."""
    records.write_json(folder.slurm, {**_read(folder), "end": [end.state.value, end.exit_code, end.reason]})


def node_folder(number: int) -> Path:
    """Return the state folder of a job on the local disk of each of its nodes."""
    return Path(_ON_NODES.format(os.geteuid()), str(number))


def ssh_of(folder: JobFolder) -> Path:
    """Return the program that stands for ssh to the nodes of a job."""
    return folder.path / "bin" / "ssh"


def argv_on_node(folder: JobFolder, host: str, line: Sequence[str]) -> Tuple[str, ...]:
    """Return the command that runs an operation of a job's agent on one of its nodes; `line` may name the job's folder."""
    own = node_folder(number_of(folder) or 0) / "jobs" / folder.name
    words = [str(own) if word == str(folder.path) else word for word in line]
    return (str(ssh_of(folder)), host, shell(("python3", "-I", "-S", str(own / "agent.pyz"), *words)))


def end_if_gone(folder: JobFolder) -> None:
    """Record the end of a job that has left the queue, and whose nodes run nothing of it any more.

    Slurm is asked about all jobs at once, and not twice within 5 s; where it does not answer, jobs stay as they are for 30 s.
    """
    number = number_of(folder)
    in_queue = None if number is None else _in_queue(folder.path.parent / ".slurm")
    job = None if in_queue is None or number is None else in_queue.get(number)
    if number is None or in_queue is None or (job is not None and (job.lives or job.waits)):
        return
    with contextlib.suppress(HostError):
        end = end_of(folder, number)
        if end is not None and ("end" in _read(folder) or not _ended_lately(folder)):
            record_end(folder, end)


def _in_queue(file: Path) -> Optional[Dict[int, job_states.SlurmJob]]:
    """Return the jobs that Slurm knows, as the answer kept in `file` has them while it is new; None where there is no answer."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept_at, jobs = records.read_json(file) or (0.0, None)
        if 0 <= time.time() - kept_at < (_SILENT_SECONDS if jobs is None else _LOOK_SECONDS):
            return None if jobs is None else {int(job[0]): job_states.SlurmJob(*job) for job in jobs}
    try:
        answer: Optional[Dict[int, job_states.SlurmJob]] = programs.jobs()
    except HostError:
        answer = None
    with contextlib.suppress(OSError):
        records.write_json(file, [time.time(), None if answer is None else [list(job) for job in answer.values()]])
    return answer


def end_of(folder: JobFolder, number: int) -> Optional[job_states.SlurmEnd]:
    """Return how a job ended, by what Slurm tells of it; None while it lives, or where another cluster is asked.

    Raises:
        HostError: Slurm does not answer.
    """
    pairs = programs.details(number)
    if pairs is not None and pairs.get("JobName") != folder.name:
        pairs = None
    job = job_states.SlurmJob(number, "" if pairs is None else pairs.get("JobState", ""))
    if job.lives or job.waits:
        return None
    recorded = _read(folder)
    if pairs is None and recorded.get("cluster", "") != programs.cluster():
        return None
    end = job_states.end_of(number, pairs)
    if end.state is JobState.LOST and "end" in recorded:
        with records.intact(folder, folder.slurm):
            state, code, reason = recorded["end"]
            return job_states.SlurmEnd(JobState(state), int(code), str(reason))
    return end


def _ended_lately(folder: JobFolder) -> bool:
    """Return whether the supervisor may have told more than can be seen here yet."""
    with contextlib.suppress(OSError):
        return time.time() - folder.events.stat().st_mtime < _LAST_WORDS_SECONDS
    return False


def record_end(folder: JobFolder, end: job_states.SlurmEnd) -> None:
    """Record an end, unless the job has one by now."""
    if records.record(folder).state.is_terminal:
        return
    records.ended(records.Events(folder), end.state, end.exit_code, end.reason)
    folder.caller.unlink(missing_ok=True)


def refused(folder: JobFolder, error: UsageError) -> None:
    """Record that Slurm refused a job."""
    records.ended(records.Events(folder), JobState.FAILED, JobEnd.NEVER_RAN, error.message, hint=error.hint or "")
    folder.caller.unlink(missing_ok=True)


def _cancel(folder: JobFolder) -> None:
    number = number_of(folder)
    if number is not None:
        programs.cancel(number, folder.name)


def _with_number(request: Callable[[int], None]) -> Callable[[JobFolder], None]:
    def do(folder: JobFolder) -> None:
        number = number_of(folder)
        if number is not None:
            request(number)

    return do


# What other rooms ask for by name: each does nothing with a job that is not in Slurm.
REQUESTS: Mapping[str, Callable[[JobFolder], None]] = {
    "cancel": _cancel,
    "hold": _with_number(programs.hold),
    "release": _with_number(programs.release),
    "end-if-gone": end_if_gone,
}
