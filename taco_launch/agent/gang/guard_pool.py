"""The guards of a job's hosts as one: listened to side by side, given orders, waited for, let go; by whatever connection.

And what they said of their hosts, by their probes and with their slots, read for the job's line.
"""

import select
import time
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from taco_launch.agent.gang.guard_connection import LATE, GuardConnection, RemoteGuardConnection
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_facts import JobFacts, LocalHcas
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.protocol.guard_messages import Close, Heartbeat, ProbeHost, Reach, Reached
from taco_launch.core.protocol.message import Message

# Between two looks at what guards do not tell; soon after one spoke it is shorter, for ranks that start soon have output.
TICK_MS = 50
# Guards that are connected and have read everything are looked at so often: whether they are silent.
_SWEEP_SECONDS = 0.5
_START_TICK_MS = 2
HEARTBEAT_SECONDS = 5.0
# To start, and to answer: the probe, counting GPUs and ending processes take at most 60, 30 and 10 seconds.
GUARD_SECONDS = 45.0
# A host is asked by a second ssh after so many seconds of silence, twice the time between heartbeats. With ssh's
# ConnectTimeout of 10 seconds, one that is cut off is given up after 20 seconds.
QUIET_SECONDS = 10.0
_BYE_SECONDS = 10.0
_PROBE_SECONDS = 60.0
# A longer pause between two looks at the guards is ours (a disk that hangs, a suspended machine): nobody was silent.
_STALL_SECONDS = 1.0

Note = Callable[[GuardConnection, Message], None]


