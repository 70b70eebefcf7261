"""The guards of a job's hosts, brought together: reached, asked for facts, their slots taken; all or nothing."""

import os
import random
import select
import time
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple

from taco_launch.agent import leases
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.links import Link, RemoteLink
from taco_launch.agent.ssh import MOST_AT_ONCE
from taco_launch.errors import HostError, PlacementError, TacoLaunchError, UnusableError
from taco_launch.launch.needs import looks, needs
from taco_launch.model.hosts import Host
from taco_launch.model.job_facts import JobFacts, JobHost
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import HostSlots, Placement
from taco_launch.placement import place

TICK_MS = 50
_START_TICK_MS = 2
HEARTBEAT_SECONDS = 5.0
# To start, and to answer: the probe, counting GPUs and ending processes take at most 60, 30 and 10 seconds.
GUARD_SECONDS = 45.0
_PROBE_SECONDS = 60.0
_BYE_SECONDS = 10.0
# A job that has just ended lets its slots go in less.
_BUSY_SECONDS = 2.0
_PAUSE_SECONDS = (0.05, 0.3)
# A longer pause between two looks at the guards is ours (a disk that hangs, a suspended machine): nobody was silent.
_STALL_SECONDS = 1.0

Note = Callable[[Link, Dict[str, Any]], None]


