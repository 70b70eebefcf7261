"""Exit codes of run and wait: the job's own, or 125 if the launcher failed."""

from collections.abc import Iterator
from contextlib import contextmanager

from taco_launch.cli.options.common import Settings
from taco_launch.cli.output import render
from taco_launch.core.errors import CANNOT_PLACE, FAILED, HOST_FAILED, NO_JOB, TacoLaunchError
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobState

# A program may exit with these codes too. Usage (2) stays: nothing was started, and the caller can fix it.
_OF_HOSTS = (CANNOT_PLACE, HOST_FAILED)
_LAUNCHER = (FAILED, *_OF_HOSTS)


@contextmanager
def launcher_errors() -> Iterator[None]:
    """Set the exit code of launcher errors to 125, as docker-run(1) does; 126 and 127 of a program stay.

    Raises:
        TacoLaunchError: the one that was raised in the block.
    """
    try:
        yield
    except TacoLaunchError as error:
        if error.exit_code in _LAUNCHER:
            error.exit_code = NO_JOB
        raise


def code_of(job: JobView) -> int:
    """Return the exit code of an ended job; 125 if it ended before a rank ran."""
    record = job.record
    code = record.exit_code or 0
    ran = record.first_failure is not None or any(each.state is JobState.RUNNING for each in record.transitions)
    refused = code in _LAUNCHER if record.started is None else code in _OF_HOSTS and not ran
    return NO_JOB if refused else code


def print_job_data(settings: Settings, job: JobView) -> None:
    """Print an ended job as `get` does, where JSON or YAML is requested."""
    if settings.output in ("json", "yaml"):
        from taco_launch.cli.output import job_tables  # noqa: PLC0415 - only where data is requested

        render.data(job_tables.job_data(job), settings.output)
