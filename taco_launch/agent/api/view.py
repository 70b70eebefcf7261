"""A job as callers see it."""

from typing import Optional

from taco_launch.agent.store import records, recovery
from taco_launch.agent.store.folders import JobFolder
from taco_launch.model.job_view import BoardView, JobView


def current_view(folder: JobFolder, *, events: bool = False) -> JobView:
    """Return a job as it is at this moment."""
    spec, record = records.read_spec(folder), recovery.current_record(folder)
    found = tuple(records.read_events(folder)) if events else ()
    return JobView(spec, record, str(folder.path), found, _board(folder) if spec.tensorboard is not None else None)


def _board(folder: JobFolder) -> Optional[BoardView]:
    from taco_launch.agent.board import board  # noqa: PLC0415 - few jobs have one

    return board.view(folder)
