"""The second phase of an attempt: serve its ranks and guards until the launcher has ended."""

import importlib
import os
import signal
import time
from typing import Optional

from taco_launch.agent.gang.guard_pool import HEARTBEAT_SECONDS, TICK_MS
from taco_launch.agent.host.launcher_process import drain, wake_on_child
from taco_launch.agent.supervisor import start
from taco_launch.agent.supervisor.deadlines import LINGER_SECONDS
from taco_launch.agent.supervisor.supervised_attempt import SupervisedAttempt
from taco_launch.core.errors import SIGNAL_BASE, JobEnd
from taco_launch.core.lifecycle import state
from taco_launch.core.lifecycle.state import JobOutcome
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.rank_messages import AllowExit

# Twice a second it is looked at how long guards have been silent: with a thousand of them, more would be felt.
_SILENCE_SECONDS = 0.5


class Running:
    """Follows an attempt whose launcher runs."""

    def __init__(self, attempt: SupervisedAttempt) -> None:
        """Do nothing yet."""
        self._attempt = attempt
        # After this the launcher is killed, where all ranks have ended; None before the first look at them.
        self._launcher_deadline: Optional[float] = None
        # Whether the ranks may exit: their wrappers hold an end back during a stop, until all have ended.
        self._released = False
        # When guards are next asked how long they have been silent.
        self._silence_at = 0.0
        # When the job's folder is looked at again.
        self._look_at = 0.0

    def follow(self) -> None:
        """Serve the job until its launcher has ended."""
        attempt = self._attempt
        assert attempt.launcher is not None and attempt.launcher.stdout is not None  # noqa: PT018
        output = attempt.launcher.stdout
        os.set_blocking(output.fileno(), False)
        wakeup = wake_on_child()
        more = [output.fileno(), wakeup]
        begin = time.monotonic()
        for link in attempt.gang.links:
            link.heard = begin
        # What an end may need, while the ranks start; later, the agent's file may be gone.
        importlib.import_module("taco_launch.agent.supervisor.failure_analysis")
        if attempt.record.started is not None:  # the time that it may run is that of all its attempts
            begin -= max(0.0, time.time() - attempt.record.started)
        while attempt.launcher.poll() is None:
            busy = attempt.ranks.step()
            ready = attempt.gang.pump(attempt.note, 0 if busy else TICK_MS, more)
            if not self._guarded():
                break
            if output.fileno() in ready and not drain(output, attempt.launcher_log):
                more = [wakeup]
            if wakeup in ready:
                os.read(wakeup, 4096)
            self._on_tick(begin)
            if attempt.world is not None:
                attempt.world.step(time.monotonic(), lambda: self._serve(begin))
        drain(output, attempt.launcher_log)

    def _serve(self, begin: float) -> None:
        """Look after the ranks while other hosts are waited for. Raises as `check_requests_early`."""
        self._attempt.ranks.step()
        if self._guarded():
            self._on_tick(begin)
        self._attempt.check_requests_early()

    def _guarded(self) -> bool:
        """Return whether every guard is there, or may come back; where one is not, that ends the job."""
        attempt = self._attempt
        limit, looked = attempt.spec.policy.host_loss_timeout, attempt.gang.looked
        late = looked > self._silence_at
        if late:
            self._silence_at = looked + min(_SILENCE_SECONDS, limit / 5)
        for link in [*attempt.gang.links]:
            if late:
                link.lost_after(limit, looked)
                if told := link.absence(limit, looked):
                    attempt.events.add(state.ABSENT, told)
            if link.gone and not (attempt.world is not None and attempt.world.loses(link)):
                attempt.lose(link)
                return False
        return True

    def _on_tick(self, begin: float) -> None:
        attempt = self._attempt
        now = time.monotonic()
        attempt.reap()
        attempt.events.flush()
        attempt.check_requests()
        attempt.slow_start.step(attempt.ranks.missing)
        attempt.some_ended.step(now)
        why = "" if attempt.cut_short is not None else attempt.limits.exceeded(now - begin)
        attempt.end_early(JobOutcome(JobState.FAILED, JobEnd.OUT_OF_TIME, why) if why else None)
        attempt.end_early(attempt.divergence.step())
        attempt.early.step(now - begin)
        attempt.end_early(attempt.verification.step())
        if attempt.kill_at is None and attempt.early.is_over(now):
            attempt.terminate(attempt.early.why)
        settled = attempt.world is None or attempt.world.settle_failures()
        if settled and attempt.kill_at is None and attempt.cut_short is None:
            why, attempt.cut_short = start.failure(attempt.launcher)
            if why:
                attempt.terminate(why)
        if not attempt.ranks.all_ended or self._launcher_deadline is None:
            linger = LINGER_SECONDS if attempt.gang.remote else 0.0
            self._launcher_deadline = now + max(attempt.spec.policy.grace, linger)
        elif now > self._launcher_deadline and attempt.launcher is not None:
            attempt.launcher_hung = True
            attempt.launcher.kill()
        killed = attempt.kill_at is not None and now > attempt.kill_at
        if (attempt.kill_at is not None or attempt.early.is_sent) and not self._released:
            self._released = killed or all(rank in attempt.ranks.ended for rank in attempt.ranks.started)
            if self._released:
                attempt.gang.order(AllowExit())
        if killed and attempt.launcher is not None:
            attempt.forced = attempt.forced or attempt.ranks.running
            attempt.launcher.kill()
        if attempt.usage is not None:
            attempt.usage.step(now)
        self._look_at_folder(now)

    def _look_at_folder(self, now: float) -> None:
        attempt = self._attempt
        if now > self._look_at:
            self._look_at = now + HEARTBEAT_SECONDS
            gone = JobOutcome(JobState.CANCELLED, SIGNAL_BASE + signal.SIGTERM, "another process removed its folder")
            attempt.end_early(None if attempt.folder.path.is_dir() else gone)
