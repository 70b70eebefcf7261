"""Exit codes of run and wait: the job's own, or 125 if the launcher failed."""

from collections.abc import Iterator
from contextlib import contextmanager

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import render
from taco_launch.core.errors import TacoLaunchError, code_of_ended, code_of_launcher
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobState


@contextmanager
def launcher_errors() -> Iterator[None]:
    """Set the exit code of launcher errors to 125, as docker-run(1) does; 126 and 127 of a program stay.

    Raises:
        TacoLaunchError: the one that was raised in the block.
    """
    try:
        yield
    except TacoLaunchError as error:
        error.exit_code = code_of_launcher(error.exit_code)
        raise


def code_of(job: JobView) -> int:
    """Return the exit code of an ended job; 125 if it ended before a rank ran."""
    record = job.record
    ran = record.first_failure is not None or any(each.state is JobState.RUNNING for each in record.transitions)
    return code_of_ended(record.exit_code or 0, started=record.started is not None, ran=ran)


def print_job_data(settings: Settings, *jobs: JobView) -> None:
    """Print an ended job as `get` does, where JSON or YAML is requested; of several, a list."""
    if settings.output in ("json", "yaml"):
        from taco_launch.cli.output import job_tables  # noqa: PLC0415 - only where data is requested

        found = [job_tables.job_data(job) for job in jobs]
        render.data(found[0] if len(found) == 1 else {"jobs": found}, settings.output)
