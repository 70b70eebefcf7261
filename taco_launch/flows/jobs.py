"""Jobs on the head: submit, list, get, follow, stop, delete."""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from taco_launch.errors import HostError, UsageError
from taco_launch.model.codec import from_json, to_json
from taco_launch.model.jobs import Event, JobRecord, JobSpec
from taco_launch.remote.head import Frame, Head


@dataclass(frozen=True)
class Job:
    """A job as the head tells it; `events` only where they were asked for, `folder` is the head's."""

    spec: JobSpec
    record: JobRecord
    folder: str
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Follow:
    """What to read of a job's log: of all ranks or one, from `offset` or the last `tail` lines on, to now or the end."""

    name: str
    rank: int | None = None
    offset: int = 0
    tail: int | None = None
    follow: bool = True


def default_name(command: tuple[str, ...]) -> str:
    """Make a name for a job out of its command, its script or else its program, and four random letters."""
    program, *rest = command
    told = program
    if PurePath(program).name.startswith("python"):
        while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
            rest = rest[1:]
        if rest and rest[0] != "-c":
            told = rest[1] if rest[0] == "-m" and len(rest) > 1 else rest[0]
    letters = re.sub("[^A-Za-z0-9]+", "-", PurePath(told).name.removesuffix(".py")).strip("-")
    return f"{letters[:40] or 'job'}-{secrets.token_hex(2)}"


def submit(head: Head, spec: JobSpec, environ: Mapping[str, str]) -> Job:
    """Have the head start a job; it goes on whatever happens to the caller.

    The job that is returned has a place, or has ended already.

    Raises:
        UsageError: its name is taken, or a host cannot run jobs in this version.
    """
    return _job(head.call("submit", follow=False, **_request(spec, environ))[-1]["job"])


def run(
    head: Head,
    spec: JobSpec,
    environ: Mapping[str, str],
    output: Callable[[bytes], None],
    on_job: Callable[[Job], None],
    on_state: Callable[[str], None],
) -> Job:
    """Submit a job and follow it to its end; `on_job` is given what `submit` would return. Raises as `submit` does."""
    with head.stream("submit", follow=True, **_request(spec, environ)) as frames:
        on_job(_job(next(frames).data["job"]))
        return _followed(spec.name, frames, output, on_state)


def _request(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, Any]:
    elsewhere = [host.name for host in spec.hosts if host.connection != "local"]
    if elsewhere:
        raise UsageError(
            f"host {elsewhere[0]}: this version runs jobs on this machine only",
            hint="leave -i and -H out, or look at the command line with --dry-run",
        )
    if spec.container is not None:
        raise UsageError(
            "this version starts no containers: the job would run outside of the image",
            hint="use an inventory without container, or look at the command line with --dry-run",
        )
    return {"spec": to_json(spec), "caller": {"environment": dict(environ), "umask": _umask()}}


def jobs(head: Head) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """Give every job, the newest first, and warnings about records that could not be read."""
    answer = head.call("list")
    found = [_job(frame["job"]) for frame in answer if "job" in frame]
    found.sort(key=lambda job: (-(job.record.submitted or 0), job.spec.name))
    return tuple(found), tuple(frame["warning"] for frame in answer if "warning" in frame)


def get(head: Head, name: str) -> Job:
    """Give one job with its events."""
    return _job(head.call("get", name=name)[-1]["job"])


def follow(
    head: Head, what: Follow, output: Callable[[bytes], None], on_state: Callable[[str], None] = lambda _state: None
) -> Job:
    """Give a job's log to `output` as it comes, and the job as it stands then."""
    request = {"name": what.name, "rank": what.rank, "offset": what.offset, "tail": what.tail, "follow": what.follow}
    with head.stream("logs", **request) as frames:
        return _followed(what.name, frames, output, on_state)


def _followed(
    name: str, frames: Iterator[Frame], output: Callable[[bytes], None], on_state: Callable[[str], None]
) -> Job:
    for frame in frames:
        if frame.raw:
            output(frame.raw)
        elif "skipped" in frame.data:
            output(b"[taco-launch: %d bytes dropped by log rotation]\n" % frame.data["skipped"])
        elif "state" in frame.data:
            on_state(frame.data["state"])
        elif "job" in frame.data:
            return _job(frame.data["job"])
    raise HostError(f"job {name}: the agent stopped answering", hint=f"taco-launch logs -f {name}")


def stop(head: Head, name: str, by: str, number: int, grace: float | None = None) -> Job:
    """Ask a job to end: TERM, then KILL after its grace time or `grace` seconds if that is less. Returns at once."""
    return _job(head.call("stop", name=name, by=by, signal=number, grace=grace)[-1]["job"])


def delete(head: Head, name: str) -> Job:
    """Remove what the head keeps of a job that has ended."""
    return _job(head.call("delete", name=name)[-1]["job"])


def _job(data: Mapping[str, Any]) -> Job:
    events = tuple(from_json(Event, event) for event in data.get("events", ()))
    return Job(from_json(JobSpec, data["spec"]), from_json(JobRecord, data["record"]), data["folder"], events)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