class GuardPool:
    """All guards of one job; `here` is that of this host."""

    def __init__(
        self,
        folder: JobFolder,
        here: GuardConnection,
        loss_seconds: float,
        guard_lives: Callable[[], bool],
        meanwhile: Callable[[], None],
    ) -> None:
        """Know this host's guard alone; a host that is silent for `loss_seconds` will be given up."""
        self._folder = folder
        self._guard_lives, self._meanwhile = guard_lives, meanwhile
        self.here = here
        self.links: List[GuardConnection] = []
        self._by_name: Dict[str, GuardConnection] = {}
        self._epoll = select.epoll()
        self._polled: Dict[int, GuardConnection] = {}
        self._sweep_at = 0.0
        self._beat = min(HEARTBEAT_SECONDS, loss_seconds / 5)
        self._beat_at = 0.0
        self._tick = TICK_MS
        self._silent = _SilentHosts()
        self.waits: Tuple[Tuple[str, str], ...] = ()  # hosts that do not answer while the job starts: (host, why)
        self.looked = time.monotonic()  # when the guards were last listened to
        self.add([here])

    @property
    def remote(self) -> List[RemoteGuardConnection]:
        """Return the guards of other hosts."""
        return [link for link in self.links if isinstance(link, RemoteGuardConnection)]

    def pump(self, note: Note, timeout_ms: int = TICK_MS, more: Iterable[int] = ()) -> Set[int]:
        """Wait for whatever comes first, give `note` what guards tell; give those of the descriptors `more` that are ready."""
        now = time.monotonic()
        stalled, self.looked = now - self.looked, now
        if stalled > _STALL_SECONDS:
            for link in self.links:
                link.extend_silence_limit(stalled)
        if now > self._beat_at:
            self._beat_at = now + self._beat
            for link in self.links:
                link.post(Heartbeat())
        self._step(now)
        starting = self.here.line is None and not self.here.gone
        pause = _START_TICK_MS if starting else min(timeout_ms, self._tick)
        poll = select.poll()  # epoll takes no regular file, as a launcher's output may be
        for descriptor in (self._epoll.fileno(), *more):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _event in poll.poll(pause)}
        # A connection that was closed is gone from epoll.
        told = [self._polled[descriptor] for descriptor, _event in self._epoll.poll(0)]
        spoke = [link for link in told if link.line is not None]
        self._tick = _START_TICK_MS if spoke else min(2 * self._tick, TICK_MS)
        for link in spoke:
            for message in link.read():
                note(link, message)
        return ready.intersection(more)

    def _step(self, now: float) -> None:
        """Have guards connect, and send on what waits: those that have to, and now and then all, some of which are silent."""
        links = self.links
        if now > self._sweep_at:
            self._sweep_at = now + _SWEEP_SECONDS
        else:
            links = [link for link in links if link.is_unsettled]
        dialling = sum(link.dialling for link in links)
        for link in links:
            begun = link.line is not None or link.dialling
            if begun or dialling < ssh.MOST_AT_ONCE:
                before = link.is_unsettled
                link.step()
                link.settle()
                dialling += link.dialling and not begun
                if link.line is not None and (before or link.is_unsettled):
                    self._polled[link.line.fileno()] = link
                    self._listen(link.line.fileno(), select.EPOLLIN | (select.EPOLLOUT if link.line.waiting else 0))

    def _listen(self, descriptor: int, events: int) -> None:
        try:
            self._epoll.modify(descriptor, events)
        except FileNotFoundError:
            self._epoll.register(descriptor, events)

    def add(self, links: Iterable[GuardConnection]) -> None:
        """Take guards into the pool."""
        for link in links:
            self.links.append(link)
            self._by_name.setdefault(link.name, link)

    def remove(self, link: GuardConnection) -> None:
        """Leave a guard out that was closed."""
        self.links.remove(link)
        if self._by_name.get(link.name) is link:
            del self._by_name[link.name]

    def order(self, message: Message) -> None:
        """Send all guards an order."""
        for link in self.links:
            link.order(message)

    def _wait_for(
        self,
        note: Note,
        links: Iterable[GuardConnection],
        answered: Callable[[GuardConnection], bool],
        seconds: float = GUARD_SECONDS,
    ) -> None:
        """Continue until guards have answered, or are gone, at most for some seconds."""
        silent = list(links)

        def done() -> bool:
            silent[:] = [link for link in silent if not answered(link) and not self._dead(link)]
            return not silent

        self._wait(note, done, seconds)

    def _wait(self, note: Note, done: Callable[[], bool], seconds: float) -> bool:
        """Continue until something holds, at most for some seconds; say whether it does."""
        deadline = time.monotonic() + seconds
        look_at = 0.0
        try:
            while not done():
                now = time.monotonic()
                if now > deadline:
                    return False
                self.pump(note)
                if now > look_at:
                    look_at = now + _SWEEP_SECONDS
                    self.waits = self._silent.step(self.remote)
                self._meanwhile()
        finally:
            self._silent.close()
        return True

    def _unreached(
        self, first: Host, port: int, names: Sequence[str], note: Note, *, listens: bool = False
    ) -> List[Tuple[str, str]]:
        """Have hosts try the port of the first where the ranks meet; return those that do not reach it: (name, why).

        `listens` is as in Reach.
        """
        links = [self.link(name) for name in names]
        for link in links:
            link.answers.reached = None
            link.order(Reach(address=first.address, port=port, listens=listens))
        self._wait_for(note, links, lambda link: link.answers.reached is not None)
        answers = [(link.answers.reached or Reached(why=self._why_silent(link))).why for link in links]
        where = f"port {port} of {first.name} ({first.address})"
        return [
            (name, f"this host cannot reach {where}, which the ranks use for rendezvous: {why}")
            for name, why in zip(names, answers)
            if why
        ]

    def _probe(self, links: Sequence[GuardConnection]) -> None:
        """Have hosts looked at that were not yet: each guard continues with its other work."""
        for link in links:
            if not link.was_ordered(ProbeHost):
                subjects = ("network", "rdma", "image") if link is self.here else ("network", "rdma")
                link.order(ProbeHost(subjects=subjects, address=link.host.address))

    def _probed(self, links: Sequence[GuardConnection], note: Note) -> Dict[str, str]:
        """Return by host what its probe prints, "" where that does not come in time."""
        self._probe(links)
        self._wait_for(note, links, lambda link: link.answers.probed is not None, _PROBE_SECONDS)
        return {link.name: "" if link.answers.probed is None else link.answers.probed.text for link in links}

    def dismiss(self, links: Sequence[RemoteGuardConnection], note: Note, *, remove: bool) -> None:
        """Let guards go, which have nothing more to say; `remove` has them remove the job's folder."""
        for link in links:
            link.post(Close(remove=remove))
        deadline = time.monotonic() + _BYE_SECONDS
        while any(link.line is not None and not link.dialling for link in links) and time.monotonic() < deadline:
            self.pump(note)
        for link in links:
            link.close()
            self.remove(link)

    def link(self, name: str) -> GuardConnection:
        """Return the guard of a host of the job."""
        return self._by_name.get(name, self.here)

    def _dead(self, link: GuardConnection) -> bool:
        return bool(link.gone) or (link is self.here and not self._guard_lives())

    def _why_silent(self, link: GuardConnection) -> str:
        """Return why a guard has not answered.

        Raises:
            HostError: it is that of this host, without which nothing can start.
        """
        if link is self.here:
            ended = "did not answer in time" if self._guard_lives() else "ended while the job started"
            raise HostError(
                f"the job's guard process on {link.name or 'this host'} {ended}; its log is {self._folder.debug}"
            )
        error = link.error if isinstance(link, RemoteGuardConnection) else ""
        return link.gone or error or LATE