class Gang:
    """All guards of one job; `here` is that of this host."""

    def __init__(
        self,
        folder: JobFolder,
        agent: str,
        spec: JobSpec,
        job_id: str,
        guard_lives: Callable[[], bool],
        meanwhile: Callable[[], None],
    ) -> None:
        """Know this host's guard, which runs already; `meanwhile` is called as long as `assemble` waits for others."""
        self._folder, self._agent, self._spec, self._job_id = folder, agent, spec, job_id
        self._guard_lives, self._meanwhile = guard_lives, meanwhile
        here = next((host for host in spec.hosts if spec.is_here(host)), None)
        self.here = Link(here or Host(spec.head, spec.head, connection="local"), folder)
        self.links: List[Link] = [self.here]
        self._unusable: Dict[str, str] = {}
        self._looks = bool(needs(spec)) or any(host.connection != "local" for host in spec.hosts)
        self._beat = min(HEARTBEAT_SECONDS, spec.policy.host_loss_timeout / 5)
        self._beat_at = 0.0
        self.looked = time.monotonic()  # when the guards were last listened to

    @property
    def remote(self) -> List[RemoteLink]:
        """Give the guards of other hosts."""
        return [link for link in self.links if isinstance(link, RemoteLink)]

    def pump(self, note: Note, timeout_ms: int = TICK_MS, more: Iterable[int] = ()) -> List[int]:
        """Wait for whatever comes first, give `note` what guards tell; give those of the descriptors `more` that are ready."""
        now = time.monotonic()
        stalled, self.looked = now - self.looked, now
        if stalled > _STALL_SECONDS:
            for remote in self.remote:
                remote.forgive(stalled)
        if now > self._beat_at:
            self._beat_at = now + self._beat
            for link in self.links:
                link.post({"op": "beat"})
        dialling = sum(link.dialling for link in self.links)
        poll = select.poll()
        for descriptor in more:
            poll.register(descriptor, select.POLLIN)
        by_descriptor: Dict[int, Link] = {}
        for link in self.links:
            begun = link.line is not None or link.dialling
            if begun or dialling < MOST_AT_ONCE:
                link.step()
                dialling += link.dialling and not begun
            if link.line is not None:
                by_descriptor[link.line.fileno()] = link
                poll.register(link.line, select.POLLIN | (select.POLLOUT if link.line.waiting else 0))
        starting = self.here.line is None and not self.here.gone
        ready = [descriptor for descriptor, _event in poll.poll(_START_TICK_MS if starting else timeout_ms)]
        for descriptor in ready:
            if descriptor in by_descriptor:
                link = by_descriptor[descriptor]
                for message in link.read():
                    note(link, message)
        return [descriptor for descriptor in ready if descriptor not in by_descriptor]

    def order(self, op: str, **more: Any) -> None:
        """Give all guards an order."""
        for link in self.links:
            link.order(op, **more)

    def _wait(self, note: Note, done: Callable[[], bool], seconds: float) -> bool:
        """Go on until something holds, at most for some seconds; say whether it does."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pump(note)
            self._meanwhile()
        return True

    def dismiss(self, links: Sequence[RemoteLink], note: Note, *, remove: bool) -> None:
        """Let guards go, which have nothing more to say; `remove` has them remove the job's folder."""
        for link in links:
            link.post({"op": "bye", "remove": remove})
        deadline = time.monotonic() + _BYE_SECONDS
        while any(link.line is not None and not link.dialling for link in links) and time.monotonic() < deadline:
            self.pump(note)
        for link in links:
            link.close()
            self.links.remove(link)

    # -- the start

    def assemble(self, known: JobFacts, note: Note) -> Tuple[Placement, JobFacts]:
        """Reach as many hosts as the job needs, in their order, and take their slots; the others are let go.

        Raises:
            PlacementError: there are too few free slots; with who has them, and which hosts cannot be used.
            UnusableError: there would be enough of them, had hosts not failed.
            Exception: what `meanwhile` raised.
            HostError: this host's guard fails.
        """
        self._reach([], note)
        deadline = time.monotonic() + _BUSY_SECONDS
        busy: Dict[str, str] = {}
        while True:
            usable = self._usable(busy, note)
            if self._is_short(usable, busy):
                if busy and time.monotonic() <= deadline:
                    self._pause(note)
                    busy = {}
                    continue
                if busy:
                    self._ask(usable, busy, note)
                raise self._refusal(usable, busy)
            placement = place(self._spec.np, usable)
            if self._take(placement, busy, note):
                break
        placed = {share.host for share in placement.shares}
        self.dismiss([link for link in self.remote if link.name not in placed], note, remove=True)
        return placement, self._known(known, [host for host in self._spec.hosts if host.name in placed], note)

    def link(self, name: str) -> Link:
        """Give the guard of a host of the job."""
        return next((link for link in self.links if link.name == name), self.here)

    def _usable(self, busy: Dict[str, str], note: Note) -> List[HostSlots]:
        """Give the free slots of hosts that are reached, after reaching as many more as the job needs."""
        while True:
            usable: List[HostSlots] = []
            ahead: List[Host] = []
            have = 0
            for host in self._spec.hosts:
                if host.name in self._unusable or host.name in busy:
                    continue
                if self._spec.np is not None and have >= self._spec.np:
                    break
                if self._spec.is_here(host) or any(link.name == host.name for link in self.links):
                    slots = self._slots(host)
                    usable.append(HostSlots(host.name, slots))
                else:
                    slots = host.slots or 1
                    ahead.append(host)
                have += slots
            if not ahead:
                return usable
            self._reach(ahead, note)

    def _slots(self, host: Host) -> int:
        if host.slots is not None:
            return host.slots
        return int(self.link(host.name).answers["facts"]["host"]["slots"])

    def _reach(self, hosts: Sequence[Host], note: Note) -> None:
        """Reach guards, and this host's; those that fail are left out with the reason."""
        start = [self._job_id, str(leases.place(os.environ))]
        new: List[Link] = [RemoteLink(host, self._folder, self._agent, start, self._beat) for host in hosts]
        self.links += new
        for link in new or [self.here]:
            link.order(
                "supervise",
                job_id=self._job_id,
                host_loss_timeout=self._spec.policy.host_loss_timeout,
                look=self._looks,
                count_slots=any(host.slots is None for host in self._spec.hosts),
                ports=self._spec.network.port_range,
            )
        asked = new or [self.here]
        self._wait(note, lambda: all("facts" in link.answers or self._dead(link) for link in asked), GUARD_SECONDS)
        for link in asked:
            told = link.answers.get("facts", {"error": self._why_silent(link)})
            if "error" not in told:
                link.boot = told["boot"]
            elif link is self.here:
                raise HostError(told["error"])
            else:
                link.close()
                self.links.remove(link)
                self._unusable[link.name] = told["error"].split("\n")[0]

    def _dead(self, link: Link) -> bool:
        return bool(link.gone) or (link is self.here and not self._guard_lives())

    def _why_silent(self, link: Link) -> str:
        if link is self.here:
            return f"the guard did not start on {link.name or 'this host'}: see {self._folder.debug}"
        error = link.error if isinstance(link, RemoteLink) else ""
        return link.gone or error or "its guard gave no facts in time"

    def _is_short(self, usable: Sequence[HostSlots], busy: Mapping[str, str]) -> bool:
        """Say whether hosts are missing that are busy or have failed; where none is, `place` tells what is wrong."""
        wanted = self._spec.np
        missing = bool(self._unusable or busy)
        return missing and (wanted is None or wanted > sum(entry.slots for entry in usable))

    def _refusal(self, usable: Sequence[HostSlots], busy: Mapping[str, str]) -> TacoLaunchError:
        """Say why the job cannot have a place: who has the slots, or which hosts have failed."""
        out = {**self._unusable, **busy}
        missing = [host for host in self._spec.hosts if host.name in out]
        total = sum(entry.slots for entry in usable if entry.host not in out)
        wanted = self._spec.np
        counted = [host.slots for host in missing if host.slots is not None]
        if not busy and (wanted is None or len(counted) < len(missing) or wanted <= total + sum(counted)):
            return _unusable([(host.name, out[host.name]) for host in missing])
        free = f"{total} slot{'' if total == 1 else 's'} free"
        message = f"{wanted} ranks do not fit: {free}" if wanted else "not every host can be used"
        fewer = "ask for fewer with --np, for other hosts with -H, or "
        reasons = tuple((host.name, out[host.name]) for host in missing)
        return PlacementError(message, reasons, f"{fewer}see who runs what: taco-launch list")

    def _take(self, placement: Placement, busy: Dict[str, str], note: Note) -> bool:
        """Take the slots of the placed hosts; where one cannot be had let all go again, note why, and say so."""
        wanted = self._in_order(share.host for share in placement.shares)
        for count, host in enumerate(wanted, 1):
            if not self._lease(host, busy, note):
                self._let_go(wanted[:count])
                return False
        return True

    def _ask(self, usable: Sequence[HostSlots], busy: Dict[str, str], note: Note) -> None:
        """Look who has the slots of all these hosts, for a message that is to be true of each."""
        wanted = self._in_order(entry.host for entry in usable)
        for host in wanted:
            self._lease(host, busy, note)
        self._let_go(wanted)

    def _in_order(self, names: Iterable[str]) -> List[Host]:
        """Give the hosts that have leases, in an order that is every job's."""
        among = set(names)
        wanted = [host for host in self._spec.hosts if host.name in among and host.connection != "local"]
        return sorted(wanted, key=lambda host: (host.address, host.name))

    def _lease(self, host: Host, busy: Dict[str, str], note: Note) -> bool:
        """Take the slots of one host, or note why not: others have them, or it has failed."""
        link = self.link(host.name)
        link.answers.pop("leased", None)
        link.order("lease", slots=self._slots(host))
        self._wait(note, lambda: "leased" in link.answers or self._dead(link), GUARD_SECONDS)
        answer = link.answers.get("leased") or {"error": self._why_silent(link), "busy": []}
        if "error" in answer:
            self._unusable[host.name] = answer["error"]
        elif answer["busy"]:
            busy[host.name] = "; ".join(answer["busy"])
        return "error" not in answer and not answer["busy"]

    def _let_go(self, hosts: Sequence[Host]) -> None:
        for host in hosts:
            self.link(host.name).order("unlease")

    def _pause(self, note: Note) -> None:
        """Wait for a moment of random length, so that two jobs do not refuse each other again and again."""
        self._wait(note, lambda: False, random.uniform(*_PAUSE_SECONDS))  # noqa: S311 - no secret

    def _known(self, known: JobFacts, hosts: Sequence[Host], note: Note) -> JobFacts:
        """Add what the guards have told of the placed hosts; where one is elsewhere, what is between them is asked."""
        if not self._looks:
            return known
        links = [self.link(host.name) for host in hosts]
        found = [(link.name, link.answers["facts"]["host"]) for link in links]
        known = replace(known, hosts=tuple(JobHost(host=name, **told) for name, told in found))
        # Here, inside of the container, its software is the host's. Every host that is left takes part.
        spec = replace(self._spec, container=None, hosts=tuple(hosts), np=None)
        if all(link is self.here for link in links) or not looks(spec):
            return known
        asked = [self.here, *(link for link in links if link is not self.here)]
        for link in asked:
            subjects = ("network", "rdma", "image") if link is self.here else ("network", "rdma")
            link.order("probe", subjects=subjects, address=link.host.address)
        self._wait(note, lambda: all("probed" in link.answers or self._dead(link) for link in asked), _PROBE_SECONDS)
        told = {link.name: link.answers.get("probed", {"text": ""})["text"] for link in asked}
        return _with_probe(known, spec, told)


def _unusable(reasons: Sequence[Tuple[str, str]]) -> UnusableError:
    told = [f"{host} cannot be used: {why}" for host, why in reasons]
    lines = (
        told
        if len(told) == 1
        else [f"{len(told)} hosts cannot be used", *(f"  {host}: {why}" for host, why in reasons)]
    )
    leave = f"leave {'it' if len(told) == 1 else 'them'} out with -H"
    return UnusableError("\n".join(lines), f"taco-launch setup --check tells what is wrong there; or {leave}")


def _with_probe(known: JobFacts, spec: JobSpec, told: Mapping[str, str]) -> JobFacts:
    """Add what is between the hosts, and the head's software, from what the probe said on each host."""
    # Only where there are several hosts: these parsers take longer to load than all else.
    from taco_launch.facts.parse import parse  # noqa: PLC0415
    from taco_launch.launch.found import over_ssh  # noqa: PLC0415

    now = time.time()
    facts = tuple(parse(name, text.encode("utf-8", "surrogateescape"), now, now) for name, text in told.items())
    found = over_ssh(known, spec, facts)
    return replace(known, nccl=found.nccl, horovod=found.horovod, between=found.between)
