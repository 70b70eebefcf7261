"""Allocate hosts for a job: connect to them, gather their facts, take their slots and ports; all or nothing."""

import math
import os
import random
import time
from dataclasses import replace
from functools import partial
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.agent.gang import descriptors, guard_pool
from taco_launch.agent.gang.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.gang.guard_pool import GUARD_SECONDS, GuardPool, Note
from taco_launch.agent.gang.placement_errors import (
    HiddenHolders,
    check_images,
    crowded,
    hosts_to_reach,
    no_own_port,
    no_ports,
    refusal,
)
from taco_launch.agent.host import occupancy
from taco_launch.agent.logs import agent_log
from taco_launch.agent.ssh import shared_connection
from taco_launch.agent.store.folders import LEASES_VARIABLE, JobFolder
from taco_launch.core import trace
from taco_launch.core.errors import HostError, PlacementError, TacoLaunchError
from taco_launch.core.launch.command_line.decisions import daemon_ports
from taco_launch.core.launch.missing_facts import missing_facts, needs_probe
from taco_launch.core.launch.plan import PER_HOST_PORT, in_rank_order, own_ports
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import FreeSlots, Placement, Share, wanted_of
from taco_launch.core.model.slots import Occupancy
from taco_launch.core.placement.gpu_constraints import host_slots, place_alike, shared
from taco_launch.core.protocol.guard_messages import HostReport, Lease, Leased, ReleaseSlots, Supervise
from taco_launch.core.protocol.job_host_facts import JobHostFacts

# Another gang that has to let go what it took does so in less; where the slots seem to be free it is tried for longer.
_BUSY_SECONDS = 1.0
_RACE_SECONDS = 10.0
_PAUSE_SECONDS = (0.05, 0.3)


