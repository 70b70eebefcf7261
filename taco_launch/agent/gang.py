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
from taco_launch.errors import HostError, PlacementError
from taco_launch.launch.needs import needs
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
_BYE_SECONDS = 2.0
# A job that has just ended lets its slots go in less.
_BUSY_SECONDS = 2.0
_PAUSE_SECONDS = (0.05, 0.3)
# A longer pause between two looks at the guards is ours (a disk that hangs, a suspended machine): nobody was silent.
_STALL_SECONDS = 1.0

Note = Callable[[Link, Dict[str, Any]], None]


class Gang:
    """All guards of one job; `here` is that of this host."""

    def __init__(
        self, folder: JobFolder, agent: str, spec: JobSpec, job_id: str, guard_lives: Callable[[], bool]
    ) -> None:
        """Know this host's guard, which runs already."""
        self._folder, self._agent, self._spec, self._job_id = folder, agent, spec, job_id
        self._guard_lives = guard_lives
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
        dialling = sum(link.dialling for link in self.remote)
        poll = select.poll()
        for descriptor in more:
            poll.register(descriptor, select.POLLIN)
        by_descriptor: Dict[int, Link] = {}
        for link in self.links:
            if link.line is not None or dialling < MOST_AT_ONCE:
                link.step()
                dialling += isinstance(link, RemoteLink) and link.dialling
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

    def wait(self, note: Note, done: Callable[[], bool], seconds: float) -> bool:
        """Go on until something holds, at most for some seconds; say whether it does."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pump(note)
        return True

    def dismiss(self, links: Sequence[RemoteLink], note: Note, *, remove: bool) -> None:
        """Let guards go, which have nothing more to say; `remove` has them remove the job's folder."""
        for link in links:
            link.post({"op": "bye", "remove": remove})
        self.wait(note, lambda: all(link.line is None for link in links), _BYE_SECONDS)
        for link in links:
            link.close()
            self.links.remove(link)

    # -- the start

    def assemble(self, known: JobFacts, note: Note) -> Tuple[Placement, JobFacts]:
        """Reach as many hosts as the job needs, in their order, and take their slots; the others are let go.

        Raises:
            PlacementError: there are too few free slots; with who has them, and which hosts cannot be used.
            HostError: this host's guard fails.
        """
        self._reach([], note)
        deadline = time.monotonic() + _BUSY_SECONDS
        busy: Dict[str, str] = {}
        while True:
            usable = self._usable(busy, note)
            try:
                placement = self._place(usable, busy)
            except PlacementError:
                if not busy or time.monotonic() > deadline:
                    raise
                self._pause(note)
                busy = {}
                continue
            refused = self._take(placement, note)
            if not refused:
                break
            busy.update(refused)
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
        self.wait(note, lambda: all("facts" in link.answers or self._dead(link) for link in asked), GUARD_SECONDS)
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

    def _place(self, usable: Sequence[HostSlots], busy: Dict[str, str]) -> Placement:
        out = {**self._unusable, **busy}
        total = sum(entry.slots for entry in usable)
        wanted = self._spec.np
        if out and (wanted is None or wanted > total):
            reasons = tuple((host.name, out[host.name]) for host in self._spec.hosts if host.name in out)
            free = f"{total} slot{'' if total == 1 else 's'} free"
            message = f"{wanted} ranks do not fit: {free}" if wanted else "not every host can be used"
            fewer = "ask for fewer with --np, for other hosts with -H, or "
            raise PlacementError(message, reasons, f"{fewer}see who runs what: taco-launch list")
        return place(wanted, usable)

    def _take(self, placement: Placement, note: Note) -> Dict[str, str]:
        """Take the slots of the placed hosts, in an order that is every job's; let all go again where one is busy."""
        placed = {share.host for share in placement.shares}
        taken: List[Link] = []
        wanted = [host for host in self._spec.hosts if host.name in placed and host.connection != "local"]
        for host in sorted(wanted, key=lambda host: (host.address, host.name)):
            link = self.link(host.name)
            link.answers.pop("leased", None)
            link.order("lease", slots=self._slots(host))
            taken.append(link)
            self.wait(note, lambda link=link: "leased" in link.answers or self._dead(link), GUARD_SECONDS)  # type: ignore[misc]
            answer = link.answers.get("leased")
            if answer is None or answer["busy"]:
                for one in taken:
                    one.order("unlease")
                return {link.name: "; ".join(answer["busy"]) if answer else self._why_silent(link)}
        return {}

    def _pause(self, note: Note) -> None:
        """Wait for a moment of random length, so that two jobs do not refuse each other again and again."""
        self.wait(note, lambda: False, random.uniform(*_PAUSE_SECONDS))  # noqa: S311 - no secret

    def _known(self, known: JobFacts, hosts: Sequence[Host], note: Note) -> JobFacts:
        """Add what the guards have told of the placed hosts; where there are several, what is between them is asked."""
        if not self._looks:
            return known
        links = [self.link(host.name) for host in hosts]
        found = [(link.name, link.answers["facts"]["host"]) for link in links]
        known = replace(known, hosts=tuple(JobHost(host=name, **told) for name, told in found))
        # Here, inside of the container, its software is the host's.
        spec = replace(self._spec, container=None)
        if len(hosts) < 2 or not needs(spec):
            return known
        asked = [self.here, *(link for link in links if link is not self.here)]
        for link in asked:
            subjects = ("network", "rdma", "image") if link is self.here else ("network", "rdma")
            link.order("probe", subjects=subjects, address=link.host.address)
        self.wait(note, lambda: all("probed" in link.answers or self._dead(link) for link in asked), _PROBE_SECONDS)
        told = {link.name: link.answers.get("probed", {"text": ""})["text"] for link in asked}
        return _with_probe(known, spec, told)


def _with_probe(known: JobFacts, spec: JobSpec, told: Mapping[str, str]) -> JobFacts:
    """Add interface, GID index, link layer, and the head's software, from what the probe said on each host."""
    # Only where there are several hosts: these parsers take longer to load than all else.
    from taco_launch.facts.parse import parse  # noqa: PLC0415
    from taco_launch.launch.found import over_ssh  # noqa: PLC0415

    now = time.time()
    facts = tuple(parse(name, text.encode("utf-8", "surrogateescape"), now, now) for name, text in told.items())
    found = over_ssh(known, spec, facts)
    probed = {host.host: host for host in found.hosts}
    return replace(
        known,
        nccl=found.nccl,
        horovod=found.horovod,
        hosts=tuple(
            replace(
                host,
                interface=probed[host.host].interface,
                gid_index=probed[host.host].gid_index,
                link_layer=probed[host.host].link_layer,
            )
            for host in known.hosts
        ),
    )
