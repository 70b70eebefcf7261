"""Plans: which slots a job asks for (SlotRequest) and gets (Placement), and the line that starts it (LaunchPlan)."""

from typing import Iterable, Iterator, Optional, Protocol, Sequence, Tuple, TypeVar

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.jobs import JobSpec


@dataclass(frozen=True)
class FreeSlots:
    """How many slots of a host are free for a job.

    `total` is how many it has, None where all of them are free; `why` says in words who has the others. `leaf` names the
    switch of the network that it is connected to, None where that is not known. `lacks` says which slots of the host are
    not counted here, since this job may not have them.
    """

    host: str
    slots: int
    total: Optional[int] = None
    why: str = ""
    leaf: Optional[str] = None
    lacks: str = ""

    @property
    def all(self) -> int:
        """How many slots the host has, free or not."""
        return self.slots if self.total is None else self.total


@dataclass(frozen=True)
class SlotRequest:
    """Which slots a job asks for: so many ranks, or so many hosts with as many ranks each.

    `np` is the number of ranks. `hosts` is the number of hosts and `slots_per_host` the ranks on each of them: without
    the first on every host, without the second on whole hosts, none of whose slots another job has. With none of the
    three it is every slot of every host. Hosts of `left_out` are used only where the others do not suffice. `exclusive`: no
    other job is to have a slot of any host of this one, even where it does not take them all. `np` ranks are those of workers
    with `unit` each, none of which may be on two hosts; with `most_per_host` a host takes that many of them at most. With `least` it is as many hosts as can be had, at least
    so many and at most `hosts`; those of `left_out` then only as far as there would be fewer than `least`.
    """

    np: Optional[int] = None
    hosts: Optional[int] = None
    slots_per_host: Optional[int] = None
    left_out: Tuple[str, ...] = ()
    exclusive: bool = False
    unit: int = 1
    least: Optional[int] = None
    most_per_host: Optional[int] = None


def wanted_of(spec: JobSpec, left_out: Sequence[str] = ()) -> SlotRequest:
    """Return what a job asks for; `left_out` are the hosts that earlier attempts failed on."""
    unit = spec.slots_per_worker or 1
    return SlotRequest(
        np=spec.np,
        hosts=spec.host_count,
        slots_per_host=spec.slots_per_host,
        left_out=tuple(left_out),
        exclusive=spec.exclusive,
        unit=unit,
        least=spec.least_hosts,
        most_per_host=spec.most_per_host,
    )


@dataclass(frozen=True)
class Share:
    """How many ranks of a job run on one host; ranks are numbered in the order of the shares.

    `slots` names those that the ranks have there, once they are leased. `choice` says why these GPUs, where there were
    several sets of them. `first` is the number of the first of them, where hosts have come and gone before (--elastic); None:
    as many as the shares before it have.
    """

    host: str
    ranks: int
    slots: Tuple[str, ...] = ()
    choice: Optional[GpuChoice] = None
    first: Optional[int] = None


@dataclass(frozen=True)
class Placement:
    """Where the ranks run, all or nothing; `why` says so in words."""

    shares: Tuple[Share, ...]
    why: str

    @property
    def np(self) -> int:
        """The world size."""
        return sum(share.ranks for share in self.shares)


@dataclass(frozen=True)
class Token:
    """One word of a command line: where it comes from and why it is there.

    `source` is user, inventory, fact, profile, default or launcher.
    """

    text: str
    source: str
    why: str


@dataclass(frozen=True)
class PlanFile:
    """A file that a line names: its path there, its content and its mode."""

    path: str
    text: str
    mode: int = 0o600


@dataclass(frozen=True)
class HostCommand:
    """What is started on one host: `argv`, with the agent's rank wrapper before the job's own command, for `ranks`.

    `lines` is what a person would type there instead, each in words. `env` is set in its environment besides, `passed`
    names the variables that it has of the caller's environment on another host than the head.
    """

    host: str
    argv: Tuple[str, ...]
    lines: Tuple[Tuple[str, ...], ...]
    ranks: Tuple[int, ...]
    env: Tuple[Tuple[str, str], ...] = ()
    passed: Tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchPlan:
    """How a placed job is started.

    `tokens` is what a person would type, the first line of the first of the `commands`: mpirun has one on the head, other
    launchers have one on each host, in the order of the ranks. `host_env` holds what differs from host to
    host: (host, ((name, value), ...)), given to the ranks by the agent alone. `files` have to be there before the line
    runs; `warnings` is what a user should know of the line.
    """

    tokens: Tuple[Token, ...]
    commands: Tuple[HostCommand, ...]
    host_env: Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...] = ()
    files: Tuple[PlanFile, ...] = ()
    warnings: Tuple[str, ...] = ()

    @property
    def argv(self) -> Tuple[str, ...]:
        """The tokens' words alone."""
        return tuple(token.text for token in self.tokens)

    @property
    def executed(self) -> Tuple[str, ...]:
        """What is started on the first host."""
        return self.commands[0].argv

    @property
    def env(self) -> Tuple[Tuple[str, str], ...]:
        """What is set there besides."""
        return self.commands[0].env


_Part = TypeVar("_Part", bound="_RanksOfHost")


class _RanksOfHost(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def ranks(self) -> int: ...

    @property
    def first(self) -> Optional[int]: ...


def numbered(shares: Iterable[_Part]) -> Iterator[Tuple[_Part, Tuple[int, ...]]]:
    """Yield each share of a job with the numbers of its ranks."""
    begin = 0
    for share in shares:
        begin = begin if share.first is None else share.first
        yield share, tuple(range(begin, begin + share.ranks))
        begin += share.ranks


def host_of(shares: Iterable["_RanksOfHost"], rank: int) -> str:
    """Return the host of a rank.

    Raises:
        LookupError: there is no such rank; says which there are.
    """
    hosts = {number: share.host for share, ranks in numbered(shares) for number in ranks}
    if rank not in hosts:
        raise LookupError(f"its ranks are {min(hosts, default=0)} to {max(hosts, default=0)}")
    return hosts[rank]
