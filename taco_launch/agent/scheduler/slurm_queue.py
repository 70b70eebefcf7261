"""Submit waiting jobs to Slurm, record why they wait there, and notice those that Slurm ended before they started."""

from typing import Callable, Dict, Iterable, Iterator, List

from taco_launch.agent.scheduler.job_starter import JobStarter, quietly
from taco_launch.agent.scheduler.pending import PendingJob, Words
from taco_launch.agent.slurm import programs, slurm_job
from taco_launch.agent.store import records
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobState
from taco_launch.core.slurm.job_states import SlurmJob

# Between two questions, by how long the newest of the jobs waits.
_ASK_SECONDS = (1.0, 15.0)
_ASK_SHARE = 0.05
# The first events of a job come from its node through the shared file system.
_FIRST_WORDS_SECONDS = 20.0
# How long an array waits for a job that is missing, since the newest of them: who submits it may have been ended.
_ARRAY_SECONDS = 10.0
_INCOMPLETE = "the other jobs of its array are not submitted yet"


class SlurmQueue:
    """The waiting jobs that Slurm decides on."""

    def __init__(self, starter: JobStarter) -> None:
        """Know none yet."""
        self._starter = starter
        self._ask_at = self._submit_at = 0.0
        # Since when an id is not in Slurm's queue any more, seconds since the epoch.
        self._left: Dict[str, float] = {}

    def step(self, now: float) -> None:
        """Submit new jobs, and look how the others stand, where it is time for that."""
        waiting = [entry for entry in self._starter.entries() if entry.is_in_slurm and not entry.is_asked]
        new: List[PendingJob] = []
        for entry in waiting if now >= self._submit_at else ():
            quietly(entry.name, lambda entry=entry: new.extend([entry] * self._is_new(entry)))  # type: ignore[misc]
        for members in self._submissions(new, now):
            self._ask_at = now + _ASK_SECONDS[0]
            self._starter.under_lock(members[0], lambda members=members: self._submit(members, now))  # type: ignore[misc]
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

    def _is_new(self, entry: PendingJob) -> bool:
        """Return whether a job is not in Slurm."""
        return slurm_job.id_of(self._starter.pending.folder(entry)) is None

    def _submissions(self, new: Iterable[PendingJob], now: float) -> Iterator[List[PendingJob]]:
        """Yield the jobs to submit at once: each alone, or all those of an array, once they are there."""
        arrays: Dict[str, List[PendingJob]] = {}
        for entry in new:
            array = entry.asked and entry.asked.array
            if array is None:
                yield [entry]
            else:
                arrays.setdefault(array.id, []).append(entry)
        for members in arrays.values():
            array = members[0].asked and members[0].asked.array
            assert array is not None
            newest = max(entry.queued_at for entry in members)
            if len(members) >= array.count or now - newest > _ARRAY_SECONDS:
                yield members
                continue
            for entry in members:  # the command that submits it waits for a reason
                quietly(entry.name, lambda entry=entry: self._tell(entry, _INCOMPLETE, now))  # type: ignore[misc]

    def _submit(self, entries: List[PendingJob], now: float) -> None:
        """Submit one job, or an array, the first of which is locked."""
        folders = [self._starter.pending.folder(entry) for entry in entries]
        try:
            if entries[0].asked and entries[0].asked.array:
                slurm_job.submit_array(folders)
            else:
                slurm_job.submit(folders[0], records.read_spec(folders[0]))
        except UsageError as error:
            refusal = error
            self._each(entries, lambda entry: slurm_job.refused(self._starter.pending.folder(entry), refusal), now)
        except HostError as error:
            self._submit_at, words = now + _ASK_SECONDS[1], f"Slurm does not answer: {error.message}"
            self._each(entries, lambda entry: self._note(entry, words, now), now)
        else:
            self._each(entries, lambda entry: self._submitted(entry, now), now)

    def _each(self, entries: List[PendingJob], act: Callable[[PendingJob], None], now: float) -> None:
        """Do something with the first job, whose lock is held, and with the others under their locks."""
        act(entries[0])
        if len(entries) > 1:
            self._starter.pending.scan(now)  # their folders have changed
        for entry in entries[1:]:
            self._starter.under_lock(entry, lambda entry=entry: act(entry))  # type: ignore[misc]

    def _submitted(self, entry: PendingJob, now: float) -> None:
        """Record the id of a job in Slurm; or have Slurm do what was asked of the job meanwhile."""
        folder = self._starter.pending.folder(entry)
        if entry.is_waiting:
            self._note(entry, f"submitted to Slurm as job {slurm_job.id_of(folder)}", now)
        else:
            slurm_job.REQUESTS["hold" if entry.state is JobState.SUSPENDED else "cancel"](folder)

    def _look(self, entry: PendingJob, in_queue: Dict[str, SlurmJob], now: float) -> None:
        folder = self._starter.pending.folder(entry)
        id_ = slurm_job.id_of(folder)
        if id_ is None:
            return
        job = in_queue.get(id_)
        if job is not None and job.waits:
            self._left.pop(id_, None)
            self._tell(entry, job.words, now)
        elif job is not None and job.state == "CONFIGURING":
            self._tell(entry, f"Slurm job {id_}: its nodes are being prepared", now)
        elif job is None or not job.lives:
            since = self._left.setdefault(id_, now)
            if now - since > _FIRST_WORDS_SECONDS or (job is not None and job.state == "CANCELLED"):
                end = slurm_job.end_of(folder, id_)
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
