"""-f: the job file that a command line is put over."""

import os
import sys

from taco_launch.cli.options.common import Settings
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory import load
from taco_launch.jobs.documents import job_file
from taco_launch.jobs.request.overlay import over

_STDIN = "-"


def over_file(settings: Settings, path: str, request: JobRequest) -> JobRequest:
    """Return what the command line asks for, over what the job file at a path does, "-" for standard input.

    Raises:
        SpecError: the file cannot be read, or something in it is wrong.
    """
    lax = request.allow_unknown_knobs
    if path != _STDIN:
        file = job_file.parse(load.read_file(path, job_file.OPTION), path, os.environ, allow_unknown=lax)
    else:
        data = b"" if sys.stdin is None else sys.stdin.buffer.read(load.MAX_BYTES + 1)
        file = job_file.parse(data, "standard input", os.environ, allow_unknown=lax)
    if file.is_manifest and settings.load().container is None:
        file = job_file.without_container(file)
    if file.notes:
        settings.talk("\n  ".join((f"{file.request.source}: not used here:", *file.notes)))
    return over(file.request, request)
