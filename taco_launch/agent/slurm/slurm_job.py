"""The number that Slurm gave a job, kept in the job's folder; and what Slurm tells of it."""

import contextlib
import os
import time
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.slurm import programs
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, JobEnd, UsageError
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.slurm import batch_script, job_states

_ON_NODES = "/tmp/taco-launch-{}"  # noqa: S108 - who else has made it is lines out
# A running job is asked about no more often, whoever asks.
_LOOK_SECONDS = 5.0
# The last events of a supervisor on another node come through the shared file system; seconds.
_LAST_WORDS_SECONDS = 15.0


def number_of(folder: JobFolder) -> Optional[int]:
    """Return the number of a job in Slurm, None before it was submitted there. Raises as `records.intact` does."""
    with records.intact(folder, folder.slurm):
        data = records.read_json(folder.slurm)
        return None if data is None else int(data["job"])


def submit(folder: JobFolder, spec: JobSpec) -> int:
    """Submit a job to Slurm, and return its number there. Raises as `programs.submit` does."""
    agent = os.path.realpath(folder.agent)
    lines = batch_script.directives(spec, str(folder.debug))
    number = programs.submit(batch_script.script(lines, agent, str(folder.path)))
    records.write_json(folder.slurm, {"job": number})
    return number


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

    Nothing is asked twice within 5 s. Where Slurm does not answer, the job stays as it is.
    """
    looked = folder.slurm.with_suffix(".looked")
    with contextlib.suppress(OSError):
        if time.time() - looked.stat().st_mtime < _LOOK_SECONDS:
            return
    number = number_of(folder)
    if number is None:
        return
    with contextlib.suppress(HostError):
        pairs = programs.details(number)
        looked.touch(mode=0o600)
        state = "" if pairs is None else pairs.get("JobState", "")
        job = job_states.SlurmJob(number, state)
        if job.lives or job.waits or _ended_lately(folder):
            return
        record_end(folder, job_states.end_of(number, pairs))


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


def _with_number(request: Callable[[int], None]) -> Callable[[JobFolder], None]:
    def do(folder: JobFolder) -> None:
        number = number_of(folder)
        if number is not None:
            request(number)

    return do


# What other rooms ask for by name: each does nothing with a job that is not in Slurm.
REQUESTS: Mapping[str, Callable[[JobFolder], None]] = {
    "cancel": _with_number(programs.cancel),
    "hold": _with_number(programs.hold),
    "release": _with_number(programs.release),
    "end-if-gone": end_if_gone,
}
