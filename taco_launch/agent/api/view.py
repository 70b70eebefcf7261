"""A job as callers see it."""

from taco_launch.agent.store import records, recovery
from taco_launch.agent.store.folders import JobFolder
from taco_launch.model.job_view import JobView


def current_view(folder: JobFolder, *, events: bool = False) -> JobView:
    """Return a job as it is at this moment."""
    spec, record = records.read_spec(folder), recovery.current_record(folder)
    return JobView(spec, record, str(folder.path), tuple(records.read_events(folder)) if events else ())
