"""--each and --array of `submit`: one job for each of several values."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from taco_launch.api.several_jobs import ARRAY, combinations
from taco_launch.cli.options.common import Settings
from taco_launch.cli.options.job_options import spec_of
from taco_launch.cli.output import job_tables, render
from taco_launch.core.errors import UsageError
from taco_launch.core.model.engines import SlurmArray
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.remote.credentials import Credentials

# {lr} is the value; in the command of a shell, $lr and ${{lr}} are.
_USE = r"\{{{0}\}}|\${0}\b"
_EACH = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# As sbatch(1) has it for --array.
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
# Slurm's MaxArraySize, 1001 by default, is one more than the most jobs of an array (slurm.conf(5)).
_MOST_JOBS = 1000


def submit(settings: Settings, access: Credentials, request: JobRequest, matrix: Mapping[str, Sequence[str]]) -> None:
    """Start a job for each combination of values, and print their names, or the jobs where data is requested."""
    spec_of(settings, next(combinations(request, matrix)))
    line = " ".join(request.command)
    for unused in [name for name in matrix if name != ARRAY and not re.search(_USE.format(name), line)]:
        render.warning(
            settings, f"--each: {{{unused}}} is not in the command; jobs differ only in the variable {unused}"
        )
    cluster = settings.cluster(access)
    jobs = cluster.map(request, matrix)
    if settings.output in ("json", "yaml"):
        render.data({"jobs": [job_tables.job_data(cluster.backend.get(job.name)) for job in jobs]}, settings.output)
        return
    for job in jobs:
        click.echo(render.printable(job.name))
    waiting_jobs = sum(job.state.waits for job in jobs)
    queued = f", {waiting_jobs} of them in the queue" if waiting_jobs else ""
    settings.talk(f"{render.counted(len(jobs), 'job')} submitted{queued}: {settings.typed} list")


def matrix_of(each: Sequence[str], array: str | None) -> dict[str, list[str]]:
    """Return the values by name, empty where none of the options is given.

    Raises:
        UsageError: an option has no values, or they are too many jobs.
    """
    matrix: dict[str, list[str]] = {}
    for word in each:
        match = _EACH.fullmatch(word)
        values = match[2].split(",") if match else []
        if match is None or "" in values or match[1] in matrix:
            twice = f": {match[1]} is given twice" if match and match[1] in matrix else ""
            raise UsageError(f"--each {word!r} is not NAME=VALUE,VALUE{twice}", hint="for example: --each lr=0.1,0.01")
        matrix[match[1]] = values
    if array is not None:
        matrix[ARRAY] = [str(number) for number in _numbers(array)]
    if (count := math.prod(map(len, matrix.values()))) > _MOST_JOBS:
        raise UsageError(f"--each and --array: {count} jobs, of at most {_MOST_JOBS}", hint="submit them in parts")
    return matrix


def limited(request: JobRequest, matrix: Mapping[str, Sequence[str]], array: str | None) -> JobRequest:
    """Return the request with the limit of --array, how many of its jobs may run at a time, such as 2 of 0-9%2.

    Raises:
        UsageError: it is not a number above 0, or --each is given, too.
    """
    ranges, percent, limit = (array or "").partition("%")
    if not percent:
        return request
    if not re.fullmatch("0*[1-9][0-9]{0,5}", limit):
        raise UsageError(f"--array {array}: {limit!r} is not a number of jobs", hint=f"for example: --array {ranges}%4")
    if len(matrix) > 1:
        raise UsageError(f"--array {array}: --each and %{limit} exclude one another", hint=f"--array {ranges}")
    return replace(request, array=SlurmArray(limit=int(limit)))


def _numbers(text: str) -> Sequence[int]:
    """Return the numbers of an array."""
    ranges = text.partition("%")[0]
    numbers: list[int] = []
    for part in ranges.split(","):
        match = _PART.fullmatch(part)
        first, last, step = (int(each) if each else None for each in match.groups()) if match else (None, None, None)
        if first is None or (last is not None and last < first) or step == 0:
            raise UsageError(
                f"--array {text}: {part!r} is not a range of numbers from low to high",
                hint="for example: --array 0-3,8",
            )
        numbers += itertools.islice(range(first, (first if last is None else last) + 1, step or 1), _MOST_JOBS + 1)
    return sorted(set(numbers))