class _SilentHosts:
    """The hosts of a job that are silent while it starts, and the ssh that asks each of them."""

    def __init__(self) -> None:
        """Ask none yet."""
        self._asked: Dict[RemoteGuardConnection, ssh.SecondConnection] = {}

    def step(self, links: Sequence[RemoteGuardConnection]) -> Tuple[Tuple[str, str], ...]:
        """Ask hosts that are silent, and give up those that are cut off; return those that are waited for: (host, why)."""
        silent = [link for link in links if not link.gone and link.silence() > QUIET_SECONDS]
        for link in self._asked.keys() - set(silent):
            self._asked.pop(link).close()
        for link in silent:
            second = self._asked.get(link)
            if second is None:
                self._asked[link] = ssh.SecondConnection(link.name, QUIET_SECONDS)
            elif problem := second.problem():
                self._asked.pop(link).close()
                link.cut_off(problem)
        words = f"no answer for {QUIET_SECONDS:g} s while the job starts; it is asked by a second ssh"
        return tuple((link.name, words) for link in silent if not link.gone)

    def close(self) -> None:
        """End what still asks."""
        for second in self._asked.values():
            second.close()
        self._asked.clear()


def parsers() -> Tuple[Callable[..., Any], Callable[..., JobFacts], Callable[..., Dict[str, str]]]:
    """Load what reads the probe's answers: it takes longer than all else, and only several hosts are probed."""
    from taco_launch.core.facts.parse import parse  # noqa: PLC0415
    from taco_launch.core.launch.job_facts_from import hosts_with_ports_down, job_facts_from  # noqa: PLC0415

    return parse, job_facts_from, hosts_with_ports_down


def added(known: JobFacts, spec: JobSpec, told: Mapping[str, str]) -> JobFacts:
    """Add what is between the hosts, and the head's software, from what the probe said on each host."""
    parse, over_ssh, _ports_down = parsers()
    now = time.time()
    facts = tuple(parse(name, text.encode("utf-8", "surrogateescape"), now, now) for name, text in told.items())
    found = over_ssh(known, spec, facts)
    return replace(known, nccl=found.nccl, horovod=found.horovod, between=found.between)


def ports_down(spec: JobSpec, facts: JobFacts) -> Dict[str, str]:
    """Return by host why the job must not run there: RDMA ports of its are down."""
    if facts.between is None:
        return {}
    _parse, _over_ssh, hosts_with_ports_down = parsers()
    return hosts_with_ports_down(spec, facts)


def near(hosts: Sequence[Host], link: Callable[[str], GuardConnection]) -> Tuple[Tuple[str, LocalHcas], ...]:
    """Return by host the HCAs near the job's GPUs; nothing of hosts that have not told them with the slots."""
    told = ((host.name, link(host.name).answers.leased) for host in hosts)
    near_ = ((name, () if leased is None else leased.near) for name, leased in told)
    return tuple((name, tuple(tuple(tuple(hcas) for hcas in alike) for alike in gpus)) for name, gpus in near_ if gpus)
