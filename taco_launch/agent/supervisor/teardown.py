"""The end of a gang: every guard ends what is the job's, and what it has of the logs comes over; children that are left here."""

import math
import os
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from taco_launch.agent.gang.guard_connection import KILLED, GuardConnection, RemoteGuardConnection
from taco_launch.agent.gang.guard_pool import GUARD_SECONDS, GuardPool, Note
from taco_launch.agent.host import processes
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.upkeep import recovery
from taco_launch.core.errors import FAILED, JobEnd
from taco_launch.core.lifecycle.state import JobOutcome
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.guard_messages import Ended, EndJob

# So long a guard has to hear that a job is over which has never started; seconds.
_A_MOMENT = 3.0
# Once it is known how the job ends, this host's guard only has to end processes, in 10 s. What one that hangs has not
# ended, we end.
DECIDED_SECONDS = 15.0
# A host that was silent before has so long to answer once more: whoever waits for the job has waited for long already.
_SILENT_SECONDS = 8.0
# After so many seconds the job's reason names the hosts that its end waits for.
_TOLD_AFTER_SECONDS = 5.0
_MOST_NAMED = 4
# A host that is shut down may answer for so long after it has ended its ranks, for which others fail; seconds.
_SHUTDOWN_SECONDS = 10.0


class Orphans:
    """The children of the supervisor that are the job's: processes whose parents, the launcher's above all, have ended."""

    def __init__(self, guard_process: agent_program.Process, gang: GuardPool) -> None:
        """Know those that are ours alone: this host's guard, and what leads to the others."""
        self._guard_process = guard_process
        self._gang = gang
        # Those from before the launcher's start: the connections that it may share (shared_connection.py), in the background.
        self._before: Optional[Set[Tuple[int, int]]] = None

    def launcher_starts(self) -> None:
        """Note that children from now on are the job's."""
        self._before = set(self._children())

    def found(self) -> List[List[int]]:
        """Return those of a launcher that has ended, (pid, start): our children now, and all but our own are the job's."""
        if self._before is None:
            return []
        own = self._own()
        return [[pid, start] for pid, start in self._children() if pid not in own and (pid, start) not in self._before]

    def reap(self, launcher: Optional[int]) -> None:
        """Collect those that have ended, leaving our own children to those who started them; `launcher` is its number."""
        self._guard_process.poll()
        own = [*self._own(), launcher]
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)

    def _children(self) -> List[Tuple[int, int]]:
        return [(entry.pid, entry.start) for entry in processes.children(os.getpid())]

    def _own(self) -> List[Optional[int]]:
        return [self._guard_process.pid, *(pid for link in self._gang.remote for pid in link.pids())]


def end_all(
    gang: GuardPool,
    note: Note,
    orphans: List[List[int]],
    *,
    whole: Callable[[str], bool],
    meanwhile: Callable[[str], None],
    here: Optional[float],
    timeout: float,
    how: Mapping[str, bool],
) -> List[str]:
    """Have every guard end the job; wait until each has said so, is given up, or is gone.

    `orphans` (pid, start) are processes of this host that the job has left to us. `whole(host)` says whether all logs of
    a host are here; a host is given up when it was silent for `timeout` seconds, or its logs came no further for as
    long. This host's guard has `here` seconds; where that is None no rank was started, and no host gets more than a
    moment. `meanwhile` is called repeatedly with "", and once, if ranks were started, with what the end of the job waits
    for. `how` are words of the order: with `leave` what still runs is left alone, with `listener` it is looked up who has
    the ranks' port. Gives the hosts that have ended the job but whose logs are not all here.
    """
    for link in gang.links:
        # Where one is gone already, its last output are read all the same.
        link.order(EndJob(roots=orphans if link is gang.here else (), **how))
    begin = time.monotonic()
    further: Dict[str, Tuple[object, float]] = {}
    stuck: List[str] = []
    told = here is None

    def over(link: GuardConnection) -> bool:
        limit = _A_MOMENT if here is None else here if link is gang.here else math.inf
        late = time.monotonic() - begin > limit
        return bool(link.gone) or late or link.name in stuck or (link.answers.ended is not None and whole(link.name))

    while not all(over(link) for link in gang.links):
        gang.pump(note)
        for remote in gang.remote:
            remote.lost_after(timeout, gang.looked)
            now = time.monotonic()
            have = (remote.answers.ended is not None, sum(remote.offsets.values()))
            before, since = further.get(remote.name, (None, now))
            further[remote.name] = (have, since if have == before else now)
            if not over(remote) and now - further[remote.name][1] > timeout:
                stuck.append(remote.name)
        late = [link for link in gang.remote if not over(link)]
        if late and not told and time.monotonic() - begin > _TOLD_AFTER_SECONDS:
            told = True
            meanwhile(_waits_for(late, timeout))
        meanwhile("")
    return [link.name for link in gang.links if link.name in stuck and link.answers.ended is not None]


