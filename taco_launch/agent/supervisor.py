"""`agent run`: the supervisor of one job, on the head: places it, starts mpirun, follows it, ends it, records it all.

It holds the job's lock for life (handed over by `submit`), so that everybody can tell whether a job has a supervisor.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from taco_launch import state
from taco_launch.agent import disband, facts, logs, processes, program, records, recovery
from taco_launch.agent.folders import JobFolder
from taco_launch.agent.gang import GUARD_SECONDS, HEARTBEAT_SECONDS, TICK_MS, Gang
from taco_launch.agent.launcher import IGNORED, drain, spawn, wake_on_child
from taco_launch.agent.links import Link, RemoteLink
from taco_launch.agent.streams import Keeper
from taco_launch.agent.why import blamed, explained
from taco_launch.errors import DEADLINE, FAILED, NO_JOB, SIGNAL_BASE, PlacementError, TacoLaunchError, UnusableError
from taco_launch.launch import mpirun
from taco_launch.launch.env import launch_agent, local_env, mark, relevant
from taco_launch.launch.needs import needs
from taco_launch.model.codec import to_json
from taco_launch.model.job_facts import JobFacts
from taco_launch.model.jobs import Finding, JobSpec, JobState, RankEnd
from taco_launch.model.plans import Placement

# Of a thousand ranks that fail together, the events of the first tell enough.
_MOST_FAILURES = 64
# So long mpirun may take to end its daemons on other hosts when all ranks have ended.
_LINGER_SECONDS = 10.0


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
        self._guard_process = guard_process
        self._gang = Gang(folder, agent, self._spec, self._id, lambda: guard_process.poll() is None, self._hear_early)
        self._keepers: Dict[str, Keeper] = {}
        self._mpirun: Optional[subprocess.Popen[bytes]] = None
        self._np = 0
        self._started: Dict[int, str] = {}
        self._roots: List[List[int]] = []
        self._ended: Dict[int, int] = {}
        self._failures: List[RankEnd] = []
        self._lost_bytes = 0
        self._cut_short: Optional[Tuple[JobState, int, str]] = None
        self._kill_at: Optional[float] = None
        self._released = False
        self._look_at = 0.0
        self._term = False
        self._over_at = 0.0
        self._lingered = False

    def run(self) -> None:
        """Take the job from its folder to its end; whatever goes wrong is the job's recorded end."""
        try:
            self._launch()
            self._follow()
        except (PlacementError, UnusableError) as error:
            self._cut_short = (JobState.FAILED, error.exit_code, f"{error.message}\nhint: {error.hint}")
        except TacoLaunchError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            self._cut_short = self._cut_short or (JobState.FAILED, NO_JOB, f"{error.message}{hint}")
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

    def _hear(self) -> None:
        """Take a stop that somebody asks for."""
        request = records.read_json(self._folder.stop)
        if request is not None:
            self._stop(request["by"], int(request["signal"]), request.get("grace"))
        if self._term:
            self._stop("a TERM to its supervisor", signal.SIGTERM)

    # -- start

    def _hear_early(self) -> None:
        self._hear()
        if self._cut_short is not None:
            raise TacoLaunchError(self._cut_short[2])  # which ends the start

    def _launch(self) -> None:
        spec = self._spec
        caller = records.read_json(self._folder.caller) or {}
        environment = caller["environment"]
        asked = bool(needs(spec)) or spec.container is not None
        known = JobFacts(
            root=os.geteuid() == 0,
            environment=relevant(environment),
            openmpi=facts.openmpi(spec.mpirun, environment) if asked else None,
        )
        placement, known = self._gang.assemble(known, self._note)
        self._np = placement.np
        wrapper = program.wrapper(self._folder, "rank")
        launch = mpirun.plan(spec, self._id, placement, known, wrapper, str(self._folder.path))
        for file in launch.files:
            Path(file.path).write_text(file.text, encoding="utf-8")
        hosts = [share.host for share in placement.shares]
        told = {"hosts": hosts, "line": mpirun.line(launch.tokens), "warnings": launch.warnings}
        self._events.add(state.PLACED, placement.why, np=self._np, **told)
        self._prepare(placement, dict(launch.host_env), caller["umask"])
        self._label(placement)
        environment = {**environment, **dict(launch.env)}
        if self._gang.remote:
            environment.update(launch_agent(program.wrapper(self._folder, "daemon")))
        self._mpirun = spawn(launch.executed, spec.cwd, environment, caller["umask"])
        entry = processes.identify(self._mpirun.pid)
        if entry is not None:
            self._gang.here.order("launched", root=[entry.pid, entry.start])
            self._events.add(
                state.LAUNCHED,
                f"mpirun is process {entry.pid}",
                boot=self._gang.here.boot,
                roots=[[entry.pid, entry.start]],
                agent=self._agent,
            )

    def _prepare(self, placement: Placement, host_env: Mapping[str, Sequence[Tuple[str, str]]], umask: int) -> None:
        """Have every guard know what its ranks are given."""
        limit = self._spec.policy.log_max_bytes
        port = int(self._gang.link(placement.shares[0].host).answers["facts"]["port"])
        for link in self._gang.links:
            shared = {**dict(mark(self._spec.name, self._id)), **local_env(self._spec, placement, port)}
            for name, value in host_env.get(link.name, ()):
                shared.setdefault(name, value)
            link.order("prepare", welcome={"environment": shared, "log_max_bytes": limit, "umask": umask})
            if isinstance(link, RemoteLink):
                self._keepers[link.name] = Keeper(self._folder, limit, self._finished)

    def _label(self, placement: Placement) -> None:
        """Name the streams of the merged log."""
        width = max(len(f"{share.host}/{self._np - 1}") for share in placement.shares)
        names = [share.host for share in placement.shares for _rank in range(share.ranks)]
        for rank, host in enumerate(names):
            self._merge.add(self._folder.rank(rank), f"{host}/{rank}".ljust(width))
        self._merge.add(self._folder.launcher, f"{self._gang.here.name}/mpirun")

    def _finished(self, rank: int) -> None:
        self._merge.finish(self._folder.rank(rank))

    # -- run

    def _follow(self) -> None:
        """Serve the job until mpirun has ended."""
        assert self._mpirun is not None
        assert self._mpirun.stdout is not None
        output = self._mpirun.stdout
        os.set_blocking(output.fileno(), False)
        wakeup = wake_on_child()
        more = [output.fileno(), wakeup]
        begin = time.monotonic()
        for link in self._gang.remote:
            link.heard = begin
        while self._mpirun.poll() is None:
            busy = self._merge.step()
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
        """Say whether every guard is there, or may come back; where one is not, that ends the job."""
        for link in self._gang.links:
            if isinstance(link, RemoteLink):
                link.lost_after(self._spec.policy.host_loss_timeout, self._gang.looked)
            if link.gone and self._cut_short is None:
                self._cut_short = disband.end_of(link, self._gang.here)
        return not any(link.gone for link in self._gang.links)

    def _on_tick(self, begin: float) -> None:
        now = time.monotonic()
        self._reap_orphans()
        self._events.flush()
        self._hear()
        timeout = self._spec.policy.timeout
        if timeout is not None and now - begin > timeout and self._cut_short is None:
            why = f"ran longer than the {timeout:g} s that it was given"
            self._cut_short = (JobState.FAILED, DEADLINE, why)
            self._terminate(why)
        if len(self._ended) < self._np:
            linger = _LINGER_SECONDS if self._gang.remote else 0.0
            self._over_at = now + max(self._spec.policy.grace, linger)
        elif now > self._over_at and self._mpirun is not None:
            self._lingered = True
            self._mpirun.kill()
        if self._kill_at is not None and self._mpirun is not None:
            over = all(rank in self._ended for rank in self._started)
            if (over or now > self._kill_at) and not self._released:
                self._released = True
                self._gang.order("release")
            if now > self._kill_at:
                self._mpirun.kill()
        self._look_at_folder(now)

    def _look_at_folder(self, now: float) -> None:
        if now > self._look_at:
            self._look_at = now + HEARTBEAT_SECONDS
            if not self._folder.path.is_dir() and self._cut_short is None:
                why = "somebody removed its folder"
                self._cut_short = (JobState.CANCELLED, SIGNAL_BASE + signal.SIGTERM, why)
                self._terminate(why)

    def _terminate(self, why: str) -> None:
        if self._mpirun is None:
            return
        grace = self._spec.policy.grace
        self._kill_at = time.monotonic() + grace
        self._events.add(state.STOPPING, f"{why}; ending it by TERM, then KILL after {grace:g} s")
        self._gang.order("terminate")
        if not self._started:
            self._mpirun.terminate()

    def _note(self, link: Link, message: Dict[str, Any]) -> None:
        """Take what a guard says; it may come twice."""
        op = message["op"]
        if op == "started" and message["rank"] not in self._started:
            self._note_start(link, message)
        elif op == "exit" and message["rank"] not in self._ended:
            self._note_exit(link, message)
        elif op == "log" and isinstance(link, RemoteLink):
            rank, offset = self._keepers[link.name].take(message)
            link.post({"op": "had", "rank": rank, "offset": offset})
            link.offsets[rank] = offset
        elif op == "ended":
            for rank, size in message["sizes"].items():
                self._keepers[link.name].ends_at(int(rank), size)
        elif op == "gave-up" and self._cut_short is None:
            reason = message["reason"]
            if link is not self._gang.here:
                reason = reason.replace("its guard", f"its guard on {link.name}", 1)
            self._cut_short = (JobState.FAILED, FAILED, reason)

    def _note_start(self, link: Link, message: Dict[str, Any]) -> None:
        self._started[message["rank"]] = link.name
        if link is self._gang.here:
            self._roots += message["roots"]
        if len(self._started) == self._np:
            self._events.add(state.RUNNING, "every rank has started", boot=self._gang.here.boot, roots=self._roots)

    def _note_exit(self, link: Link, message: Dict[str, Any]) -> None:
        rank, code, reason = message["rank"], message["exit_code"], message["reason"]
        if code is None:
            code, reason = SIGNAL_BASE + signal.SIGKILL, "was killed, and its wrapper with it"
        self._ended[rank] = code
        if link.name in self._keepers:
            self._keepers[link.name].ends_at(rank, message["size"])
        else:
            self._finished(rank)
        self._lost_bytes += message.get("lost", 0)
        if code and self._cut_short is None:
            self._failures.append(RankEnd(rank, link.name, code, reason))
            if len(self._failures) <= _MOST_FAILURES:
                told = f"rank {rank} on {link.name} {reason or state.ending(code)}"
                self._events.add(state.RANK_FAILED, told, rank=rank, host=link.name, exit_code=code)

    # -- end

    def _finish(self) -> None:
        """End what is left, bring the logs together, record the end."""
        failures = len(self._failures)
        left = self._end_processes()
        code = -signal.SIGKILL
        if self._mpirun is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._mpirun.wait(GUARD_SECONDS)
            assert self._mpirun.stdout is not None
            drain(self._mpirun.stdout, self._launcher_log)
        if self._lingered:
            code = 0
        if code >= 0:
            # What the ranks said last may have come after mpirun's end. Where a signal ended mpirun, it came of that.
            failures = len(self._failures)
        failure = state.culprit(blamed(self._folder, self._failures[:failures]), code)
        job_state, code, reason = state.verdict(self._np, len(self._started), failure, code, self._cut_short)
        findings: Tuple[Finding, ...] = ()
        if job_state is JobState.FAILED:
            where = self._started.get(0, self._gang.here.name)
            ended_itself = self._cut_short is None
            reason, findings = explained(
                self._folder, reason, failure, len(self._started), where, ended_itself=ended_itself
            )
        for stem in (self._folder.launcher, *map(self._folder.rank, range(self._np))):
            self._merge.finish(stem)
        while self._merge.step():
            pass
        lost = self._lost_bytes + self._merge.close() + sum(keeper.close() for keeper in self._keepers.values())
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

    def _end_processes(self) -> str:
        """Have every guard end all that belongs to the job; do it without them where there is none. Say what is left."""
        stuck = disband.end_all(
            self._gang,
            self._note,
            self._orphans(),
            whole=lambda name: name not in self._keepers or self._keepers[name].whole(),
            meanwhile=self._meanwhile,
            begun=self._mpirun is not None,
            timeout=self._spec.policy.host_loss_timeout,
        )
        left = [self._left_here()]
        remote = self._gang.remote
        left += [recovery.left(link.answers["ended"], link.name) for link in remote if "ended" in link.answers]
        left += self._clear([link for link in remote if "ended" not in link.answers])
        left += [f"the logs of {name} are not all here" for name in stuck]
        self._gang.dismiss(self._gang.remote, self._note, remove=self._np == 0)
        return "; ".join(filter(None, left))

    def _orphans(self) -> List[List[int]]:
        """Give those of an mpirun that has ended: they are our children now, and all but our own are the job's."""
        found = [entry for entry in processes.children(os.getpid()) if entry.pid not in self._own()]
        return [[entry.pid, entry.start] for entry in found]

    def _left_here(self) -> str:
        if "ended" in self._gang.here.answers:
            return recovery.left(self._gang.here.answers["ended"])
        self._guard_process.kill()
        known = [(int(pid), int(start)) for pid, start in (*self._orphans(), *self._roots)]
        left = processes.end(self._id, known)
        return recovery.left({"left": [entry.pid for entry in left.found], "unknown": left.unknown})

    def _clear(self, links: Sequence[RemoteLink]) -> List[str]:
        """End the job on hosts whose guards are gone, as far as they can be reached."""
        if not links or self._mpirun is None:
            return []
        if self._cut_short is None:
            self._cut_short = disband.end_of(links[0], self._gang.here)
        return recovery.clear([link.name for link in links], self._agent, self._folder, self._id)

    def _meanwhile(self) -> None:
        self._reap_orphans()
        self._merge.step()

    def _own(self) -> List[Optional[int]]:
        """Give the processes that are ours alone."""
        return [self._guard_process.pid, *(link.pid() for link in self._gang.remote)]

    def _reap_orphans(self) -> None:
        """Collect orphans that came to us, leaving our own children to their Popen."""
        self._guard_process.poll()
        own = [*self._own(), None if self._mpirun is None else self._mpirun.pid]
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)
