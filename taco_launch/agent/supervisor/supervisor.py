"""`agent run`: the supervisor of one attempt of a job, on the head: places it, starts it, follows it, ends it.

It holds the job's lock for life (handed over by who starts it), so that everybody can tell whether a job has a
supervisor. Where there is no place it says why, and ends: the scheduler starts the next when there may be one.
"""

import os
import signal

from taco_launch.agent.host import processes
from taco_launch.agent.host.launcher_process import IGNORED
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import IN_ALLOCATION, JobFolder, Jobs
from taco_launch.agent.supervisor import ending, start, starting
from taco_launch.agent.supervisor.running import Running
from taco_launch.agent.supervisor.supervised_attempt import SupervisedAttempt
from taco_launch.agent.upkeep import scheduler_wakeup
from taco_launch.core.errors import PlacementError, TacoLaunchError, UnusableError


def main(folder: JobFolder, agent: str, guard_process: agent_program.Process, lock: int) -> int:
    """Supervise an attempt to its end; `guard_process` is this host's guard, started already, `lock` the job's lock."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    if os.environ.get(IN_ALLOCATION) == str(os.getppid()):  # a scheduler that starts one again may end before it
        processes.end_with_parent()
    attempt = SupervisedAttempt(folder, agent, guard_process)
    signal.signal(signal.SIGTERM, attempt.on_term)
    _supervise(attempt)
    os.close(lock)
    jobs = Jobs(folder.path.parent.parent)
    if attempt.spec.policy.ttl is None and records.record(attempt.folder).state.is_terminal:
        jobs.unmark(folder.name)
    scheduler_wakeup.notify(jobs, folder.name)
    scheduler_wakeup.ensure(jobs, agent)
    return 0


def _supervise(attempt: SupervisedAttempt) -> None:
    """Take the attempt from its folder to its end; whatever goes wrong is its recorded end."""
    try:
        starting.launch(attempt)
        Running(attempt).follow()
    except (PlacementError, UnusableError) as error:
        if start.waits_after(error, attempt.spec.policy, is_new=attempt.is_new):
            attempt.no_place = error
        else:
            attempt.cut_short = start.outcome_of(error)
    except TacoLaunchError as error:
        attempt.cut_short = attempt.cut_short or start.outcome_of(error)
    ending.end_attempt(attempt)
