"""The id that Slurm gave a job, kept in the job's folder; and what Slurm tells of it.

The id is the job's number. A job of an array has the number of the array and its place there, 12_3, and a number of its own once it
has nodes. The number of the array may be that of one of its jobs, too, so programs are given the id.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.slurm import programs
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.command import shell
from taco_launch.core.errors import SIGNAL_BASE, HostError, JobEnd, UsageError
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.slurm import batch_script, job_states

_ON_NODES = "/tmp/taco-launch-{}"  # noqa: S108 - a folder of another user is refused
# Seconds between two questions about running jobs.
_LOOK_SECONDS, _SILENT_SECONDS = 5.0, 30.0
# The last events of a supervisor on another node come through the shared file system; seconds.
_LAST_WORDS_SECONDS = 15.0


def number_of(folder: JobFolder) -> Optional[int]:
    """Return the number of a job in Slurm, None before it has one. Raises as `records.intact` does."""
    number = _read(folder).get("job")
    return None if number is None else int(number)


def id_of(folder: JobFolder) -> Optional[str]:
    """Return the id of a job in Slurm, None before it was submitted there. Raises as `records.intact` does."""
    kept = _read(folder)
    id_ = kept.get("of_array", kept.get("job"))
    return None if id_ is None else str(id_)


def note_number(folder: JobFolder, id_: str, number: int) -> None:
    """Keep the number of a job of an array, which it has since it got its nodes."""
    if programs.is_of_array(id_) and number_of(folder) != number:
        records.write_json(folder.slurm, {**_read(folder), "of_array": id_, "job": number})


def _read(folder: JobFolder) -> Dict[str, Any]:
    """Return what is kept of a job in Slurm.

    `cluster`; `job` once its number is known; `of_array`, its id in an array; `mark` of the array; `end` once it was told to end.
    """
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


def submit_array(members: Sequence[JobFolder]) -> None:
    """Submit jobs of an array to Slurm at once. Raises as `programs.submit` does.

    Where an earlier try had no answer, the jobs of that try alone are looked for, by its mark, and submitted if they are not there.
    """
    members = [each for each in members if each.slurm.exists()] or members
    mark = _read(members[0]).get("mark")
    number = programs.find(mark) if mark else None
    if number is None:
        mark, cluster = f"taco-launch:{os.urandom(16).hex()}", programs.cluster()
        for each in members:
            records.write_json(each.slurm, {"cluster": cluster, "mark": mark})
        first, spec = members[0], records.read_spec(members[0])
        lines = batch_script.directives(spec, str(first.debug), mark, map(_place, members))
        folder = str(first.path.parent / batch_script.name_of(spec))
        script = batch_script.script(lines, os.path.realpath(first.agent), folder, is_array=True)
        number = programs.submit(script, records.read_caller(first).environment)
    for each in members:
        records.write_json(each.slurm, {**_read(each), "of_array": f"{number}_{_place(each)}"})


def _place(folder: JobFolder) -> int:
    return int(folder.name.rpartition("-")[2])


def expect_end(folder: JobFolder, end: job_states.SlurmEnd) -> None:
    """Keep how a job that Slurm ends will have ended, for the time when Slurm does not know it any more."""
    records.write_json(folder.slurm, {**_read(folder), "end": [end.state.value, end.exit_code, end.reason]})


def node_folder(number: int) -> Path:
    """Return the state folder of a job on the local disk of each of its nodes."""
    return Path(_ON_NODES.format(os.geteuid()), str(number))


def ssh_of(folder: JobFolder) -> Path:
    """Return the program that stands for ssh to the nodes of a job."""
    return folder.path / "bin" / "ssh"


def entry_of(folder: JobFolder) -> Path:
    """Return the program that runs a command in the container of pyxis on a node of a job."""
    return folder.path / "bin" / "in-container"


def argv_on_node(folder: JobFolder, host: str, line: Sequence[str]) -> Tuple[str, ...]:
    """Return the command that runs an operation of a job's agent on one of its nodes; `line` may name the job's folder."""
    own = node_folder(number_of(folder) or 0) / "jobs" / folder.name
    words = [str(own) if word == str(folder.path) else word for word in line]
    return (str(ssh_of(folder)), host, shell(("python3", "-I", "-S", str(own / "agent.pyz"), *words)))


def end_if_gone(folder: JobFolder) -> None:
    """Record the end of a job that has left the queue, and whose nodes run nothing of it any more.

    Slurm is asked about all jobs at once, and not twice within 5 s; where it does not answer, jobs stay as they are for 30 s.
    """
    id_ = id_of(folder)
    in_queue = None if id_ is None else _in_queue(folder.path.parent / ".slurm")
    job = None if in_queue is None or id_ is None else in_queue.get(id_)
    if id_ is None or in_queue is None or (job is not None and (job.lives or job.waits)):
        return
    with contextlib.suppress(HostError):
        end = end_of(folder, id_)
        if end is not None and ("end" in _read(folder) or not _ended_lately(folder)):
            record_end(folder, end)


def _in_queue(file: Path) -> Optional[Dict[str, job_states.SlurmJob]]:
    """Return the jobs that Slurm knows, as the answer kept in `file` has them while it is new; None where there is no answer."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept_at, jobs = records.read_json(file) or (0.0, None)
        if 0 <= time.time() - kept_at < (_SILENT_SECONDS if jobs is None else _LOOK_SECONDS):
            return None if jobs is None else {str(job[0]): job_states.SlurmJob(*job) for job in jobs}
    try:
        answer: Optional[Dict[str, job_states.SlurmJob]] = programs.jobs()
    except HostError:
        answer = None
    with contextlib.suppress(OSError):
        records.write_json(file, [time.time(), None if answer is None else [list(job) for job in answer.values()]])
    return answer


def end_of(folder: JobFolder, id_: str) -> Optional[job_states.SlurmEnd]:
    """Return how a job ended, by what Slurm tells of it; None while it lives, or where another cluster is asked.

    Raises:
        HostError: Slurm does not answer.
    """
    pairs = programs.details(id_)
    if pairs is not None and pairs.get("JobName") != _name(folder, id_):
        pairs = None
    job = job_states.SlurmJob(id_, "" if pairs is None else pairs.get("JobState", ""))
    if job.lives or job.waits:
        return None
    recorded = _read(folder)
    if pairs is None and recorded.get("cluster", "") != programs.cluster():
        return None
    if pairs is None and programs.is_of_array(id_) and "job" not in recorded:  # Slurm forgets it at once
        reason = f"cancelled in Slurm before it started (Slurm job {id_})"
        return job_states.SlurmEnd(JobState.CANCELLED, SIGNAL_BASE + signal.SIGTERM, reason)
    end = job_states.end_of(id_, pairs)
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
    id_ = id_of(folder)
    if id_ is not None:
        programs.cancel(id_, _name(folder, id_))


def _name(folder: JobFolder, id_: str) -> str:
    """Return the name of a job in Slurm, which is that of its array."""
    return folder.name.rpartition("-")[0] if programs.is_of_array(id_) else folder.name


def _with_id(request: Callable[[str], None]) -> Callable[[JobFolder], None]:
    def do(folder: JobFolder) -> None:
        id_ = id_of(folder)
        if id_ is not None:
            request(id_)

    return do


# What other rooms ask for by name: each does nothing with a job that is not in Slurm.
REQUESTS: Mapping[str, Callable[[JobFolder], None]] = {
    "cancel": _cancel,
    "hold": _with_id(programs.hold),
    "release": _with_id(programs.release),
    "end-if-gone": end_if_gone,
}
