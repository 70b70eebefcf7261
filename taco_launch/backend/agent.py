"""The agent on the head as a backend: each call is an operation of the agent, or a few."""

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taco_launch.backend import Counters, LogQuery, Node, Output, Watch
from taco_launch.backend.elsewhere import for_elsewhere
from taco_launch.errors import HostError, TacoLaunchError, UsageError
from taco_launch.model.codec import to_json
from taco_launch.model.jobs import JobSpec, JobState
from taco_launch.remote.answers import Answer, Job
from taco_launch.remote.head import AgentError, Frame, Head

if TYPE_CHECKING:
    from taco_launch.model.host.hosts import Host, Inventory
    from taco_launch.model.rows import JobRow

# How long `run` tries to find its head again before it leaves the job to itself.
_RUN_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = (0.05, 1.0)
# For guards of all hosts to end what is left, after the grace time; a host that is lost is waited for as well.
_SUSPEND_SECONDS = 600.0
_NOBODY = Watch()
_UNUSED = "without a container jobs run on the head alone: no other host is asked"


class AgentBackend:
    """Jobs that the agent on the head keeps. See Backend."""

    def __init__(self, head: Head) -> None:
        """Keep the head; nothing is asked."""
        self._head = head

    @property
    def name(self) -> str:
        """The head's name."""
        return self._head.name

    @property
    def typed(self) -> str:
        """How taco-launch is called for it."""
        return self._head.typed

    def submit(self, spec: JobSpec, environ: Mapping[str, str]) -> Job:
        """Start a job."""
        return _job(self._head.one("submit", follow=False, **self._request(spec, environ)))

    def run(self, spec: JobSpec, environ: Mapping[str, str], output: Output, watch: Watch) -> Job:
        """Start a job and follow it to its end; a connection that is lost is made again for a few minutes."""
        from taco_launch.backend.log_follower import LogFollower  # noqa: PLC0415 - a plan asks for facts alone

        request = self._request(spec, environ)
        follower = LogFollower(self._head, LogQuery(spec.name), output, watch, patience=_RUN_PATIENCE_SECONDS)
        with self._head.stream("submit", follow=True, seconds=self._head.seat.turn, **request) as frames:
            try:
                self._next(frames)["accepted"]  # there is a job now
                watch.accepted()
                job = _job(self._next(frames))
            except HostError as error:
                hint = f"whether there is a job {spec.name} now tells {self.typed} get {spec.name}"
                raise HostError(error.message, hint) from None
            watch.job(job)
            if job.record.state.is_terminal and job.record.started is None:
                return job  # it has no log, and may be gone already
            ended = follower.take(frames)
        return ended or follower.to_end()

    def get(self, name: str) -> Job:
        """Return a job with its events."""
        return _job(self._head.one("get", name=name))

    def list(self) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
        """Return a row of every job, the newest first, and warnings."""
        return _rows(self._head.call("list"))

    def follow(self, query: LogQuery, output: Output, watch: Watch = _NOBODY) -> Job:
        """Return a job's log to `output`; a connection that is lost is made again for as long as it takes."""
        from taco_launch.backend.log_follower import LogFollower  # noqa: PLC0415 - see above

        return LogFollower(self._head, query, output, watch, patience=math.inf).to_end()

    def stop(self, name: str, by: str, number: int, grace: float | None = None) -> Job:
        """Ask a job to end. Returns at once."""
        return _job(self._head.one("stop", name=name, by=by, signal=number, grace=grace))

    def suspend(self, name: str, by: str) -> Job:
        """Have a job's ranks ended as by a stop; return it once it is suspended, or has ended after all.

        Raises:
            UsageError: it has ended already.
        """
        job = _job(self._head.one("suspend", name=name, by=by))
        pause, deadline = _POLL_SECONDS[0], time.monotonic() + job.spec.policy.grace + _SUSPEND_SECONDS
        while job.record.state is not JobState.SUSPENDED and not job.record.state.is_terminal:
            if time.monotonic() > deadline:
                raise HostError(
                    f"{self.name}: job {name} is not suspended {_SUSPEND_SECONDS:g} s after its grace time",
                    hint=f"taco-launch get {name} says how it stands",
                )
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1])
            job = self.get(name)
        return job

    def resume(self, name: str, by: str) -> Job:
        """Have a suspended job wait for its slots again.

        Raises:
            UsageError: it is not suspended.
        """
        return _job(self._head.one("resume", name=name, by=by))

    def delete(self, name: str) -> tuple[str, ...]:
        """Remove what the hosts keep of a job that has ended; return warnings."""
        return tuple(frame["warning"] for frame in self._head.call("delete", name=name) if "warning" in frame)

    def prune(self, since: float, owner: str | None, *, dry_run: bool) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
        """Remove the records of jobs that ended long ago; return them."""
        return _rows(self._head.call("prune", since=since, owner=owner, dry_run=dry_run))

    def nodes(self, inventory: "Inventory") -> tuple[Node, ...]:
        """Return who has which slots of each host."""
        used = [host for host in inventory.hosts if self._head.seat.container or host.name == inventory.head]
        hosts = [[host.name, host.slots, host.gpus] for host in used]
        answers = {frame["host"]: frame for frame in self._head.call("top", hosts=hosts, here=inventory.head)}
        nobody: Mapping[str, Any] = {"problem": _UNUSED}
        found = []
        for host in inventory.hosts:
            answer = answers.get(host.name, nobody)
            problem, occupancy = answer.get("problem", ""), answer.get("occupancy")
            found.append(Node(host, host.name == inventory.head, occupancy, problem, host in used))
        return tuple(found)

    def counters(self) -> Counters:
        """Return what metrics count."""
        answer = self._head.call("metrics")
        told = next((frame for frame in answer if "rows" in frame), None) or Answer(self.name, "metrics", {})
        # A removal that was cut off has counted its job, and left it there.
        rows = tuple(row for row in told["rows"] if row.id != told["last"])
        return Counters(rows, told["removed"], tuple(frame["warning"] for frame in answer if "warning" in frame))

    def execute(self, name: str, rank: int, command: tuple[str, ...], out: Output, err: Output) -> int:
        """Run a command beside a rank; return its exit code."""
        import secrets  # noqa: PLC0415 - no other call needs it

        token, code = secrets.token_hex(8), None
        try:
            with self._head.stream("exec", name=name, rank=rank, command=list(command), token=token) as frames:
                for frame in frames:
                    if frame.raw:
                        (out if frame.data["stream"] == "out" else err)(frame.raw)
                    code = frame.data.get("exit", code)
        except BaseException as error:
            if not isinstance(error, AgentError):
                with contextlib.suppress(TacoLaunchError):  # the agent in a container outlives the connection to it
                    self._head.call("exec-end", name=name, token=token)
            raise
        if code is None:
            raise HostError(f"{self.name}: exec: its answer has no exit code")
        return int(code)

    def facts(self, *, mpirun: str, path: str, count_slots: bool, topology: bool) -> Mapping[str, Any]:
        """Return what the line of a job depends on, of the head itself."""
        return self._head.one("facts", mpirun=mpirun, path=path, count_slots=count_slots, topology=topology)

    def ahead(self, operation: str) -> None:
        """Start the agent of this machine, which loads what it needs while the call is made up."""
        self._head.ahead(operation)

    def _request(self, spec: JobSpec, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return what is to run, and what the caller brings: all of its environment, or what it names for elsewhere."""
        self._check_hosts(spec)
        inherit = self._head.seat.inherit
        if inherit:
            named = (name for name, value in spec.env if value is None)
            environ = {name: environ[name] for name in named if name in environ}
            spec = for_elsewhere(spec)
        caller = {"environment": dict(environ), "umask": _umask(), "inherit": inherit}
        return {"spec": to_json(spec), "caller": caller}

    def _check_hosts(self, spec: JobSpec) -> None:
        if self._head.seat.container:
            return
        # Without a container there is no SSH between the hosts: the job's host is the one that the agent is on.
        strange = next((host for host in spec.hosts if not self._is_at(spec, host)), None)
        if strange is not None:
            raise UsageError(
                f"host {strange.name}: without a container a job runs on the head alone, which is {self.name}",
                hint="name the image in an inventory (container: {image: ...}) and prepare its hosts: "
                "taco-launch -i FILE setup; or look at the command line with --dry-run",
            )

    def _is_at(self, spec: JobSpec, host: "Host") -> bool:
        return host.name == spec.head if self._head.seat.inherit else host.connection == "local"

    def _next(self, frames: Iterator[Frame]) -> Mapping[str, Any]:
        frame = next(frames, None)
        return frame.data if frame is not None else Answer(self.name, "submit", {})


def _job(answer: Mapping[str, Any]) -> Job:
    found: Job = answer["job"]
    return found


def _rows(frames: Sequence[Mapping[str, Any]]) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
    found = [row for frame in frames for row in frame.get("rows", ())]
    found.sort(key=lambda row: (-(row.submitted or 0), row.name))
    return tuple(found), tuple(frame["warning"] for frame in frames if "warning" in frame)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
