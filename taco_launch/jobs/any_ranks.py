"""Watch the ranks on hosts, of any launcher: nothing is installed for it, and nothing is left behind.

The agent's code and py-spy go to each host as the input of a Python there, which keeps both in memory.
"""

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, UsageError, last_line
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.run.host_jobs import NO_LAUNCHER, HostJob
from taco_launch.core.model.run.rank_samples import Life, LifeVerdict, RankStack
from taco_launch.core.model.stalls import STOPPED
from taco_launch.core.protocol import framing
from taco_launch.core.protocol.stack_messages import HostJobs
from taco_launch.core.stalls.judge import judge
from taco_launch.hosts.fanout import Answer
from taco_launch.hosts.inventory import select
from taco_launch.hosts.remote import agent_bundle, py_spy
from taco_launch.hosts.remote.transport import Transport
from taco_launch.jobs.request.caller import local_names

# Python 3.8 is the oldest that the agent runs on; zipimport reads the bundle through /proc.
_START = """import sys
if sys.version_info < (3, 8):
    sys.exit("its python3 is %s, and Python 3.8 or newer is required" % sys.version.split()[0])
import os
import zlib
if not hasattr(os, "memfd_create"):
    sys.exit("its python3 has no os.memfd_create: it was built for a system of before 2018")
source = sys.stdin.buffer
match, program, bundle = [source.read(int(source.readline())) for _ in range(3)]
file = os.memfd_create("taco-launch")
with open(file, "wb", closefd=False) as bundled:
    bundled.write(zlib.decompress(bundle))
sys.path.insert(0, "/proc/self/fd/%d" % file)
from taco_launch.MODULE import main
main(float(sys.argv[1]), match.decode("utf-8", "surrogateescape"), zlib.decompress(program) if program else None)
""".replace("MODULE", "agent.stacks.host_jobs")
# As root where sudo asks for no password: ranks in containers are root's. $1 and $2 are the program and the seconds.
_SCRIPT = """command -v python3 >/dev/null 2>&1 || { echo 'python3 is required there, and was not found' >&2; exit 1; }
set -- "$(command -v python3)" -I -S -c "$1" "$2"
[ "$(id -u)" = 0 ] || ! sudo -n true >/dev/null 2>&1 || exec sudo -n "$@"
exec "$@"
"""
# Of the ranks that were not seen.
_MOST_ABSENT = 1024
# Where the kernel puts a process that sleeps by the clock (kernel/time/hrtimer.c: do_nanosleep, hrtimer_nanosleep).
_SLEEP = "nanosleep"
# Seconds after which sleep is no pause between two steps any more.
_LONG_WATCH = 30.0
# How a sign of work begins (core/stalls/quiet.py).
_NUMBERED = re.compile(r"^rank \d+")
# Beside the time that hosts watch: to send 4 MB, and to read the stacks of many ranks.
_MORE_SECONDS = 120.0


@dataclass(frozen=True)
class AnyJob:
    """A job on all hosts that were asked; `ranks` are those that were seen, by their number, with their hosts."""

    launcher: str
    size: int
    command: str
    verdict: LifeVerdict
    ranks: tuple[RankStack, ...]
    # How many ranks were not seen, and the first of them: they have ended, or are on hosts that were not asked.
    absent_count: int
    absent: tuple[int, ...]
    # Whether the launcher has no ranks yet: `ranks` are its own processes.
    is_starting: bool = False


def hosts_to_watch(
    source: str | None, load: Callable[[], Inventory], text: str | None
) -> tuple[Inventory, tuple[Host, ...]]:
    """Return the hosts that a text names, in the inventory that was named (`source`), or without one by their SSH names.

    Raises:
        SpecError: the text or the inventory is wrong.
    """
    if text is not None and source is None:
        hosts = select.hosts_of(text, local_names())
        return Inventory(cluster="hosts", head=hosts[0].name, hosts=hosts), hosts
    inventory = load()
    return inventory, inventory.hosts if text is None else select.choose(inventory, text)


def payload(match: str) -> bytes:
    """Return what a host is sent: the text to look for, py-spy and the agent's code, each behind its length."""
    program = py_spy.program()
    parts = (
        match.encode("utf-8", "surrogateescape"),
        b"" if program is None else zlib.compress(program[1]),
        zlib.compress(agent_bundle.build(agent_bundle.sources())),
    )
    return b"".join(b"%d\n%b" % (len(part), part) for part in parts)


