"""The agent on the head as a backend: each method is a call of the agent, or a few."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from taco_launch.core.command import without_git_secrets
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.launch.spec_for_head import spec_for_head
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.protocol.calls import Notice, Reply, Request
from taco_launch.core.protocol.calls.jobs import (
    Accepted,
    CallerEnvironment,
    Delete,
    Deleted,
    Get,
    GetUsage,
    JobReply,
    MessageSent,
    NotDone,
    Resize,
    Resume,
    SendMessage,
    Stop,
    Submit,
    Suspend,
    UsageReply,
)
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.hosts.remote.reply_errors import understood
from taco_launch.jobs.backend import (
    CopiesRemoved,
    Counters,
    FollowListener,
    HeadFacts,
    HostOccupancy,
    LogQuery,
    Outcomes,
    Output,
    agent_location,
)
from taco_launch.jobs.backend.agent_client import AgentClient, reach

if TYPE_CHECKING:
    from taco_launch.core.model.host.job_containers import VariantUse
    from taco_launch.core.model.job_rows import JobRow
    from taco_launch.core.model.job_view import JobUsage, LiveJob
    from taco_launch.core.model.run.rank_samples import RankStack
    from taco_launch.core.protocol.calls.caller_input import CallerInput
    from taco_launch.core.protocol.calls.copy_files import ReadFiles, WriteFiles
    from taco_launch.core.protocol.calls.exec_command import Exec
    from taco_launch.jobs.backend.log_follower import LogFollower
    from taco_launch.jobs.code.snapshot import Snapshot

# How long `run` tries to find its head again before it leaves the job to itself.
_RUN_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = (0.05, 1.0)
# For guards of all hosts to end what is left, after the grace time; a host that is lost is waited for as well.
_SUSPEND_SECONDS = 600.0
_NOBODY = FollowListener()
_Kind = TypeVar("_Kind", bound=Reply)
_UNUSED = "without a container jobs run on the head alone: no other host is contacted"


@contextlib.contextmanager
def connect(
    inventory: Inventory | None, access: Credentials | None, environ: Mapping[str, str], typed: str
) -> "Iterator[AgentBackend]":
    """Return the agent of an inventory's head, or of this machine. See backend.connect."""
    if inventory is None:
        yield AgentBackend(AgentClient(LocalTransport(), agent_location.here(environ, os.geteuid()), typed))
        return
    with reach(inventory, access or Credentials(), environ, typed) as head:
        yield AgentBackend(head)


