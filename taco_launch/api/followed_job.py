"""A job that the caller follows to its end, and that ends with the caller's Ctrl-C."""

import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from taco_launch.jobs.backend import Backend, FollowListener, LogQuery, Output, require_started

if TYPE_CHECKING:
    from taco_launch.core.model.job_view import JobView
    from taco_launch.core.model.jobs import JobSpec


def run_or_stop(
    backend: Backend, spec: "JobSpec", environ: Mapping[str, str], output: Output, watch: FollowListener
) -> "JobView":
    """Start a job and follow it to its end; a KeyboardInterrupt stops it, and is raised again once it has ended.

    Raises:
        TacoLaunchError: as `submit`; or the job never started.
    """
    begun: list[str] = []

    def accepted() -> None:
        begun.append(spec.name)
        watch.accepted()

    try:
        ended = backend.run(spec, environ, output, replace(watch, accepted=accepted))
    except KeyboardInterrupt:
        for name in begun:  # before that, the name may be another job's
            backend.stop([name], "Ctrl-C", signal.SIGINT).job(name)
            backend.follow(LogQuery(name, tail=0), lambda _data: None)  # until nothing of it runs
        raise
    if not ended.record.attempt:  # of one whose ranks failed at once there is a log to read
        require_started(ended)
    return ended
