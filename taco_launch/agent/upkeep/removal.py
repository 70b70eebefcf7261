"""The record of a job that has ended is removed, on its other hosts as well where they can be reached."""

from typing import Dict, Iterator, List

from taco_launch.agent.host import facts, processes
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import job_counters, recovery
from taco_launch.core.errors import UsageError
from taco_launch.core.model.jobs import CleanUp, JobRecord
from taco_launch.core.protocol.guard_messages import FolderRemoved

_REMOVE_SECONDS = 25.0


def remove(jobs: Jobs, agent: str, folder: JobFolder) -> Iterator[str]:
    """Remove what is kept of a job, and give warnings about hosts where that failed.

    Raises:
        UsageError: it has not ended.
    """
    record = recovery.current_record(folder)
    if not record.state.is_terminal:
        raise UsageError(f"job {folder.name}: it is {record.state.value}", hint=f"taco-launch stop {folder.name}")
    spec = records.read_spec(folder)
    if spec.policy.clean_up is CleanUp.NONE:
        _end_here(folder, record)
    of_mark: Dict[str, List[str]] = {}
    for host, mark in recovery.guests(folder, spec).items():
        of_mark.setdefault(mark, []).append(host)
    for mark, hosts in of_mark.items():
        for host, answer in ssh.ask(
            hosts, agent, FolderRemoved, "remove", str(folder.path), mark, seconds=_REMOVE_SECONDS
        ):
            if isinstance(answer, str):
                yield f"host {host}: the files of job {folder.name} could not be removed there: {answer}"
    if spec.code is not None:
        from taco_launch.agent.snapshots.placed_links import PlacedLinks  # noqa: PLC0415 - few jobs have code of their own

        PlacedLinks(folder).remove()
    job_counters.removed(jobs, folder)


def _end_here(folder: JobFolder, record: JobRecord) -> None:
    """End what the job has left running on this host, as was its policy; elsewhere that belongs to the removal."""
    told = [event.data for event in records.read_events(folder) if event.data.get("boot") == facts.boot_id()]
    processes.end(record.mark, [(int(pid), int(start)) for data in told for pid, start in data["roots"]])
