"""A job as callers see it."""

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Optional, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import HostError
from taco_launch.core.model.job_view import BoardView, JobView, check_spec

if TYPE_CHECKING:
    from taco_launch.agent.logs.output_end import OutputEnd
    from taco_launch.core.model.jobs import JobSpec

_NO_NUMBER = re.compile(r"(?i)\b(?:nan|inf|infinity)\b")


def current_view(folder: JobFolder, *, events: bool = False) -> JobView:
    """Return a job as it is at this moment; with `events` also what its output tells.

    Raises:
        DamagedRecordError: this version cannot show it.
    """
    spec, record = records.read_spec(folder), recovery.current_record(folder)
    with records.intact(folder, folder.spec):  # a newer version's job may have a launcher that this one does not know
        check_spec(spec)
    board = _board(folder) if spec.tensorboard is not None else None
    view = JobView(spec, record, str(folder.path), tensorboard=board, slurm_job=_number(folder, spec))
    if not events:
        return view
    output, first_step = _output_of(folder, view)
    return replace(
        view,
        events=tuple(records.read_events(folder)),
        last_line=output.labelled,
        progress=output.progress,
        first_step=first_step,
    )


def final_view(folder: JobFolder) -> JobView:
    """Return a job at its end; with its progress where its last output has a number that is none, such as a loss of nan."""
    view = current_view(folder)
    words = ""
    with contextlib.suppress(OSError, HostError):  # its ranks may have put anything in the log's place
        words = segments.last_words(folder.merged)
    if not _NO_NUMBER.search(words):
        return view
    return replace(view, progress=_output_of(folder, view)[0].progress)


def _output_of(folder: JobFolder, view: JobView) -> "Tuple[OutputEnd, Optional[float]]":
    """Return the end of a job's output, and when its last attempt printed its first step (seconds since the epoch)."""
    from taco_launch.agent.logs import output_end  # noqa: PLC0415 - who submits a job needs none of it

    pattern = view.spec.policy.progress
    attempt = folder.of_attempt(view.record.attempt)
    output = output_end.read(folder.merged, pattern, attempt, () if view.record.state.is_terminal else view.record.done)
    if output.progress is None:
        return output, None
    return output, output_end.first_step(attempt.rank(output.progress.rank), pattern)


def _number(folder: JobFolder, spec: "JobSpec") -> Optional[int]:
    """Return the number of a job in Slurm, None where it has none."""
    if spec.slurm is None:
        return None
    from taco_launch.agent.slurm import slurm_job  # noqa: PLC0415 - other jobs need none of it

    return slurm_job.number_of(folder)


def _board(folder: JobFolder) -> Optional[BoardView]:
    from taco_launch.agent.tensorboard import board  # noqa: PLC0415 - few jobs have one

    return board.view(folder)
