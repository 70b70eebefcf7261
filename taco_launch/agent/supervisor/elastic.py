"""The hosts of an elastic job while it runs: it continues without one that is lost, and takes those that become free.

torchrun restarts all ranks whenever a host comes or goes; those of Horovod continue. The first host has the store or the
driver where the others meet: with it the attempt ends.
"""

import contextlib
import time
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Tuple

from taco_launch.agent.gang import descriptors
from taco_launch.agent.gang.elastic_gang import ElasticGang
from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import Jobs
from taco_launch.agent.supervisor import start
from taco_launch.agent.supervisor.supervised_attempt import SupervisedAttempt
from taco_launch.core import trace
from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.launch import plan
from taco_launch.core.lifecycle import state
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import Placement, numbered
from taco_launch.core.protocol.calls.jobs import CallerEnvironment
from taco_launch.core.protocol.guard_messages import EndJob
from taco_launch.core.protocol.rank_messages import InterruptRanks, Leave

# How often other hosts and other jobs are looked at. A host that could not join, or has left, is tried again after twice as
# long each time.
_LOOK_SECONDS, _MOST_PAUSE = 10.0, 300.0
# A host that leaves has so long to end its ranks after the grace time, and to send its logs.
_END_SECONDS = 30.0


class ElasticWorld:
    """Tracks which hosts an attempt has, how many it may have, and which may join next."""

    def __init__(
        self,
        attempt: SupervisedAttempt,
        planned: start.Attempt,
        facts: JobFacts,
        caller: CallerEnvironment,
        wrapper: Tuple[str, ...],
    ) -> None:
        """Begin with the hosts of its placement."""
        seated = tuple(replace(share, first=ranks[0]) for share, ranks in numbered(planned.placement.shares))
        self._attempt = attempt
        self._planned = planned._replace(placement=replace(planned.placement, shares=seated))
        self._facts, self._caller, self._wrapper = facts, caller, wrapper
        self._first = planned.placement.np  # the number of the next rank that joins
        self._look_at = time.monotonic() + _LOOK_SECONDS
        # When a host that could not join, or has left, is tried again, and the pause before that.
        self._tries: Dict[str, Tuple[float, float]] = {}
        self._leaving: Dict[str, _Departure] = {}
        self._jobs = Jobs(attempt.folder.path.parent.parent)
        self._specs: Dict[str, JobSpec] = {}  # of the jobs that wait
        self._joins = False

    @property
    def placement(self) -> Placement:
        """Where its ranks are."""
        return self._planned.placement

    def is_leaving(self, link: GuardConnection) -> bool:
        """Return whether a host is leaving the job: how its ranks end does not matter."""
        return link.name in self._leaving

    def loses(self, link: GuardConnection) -> bool:
        """Return whether the job continues without a guard that is gone."""
        if link.name not in self._hosts:  # it leaves, or was about to join
            return link.name in self._leaving or self._joins
        if not self._can_lose(link.name):
            return False
        self._drop(link.name, f"host {link.name} lost: {link.gone}")
        self._interrupt(before=link.heard)
        self._forget(link)
        return True

    def settle_failures(self) -> bool:
        """Continue without a host whose launcher has failed, if others can; return False while that has to wait."""
        if self._joins:
            return False
        if self._attempt.cut_short is None and self._attempt.kill_at is None:
            self._leave_failed()
        return True

    def step(self, now: float, serve: Callable[[], None]) -> None:
        """Continue departures, and look at other hosts where that is due; `serve` is called as long as hosts are waited for."""
        attempt = self._attempt
        if self._joins or attempt.cut_short is not None or attempt.kill_at is not None:
            return
        for name, departure in list(self._leaving.items()):
            if departure.step(now):
                del self._leaving[name]
                self._dismiss(departure.link)
        if now < self._look_at or self._leaving:
            return
        self._look_at = now + _LOOK_SECONDS
        waiting = self._first_waiting()
        if len(self._hosts) > self._most:
            self._give_up(f"resized to {self._most} hosts")
        elif waiting is not None and waiting.policy.priority > attempt.spec.policy.priority:
            self._give_up(f"job {waiting.name}, of a higher priority, waits for slots")
        elif len(self._hosts) < self._most and waiting is None and self._runs:
            self._grow(now, serve)

    # -- its size

    @property
    def _hosts(self) -> List[str]:
        return [share.host for share in self.placement.shares]

    @property
    def _most(self) -> int:
        spec = self._attempt.spec
        assert spec.host_count is not None  # checked with the request (jobs/request/sizes.py)
        resize = records.read_resize(self._attempt.folder)
        return spec.host_count if resize is None else min(resize.hosts, spec.host_count)

    @property
    def _runs(self) -> bool:
        ranks = self._attempt.ranks
        return len(ranks.started) == ranks.np and not ranks.ended

    def _can_lose(self, name: str) -> bool:
        least = self._attempt.spec.least_hosts or 1
        return name != self._hosts[0] and len(self._hosts) > least

    def _first_waiting(self) -> Optional[JobSpec]:
        """Return the job of the highest priority that waits for slots of hosts which this one may have; None for none."""
        ours = {host.address for host in self._attempt.spec.hosts}
        names = {*self._jobs.pending()} - {self._attempt.spec.name}
        self._specs = {name: spec for name, spec in self._specs.items() if name in names}
        for name in names - self._specs.keys():
            with contextlib.suppress(TacoLaunchError, OSError):  # it is gone, or damaged
                self._specs[name] = records.read_spec(self._jobs.folder(name))
        rivals = [spec for spec in self._specs.values() if ours & {host.address for host in spec.hosts}]
        for spec in sorted(rivals, key=lambda spec: -spec.policy.priority):
            with contextlib.suppress(TacoLaunchError, OSError):  # as above
                if records.record(self._jobs.folder(spec.name)).state is JobState.QUEUED:
                    return spec
        return None

    # -- fewer hosts

    def _give_up(self, why: str) -> None:
        name = self._hosts[-1]
        if self._can_lose(name):
            self._leave(name, f"host {name} leaves: {why}")

    def _leave_failed(self) -> None:
        """Continue without a host whose launcher has failed while others run."""
        launcher = self._attempt.launcher
        if not isinstance(launcher, start.HostCommands) or launcher.poll() is not None:
            return
        failed = launcher.failed_on
        if failed and self._can_lose(failed):
            self._leave(failed, f"host {failed} leaves: its {self._attempt.spec.launcher} failed")

    def _leave(self, name: str, words: str) -> None:
        link = self._attempt.gang.link(name)
        self._leaving[name] = _Departure(link, self._attempt.spec.policy.grace, self._attempt.ranks.whole)
        link.order(Leave())
        self._drop(name, words)

    def _drop(self, name: str, words: str) -> None:
        """Remove a host and its ranks from the job, and report it."""
        attempt, before = self._attempt, self.placement.np
        launcher = attempt.launcher
        assert isinstance(launcher, start.HostCommands)  # of an elastic launcher
        launcher.leave(attempt.gang.link(name))
        left = tuple(share for share in self.placement.shares if share.host != name)
        self._planned = self._planned._replace(placement=replace(self.placement, shares=left))
        attempt.ranks.leave(name)
        self._tell(before, words)

    def _interrupt(self, before: float) -> None:
        """End the ranks that have run since before the time `before`: they may wait forever for one on a lost host.

        Ranks of Horovod find that out by themselves, and continue.
        """
        if not launcher_of(self._attempt.spec).restarts_ranks:
            return
        self._attempt.gang.order(InterruptRanks(roots=self._attempt.ranks.wrappers(before)))

    def _dismiss(self, link: GuardConnection) -> None:
        """Have the guard of a host that has left end: it starts afresh if the host joins again."""
        if isinstance(link, RemoteGuardConnection) and not link.gone:
            self._attempt.gang.dismiss([link], self._attempt.note, remove=True)
        self._forget(link)

    def _forget(self, link: GuardConnection) -> None:
        self._put_off([link.name])  # each time for longer: every change restarts all ranks
        link.close()
        if link in self._attempt.gang.links:
            self._attempt.gang.remove(link)

    # -- more hosts

    def _candidates(self, now: float) -> List[Host]:
        spec = self._attempt.spec
        room = self._most - len(self._hosts)
        others = [host for host in spec.hosts if host.name not in self._hosts and not spec.is_here(host)]
        return [host for host in others if self._tries.get(host.name, (0.0, 0.0))[0] <= now][:room]

    def _grow(self, now: float, serve: Callable[[], None]) -> None:
        """Have hosts join that have room; a request to end the job ends that."""
        hosts = self._candidates(now)
        gang = self._attempt.gang
        if not hosts or not isinstance(gang, ElasticGang):
            return
        gang.serve_by(serve)
        self._joins = True
        try:
            self._join(gang, hosts)
        except TacoLaunchError as error:
            trace.decision("no host joins: %s", error.message)
            gang.let_go([host.name for host in hosts if host.name not in self._hosts], self._attempt.note)
            self._put_off([host.name for host in hosts])
        finally:
            self._joins = False

    def _join(self, gang: ElasticGang, hosts: List[Host]) -> None:
        attempt, before = self._attempt, self.placement
        placement, facts, refused = gang.join(hosts, before, self._facts, self._first, attempt.note)
        for name, why in refused.items():
            trace.decision("host %s does not join: %s", name, why)
        self._put_off(list(refused))
        new = placement.shares[len(before.shares) :]
        if not new:
            return
        names = [share.host for share in new]
        launch = plan.plan(
            attempt.spec, attempt.id, placement, facts, self._wrapper, str(attempt.folder.path), gang.port
        )
        descriptors.provide(len(placement.shares), placement.np)
        part = replace(placement, shares=new)
        failed, _host = start.deliver_code(gang, attempt.spec, part, attempt.events, attempt.note, lambda: None)
        if failed is not None:
            raise TacoLaunchError(failed.reason)
        self._planned = self._planned._replace(placement=placement, launch=launch)
        self._facts, self._first = facts, self._first + part.np
        attempt.ranks.join(placement)
        links = [gang.link(name) for name in names]
        start.prepare(self._planned, gang, attempt.ranks, self._caller.umask, attempt.limits.stall_after, links)
        launcher = attempt.launcher
        assert isinstance(launcher, start.HostCommands)  # of an elastic launcher
        launcher.start(launch, self._caller, attempt.number)
        self._tell(before.np, f"host{'s' if names[1:] else ''} {', '.join(names)} joined")

    def _put_off(self, names: List[str]) -> None:
        for name in names:
            pause = min(2 * self._tries.get(name, (0.0, _LOOK_SECONDS / 2))[1], _MOST_PAUSE)
            self._tries[name] = (time.monotonic() + pause, pause)

    def _tell(self, before: int, words: str) -> None:
        attempt, placement = self._attempt, self.placement
        attempt.events.add(
            state.RESIZED,
            f"ranks {before} -> {placement.np}: {words}",
            np=placement.np,
            hosts=self._hosts,
            shares=start.recorded(placement),
        )
        attempt.verification.begin(placement, self._planned.launch, self._facts)


class _Departure:
    """A host that leaves: its launcher ends, then all that is left of the job there, then its logs arrive."""

    def __init__(self, link: GuardConnection, grace: float, has_logs: Callable[[str], bool]) -> None:
        """The launcher was told to end; it has `grace` seconds. `has_logs` says of a host whether all its logs are here."""
        self.link, self._has_logs = link, has_logs
        self._end_at = time.monotonic() + grace
        self._over_at: Optional[float] = None

    def step(self, now: float) -> bool:
        """Continue; return whether it is over."""
        if self.link.gone:
            return True
        if self._over_at is None:
            if self.link.answers.done is not None or now > self._end_at:
                self.link.order(EndJob())
                self._over_at = now + _END_SECONDS
            return False
        ended = self.link.answers.ended is not None and self._has_logs(self.link.name)
        return ended or now > self._over_at
