"""Several jobs of a cluster at once: one for each combination of values, and the wait for their ends."""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from taco_launch.api.job import Job
from taco_launch.core.errors import NoJobError, TacoLaunchError, UsageError
from taco_launch.core.model.engines import SlurmArray
from taco_launch.core.model.job_request import JobRequest
from taco_launch.jobs.backend import Backend
from taco_launch.jobs.request.job_names import default_name

# The variable of a job array of Slurm that has the job's number in it.
ARRAY = "SLURM_ARRAY_TASK_ID"
_NAME = re.compile(r"\{(\w+)\}")
# How often the head is asked whether jobs have ended, at first and after a while.
_POLL_SECONDS = (0.5, 5.0)
_POLL_GROWTH = 1.2


def start_all(
    submit: Callable[[JobRequest], Job], request: JobRequest, matrix: Mapping[str, Sequence[object]]
) -> list[Job]:
    """Start the job of each combination of values.

    Raises:
        TacoLaunchError: one cannot start; the message names those that have started before it.
    """
    jobs: list[Job] = []
    for each in combinations(request, matrix):
        try:
            jobs.append(submit(each))
        except TacoLaunchError as error:
            if jobs:
                error.message += f"; started before it: {', '.join(job.name for job in jobs)}"
                error.args = (error.message,)
            raise
    return jobs


def combinations(request: JobRequest, matrix: Mapping[str, Sequence[object]]) -> Iterator[JobRequest]:
    """Yield the request of each combination of values, the last name changing fastest.

    Each name is a variable of the job's environment, and `{NAME}` in a word of its command is its value. Jobs are called
    NAME-1, NAME-2, and so on, if the request has a name; those of an array by their numbers in it.

    Raises:
        UsageError: a name has no values, or its values are one string; or the command has a name that is nearly one of these.
    """
    for key, given in matrix.items():
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise UsageError(f"matrix: {key}: {given!r}: must be a list of values", hint=f"{{{key!r}: [0.1, 0.01]}}")
    _check_names(request.command, matrix)
    env = dict(request.env)
    array = _array_of(request, matrix) if [*matrix] == [ARRAY] else None
    base = request.name if array is None else request.name or default_name(request.command)
    for number, chosen in enumerate(itertools.product(*matrix.values()), 1):
        values = dict(zip(matrix, map(str, chosen), strict=True))
        command = tuple(_filled(word, values) for word in request.command)
        name = base and f"{base}-{chosen[0] if [*matrix] == [ARRAY] else number}"
        yield replace(request, name=name, array=array, command=command, env=tuple({**env, **values}.items()))


def _array_of(request: JobRequest, matrix: Mapping[str, Sequence[object]]) -> SlurmArray | None:
    """Return the job array that a matrix is; None where its values are not numbers."""
    numbers = [str(value) for value in matrix[ARRAY]]
    if len(set(numbers)) < len(numbers) or not all(each.isdecimal() and each == str(int(each)) for each in numbers):
        return None
    return replace(request.array or SlurmArray(), count=len(numbers), id=os.urandom(8).hex())


def _check_names(command: Sequence[str], matrix: Mapping[str, Sequence[object]]) -> None:
    used = {name for word in command for name in _NAME.findall(word)}
    for name in sorted(used.difference(matrix)):
        near = get_close_matches(name, set(matrix).difference(used), n=1)
        if near:
            raise UsageError(f"command: {{{name}}}: the matrix has no such name", hint=f"did you mean {{{near[0]}}}?")


def _filled(word: str, values: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: values.get(match[1], match[0]), word)


def as_completed(backend: Backend, jobs: Iterable[Job], timeout: float | None) -> Iterator[Job]:
    """Yield each job once it has ended, in the order of their ends.

    Raises:
        TimeoutError: some have not ended after `timeout` seconds. They run on.
        NoJobError: one was deleted meanwhile.
    """
    remaining = {job.name: job for job in jobs}
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _POLL_SECONDS[0]
    while remaining:
        rows = {row.name: row for row in backend.list()[0] if row.name in remaining}
        if gone := sorted(remaining.keys() - rows.keys()):
            raise NoJobError(f"{', '.join(gone)}: deleted while they were waited for")
        ended = sorted((row.ended or 0.0, name) for name, row in rows.items() if row.state.is_terminal)
        for _time, name in ended:
            yield remaining.pop(name).refresh()
        if remaining and deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"{', '.join(sorted(remaining))}: not ended after {timeout:g} s")
        if remaining:
            time.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(_POLL_GROWTH * pause, _POLL_SECONDS[1])
