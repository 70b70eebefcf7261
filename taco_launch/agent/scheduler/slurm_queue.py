"""Submit waiting jobs to Slurm, record why they wait there, and notice those that Slurm ended before they started."""

from typing import Dict, List

from taco_launch.agent.scheduler.job_starter import JobStarter, quietly
from taco_launch.agent.scheduler.pending import PendingJob, Words
from taco_launch.agent.slurm import programs, slurm_job
from taco_launch.agent.store import records
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.lifecycle import state
from taco_launch.core.slurm.job_states import SlurmJob

# Between two questions, by how long the newest of the jobs waits.
_ASK_SECONDS = (1.0, 15.0)
_ASK_SHARE = 0.05
# The first events of a job come from its node through the shared file system.
_FIRST_WORDS_SECONDS = 20.0


class SlurmQueue:
    """The waiting jobs that Slurm decides on."""

    def __init__(self, starter: JobStarter) -> None:
        """Know none yet."""
        self._starter = starter
        self._ask_at = self._submit_at = 0.0
        # Since when a number is not in Slurm's queue any more, seconds since the epoch.
        self._left: Dict[int, float] = {}

    def step(self, now: float) -> None:
        """Submit new jobs, and look how the others stand, where it is time for that."""
        waiting = [entry for entry in self._starter.entries() if entry.is_in_slurm and not entry.is_asked]
        for entry in waiting:
            quietly(entry.name, lambda entry=entry: self._submit_new(entry, now))  # type: ignore[misc]
        if not waiting or now < self._ask_at:
            return
        newest = max(entry.queued_at for entry in waiting)
        self._ask_at = now + min(max((now - newest) * _ASK_SHARE, _ASK_SECONDS[0]), _ASK_SECONDS[1])
        try:
            in_queue = programs.jobs()
        except HostError as error:
            words = f"Slurm does not answer: {error.message}"
            for entry in waiting:
                quietly(entry.name, lambda entry=entry: self._tell(entry, words, now))  # type: ignore[misc]
            return
        for entry in waiting:
            quietly(entry.name, lambda entry=entry: self._look(entry, in_queue, now))  # type: ignore[misc]

    def due(self) -> List[float]:
        """Return when to look again, in seconds since the epoch; nothing where no job is in Slurm's queue."""
        waits = any(entry.is_in_slurm and not entry.is_asked for entry in self._starter.entries())
        return [self._ask_at] if waits else []

    def _submit_new(self, entry: PendingJob, now: float) -> None:
        """Submit a job that is not in Slurm, unless Slurm did not answer a moment ago."""
        if now < self._submit_at or slurm_job.number_of(self._starter.pending.folder(entry)) is not None:
            return
        self._ask_at = now + _ASK_SECONDS[0]
        self._starter.under_lock(entry, lambda: self._submit(entry, now))

    def _submit(self, entry: PendingJob, now: float) -> None:
        folder = self._starter.pending.folder(entry)
        try:
            number = slurm_job.submit(folder, records.read_spec(folder))
        except UsageError as error:
            slurm_job.refused(folder, error)
        except HostError as error:
            self._submit_at = now + _ASK_SECONDS[1]
            self._note(entry, f"Slurm does not answer: {error.message}", now)
        else:
            self._note(entry, f"submitted to Slurm as job {number}", now)

    def _look(self, entry: PendingJob, in_queue: Dict[int, SlurmJob], now: float) -> None:
        folder = self._starter.pending.folder(entry)
        number = slurm_job.number_of(folder)
        if number is None:
            return
        job = in_queue.get(number)
        if job is not None and job.waits:
            self._left.pop(number, None)
            self._tell(entry, job.words, now)
        elif job is not None and job.state == "CONFIGURING":
            self._tell(entry, f"Slurm job {number}: its nodes are being prepared", now)
        elif job is None or not job.lives:
            since = self._left.setdefault(number, now)
            if now - since > _FIRST_WORDS_SECONDS or (job is not None and job.state == "CANCELLED"):
                end = slurm_job.end_of(folder, number)
                if end is not None:
                    self._starter.under_lock(entry, lambda: slurm_job.record_end(folder, end))

    def _tell(self, entry: PendingJob, words: str, now: float) -> None:
        if (("", words),) != entry.recorded:
            self._starter.under_lock(entry, lambda: self._note(entry, words, now))

    def _note(self, entry: PendingJob, words: str, now: float) -> None:
        reasons: Words = (("", words),)
        if reasons != entry.recorded:
            entry.told_at, entry.recorded = now, reasons
            self._starter.events(entry).add(state.WAITING, state.FOR_SLOTS, hosts=reasons)
