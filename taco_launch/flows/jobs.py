"""Jobs on the head: submit, get, follow, stop, delete."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taco_launch.errors import HostError, UsageError
from taco_launch.flows.elsewhere import for_elsewhere
from taco_launch.flows.follow import Follow, Follower, Output
from taco_launch.frozen import dataclass
from taco_launch.model.codec import to_json
from taco_launch.model.hosts import Host
from taco_launch.model.jobs import JobSpec
from taco_launch.remote.answers import Answer, Job, Words
from taco_launch.remote.head import Frame, Head

# How long `run` tries to find its head again before it leaves the job to itself.
_RUN_PATIENCE_SECONDS = 300.0


def submit(head: Head, spec: JobSpec, environ: Mapping[str, str]) -> Job:
    """Give the head a job; it goes on whatever happens to the caller.

    The job that is returned has a place, is known to wait for one, or has ended already.

    Raises:
        UsageError: its name is taken, or it asks for hosts that no job can have without a container.
    """
    return _job(head.one("submit", follow=False, **_request(head, spec, environ)))


@dataclass(frozen=True)
class Watch:
    """Who is told what while a job is followed.

    `accepted` when there is a job that can be stopped; `job` what `submit` would return, and the job again once it has
    its place, where it had to wait; `state` each change of its state; `waits` why it waits; `say` what happens to the
    connection.
    """

    accepted: Callable[[], None]
    job: Callable[[Job], None]
    state: Callable[[str], None]
    waits: Callable[[Words], None]
    say: Callable[[str], None]


def run(head: Head, spec: JobSpec, environ: Mapping[str, str], output: Output, watch: Watch) -> Job:
    """Submit a job and follow it to its end. Raises as `submit` does.

    A connection that is lost is made again, for a few minutes.
    """
    request = _request(head, spec, environ)
    follower = Follower(
        head,
        Follow(spec.name),
        output,
        watch.state,
        watch.say,
        patience=_RUN_PATIENCE_SECONDS,
        on_wait=watch.waits,
        on_begin=watch.job,
    )
    with head.stream("submit", follow=True, seconds=head.seat.turn, **request) as frames:
        try:
            _next(head, frames)["accepted"]  # there is a job now
            watch.accepted()
            job = _job(_next(head, frames))
        except HostError as error:
            hint = f"whether there is a job {spec.name} now tells {head.typed} get {spec.name}"
            raise HostError(error.message, hint) from None
        watch.job(job)
        if job.record.state.is_terminal and job.record.started is None:
            return job  # it has no log, and may be gone already
        ended = follower.take(frames)
    return ended or follower.to_end()


def _request(head: Head, spec: JobSpec, environ: Mapping[str, str]) -> dict[str, Any]:
    """Say what is to run, and what the caller brings: all of its environment, or what it names where it is elsewhere."""
    _check_hosts(head, spec)
    if head.seat.inherit:
        named = (name for name, value in spec.env if value is None)
        environ = {name: environ[name] for name in named if name in environ}
        spec = for_elsewhere(spec)
    caller = {"environment": dict(environ), "umask": _umask(), "inherit": head.seat.inherit}
    return {"spec": to_json(spec), "caller": caller}


def _check_hosts(head: Head, spec: JobSpec) -> None:
    if head.seat.container:
        return
    # Without a container there is no SSH between the hosts: the job's host is the one that the agent is on.
    strange = next((host for host in spec.hosts if not _is_at(head, spec, host)), None)
    if strange is not None:
        raise UsageError(
            f"host {strange.name}: without a container a job runs on the head alone, which is {head.name}",
            hint="name the image in an inventory (container: {image: ...}) and prepare its hosts: "
            "taco-launch -i FILE setup; or look at the command line with --dry-run",
        )


def _is_at(head: Head, spec: JobSpec, host: Host) -> bool:
    return host.name == spec.head if head.seat.inherit else host.connection == "local"


def get(head: Head, name: str) -> Job:
    """Give one job with its events."""
    return _job(head.one("get", name=name))


def follow(
    head: Head,
    what: Follow,
    output: Output,
    on_state: Callable[[str], None] = lambda _state: None,
    say: Callable[[str], None] = lambda _words: None,
    on_wait: Callable[[Words], None] = lambda _words: None,
) -> Job:
    """Give a job's log to `output` as it comes, and the job as it stands then.

    Of a job that is followed, a connection that is lost is made again for as long as it takes; `say` is given what
    happens to it, `on_wait` why the job waits.
    """
    return Follower(head, what, output, on_state, say, on_wait=on_wait).to_end()


def stop(head: Head, name: str, by: str, number: int, grace: float | None = None) -> Job:
    """Ask a job to end: TERM, then KILL after its grace time or `grace` seconds if that is less. Returns at once."""
    return _job(head.one("stop", name=name, by=by, signal=number, grace=grace))


def delete(head: Head, name: str) -> tuple[str, ...]:
    """Remove what the hosts keep of a job that has ended, and give warnings about hosts where that failed."""
    return tuple(frame["warning"] for frame in head.call("delete", name=name) if "warning" in frame)


def _job(answer: Mapping[str, Any]) -> Job:
    found: Job = answer["job"]
    return found


def _next(head: Head, frames: Iterator[Frame]) -> Mapping[str, Any]:
    frame = next(frames, None)
    return frame.data if frame is not None else Answer(head.name, "submit", {})


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
