"""The last phase of an attempt: end all its processes, complete its logs, record how it ended or why it waits."""

import contextlib
import signal
import subprocess
import time
from functools import partial
from typing import List, Sequence

from taco_launch.agent.gang.guard_connection import RemoteGuardConnection
from taco_launch.agent.gang.guard_pool import GUARD_SECONDS
from taco_launch.agent.host.launcher_process import drain
from taco_launch.agent.supervisor import finish, start, teardown
from taco_launch.agent.supervisor.supervised_attempt import SupervisedAttempt
from taco_launch.agent.upkeep import recovery
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import CleanUp, JobState


def end_attempt(attempt: SupervisedAttempt) -> None:
    """End what is left, bring the logs together, record the end, or why and for what the job waits."""
    failures = finish.failures_so_far(attempt.ranks, attempt.launcher, lambda: attempt.gang.pump(attempt.note))
    left = _end_processes(attempt)
    code = -signal.SIGKILL
    if attempt.launcher is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = attempt.launcher.wait(GUARD_SECONDS)
        assert attempt.launcher.stdout is not None
        drain(attempt.launcher.stdout, attempt.launcher_log)
    if attempt.launcher_hung:
        code = 0
    if code >= 0:
        # What the ranks said last may have come after the launcher's end. Where a signal ended that, it came of it.
        failures = len(attempt.ranks.failures)
    lost = attempt.ranks.close()
    notes = (
        lost,
        attempt.lost_later,
        left,
        attempt.early.remark,
        # Open MPI 5.0 does not now and then: openpmix/prrte#1839
        f"{attempt.spec.launcher} did not end by itself" if attempt.launcher_hung else "",
    )
    if attempt.no_place is not None and attempt.cut_short is None:
        attempt.events.add(state.WAITING, state.FOR_SLOTS, hosts=attempt.no_place.reasons)
    elif attempt.cut_short is not None and attempt.cut_short.state is JobState.SUSPENDED:
        attempt.events.add(state.SUSPENDED, "; ".join(filter(None, (attempt.cut_short.reason, *notes))))
        attempt.folder.suspend.unlink(missing_ok=True)
    else:
        end = finish.AttemptEnd(
            np=attempt.ranks.np,
            started=attempt.ranks.started,
            failures=tuple(attempt.ranks.failures[:failures]),
            code=code,
            cut_short=attempt.cut_short,
            lost_host=attempt.lost_host,
            here=start.failed_on(attempt.launcher) or attempt.gang.here.name,
            notes=notes,
            hung=attempt.limits.hung,
            restarted=attempt.ranks.restarted,
        )
        finish.record(attempt.folder, attempt.events, attempt.spec, end)
    while not attempt.events.flush():
        time.sleep(1)


def _end_processes(attempt: SupervisedAttempt) -> str:
    """Have every guard end all that belongs to the job; do it without them where there is none. Say what is left."""
    here = GUARD_SECONDS if attempt.cut_short is None else teardown.DECIDED_SECONDS
    stuck = teardown.end_all(
        attempt.gang,
        attempt.note,
        attempt.orphans.found(),
        whole=attempt.ranks.whole,
        meanwhile=partial(_meanwhile, attempt),
        here=None if attempt.launcher is None else here,
        timeout=attempt.spec.policy.host_loss_timeout,
        how={
            "leave": _leaves(attempt),
            "listener": attempt.cut_short is None and not attempt.ranks.all_well,
        },
    )
    left = [_left_here(attempt)]
    told = [(link, link.answers.ended) for link in attempt.gang.remote]
    ends = [(link.name, ended) for link, ended in told if ended is not None]
    left += [recovery.describe_leftovers(ended.left, ended.unknown, host) for host, ended in ends]
    silent = [link for link, ended in told if ended is None]
    left += _clear(attempt, silent)
    left += [f"the logs of {name} did not arrive in full" for name in stuck]
    if attempt.cut_short is None and not attempt.ranks.all_well:
        left += [teardown.listener(link, attempt.gang.port) for link in attempt.gang.links]
    # How ranks on a host that does not answer have ended is not known.
    known = [host for host in attempt.forced if host not in [link.name for link in silent]]
    left.append(teardown.forced(len(known), attempt.grace))
    clear = attempt.ranks.np == 0 or attempt.spec.policy.clean_up is CleanUp.ALL
    unsaved = [link for link in attempt.gang.remote if not attempt.ranks.whole(link.name)]
    attempt.gang.dismiss(unsaved, attempt.note, remove=False)
    attempt.gang.dismiss(attempt.gang.remote, attempt.note, remove=clear)
    return "; ".join(filter(None, left))


def _leaves(attempt: SupervisedAttempt) -> bool:
    """Return whether what the ranks have left running stays: where that is asked, and all of them ended well."""
    ended = attempt.launcher is not None and attempt.launcher.poll() == 0 and attempt.cut_short is None
    return ended and attempt.ranks.all_well and attempt.spec.policy.clean_up is CleanUp.NONE


def _left_here(attempt: SupervisedAttempt) -> str:
    told = attempt.gang.here.answers.ended
    if told is None:
        attempt.guard_process.kill()
    if told is None or not _leaves(attempt):
        told = teardown.end_here(attempt.id, told, attempt.orphans.found, attempt.ranks.roots)
    return recovery.describe_leftovers(told.left, told.unknown)


def _clear(attempt: SupervisedAttempt, links: Sequence[RemoteGuardConnection]) -> List[str]:
    """End the job on hosts whose guards are gone, as far as they can be reached."""
    if not links or attempt.launcher is None:
        return []
    attempt.lose(links[0])
    return teardown.clear(links, attempt.agent, attempt.folder, attempt.id)


def _meanwhile(attempt: SupervisedAttempt, waits_for: str) -> None:
    if waits_for:
        attempt.events.add(state.STOPPING, waits_for)
    attempt.reap()
    attempt.ranks.step()
