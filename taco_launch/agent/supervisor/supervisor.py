"""`agent run`: the supervisor of one attempt of a job, on the head: places it, starts it, follows it, ends it.

It holds the job's lock for life (handed over by who starts it), so that everybody can tell whether a job has a
supervisor. Where there is no place it says why, and ends: the scheduler starts the next when there may be one.
"""

import contextlib
import importlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import List, Optional, Sequence, Union

from taco_launch.agent.host import containers, facts, processes
from taco_launch.agent.host.launcher_process import IGNORED, drain, wake_on_child
from taco_launch.agent.logs import segments
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.supervisor import finish, start, teardown
from taco_launch.agent.supervisor.deadlines import LINGER_SECONDS, EarlySignal, Limits
from taco_launch.agent.supervisor.gang_allocation import GangAllocation
from taco_launch.agent.supervisor.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.supervisor.guard_pool import GUARD_SECONDS, HEARTBEAT_SECONDS, TICK_MS
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.agent.supervisor.verification import Verification
from taco_launch.agent.upkeep import recovery, scheduler_wakeup
from taco_launch.core import errors
from taco_launch.core.errors import SIGNAL_BASE, JobEnd, PlacementError, TacoLaunchError, UnusableError
from taco_launch.core.launch import plan
from taco_launch.core.launch.command_line.env import relevant
from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.launch.missing_facts import missing_facts
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.state import JobOutcome
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import CleanUp, HostRanks, JobSpec, JobState
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.protocol.guard_messages import GaveUp
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import AllowExit, Terminate