class AgentBackend:
    """Jobs that the agent on the head keeps. See Backend."""

    def __init__(self, head: AgentClient) -> None:
        """Keep the head; nothing is asked."""
        self._head = head
        # Is given each job before it is submitted, and sees that its container is there.
        self.prepare: Callable[[JobSpec], JobSpec] = lambda spec: spec
        self._code: dict[str, tuple[Snapshot, Callable[[str], None]]] = {}

    @property
    def name(self) -> str:
        """The head's name."""
        return self._head.name

    @property
    def typed(self) -> str:
        """How taco-launch is called for it."""
        return self._head.typed

    def provide_code(self, snapshot: "Snapshot", say: Callable[[str], None]) -> None:
        """Keep a snapshot for the jobs that name it."""
        self._code[snapshot.id] = snapshot, say

    def submit(self, spec: JobSpec, environ: Mapping[str, str]) -> JobView:
        """Start a job."""
        request = self._request(self.prepare(spec), environ)
        if request.spec.code is None:
            return self._job(request)
        with self._submitting(request) as replies:
            self._next(replies, Accepted)
            job = self._next(replies, JobReply).job
            next(replies, None)  # to its end
            return job

    def run(self, spec: JobSpec, environ: Mapping[str, str], output: Output, watch: FollowListener) -> JobView:
        """Start a job and follow it to its end; a connection that is lost is made again for a few minutes.

        Raises:
            HostError: the head cannot be reached.
        """
        request = self._request(self.prepare(spec), environ).replace(follow=True, seconds=self._head.location.turn)
        follower = self._follower(LogQuery(spec.name), output, watch, _RUN_PATIENCE_SECONDS)
        with self._submitting(request) as replies:
            try:
                self._next(replies, Accepted)  # there is a job now
                watch.accepted()
                job = self._next(replies, JobReply).job
            except HostError as error:
                hint = f"to see whether the job was created: {self.typed} get {spec.name}"
                raise HostError(error.message, hint) from None
            watch.job(job)
            if job.record.state.is_terminal and job.record.started is None:
                return job  # it has no log, and may be gone already
            ended = follower.take(replies)
        return ended or follower.to_end()

    @contextlib.contextmanager
    def _submitting(self, request: Submit) -> Iterator[Iterator[Reply]]:
        """Submit a job, and send what the head lacks of its code; return the replies that come then."""
        if request.spec.code is None:
            with self._head.stream(request) as replies:
                yield replies
            return
        from taco_launch.jobs.backend import code_upload  # noqa: PLC0415 - few jobs have code

        with self._head.converse(request) as talk:
            yield code_upload.answered(talk, self.name, *self._code[request.spec.code.id])

    def get(self, name: str) -> JobView:
        """Return a job with its events."""
        return self._job(Get(name=name))

    def list(self) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
        """Return a row of every job, the newest first, and warnings."""
        rows, _live, warnings = self._rows("list")
        return rows, warnings

    def live(self) -> "tuple[tuple[JobRow, ...], tuple[LiveJob, ...], tuple[str, ...]]":
        """Return what `list` returns, and what the running jobs use."""
        return self._rows("live")

    def used(self, name: str) -> "JobUsage | None":
        """Return what a job has used since its start, None where nothing was measured."""
        return self._head.expect(GetUsage(name=name), UsageReply).usage

    def follow(self, query: LogQuery, output: Output, watch: FollowListener = _NOBODY) -> JobView:
        """Return a job's log to `output`; a connection that is lost is made again for as long as it takes."""
        return self._follower(query, output, watch, math.inf).to_end()

    def _follower(self, query: LogQuery, output: Output, watch: FollowListener, patience: float) -> "LogFollower":
        from taco_launch.jobs.backend.log_follower import LogFollower  # noqa: PLC0415 - no other call needs it

        return LogFollower(self._head, query, output, watch, patience=patience)

    def stacks(self, name: str) -> "tuple[tuple[RankStack, ...], Mapping[str, str]]":
        """Return what each rank of a running job does, and why a host told nothing of its ranks."""
        from taco_launch.core.protocol.calls.stacks import Stacks, StacksReply  # noqa: PLC0415 - no other call needs it

        found = [reply for reply in self._head.call(Stacks(name=name)) if isinstance(reply, StacksReply)]
        ranks = tuple(told for reply in found for told in reply.ranks)
        return ranks, {reply.host: reply.problem for reply in found if reply.problem}

    def stop(
        self, names: Sequence[str], by: str, number: int, grace: float | None = None, owner: str | None = None
    ) -> Outcomes:
        """Ask jobs to end. Returns at once."""
        return self._outcomes(Stop(names=[*names], by=by, signal=number, grace=grace, owner=owner))

    def suspend(self, names: Sequence[str], by: str, owner: str | None = None) -> Outcomes:
        """Have the ranks of jobs ended as by a stop; return once each is suspended, or has ended after all."""
        jobs = self._outcomes(Suspend(names=[*names], by=by, owner=owner)).jobs.items()
        return Outcomes({name: self._suspended(job) if isinstance(job, JobView) else job for name, job in jobs})

    def _suspended(self, job: JobView) -> JobView | TacoLaunchError:
        """Wait until a job that was told so is suspended or has ended; return it, or why it was not seen so."""
        name, policy = job.spec.name, job.spec.policy
        own = policy.grace + (0.0 if policy.signal is None else policy.signal.seconds)
        pause, deadline = _POLL_SECONDS[0], time.monotonic() + own + _SUSPEND_SECONDS
        while job.record.state is not JobState.SUSPENDED and not job.record.state.is_terminal:
            if time.monotonic() > deadline:
                return HostError(
                    f"{self.name}: job {name} is not suspended {_SUSPEND_SECONDS:g} s after its grace time",
                    hint=f"taco-launch get {name} shows its state",
                )
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1])
            job = self.get(name)
        return job

    def resume(self, names: Sequence[str], by: str, owner: str | None = None) -> Outcomes:
        """Have suspended jobs wait for their slots again."""
        return self._outcomes(Resume(names=[*names], by=by, owner=owner))

    def resize(self, names: Sequence[str], hosts: int, by: str, owner: str | None = None) -> Outcomes:
        """Have running elastic jobs use at most so many hosts."""
        return self._outcomes(Resize(names=[*names], by=by, owner=owner, hosts=hosts))

    def delete(self, names: Sequence[str], by: str | None = None, owner: str | None = None) -> Outcomes:
        """Remove what the hosts keep of jobs that have ended."""
        return self._outcomes(Delete(names=[*names], by=by, owner=owner))

    def prune(self, since: float, owner: str | None, *, dry_run: bool) -> "tuple[tuple[JobRow, ...], tuple[str, ...]]":
        """Remove the records of jobs that ended long ago; return them."""
        rows, _live, warnings = self._rows("prune", since=since, owner=owner, dry_run=dry_run)
        return rows, warnings

    def prune_code(
        self, since: float, inventory: Inventory, *, dry_run: bool
    ) -> tuple[tuple[CopiesRemoved, ...], tuple[str, ...]]:
        """Remove the copies of code that no job needs, from the head and from the hosts that jobs run on."""
        from taco_launch.core.protocol.calls.snapshots import SnapshotPrune, SnapshotsRemoved  # noqa: PLC0415 - see above

        others = [
            host.name for host in inventory.hosts if self._head.location.container and host.name != inventory.head
        ]
        request = SnapshotPrune(since=since, dry_run=dry_run, here=inventory.head, hosts=others)
        replies = self._head.call(request)
        found = (reply for reply in replies if isinstance(reply, SnapshotsRemoved))
        return tuple(CopiesRemoved(reply.host, reply.snapshots, reply.freed) for reply in found), _warnings(replies)

    def nodes(self, inventory: Inventory) -> tuple[HostOccupancy, ...]:
        """Return who has which slots of each host."""
        from taco_launch.core.protocol.calls.hosts import HostSize, SlotsReply, Top  # noqa: PLC0415 - see above

        used = [host for host in inventory.hosts if self._head.location.container or host.name == inventory.head]
        hosts = [HostSize(name=host.name, slots=host.slots, gpus=host.slot_words) for host in used]
        replies = self._head.call(Top(hosts=hosts, here=inventory.head))
        answers = {reply.host: reply for reply in replies if isinstance(reply, SlotsReply)}
        found = []
        for host in inventory.hosts:
            answer = answers.get(host.name) or SlotsReply(host=host.name, problem=_UNUSED)
            found.append(
                HostOccupancy(
                    host, host.name == inventory.head, answer.occupancy, answer.problem, host in used, answer.usage
                )
            )
        return tuple(found)

    @property
    def containers(self) -> "AgentBackend":
        """The agent, which keeps a record of each."""
        return self

    def find_variant(self, key: str) -> str:
        """Return what is kept of a variant, and note that it is used."""
        from taco_launch.core.protocol.calls.job_containers import FindVariant, VariantReply  # noqa: PLC0415 - see above

        return self._head.expect(FindVariant(key=key), VariantReply).record

    def variants(self) -> "tuple[VariantUse, ...]":
        """Return all variants, and who needs them."""
        from taco_launch.core.model.host.job_containers import VariantUse  # noqa: PLC0415 - it loads OpenSSL
        from taco_launch.core.protocol.calls.job_containers import GetVariants, VariantReply  # noqa: PLC0415 - see above

        found = [reply for reply in self._head.call(GetVariants()) if isinstance(reply, VariantReply)]
        return tuple(VariantUse(reply.key, reply.record, reply.used, tuple(reply.jobs)) for reply in found)

    def counters(self) -> Counters:
        """Return what metrics count.

        Raises:
            HostError: the answer contains no counts.
        """
        from taco_launch.core.protocol.calls.job_list import Counted, Metrics  # noqa: PLC0415 - see above

        replies = self._head.call(Metrics())
        found = next((reply for reply in replies if isinstance(reply, Counted)), None)
        if found is None:
            raise HostError(f"{self.name}: metrics: the answer contains no counts")
        with understood(self.name, "metrics"):
            return Counters(found.jobs(), found.removed, _warnings(replies), tuple(found.live))

    def at_rank(
        self, request: "Exec | ReadFiles | WriteFiles", given: "Iterable[CallerInput]", out: Output, err: Output
    ) -> int:
        """Run a command beside a rank, or copy files from or to its host; return the exit code."""
        from taco_launch.jobs.backend.rank_access import converse  # noqa: PLC0415 - few calls go on like this

        return converse(self._head, request, given, out, err)

    def facts(self, *, mpirun: str, path: str, count_slots: bool, topology: bool) -> HeadFacts:
        """Return what the line of a job depends on, of the head itself."""
        from taco_launch.core.protocol.calls.facts import FactsReply, GetFacts  # noqa: PLC0415 - see above

        request = GetFacts(mpirun=mpirun, path=path, count_slots=count_slots, topology=topology)
        known = self._head.expect(request, FactsReply)
        with understood(self.name, request.op):
            return HeadFacts(known.known.job_host(""), known.openmpi, known.problem, known.links())

    def send_message(self, to: str, message: Mapping[str, object]) -> str:
        """Send a message to an address from the head, once; return why that failed, "" where it did not."""
        return self._head.expect(SendMessage(to=to, message=message), MessageSent).problem

    def prestart(self, operation: str) -> None:
        """Start the agent of this machine, which loads what it needs while the call is made up."""
        self._head.prestart(operation)

    def _request(self, spec: JobSpec, environ: Mapping[str, str]) -> Submit:
        """Return what is to run, and what the caller brings: all of its environment, or what it names for elsewhere."""
        self._check_hosts(spec)
        inherit = self._head.location.inherit
        if inherit:
            named = (name for name, value in spec.env if value is None)
            environ = {name: environ[name] for name in named if name in environ}
            spec = spec_for_head(spec)
        environ = without_git_secrets(environ)
        return Submit(spec=spec, caller=CallerEnvironment(environment=environ, umask=_umask(), inherit=inherit))

    def _check_hosts(self, spec: JobSpec) -> None:
        if self._head.location.container:
            return
        # Without a container there is no SSH between the hosts: the job's host is the one that the agent is on.
        strange = next((host for host in spec.hosts if not self._is_at(spec, host)), None)
        if strange is not None:
            raise UsageError(
                f"host {strange.name}: cannot be used: without a container jobs run on the head only, which is {self.name}",
                hint="make an inventory that names an image, and prepare its hosts: taco-launch init HOST1 HOST2 --image IMAGE "
                "--to hosts.yaml && taco-launch -i hosts.yaml setup; or look at the command line with --dry-run",
            )

    def _is_at(self, spec: JobSpec, host: Host) -> bool:
        return host.name == spec.head if self._head.location.inherit else host.connection == "local"

    def _job(self, request: Request) -> JobView:
        return self._head.expect(request, JobReply).job

    def _outcomes(self, request: Stop | Suspend | Resume | Resize | Delete) -> Outcomes:
        """Return what became of each named job.

        Raises:
            HostError: the answer has another number of jobs.
        """
        replies = self._head.call(request)
        outcomes = [self._outcome(reply) for reply in replies if isinstance(reply, (JobReply, Deleted, NotDone))]
        if len(outcomes) != len(request.names):
            raise HostError(
                f"{self.name}: {request.op}: {len(outcomes)} of {len(request.names)} jobs are in the answer"
            )
        return Outcomes(dict(zip(request.names, outcomes, strict=True)), _warnings(replies))

    def _outcome(self, reply: JobReply | Deleted | NotDone) -> JobView | TacoLaunchError | None:
        if isinstance(reply, NotDone):
            return self._head.error(reply.failure)
        return reply.job if isinstance(reply, JobReply) else None

    def _rows(self, op: str, **fields: Any) -> "tuple[tuple[JobRow, ...], tuple[LiveJob, ...], tuple[str, ...]]":
        """Make a call about all jobs; return their rows, the newest first, what those that run use, and warnings."""
        from taco_launch.core.protocol.calls import job_list  # noqa: PLC0415 - few calls need it

        request = {kind.op: kind for kind in (job_list.List, job_list.Live, job_list.Prune)}[op](**fields)
        replies = self._head.call(request)
        with understood(self.name, op):
            rows = [row for reply in replies if isinstance(reply, job_list.Rows) for row in reply.jobs()]
        rows.sort(key=lambda row: (-(row.submitted or 0), row.name))
        live = tuple(job for reply in replies if isinstance(reply, job_list.LiveJobs) for job in reply.jobs)
        return tuple(rows), live, _warnings(replies)

    def _next(self, replies: Iterator[Reply], kind: type[_Kind]) -> _Kind:
        reply = next(replies, None)
        if not isinstance(reply, kind):
            raise HostError(f"{self.name}: submit: not a taco-launch message: {kind.op} is missing")
        return reply


def _warnings(replies: Sequence[Reply]) -> tuple[str, ...]:
    return tuple(reply.text for reply in replies if isinstance(reply, Notice))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