def _waits_for(links: Sequence[RemoteGuardConnection], timeout: float) -> str:
    """Return what the end of a job waits for on these hosts: the end of its ranks, or else their logs."""
    silent = [link.name for link in links if link.answers.ended is None]
    if silent:
        return f"waiting for {_few(silent)} to end its ranks; a silent host counts as lost after {timeout:g} s"
    return f"waiting for the logs of {_few([link.name for link in links])}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def end_here(
    mark: str,
    told: Optional[Ended],
    adopted: Callable[[], Sequence[Sequence[int]]],
    roots: Sequence[Sequence[int]],
) -> Ended:
    """End what is the job's on this host after its guard, or without one, and return what is left as a guard says it.

    `told` is the guard's answer, None where it gave none: then `roots` (pid, start) are ended here. `adopted` returns
    the children that the job has left to us. A process whose parent ends between a look at our children and the scan of
    their descendants is in neither, and is our child by then: so we look until nothing more has come.
    """
    known = set() if told is not None else {(int(pid), int(start)) for pid, start in roots}
    answer, looked = told or Ended(), told is not None
    deadline = time.monotonic() + GUARD_SECONDS  # what cannot be ended may leave more
    while True:
        late = {(int(pid), int(start)) for pid, start in adopted() if processes.lives(int(pid), int(start))} - known
        late = {each for each in late if each[0] not in answer.left}
        if looked and (not late or time.monotonic() > deadline):
            return answer.replace(left=sorted({*answer.left, *(pid for pid, _start in late)}))
        known, looked = known | late, True
        scan = processes.end(mark, known)
        left = {*answer.left, *(entry.pid for entry in scan.found)}
        answer = answer.replace(left=sorted(left), unknown=scan.unknown or answer.unknown)


def clear(links: Sequence[RemoteGuardConnection], agent: str, folder: JobFolder, mark: str) -> List[str]:
    """End an attempt on hosts whose guards are gone; say what is left there, and what could not be reached."""
    killed = [link.name for link in links if link.gone == KILLED]
    silent = [link.name for link in links if link.gone != KILLED]
    words = recovery.clear(killed, agent, folder, mark)
    return words + recovery.clear(silent, agent, folder, mark, _SILENT_SECONDS)


def listener(link: GuardConnection, port: int) -> str:
    """Return who has the port where the ranks meet, now that none of them is left; "" on other hosts than the first."""
    who = "" if link.answers.ended is None else link.answers.ended.listener
    return f"port {port} of {link.name}, which its ranks used for rendezvous, is still in use by {who}" if who else ""


def forced(left: int, grace: float) -> str:
    """Return how many ranks were killed: after their grace time, or at once where they had none; "" where none ran on."""
    if left <= 0:
        return ""
    ranks = f"{left} rank{'' if left == 1 else 's'}"
    if not grace:
        return f"{ranks} {'was' if left == 1 else 'were'} killed without time to end"
    return f"{ranks} did not end within {grace:g} s and had to be killed"


def answered_after(link: GuardConnection, failure: Optional[Tuple[float, str]]) -> bool:
    """Return whether a guard that is gone answered long after a rank of another host had failed: then the rank came first.

    `failure` is when that was, by time.monotonic(), and the rank's host. A rank that fails because its peer is gone fails at
    about the time of the last answer of the peer's host.
    """
    if failure is None:
        return False
    at, host = failure
    return host != link.name and link.heard > at + _SHUTDOWN_SECONDS


def end_of(link: GuardConnection, here: GuardConnection) -> JobOutcome:
    """Return how a job ends whose guard is gone."""
    if link.gone == KILLED:
        return JobOutcome(JobState.FAILED, FAILED, KILLED if link is here else f"its guard on {link.name} was killed")
    if link is here:
        return JobOutcome(JobState.LOST, JobEnd.LOST, f"lost {link.what}: {link.gone}")
    return JobOutcome(JobState.LOST, JobEnd.LOST, f"host {link.name} lost: {link.gone}")