def main(folder: JobFolder, agent: str, guard_process: agent_program.Process, lock: int) -> int:
    """Supervise an attempt to its end; `guard_process` is this host's guard, started already, `lock` the job's lock."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    supervisor = _Supervisor(folder, agent, guard_process)
    signal.signal(signal.SIGTERM, supervisor.on_term)
    supervisor.run()
    os.close(lock)
    jobs = Jobs(folder.path.parent.parent)
    if supervisor.is_over:
        jobs.unmark(folder.name)
    scheduler_wakeup.notify(jobs)
    scheduler_wakeup.ensure(jobs, agent)
    return 0


class _Supervisor:
    def __init__(self, folder: JobFolder, agent: str, guard_process: agent_program.Process) -> None:
        events = records.read_events(folder)
        self._record = state.reduce(events)
        self._is_new = all(event.kind == state.SUBMITTED for event in events)
        self._attempt = self._record.attempt + 1
        self._id = state.mark(self._record.id, self._attempt)
        self._folder = folder.of_attempt(self._attempt)
        self._agent = agent
        self._spec: JobSpec = records.read_spec(folder)
        self._events = records.Events(folder)
        limit = self._spec.policy.log_max_bytes
        self._ranks = Ranks(self._folder, self._events, limit)
        self._launcher_log = segments.Writer(self._folder.launcher, limit)
        self._guard_process = guard_process
        left_out = self._record.left_out
        lives = lambda: guard_process.poll() is None  # noqa: E731
        self._gang = GangAllocation(folder, agent, self._spec, self._id, lives, self._check_requests_early, left_out)
        self._verification = Verification(self._spec, self._folder, self._ranks, self._events, self._gang.order)
        self._limits = Limits(self._spec.policy, self._ranks, self._events, self._gang.order)
        self._orphans = teardown.Orphans(guard_process, self._gang)
        self._early = EarlySignal(self._spec.policy, self._gang, self._ranks, self._events)
        self._launcher: Optional[start.Launcher] = None
        self._no_place: Optional[Union[PlacementError, UnusableError]] = None
        self._cut_short: Optional[JobOutcome] = None
        self._lost_host = ""
        self._kill_at: Optional[float] = None
        self._grace = self._spec.policy.grace
        self._released = False
        self._look_at = 0.0
        self._term = False
        self._launcher_deadline = 0.0
        self._launcher_hung = False
        self._forced = ""

    @property
    def is_over(self) -> bool:
        """Whether the job needs nobody any more."""
        return self._spec.policy.ttl is None and records.record(self._folder).state.is_terminal

    def run(self) -> None:
        """Take the attempt from its folder to its end; whatever goes wrong is its recorded end."""
        try:
            self._launch()
            self._follow()
        except (PlacementError, UnusableError) as error:
            if start.waits_after(error, self._spec.policy, is_new=self._is_new):
                self._no_place = error
            else:
                self._cut_short = start.outcome_of(error)
        except TacoLaunchError as error:
            self._cut_short = self._cut_short or start.outcome_of(error)
        self._finish()

    def on_term(self, _number: int, _frame: object) -> None:
        """Note a TERM, which may have come in the middle of anything."""
        self._term = True

    def _stop(self, by: str, number: int, grace: Optional[float] = None) -> None:
        """End the job before its time: TERM now, KILL after the grace time. A second call can only shorten it."""
        self._grace = self._grace if grace is None else min(self._grace, grace)
        if self._cut_short is None or self._cut_short.state is JobState.SUSPENDED:
            begins = self._cut_short is None
            self._cut_short = JobOutcome(JobState.CANCELLED, SIGNAL_BASE + number, f"stopped by {by}")
            if begins and not self._early.before_end(f"stopped by {by}", grace):
                self._terminate(f"stopped by {by}")
        self._early.hurry(grace)
        if grace is not None and self._kill_at is not None:
            self._kill_at = min(self._kill_at, time.monotonic() + grace)

    def _check_requests(self) -> None:
        """Act on stop.json, suspend.json and a TERM."""
        request = records.read_json(self._folder.stop)
        if request is not None:
            self._stop(request["by"], int(request["signal"]), request.get("grace"))
        if self._term:
            self._stop("a TERM signal to its supervisor", signal.SIGTERM)
        suspend = None if self._cut_short is not None else records.read_json(self._folder.suspend)
        if suspend is not None:
            why = f"suspended by {suspend['by']}"
            self._cut_short = JobOutcome(JobState.SUSPENDED, SIGNAL_BASE + signal.SIGTERM, why)
            if not self._early.before_end(why, None):
                self._terminate(why)

    # -- start

    def _check_requests_early(self) -> None:
        self._check_requests()
        if self._cut_short is not None:
            raise TacoLaunchError(self._cut_short.reason)  # which ends the start

    def _launch(self) -> None:
        caller, self._spec = containers.inherited(records.read_caller(self._folder), self._spec)
        spec, environment = self._spec, caller.environment
        asked = (bool(missing_facts(spec)) or spec.container is not None) and launcher_of(spec).is_open_mpi
        known = JobFacts(
            root=os.geteuid() == 0,
            environment=relevant(environment),
            openmpi=facts.openmpi(spec.mpirun, environment) if asked else None,
        )
        placement, known = self._gang.allocate(known, self._note)
        placement = plan.processes(spec, placement)
        wrapper = agent_program.wrapper(self._folder.agent, plan.wrapper_op(spec), self._folder.path)
        launch = plan.plan(spec, self._id, placement, known, wrapper, str(self._folder.path), self._gang.port)
        for file in launch.files:
            Path(file.path).write_text(file.text, encoding="utf-8")
            Path(file.path).chmod(file.mode)
        self._events.add(
            state.PLACED,
            placement.why,
            np=placement.np,
            hosts=[share.host for share in placement.shares],
            line=mpirun.line(launch.tokens),
            warnings=launch.warnings,
            mark=self._id,
            attempt=self._attempt,
            shares=to_json(tuple(HostRanks(s.host, s.ranks, s.slots, s.choice) for s in placement.shares)),
        )
        undelivered = start.deliver_code(
            self._gang, spec, placement, self._events, self._note, self._check_requests_early
        )
        self._cut_short, self._lost_host = undelivered
        self._check_requests_early()
        suspended = state.suspension(self._record, self._attempt)
        self._ranks.place(placement, self._gang.here, self._attempt, launcher_of(spec), suspended)
        attempt = start.Attempt(spec, self._folder, self._id, self._attempt, placement, launch, self._gang.port)
        self._verification.begin(placement, launch, known)
        start.prepare(attempt, self._gang, self._ranks, caller.umask, self._limits.stall_after)
        if spec.tensorboard is not None:
            from taco_launch.agent.tensorboard import board  # noqa: PLC0415 - few jobs have one

            board.start(self._folder, self._agent)
        self._orphans.launcher_starts()
        self._launcher, told, roots = start.start(attempt, self._gang, self._ranks, caller)
        self._events.add(state.LAUNCHED, told, boot=self._gang.here.boot, roots=roots, agent=self._agent)

    # -- run

    def _follow(self) -> None:
        """Serve the job until its launcher has ended."""
        assert self._launcher is not None and self._launcher.stdout is not None  # noqa: PT018
        output = self._launcher.stdout
        os.set_blocking(output.fileno(), False)
        wakeup = wake_on_child()
        more = [output.fileno(), wakeup]
        begin = time.monotonic()
        for link in self._gang.remote:
            link.heard = begin
        # What an end may need, while the ranks start; later, the agent's file may be gone.
        importlib.import_module("taco_launch.agent.supervisor.failure_analysis")
        if self._record.started is not None:  # the time that it may run is that of all its attempts
            begin -= max(0.0, time.time() - self._record.started)
        while self._launcher.poll() is None:
            busy = self._ranks.step()
            ready = self._gang.pump(self._note, 0 if busy else TICK_MS, more)
            if not self._guarded():
                break
            if output.fileno() in ready and not drain(output, self._launcher_log):
                more = [wakeup]
            if wakeup in ready:
                os.read(wakeup, 4096)
            self._on_tick(begin)
        drain(output, self._launcher_log)

    def _guarded(self) -> bool:
        """Return whether every guard is there, or may come back; where one is not, that ends the job."""
        for link in self._gang.links:
            if isinstance(link, RemoteGuardConnection):
                limit = self._spec.policy.host_loss_timeout
                link.lost_after(limit, self._gang.looked)
                if told := link.absence(limit, self._gang.looked):
                    self._events.add(state.ABSENT, told)
            if link.gone and self._cut_short is None:
                self._cut_short = teardown.end_of(link, self._gang.here)
                self._lost_host = "" if link is self._gang.here else link.name
        return not any(link.gone for link in self._gang.links)

    def _on_tick(self, begin: float) -> None:
        now = time.monotonic()
        self._reap()
        self._events.flush()
        self._check_requests()
        why = "" if self._cut_short is not None else self._limits.exceeded(now - begin)
        self._end_early(JobOutcome(JobState.FAILED, JobEnd.OUT_OF_TIME, why) if why else None)
        self._early.step(now - begin)
        self._end_early(self._verification.step())
        if self._kill_at is None and self._early.is_over(now):
            self._terminate(self._early.why)
        if self._kill_at is None and self._cut_short is None:
            why, self._cut_short = start.failure(self._launcher)
            if why:
                self._terminate(why)
        if not self._ranks.all_ended:
            linger = LINGER_SECONDS if self._gang.remote else 0.0
            self._launcher_deadline = now + max(self._spec.policy.grace, linger)
        elif now > self._launcher_deadline and self._launcher is not None:
            self._launcher_hung = True
            self._launcher.kill()
        killed = self._kill_at is not None and now > self._kill_at
        if (self._kill_at is not None or self._early.is_sent) and not self._released:
            self._released = killed or all(rank in self._ranks.ended for rank in self._ranks.started)
            if self._released:
                self._gang.order(AllowExit())
        if killed and self._launcher is not None:
            self._forced = self._forced or teardown.forced(self._ranks.running, self._grace)
            self._launcher.kill()
        self._look_at_folder(now)

    def _look_at_folder(self, now: float) -> None:
        if now > self._look_at:
            self._look_at = now + HEARTBEAT_SECONDS
            gone = JobOutcome(JobState.CANCELLED, SIGNAL_BASE + signal.SIGTERM, "another process removed its folder")
            self._end_early(None if self._folder.path.is_dir() else gone)

    def _end_early(self, end: Optional[JobOutcome]) -> None:
        """End the job before its time, unless that is under way."""
        if end is not None and self._cut_short is None:
            self._cut_short = end
            self._terminate(end.reason)

    def _terminate(self, why: str) -> None:
        if self._launcher is None:
            return
        self._kill_at = time.monotonic() + self._grace
        self._events.add(state.STOPPING, f"{why}; ending it with TERM, then with KILL after {self._grace:g} s")
        self._gang.order(Terminate())
        if not self._ranks.started:
            self._launcher.terminate()

    def _note(self, link: GuardConnection, message: Message) -> None:
        """Take what a guard says; it may come twice."""
        if isinstance(message, GaveUp) and self._cut_short is None:
            reason = message.reason
            if link is not self._gang.here:
                reason = reason.replace("its guard", f"its guard on {link.name}", 1)
            self._cut_short = JobOutcome(JobState.FAILED, errors.FAILED, reason)
        else:
            self._verification.note(link.name, message)
            self._limits.note(link.name, message)
            self._early.note(message)
            self._ranks.note(link, message, blame=self._cut_short is None)

    # -- end

    def _finish(self) -> None:
        """End what is left, bring the logs together, record the end, or why and for what the job waits."""
        failures = finish.failures_so_far(self._ranks, self._launcher, lambda: self._gang.pump(self._note))
        left = self._end_processes()
        code = -signal.SIGKILL
        if self._launcher is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._launcher.wait(GUARD_SECONDS)
            assert self._launcher.stdout is not None
            drain(self._launcher.stdout, self._launcher_log)
        if self._launcher_hung:
            code = 0
        if code >= 0:
            # What the ranks said last may have come after the launcher's end. Where a signal ended that, it came of it.
            failures = len(self._ranks.failures)
        lost = self._ranks.close()
        notes = (
            f"{lost} bytes of its logs were lost on a full disk" if lost else "",
            left,
            self._forced,
            self._early.remark,
            # Open MPI 5.0 does not now and then: openpmix/prrte#1839
            f"{self._spec.launcher} did not end by itself" if self._launcher_hung else "",
        )
        if self._no_place is not None and self._cut_short is None:
            self._events.add(state.WAITING, state.FOR_SLOTS, hosts=self._no_place.reasons)
        elif self._cut_short is not None and self._cut_short.state is JobState.SUSPENDED:
            self._events.add(state.SUSPENDED, "; ".join(filter(None, (self._cut_short.reason, *notes))))
            self._folder.suspend.unlink(missing_ok=True)
        else:
            ranks, here = self._ranks, start.failed_on(self._launcher) or self._gang.here.name
            how = code, self._cut_short, self._lost_host, here, notes, self._limits.hung
            end = finish.AttemptEnd(ranks.np, ranks.started, tuple(ranks.failures[:failures]), *how)
            finish.record(self._folder, self._events, self._spec, end)
        while not self._events.flush():
            time.sleep(1)

    def _end_processes(self) -> str:
        """Have every guard end all that belongs to the job; do it without them where there is none. Say what is left."""
        stuck = teardown.end_all(
            self._gang,
            self._note,
            self._orphans.found(),
            whole=self._ranks.whole,
            meanwhile=self._meanwhile,
            begun=self._launcher is not None,
            timeout=self._spec.policy.host_loss_timeout,
            how={"leave": self._leaves(), "listener": self._cut_short is None and not self._ranks.all_well},
        )
        left = [self._left_here()]
        told = [(link, link.answers.ended) for link in self._gang.remote]
        ends = [(link.name, ended) for link, ended in told if ended is not None]
        left += [recovery.describe_leftovers(ended.left, ended.unknown, host) for host, ended in ends]
        left += self._clear([link for link, ended in told if ended is None])
        left += [f"the logs of {name} did not arrive in full" for name in stuck]
        if self._cut_short is None and not self._ranks.all_well:
            left += [teardown.listener(link, self._gang.port) for link in self._gang.links]
        clear = self._ranks.np == 0 or self._spec.policy.clean_up is CleanUp.ALL
        unsaved = [link for link in self._gang.remote if not self._ranks.whole(link.name)]
        self._gang.dismiss(unsaved, self._note, remove=False)
        self._gang.dismiss(self._gang.remote, self._note, remove=clear)
        return "; ".join(filter(None, left))

    def _leaves(self) -> bool:
        """Return whether what the ranks have left running stays: where that is asked, and all of them ended well."""
        ended = self._launcher is not None and self._launcher.poll() == 0 and self._cut_short is None
        return ended and self._ranks.all_well and self._spec.policy.clean_up is CleanUp.NONE

    def _left_here(self) -> str:
        told = self._gang.here.answers.ended
        if told is None:
            self._guard_process.kill()
        if told is None or not self._leaves():
            told = teardown.end_here(self._id, told, self._orphans.found, self._ranks.roots)
        return recovery.describe_leftovers(told.left, told.unknown)

    def _clear(self, links: Sequence[RemoteGuardConnection]) -> List[str]:
        """End the job on hosts whose guards are gone, as far as they can be reached."""
        if not links or self._launcher is None:
            return []
        if self._cut_short is None:
            self._cut_short = teardown.end_of(links[0], self._gang.here)
            self._lost_host = links[0].name
        return teardown.clear(links, self._agent, self._folder, self._id)

    def _meanwhile(self, waits_for: str) -> None:
        if waits_for:
            self._events.add(state.STOPPING, waits_for)
        self._reap()
        self._ranks.step()

    def _reap(self) -> None:
        self._orphans.reap(None if self._launcher is None else self._launcher.pid)
