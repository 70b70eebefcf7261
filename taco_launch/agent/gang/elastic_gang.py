"""The guards of a job that gains and loses hosts while it runs: hosts that join it, with their slots and facts."""

from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from taco_launch.agent.gang import guard_pool
from taco_launch.agent.gang.gang_allocation import GangAllocation
from taco_launch.agent.gang.guard_pool import Note
from taco_launch.core.errors import PlacementError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.plans import Placement, Share
from taco_launch.core.placement.hosts import place


class ElasticGang(GangAllocation):
    """A gang that hosts can join while its ranks run."""

    def serve_by(self, meanwhile: Callable[[], None]) -> None:
        """Call this from now on as long as guards are waited for."""
        self._meanwhile = meanwhile

    def join(
        self, hosts: Sequence[Host], placement: Placement, facts: JobFacts, first: int, note: Note
    ) -> Tuple[Placement, JobFacts, Dict[str, str]]:
        """Lease the slots of hosts that have room for their part of the job; the others are let go, with the reason.

        `first` is the number of the first rank that joins. Return the placement and facts of all hosts, and the reasons by host.

        Raises:
            Exception: what `meanwhile` raised.
            HostError: this host's guard fails.
        """
        self._unusable.clear()
        for host in hosts:  # what was read of it when the job started is over
            self._free.pop(host.name, None)
        self._reach(hosts, note)
        shares: List[Share] = []
        for host in hosts:
            share = self._lease_part(host, placement, first, note)
            if share is not None:
                shares.append(share)
                first += share.ranks
        head = next(host for host in self._spec.hosts if host.name == placement.shares[0].host)
        for name, why in self._unreached(head, self.port, [share.host for share in shares], note, listens=True):
            self._fail(name, why)
        shares = [share for share in shares if share.host not in self._unusable]
        joined = replace(placement, shares=(*placement.shares, *shares))
        if shares:
            facts = self._known(facts, self._hosts_of(joined), note)
            for name, why in guard_pool.ports_down(self._spec, facts).items():
                if name in [share.host for share in shares]:
                    self._fail(name, why)
            joined = replace(joined, shares=tuple(share for share in joined.shares if share.host not in self._unusable))
        placed = [share.host for share in joined.shares]
        self.let_go([host.name for host in hosts if host.name not in placed], note)
        return (
            joined,
            facts,
            {host.name: self._unusable.get(host.name, "") for host in hosts if host.name not in placed},
        )

    def let_go(self, names: Sequence[str], note: Note) -> None:
        """End the guards of hosts, which lets their slots go."""
        gone = [link for link in self.remote if link.name in names]
        for link in gone:
            self._free.pop(link.name, None)
        self.dismiss(gone, note, remove=True)

    def _lease_part(self, host: Host, placement: Placement, first: int, note: Note) -> Optional[Share]:
        """Lease the slots of a host that has room; None where it has none, or cannot be used."""
        free = self._free.get(host.name)
        if free is None:
            return None
        one = replace(self._wanted, np=None, hosts=1, least=None, left_out=())
        try:
            (share,) = place(one, [free]).shares
        except PlacementError:
            self._unusable[host.name] = free.why or "too few slots are free"
            return None
        slots = self._lease([host], {host.name: share}, placement, note)[host.name]
        if slots is None:
            self._unusable.setdefault(host.name, "its slots were taken")
            return None
        return replace(share, slots=slots, choice=self._choices.get(host.name), first=first)
