"""`agent run`: the supervisor of one job, on the head: places it, starts mpirun, follows it, ends it, records it all.

It holds the job's lock for life (handed over by `submit`), so that everybody can tell whether a job has a supervisor.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from taco_launch import state
from taco_launch.agent import facts, logs, processes, program, records
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.launcher import IGNORED, drain, spawn
from taco_launch.agent.protocol import Line
from taco_launch.agent.why import why
from taco_launch.diagnose import is_consequence
from taco_launch.errors import CANNOT_PLACE, DEADLINE, FAILED, NO_JOB, SIGNAL_BASE, HostError, PlacementError
from taco_launch.launch import mpirun
from taco_launch.launch.env import local_env, relevant
from taco_launch.launch.needs import free_slots, needs, on_host
from taco_launch.model.codec import to_json
from taco_launch.model.job_facts import JobFacts
from taco_launch.model.jobs import Finding, JobSpec, JobState, RankEnd
from taco_launch.placement import place

_TICK_MS = 50
_HEARTBEAT_SECONDS = 5.0
_MOST_SHOWN = 200
# Of a thousand ranks that fail together, the events of the first tell enough.
_MOST_FAILURES = 64
# To start, and to answer: counting GPUs and ending processes take at most 30 and 10 seconds.
_GUARD_SECONDS = 45.0


def main(folder: JobFolder, agent: str, guard_process: "subprocess.Popen[bytes]") -> int:
    """Supervise the job to its end; `guard_process` is this host's guard, started already."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    supervisor = _Supervisor(folder, agent, guard_process)
    signal.signal(signal.SIGTERM, supervisor.on_term)
    supervisor.run()
    return 0