def watch(host: Transport, sent: bytes, seconds: float, *, sudo: bool) -> HostJobs:
    """Return the jobs on a host, watched there for so many seconds; `sent` is a payload.

    Raises:
        HostError: the host cannot be reached, or has no Python that can do it.
    """
    argv = ("/bin/sh", "-c", _SCRIPT, "stacks", _START, f"{seconds:g}")
    result = host.run(Command(argv, sent, sudo=sudo, timeout=seconds + _MORE_SECONDS))
    try:
        return HostJobs.from_wire(framing.message(result.stdout.splitlines()[-1]) or {})
    except (IndexError, UsageError, ValueError) as error:
        why = last_line(result.stderr) or (f"exit code {result.exit_code}" if result.exit_code else str(error))
        raise HostError(f"{host.name}: the ranks there cannot be read: {why}") from None


def jobs_of(answers: Sequence[Answer[HostJobs]]) -> tuple[AnyJob, ...]:
    """Put together what hosts have told of the same jobs."""
    jobs: dict[tuple[str, str, int, str], list[list[HostJob]]] = {}
    for answer in answers:
        for job in () if answer.value is None else answer.value.jobs:
            here = replace(job, ranks=tuple(_on(answer.host, told) for told in job.ranks))
            alike = jobs.setdefault((job.launcher, job.name, job.size, job.starting), [])
            same = next((parts for parts in alike if _is_same(parts, here)), None)
            if same is None:
                alike.append([here])
            else:
                same.append(here)
    return tuple(_job(parts) for alike in jobs.values() for parts in alike)


def _on(host: str, told: RankStack) -> RankStack:
    return replace(told, look=replace(told.look, host=host))


def _is_same(parts: Sequence[HostJob], other: HostJob) -> bool:
    """Return whether a part of a job of this name belongs to these; without a name the command line tells."""
    if other.launcher == NO_LAUNCHER:
        return True
    numbers = {rank.look.rank for part in parts for rank in part.ranks}
    return (bool(other.name) or parts[0].command == other.command) and numbers.isdisjoint(
        rank.look.rank for rank in other.ranks
    )


def _job(parts: Sequence[HostJob]) -> AnyJob:
    first = parts[0]
    ranks = [rank for part in parts for rank in part.ranks]
    if first.launcher == NO_LAUNCHER:
        ranks = [replace(rank, look=replace(rank.look, rank=number)) for number, rank in enumerate(ranks)]
    ranks.sort(key=lambda rank: rank.look.rank)
    numbers = {rank.look.rank for rank in ranks}
    # Any user of a host decides how large a job is: its numbers are not made all.
    count = max(0, first.size - len(numbers))
    absent = itertools.islice((number for number in range(first.size) if number not in numbers), _MOST_ABSENT)
    verdict = _verdict(parts, ranks, count)
    launcher, starting = first.launcher or first.starting, bool(first.starting)
    return AnyJob(launcher, first.size, first.command, verdict, tuple(ranks), count, tuple(absent), starting)


def _verdict(parts: Sequence[HostJob], ranks: Sequence[RankStack], absent: int) -> LifeVerdict:
    """Return what the job does; it is not known to hang where ranks were not seen, unless one is stopped."""
    if parts[0].starting:
        why = f"{parts[0].starting} runs and has no ranks yet: it is starting them, or waits for other hosts"
        return LifeVerdict(Life.UNKNOWN, why)
    for part in parts:
        if part.sign:
            # Where the numbers of ranks are ours, they are not those of the host.
            sign = part.sign if part.launcher else _NUMBERED.sub("a process", part.sign)
            return LifeVerdict(Life.WORKING, f"on {part.ranks[0].look.host}, {sign}" if part.ranks else sign)
    if not ranks:
        ended = "its ranks have ended" if parts[0].launcher else "its processes have ended"
        return LifeVerdict(Life.UNKNOWN, ended)
    seconds = min(part.silent for part in parts)
    verdict = judge([rank.look for rank in ranks], (), f"for {seconds:.0f} s", all_seen=not absent)
    if absent and verdict.life is Life.HUNG and not any(rank.look.state in STOPPED for rank in ranks):
        were = "was" if absent == 1 else "were"
        why = f"of the ranks that were seen, {verdict.why}; {absent} of {parts[0].size} {were} not seen: ended, or on other hosts"
        return replace(verdict, life=Life.UNKNOWN, why=why)
    asleep = next((rank.look for rank in ranks if _SLEEP in rank.look.where), None)
    if verdict.is_hung and asleep is not None and not verdict.waiting and seconds < _LONG_WATCH:
        # A busy host may have woken it too late for a step to fall into so short a watch.
        where = f", {asleep.does}," if asleep.does else ""
        unread = any(not rank.look.does for rank in ranks if rank.look is not asleep)
        others = "the stacks of other ranks cannot be read" if unread else "no rank waits for it"
        why = f"rank {asleep.rank} on {asleep.host} sleeps{where} and {others}; watch it longer: --watch 60"
        return LifeVerdict(Life.UNKNOWN, why)
    return verdict