class GangAllocation(GuardPool):
    """The guards of one job, and what it has on their hosts."""

    def __init__(
        self,
        folder: JobFolder,
        agent: str,
        spec: JobSpec,
        job_id: str,
        guard_lives: Callable[[], bool],
        meanwhile: Callable[[], None],
        left_out: Sequence[str] = (),
    ) -> None:
        """Know this host's guard, which runs already; `meanwhile` is called as long as `allocate` waits for others.

        `job_id` is the mark of this attempt, `left_out` are hosts that are used only where the others do not suffice.
        """
        here = next((host for host in spec.hosts if spec.is_here(host)), None)
        own = GuardConnection(here or Host(spec.head, spec.head, connection="local"), folder)
        agent_log.start(folder, wanted=spec.policy.agent_log)
        super().__init__(folder, own, spec.policy.host_loss_timeout, guard_lives, meanwhile)
        self.agent, self._spec, self._job_id = agent, spec, job_id
        self._wanted = wanted_of(spec, left_out)
        self._free: Dict[str, FreeSlots] = {}
        self._found: Dict[str, Occupancy] = {}
        self._hidden = HiddenHolders()
        self._models: Tuple[str, ...] = ()  # the one that the job is placed on, where there are several
        self._choices: Dict[str, Optional[GpuChoice]] = {}
        self._rails: Dict[int, Tuple[int, ...]] = {}  # what is free on all hosts, by the number of ranks there
        self._unusable: Dict[str, str] = {}
        self._takes_turns = False  # whether slots are taken one host after the other, since another job was in the way
        self.port = 0  # where the ranks meet, on the host of the first
        self._ports: Tuple[int, ...] = ()
        self._taken: Set[int] = set()  # ports that others have on any of the hosts
        self._looks = bool(missing_facts(spec)) or any(host.connection != "local" for host in spec.hosts)
        # Inside of the container, its software is the host's.
        self._between = needs_probe(replace(spec, container=None))

    def allocate(self, known: JobFacts, note: Note) -> Tuple[Placement, JobFacts]:
        """Reach as many hosts as the job needs, in their order, and take their slots; the others are let go.

        Raises:
            PlacementError: there are too few free slots; with who has them, and which hosts cannot be used.
            UnusableError: there would be enough of them, had hosts not failed.
            Exception: what `meanwhile` raised.
            HostError: this host's guard fails.
        """
        self._reach(self._first(), note)
        begin = time.monotonic()
        while True:
            placement = self._placed(note)
            if placement is not None:
                leased = self._take(placement, note)
                if leased is not None and self._meet(placement, note):
                    facts = self._known(known, self._hosts_of(placement), note)
                    down = guard_pool.ports_down(self._spec, facts)
                    if not down:
                        break
                    self._let_go(self._hosts_of(placement), note, look=False)
                    for name, why in down.items():
                        self._fail(name, why)
                    begin = time.monotonic()  # without them it is placed as at first
            waited = time.monotonic() - begin
            if waited > (_BUSY_SECONDS if placement is None else _RACE_SECONDS):
                raise self._refused() or crowded(self._wanted, self._usable())
            self._pause(note)
            self._let_go(self._reached(), note, look=True)
        shares = tuple(
            replace(share, slots=leased[share.host], choice=self._choices.get(share.host)) for share in placement.shares
        )
        placement = replace(placement, shares=shares)
        placed = {share.host for share in placement.shares}
        self.dismiss([link for link in self.remote if link.name not in placed], note, remove=True)
        told = ((link.name, link.answers.facts) for link in self.links)
        check_images({name: report.host.image for name, report in told if report is not None})
        return placement, facts

    def _hosts_of(self, placement: Placement) -> List[Host]:
        placed = {share.host for share in placement.shares}
        return [host for host in self._spec.hosts if host.name in placed]

    def _first(self) -> List[Host]:
        """Return the hosts that the job needs as far as the inventory tells: they are reached while this one looks at itself."""
        if any(host.slots is None for host in self._spec.hosts):
            return []
        return [host for host in hosts_to_reach(self._wanted, self._spec.hosts, {}) if not self._spec.is_here(host)]

    def _placed(self, note: Note) -> Optional[Placement]:
        """Place the job on what is free, after reaching as many hosts as it needs; None where it does not fit now.

        Raises:
            PlacementError: it will never fit.
            UnusableError: hosts have failed, and the others will not suffice.
        """
        while True:
            hosts = [host for host in self._spec.hosts if host.name not in self._unusable]
            more = hosts_to_reach(self._wanted, hosts, self._free)
            if not more:
                refused = self._refused()
                if refused is not None:
                    break
                try:
                    placement, self._models = place_alike(self._wanted, self._spec.hosts, self._usable(), self._found)
                except PlacementError:
                    more = [host for host in hosts if host.name not in self._free]
                    if not more:
                        raise  # else there may be enough GPUs of one of the models
                else:
                    return in_rank_order(self._spec, placement)
            self._reach(more, note)
        if isinstance(refused, PlacementError) and not refused.never:
            return None
        raise refused

    def _refused(self) -> Optional[TacoLaunchError]:
        return refusal(self._wanted, self._spec.hosts, self._free, self._unusable)

    def _usable(self) -> List[FreeSlots]:
        return [self._free[host.name] for host in self._spec.hosts if host.name in self._free]

    def _reached(self) -> List[Host]:
        return [host for host in self._spec.hosts if host.name in self._free]

    def _reach(self, hosts: Sequence[Host], note: Note) -> None:
        """Reach guards; those that fail are left out with the reason, but this host's: that raises HostError."""
        start = [self._job_id, *filter(None, [os.environ.get(LEASES_VARIABLE)])]
        shares = launcher_of(self._spec).is_open_mpi
        descriptors.provide(len(self.links) + len(hosts), ranks=0)
        new: List[GuardConnection] = []
        for host in hosts:
            loss = self._spec.policy.host_loss_timeout
            options = shared_connection.for_guard(self._folder, host.name, loss) if shares else ()
            new.append(RemoteGuardConnection(host, self._folder, self.agent, start, self._beat, options))
        self.add(new)
        names = {host.name for host in self._spec.hosts}
        asked = new if self.here.answers.facts is not None else [self.here, *new]
        for link in asked:
            takes_part = link.name in names
            order = Supervise(
                job_id=self._job_id,
                host_loss_timeout=self._spec.policy.host_loss_timeout,
                look=self._looks,
                size=link.host.size if takes_part else "0",
                gpus=link.host.slot_words if takes_part else occupancy.NO_GPUS,
                ports=self._spec.network.port_range,
                agent_log=self._spec.policy.agent_log,
                name=link.name,
            )
            link.order(order)
        if hosts and self._between:
            self._probe(self.links)
            self.pump(note)  # so that the connections are being made meanwhile
            guard_pool.parsers()
        ordered = time.monotonic()

        def has_reported(link: GuardConnection) -> bool:
            if link.is_late(ordered, GUARD_SECONDS) and not link.gone:
                link.give_up()  # which makes room for the next host to be dialled
            return link.answers.facts is not None

        self._wait_for(note, asked, has_reported, math.inf)
        by_link: Dict[GuardConnection, List[Host]] = {}
        for host in self._spec.hosts:
            link = self.link(host.name)
            if link.name == host.name or self._spec.is_here(host):
                by_link.setdefault(link, []).append(host)
        for link in asked:
            told = link.answers.facts or HostReport(error=self._why_silent(link))
            if not told.error:
                link.boot = told.boot
                for host in by_link.get(link, ()):
                    self._note_free(host, told.occupancy)
            elif link is self.here:
                raise HostError(told.error, told.hint)
            else:
                link.close()
                self.remove(link)
                self._unusable[link.name] = told.error
                trace.decision("host %s cannot be used: %s", link.name, told.error)

    def _note_free(self, host: Host, found: Optional[Occupancy]) -> None:
        assert found is not None  # the message was checked
        self._found[host.name] = found = self._hidden.applied(host.name, found)
        words = partial(occupancy.describe, jobs=self._folder.path.parent, owner=self._spec.owner)
        self._free[host.name] = host_slots(host, found, words, exclusive=self._spec.exclusive)

    def _take(self, placement: Placement, note: Note) -> Optional[Dict[str, Tuple[str, ...]]]:
        """Take the slots of the placed hosts, the first in an order that is every job's; give their names by host.

        None where some cannot be had: then all are let go again.
        """
        shares = {share.host: share for share in placement.shares}
        self._rails = shared(self._spec.hosts, placement, self._found)
        placed = [host for host in self._reached() if host.name in shares]
        self._ports = self._choose_ports() if any(self.link(host.name) is not self.here for host in placed) else ()
        if self._ports and self.here.name not in shares:  # mpirun listens here all the same
            placed.append(self.here.host)
        wanted = sorted(placed, key=_global)
        # The first of all alone: of two jobs that need it, one waits with empty hands. Others may still refuse each other.
        rounds = [[host] for host in wanted] if self._takes_turns else [wanted[:1], wanted[1:]]
        leased: Dict[str, Optional[Tuple[str, ...]]] = {}
        for hosts in rounds:
            # This host by another name: the line will be refused.
            twice = [host for host in hosts if self.link(host.name).name in shares.keys() - {host.name}]
            leased.update((host.name, ()) for host in twice)
            leased.update(self._lease([host for host in hosts if host not in twice], shares, placement, note))
            if None in leased.values():
                self._takes_turns = True
                self._let_go([host for host in wanted if host.name in leased], note, look=False)
                return None
        return {name: names or () for name, names in leased.items()}

    def _choose_ports(self) -> Tuple[int, ...]:
        """Choose ports for mpirun and its daemons that nobody has; another job that chooses the same has them refused.

        Raises:
            PlacementError: all are taken.
        """
        allowed = self._spec.network.port_range
        if allowed is None or not launcher_of(self._spec).is_open_mpi:
            return ()
        told = (link.answers.facts for link in self.links)
        self._taken.update(port for facts in told if facts is not None for port in facts.taken)
        ports = daemon_ports(self._spec.name, *allowed, self._taken)
        if not ports:
            raise no_ports(self.here.name, *allowed)
        return ports

    def _lease(
        self, hosts: Sequence[Host], shares: Mapping[str, Share], placement: Placement, note: Note
    ) -> Dict[str, Optional[Tuple[str, ...]]]:
        """Take slots of hosts side by side, and ports; give the slots' names by host, None where others have them, or it failed.

        Raises:
            PlacementError: others have the port that the job has to have.
        """
        links = {self.link(host.name): host for host in hosts}
        for link, host in links.items():
            link.answers.leased = None
            link.order(self._lease_order(host, shares.get(host.name, Share(host.name, 0)), placement))
        self._wait_for(note, links, lambda link: link.answers.leased is not None)
        leased = {host.name: self._leased(link, host, placement) for link, host in links.items()}
        for name, slots in leased.items():
            trace.decision("slots of %s: %s", name, "unavailable" if slots is None else " ".join(slots) or "none")
        return leased

    def _own_ports(self, host: Host, placement: Placement) -> Tuple[int, ...]:
        """Return the ports that the job has to have on a host: on that of its first rank."""
        return own_ports(self._spec) if host.name == placement.shares[0].host else ()

    def _lease_order(self, host: Host, share: Share, placement: Placement) -> Lease:
        first = host.name == placement.shares[0].host
        return Lease(
            count=share.ranks,
            ports=self._ports,
            rendezvous=(*self._own_ports(host, placement), 0)[0] if first else None,
            allowed=self._spec.network.port_range,
            cluster=self._spec.cluster,
            owner=self._spec.owner,
            constraints=replace(host.constraints, models=self._models or host.constraints.models),
            whole=self._spec.exclusive,
            shared=self._rails.get(share.ranks, ()),
        )

    def _leased(self, link: GuardConnection, host: Host, placement: Placement) -> Optional[Tuple[str, ...]]:
        """Return the slots that a guard leased, or note why it leased none. Raises as `_lease`."""
        answer = link.answers.leased or Leased(slots=None, error=self._why_silent(link))
        if answer.error:
            self._fail(host.name, answer.error)
        elif answer.slots is None:
            own = self._own_ports(host, placement)
            if set(own) & set(answer.ports):
                raise no_own_port(host.name, own[0], answer.who, per_host=own == (PER_HOST_PORT,))
            self._taken.update(answer.ports)
            assert answer.occupancy is not None  # the message was checked
            self._hidden.note(host.name, self._found[host.name], answer.occupancy)
            self._note_free(host, answer.occupancy)
        self._choices[host.name] = answer.choice
        if answer.slots is None:
            return None
        self.port = answer.port or self.port
        return tuple(answer.slots)

    def _meet(self, placement: Placement, note: Note) -> bool:
        """Have every other host try the port of the first where the ranks are to meet; all is let go where one does not reach it.

        Under an MPI only a program of torch would meet there.
        """
        by_name = {host.name: host for host in self._spec.hosts}
        placed = [by_name[share.host] for share in placement.shares]
        if launcher_of(self._spec).is_single or dict(self._spec.env).get("MASTER_ADDR"):
            return True
        failed = self._unreached(placed[0], self.port, [host.name for host in placed[1:]], note)
        if failed:
            self._let_go(placed, note, look=False)
        for name, why in failed:
            self._fail(name, why)
        return not failed

    def _fail(self, name: str, why: str) -> None:
        """Use a host no more."""
        self._unusable[name] = why
        self._free.pop(name, None)

    def _let_go(self, hosts: Sequence[Host], note: Note, *, look: bool) -> None:
        """Let slots go, if there are any; with `look` note what is free then."""
        links = [self.link(host.name) for host in hosts]
        for link in links:
            link.answers.unleased = None
            link.order(ReleaseSlots(look=look))
        if look:
            self._wait_for(note, links, lambda link: link.answers.unleased is not None)
            for host, link in zip(hosts, links):
                if link.answers.unleased is not None:
                    self._note_free(host, link.answers.unleased.occupancy)
                else:
                    self._fail(host.name, self._why_silent(link))

    def _pause(self, note: Note) -> None:
        """Wait for a moment of random length, so that two jobs do not refuse each other again and again."""
        self._wait(note, lambda: False, random.uniform(*_PAUSE_SECONDS))  # noqa: S311 - no secret

    def _known(self, known: JobFacts, hosts: Sequence[Host], note: Note) -> JobFacts:
        """Add what the guards have told of the placed hosts; where one is elsewhere, what is between them is asked."""
        known = replace(known, daemon_ports=self._ports, near=guard_pool.near(hosts, self.link))
        links = [self.link(host.name) for host in hosts]
        found = [
            (link.name, JobHostFacts() if link.answers.facts is None else link.answers.facts.host) for link in links
        ]
        known = replace(known, hosts=tuple(facts.job_host(name) for name, facts in found))
        if not self._looks:
            return known
        # Every host that is left takes part.
        spec = replace(self._spec, container=None, hosts=tuple(hosts), np=None)
        if all(link is self.here for link in links) or not needs_probe(spec):
            return known
        asked = [self.here, *(link for link in links if link is not self.here)]
        return guard_pool.added(known, spec, self._probed(asked, note))


def _global(host: Host) -> Tuple[str, str]:
    """Order hosts as every job does."""
    return host.address, host.name