class _Supervisor:
    def __init__(self, folder: JobFolder, agent: str, guard_process: "subprocess.Popen[bytes]") -> None:
        self._folder = folder
        self._agent = agent
        self._spec: JobSpec = records.read_spec(folder)
        self._events = records.Events(folder)
        self._id = records.record(folder).id
        limit = self._spec.policy.log_max_bytes
        self._merge = logs.Merge(folder.merged, limit)
        self._launcher_log = logs.Writer(folder.launcher, limit)
        self._guard: Optional[Line] = None
        self._guard_process = guard_process
        self._mpirun: Optional[subprocess.Popen[bytes]] = None
        self._np = 0
        self._started: Dict[int, List[List[int]]] = {}
        self._ended: Dict[int, int] = {}
        self._failures: List[RankEnd] = []
        self._lost_bytes = 0
        self._cut_short: Optional[Tuple[JobState, int, str]] = None
        self._kill_at: Optional[float] = None
        self._beat_at = 0.0
        self._boot = ""
        self._term = False
        self._over_at = 0.0
        self._lingered = False

    def run(self) -> None:
        """Take the job from its folder to its end; whatever goes wrong is the job's recorded end."""
        try:
            guard = self._reach_guard()
            self._launch(guard)
            self._follow()
        except PlacementError as error:
            self._cut_short = (JobState.FAILED, CANNOT_PLACE, f"{error.message}\nhint: {error.hint}")
        except HostError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            self._cut_short = (JobState.FAILED, NO_JOB, f"{error.message}{hint}")
        self._finish()

    def on_term(self, _number: int, _frame: object) -> None:
        """Note a TERM, which may have come in the middle of anything."""
        self._term = True

    def _stop(self, by: str, number: int, grace: Optional[float] = None) -> None:
        """End the job before its time: TERM now, KILL after the grace time. A second call can only shorten it."""
        if self._cut_short is None:
            self._cut_short = (JobState.CANCELLED, SIGNAL_BASE + number, f"stopped by {by}")
            self._terminate(f"stopped by {by}")
        if grace is not None and self._kill_at is not None:
            self._kill_at = min(self._kill_at, time.monotonic() + grace)

    # -- start

    def _reach_guard(self) -> Line:
        deadline = time.monotonic() + _GUARD_SECONDS
        while time.monotonic() < deadline and self._guard_process.poll() is None:
            try:
                self._guard = Line(self._folder.connect())
            except OSError:
                time.sleep(0.002)
            else:
                return self._guard
        raise HostError(f"the guard did not start on {socket.gethostname()}: see {self._folder.debug}")

    def _launch(self, guard: Line) -> None:
        spec = self._spec
        caller = records.read_json(self._folder.caller) or {}
        wanted = needs(spec)
        guard.send(
            {
                "op": "supervise",
                "job_id": self._id,
                "host_loss_timeout": spec.policy.host_loss_timeout,
                "look": bool(wanted),
                "count_slots": any(host.slots is None for host in spec.hosts),
                "ports": spec.network.port_range,
            }
        )
        known = JobFacts(
            root=os.geteuid() == 0,
            environment=relevant(caller["environment"]),
            openmpi=facts.openmpi(spec.mpirun, caller["environment"]) if wanted else None,
        )
        found = self._ask(guard, "facts")
        if "error" in found:
            raise HostError(found["error"])
        self._boot = found["boot"]
        known = on_host(known, spec, found["host"])
        placement = place(spec.np, free_slots(spec, known))
        self._np = placement.np
        wrapper = program.argv(self._agent, "rank", str(self._folder.path), "--")
        launch = mpirun.plan(spec, self._id, placement, known, wrapper, str(self._folder.path))
        for file in launch.files:
            Path(file.path).write_text(file.text, encoding="utf-8")
        hosts = [share.host for share in placement.shares]
        told = {"hosts": hosts, "line": mpirun.line(launch.tokens), "warnings": launch.warnings}
        self._events.add(state.PLACED, placement.why, np=self._np, **told)
        caller = records.read_json(self._folder.caller) or {}
        shared = local_env(spec, placement, found["port"])
        for name, value in dict(launch.host_env).get(hosts[0], ()):  # all ranks run on one host in this version
            shared.setdefault(name, value)
        welcome = {"environment": shared, "log_max_bytes": spec.policy.log_max_bytes}
        guard.send({"op": "prepare", "welcome": welcome})
        self._label(hosts)
        environment = {**caller["environment"], **dict(launch.env)}
        self._mpirun = spawn(launch.executed, spec.cwd, environment, caller["umask"])
        entry = processes.identify(self._mpirun.pid)
        if entry is not None:
            guard.send({"op": "launched", "root": [entry.pid, entry.start]})
            self._events.add(
                state.LAUNCHED, f"mpirun is process {entry.pid}", boot=self._boot, roots=[[entry.pid, entry.start]]
            )

    def _label(self, hosts: Sequence[str]) -> None:
        """Name the streams of the merged log. All ranks run on one host in this version of the agent."""
        host = hosts[0]
        width = len(f"{host}/{self._np - 1}")
        for rank in range(self._np):
            self._merge.add(self._folder.rank(rank), f"{host}/{rank}".ljust(width))
        self._merge.add(self._folder.launcher, f"{host}/mpirun")

    # -- run

    def _follow(self) -> None:
        """Serve the job until mpirun has ended."""
        assert self._mpirun is not None
        assert self._mpirun.stdout is not None
        assert self._guard is not None
        output = self._mpirun.stdout
        os.set_blocking(output.fileno(), False)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._guard, select.POLLIN)
        poll.register(_wake_on_child(), select.POLLIN)
        begin = time.monotonic()
        while self._mpirun.poll() is None:
            busy = self._merge.step()
            for descriptor, _event in poll.poll(0 if busy else _TICK_MS):
                if descriptor == output.fileno():
                    if not drain(output, self._launcher_log):
                        poll.unregister(output)
                elif descriptor == self._guard.fileno():
                    if not self._hear():
                        return
                else:
                    os.read(descriptor, 4096)
            self._on_tick(begin)
        drain(output, self._launcher_log)

    def _on_tick(self, begin: float) -> None:
        now = time.monotonic()
        self._reap_orphans()
        self._events.flush()
        request = records.read_json(self._folder.stop)
        if request is not None:
            self._stop(request["by"], int(request["signal"]), request.get("grace"))
        if self._term:
            self._stop("a TERM to its supervisor", signal.SIGTERM)
        timeout = self._spec.policy.timeout
        if timeout is not None and now - begin > timeout and self._cut_short is None:
            why = f"ran longer than the {timeout:g} s that it was given"
            self._cut_short = (JobState.FAILED, DEADLINE, why)
            self._terminate(why)
        if len(self._ended) < self._np:
            self._over_at = now + self._spec.policy.grace
        elif now > self._over_at and self._mpirun is not None:
            self._lingered = True
            self._mpirun.kill()
        if self._kill_at is not None and self._mpirun is not None:
            over = all(rank in self._ended for rank in self._started)
            if self._guard is not None and (over or now > self._kill_at):
                self._guard.send({"op": "release"})
            if now > self._kill_at:
                self._mpirun.kill()
        if now > self._beat_at and self._guard is not None:
            self._beat_at = now + _HEARTBEAT_SECONDS
            self._guard.send({"op": "beat"})
            if not self._folder.path.is_dir() and self._cut_short is None:
                why = "somebody removed its folder"
                self._cut_short = (JobState.CANCELLED, SIGNAL_BASE + signal.SIGTERM, why)
                self._terminate(why)

    def _terminate(self, why: str) -> None:
        grace = self._spec.policy.grace
        self._kill_at = time.monotonic() + grace
        self._events.add(state.STOPPING, f"{why}; ending it by TERM, then KILL after {grace:g} s")
        if self._guard is not None:
            self._guard.send({"op": "terminate"})
        if not self._started and self._mpirun is not None:
            self._mpirun.terminate()

    def _hear(self) -> bool:
        """Take what the guard says; False when the guard is gone."""
        assert self._guard is not None
        messages = self._guard.receive()
        for message in messages or ():
            self._note(message)
        if messages is None:
            self._guard = None
            if self._cut_short is None:
                self._cut_short = (JobState.FAILED, FAILED, "its guard was killed")
        return messages is not None

    def _note(self, message: Dict[str, Any]) -> None:
        if message["op"] == "started":
            self._started[message["rank"]] = message["roots"]
            if len(self._started) == self._np:
                roots = [root for entry in self._started.values() for root in entry]
                self._events.add(state.RUNNING, "every rank has started", boot=self._boot, roots=roots)
        elif message["op"] == "gave-up" and self._cut_short is None:
            self._cut_short = (JobState.FAILED, FAILED, message["reason"])
        elif message["op"] == "exit":
            rank, code = message["rank"], message["exit_code"]
            reason = message["reason"]
            if code is None:
                code, reason = SIGNAL_BASE + signal.SIGKILL, "was killed, and its wrapper with it"
            self._ended[rank] = code
            self._merge.finish(self._folder.rank(rank))
            self._lost_bytes += message.get("lost", 0)
            if code and self._cut_short is None:
                host = self._spec.hosts[0].name
                consequence = is_consequence(logs.last_words(self._folder.rank(rank)))
                self._failures.append(RankEnd(rank, host, code, reason, consequence))
                if len(self._failures) <= _MOST_FAILURES:
                    told = f"rank {rank} on {host} {reason or state.ending(code)}"
                    self._events.add(state.RANK_FAILED, told, rank=rank, host=host, exit_code=code)

    # -- end

    def _finish(self) -> None:
        """End what is left, bring the logs together, record the end."""
        failures = tuple(self._failures)
        left = self._end_processes()
        code = -signal.SIGKILL
        if self._mpirun is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._mpirun.wait(_GUARD_SECONDS)
            assert self._mpirun.stdout is not None
            drain(self._mpirun.stdout, self._launcher_log)
        if self._lingered:
            code = 0
        if code >= 0:
            # What the ranks said last may have come after mpirun's end. Where a signal ended mpirun, it came of that.
            failures = tuple(self._failures)
        failure = state.culprit(failures, code)
        job_state, code, reason = state.verdict(self._np, len(self._started), failure, code, self._cut_short)
        findings: Tuple[Finding, ...] = ()
        if job_state is JobState.FAILED:
            reason, findings = self._explained(reason, failure)
        for stem in (self._folder.launcher, *map(self._folder.rank, range(self._np))):
            self._merge.finish(stem)
        while self._merge.step():
            pass
        lost = self._lost_bytes + self._merge.close()
        notes = (
            f"{lost} bytes of its logs were lost on a full disk" if lost else "",
            left,
            "mpirun did not end by itself" if self._lingered else "",  # 5.0 now and then: openpmix/prrte#1839
        )
        reason = "; ".join(filter(None, (reason, *notes)))
        self._folder.caller.unlink(missing_ok=True)
        data: Dict[str, Any] = {"state": job_state.value, "exit_code": code}
        if failure and not self._cut_short:
            data.update(rank=failure.rank, host=failure.host)
        if findings:
            data["findings"] = to_json(findings)
        self._events.add(state.ENDED, reason, **data)
        while not self._events.flush():
            time.sleep(1)

    def _explained(self, reason: str, failure: Optional[RankEnd]) -> Tuple[str, Tuple[Finding, ...]]:
        """Look into the logs of a job that failed; give its reason with what they tell, and the known texts in them."""
        # Of a job that ran out of its time no rank is to blame; what the ranks wait for, Horovod tells by rank 0.
        rank, host = (failure.rank, failure.host) if failure else (0, self._spec.hosts[0].name)
        ended_itself = self._cut_short is None
        findings = why(self._folder, rank, host, ended_itself=ended_itself)
        if not ended_itself:
            return reason, findings
        words = logs.last_words(self._folder.rank(rank)).rstrip().rpartition("\n")[2].strip() if failure else ""
        return state.explained(reason, len(self._started), findings, words[:_MOST_SHOWN]), findings

    def _end_processes(self) -> str:
        """Have the guard end all that belongs to the job; do it here when there is no guard. Say what is left."""
        # Orphans of an mpirun that has ended are our children now: all of them but the guard are the job's.
        orphans = [entry for entry in processes.children(os.getpid()) if entry.pid != self._guard_process.pid]
        roots = [(entry.pid, entry.start) for entry in orphans]
        if self._guard is not None:
            # Where it is gone already, its last words are read all the same.
            self._guard.send({"op": "end", "roots": roots})
            answer = self._ask(self._guard, "ended", missing_ok=True)
            if answer:
                return _left(answer["left"], answer["unknown"])
        self._guard_process.kill()
        roots += [(int(pid), int(start)) for entry in self._started.values() for pid, start in entry]
        left = processes.end(self._id, roots)
        return _left([entry.pid for entry in left.found], left.unknown)

    def _ask(self, guard: Line, op: str, *, missing_ok: bool = False) -> Dict[str, Any]:
        """Wait for the guard's answer `op`, noting what it says before."""
        deadline = time.monotonic() + _GUARD_SECONDS
        poll = select.poll()
        poll.register(guard, select.POLLIN)
        while time.monotonic() < deadline:
            if not poll.poll(_TICK_MS):
                continue
            messages = guard.receive()
            if messages is None:
                break
            for message in messages:
                if message["op"] == op:
                    return message
                self._note(message)
        if missing_ok:
            return {}
        raise HostError(f"the guard on {socket.gethostname()} gave no {op}: see {self._folder.debug}")

    def _reap_orphans(self) -> None:
        """Collect orphans that came to us, leaving our own children to their Popen."""
        self._guard_process.poll()
        own = {self._guard_process.pid, *([] if self._mpirun is None else [self._mpirun.pid])}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)


def _wake_on_child() -> int:
    """Give a descriptor that can be read when a child has ended."""
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wakeup


def _left(pids: Sequence[int], unknown: str) -> str:
    words = []
    if pids:
        words.append(f"still alive: {', '.join(map(str, pids))}")
    if unknown:
        words.append(f"not proven gone: {unknown}")
    return "; ".join(words)
