"""`agent allocation`: a job on the nodes that Slurm granted, run by a queue and a supervisor of its own on the first of them.

The job's record stays where it was submitted, on a file system that the nodes share. What needs locks and sockets is in a state
folder on the disk of each node, by the same path. Events are copied from there, requests to there; logs are written where they
stay. `ssh` to another node of the allocation is srun.
"""

import contextlib
import math
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from taco_launch.agent.host import gpus, processes
from taco_launch.agent.scheduler import scheduler
from taco_launch.agent.slurm import node_containers, programs, slurm_job
from taco_launch.agent.store import records, untrusted
from taco_launch.agent.store.folders import (
    IN_ALLOCATION,
    LEASES_VARIABLE,
    STATE_VARIABLE,
    JobFolder,
    Jobs,
    make_private,
)
from taco_launch.agent.store.records import StopRequest
from taco_launch.agent.upkeep import recovery
from taco_launch.core.command import shell
from taco_launch.core.errors import OK, HostError, JobEnd, TacoLaunchError, UnusableError
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.core.slurm import allocation, container_lines
from taco_launch.core.slurm.job_states import SlurmEnd, parse_pairs

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
_STEP_SECONDS, _REQUESTS_SECONDS, _ALIVE_SECONDS = 0.1, 1.0, 5.0
_CLEAN_SECONDS = 30.0
_MOST_EVENTS = 1 << 27
# Slurm's KILL follows its TERM after 30 s by default (slurm.conf(5), KillWait); guards on other nodes may be gone by then.
_TERM_SECONDS = 15.0
_OWN_ENDS = (JobState.SUCCEEDED, JobState.FAILED)
# How long Slurm is asked again, and how long a job may wait for its hosts while it has nodes.
_PATIENCE_SECONDS, _IDLE_SECONDS = 60.0, 120.0
# Slurm ends a job at its limit a moment before or after it.
_LIMIT_SECONDS = 30.0
# What Open MPI, PRRTE and Hydra start their daemons with. Without Slurm's variables they do not look for Slurm themselves.
_SHELLS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
_SLURM = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")
# $1 is the base. As ssh does, it runs its words as one line of a shell; a step's variables are none of the job's.
_REMOTE = (
    'for name in $(env | sed -n "s/^\\(SLURM[A-Z]*_[A-Za-z0-9_]*\\|CUDA_VISIBLE_DEVICES\\|GPU_DEVICE_ORDINAL\\)=.*/\\1/p"); do '
    '[ "$name" = SLURM_CONF ] || unset "$name"; done; '
    'mkdir -m 700 "$1" 2>/dev/null; [ -O "$1" ] && [ ! -L "$1" ] || '
    '{ echo "$1 belongs to another user on $(hostname)" >&2; exit 1; }; exec /bin/sh -c "$2"'
)
# $1 is the base, $2 the numbers of the jobs that live, $3 that of this one: a later one may have begun since Slurm was asked.
_SWEEP = """cd "$1" && for each in *; do
  case $each in *[!0-9]*) continue ;; esac
  [ "$each" -le "$3" ] || continue
  case " $2 " in *" $each "*) ;; *) rm -rf -- "./$each" ;; esac
done"""
_SSH = """#!/bin/sh
# Run a command on another node of the allocation, given as to ssh.
while :; do
  case $1 in
    -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
node=$1
shift
case $node in
{cases}
  *) gres= ;;
esac
{conf}exec {srun} --jobid={job} --overlap --nodes=1 --ntasks=1 --nodelist="$node" $gres --unbuffered --quiet --input=all --kill-on-bad-exit=0 {options}\\
  /bin/sh -c '{remote}' sh '{base}' "$*"
"""


def main(folder: JobFolder, agent: str) -> int:
    """Run a job in the allocation that this process is in; return the job's exit code."""
    run = _Allocation(folder, agent)
    if run.is_unwanted():
        return OK
    signal.signal(signal.SIGTERM, run.on_term)
    try:
        run.start()
        run.follow()
    except TacoLaunchError as error:
        run.failed(error)
    return run.close()


class _Allocation:
    def __init__(self, shared: JobFolder, agent: str) -> None:
        self._shared, self._agent = shared, agent
        self._number = int(os.environ["SLURM_JOB_ID"])
        array = os.environ.get("SLURM_ARRAY_JOB_ID")
        self._id = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else str(self._number)
        self._node = os.environ["SLURMD_NODENAME"]
        self._nodes, self._tasks = os.environ["SLURM_JOB_NODELIST"], os.environ["SLURM_TASKS_PER_NODE"]
        self._state = slurm_job.node_folder(self._number)
        self._base = self._state.parent
        self._jobs = Jobs(self._state)
        self._own = self._jobs.folder(shared.name)
        self._copied, self._count = 0, 1
        self._unwritten = b""
        self._terminated: Optional[SlurmEnd] = None
        self._terminated_at = math.inf
        self._planned_end: Optional[float] = None
        self._containers: Optional[node_containers.NodeContainers] = None

    def is_unwanted(self) -> bool:
        """Return whether the job has ended meanwhile, or has another number: sbatch was told that it failed, and had not."""
        return records.record(self._shared).state.is_terminal or slurm_job.id_of(self._shared) not in (None, self._id)

    def on_term(self, _number: int, _frame: object) -> None:
        """Have the job ended, because Slurm ends the allocation."""
        job = f"Slurm job {self._id}"
        self._terminated_at = min(self._terminated_at, time.monotonic())
        if self._planned_end is not None and time.time() > self._planned_end - _LIMIT_SECONDS:
            self._terminated = SlurmEnd(JobState.FAILED, JobEnd.OUT_OF_TIME, f"reached the time limit in Slurm ({job})")
        else:
            self._terminated = SlurmEnd(JobState.CANCELLED, 128 + signal.SIGTERM, f"cancelled in Slurm ({job})")

    def start(self) -> None:
        """Set up the state folder on this node, and start the job there.

        Raises:
            TacoLaunchError: Slurm does not tell what it granted, or something cannot be written.
        """
        details = _patiently(programs.describe, self._id) or ""
        self._planned_end = _planned_end(details)
        names = _patiently(programs.names_of, self._nodes)
        self._count = len(names)
        addresses = _patiently(programs.addresses_of, self._nodes)
        counts = allocation.tasks_per_node(self._tasks)
        tasks = [(name, addresses.get(name, name), count) for name, count in zip(names, counts)]
        granted = {
            name: gpus_there
            for nodes, gpus_there in allocation.gpus_by_nodes(details).items()
            for name in _patiently(programs.names_of, nodes)
        }
        _make_base(self._base)
        make_private(self._state)
        ssh = slurm_job.ssh_of(self._shared)  # daemons on other nodes start further ones by it
        make_private(ssh.parent)
        _write_ssh(ssh, self._number, self._base, granted)
        self._enter(ssh)
        spec, entry = records.read_spec(self._shared), slurm_job.entry_of(self._shared)
        options = container_lines.of_srun(spec)
        if options:
            start = entry.with_name("start-container")
            _write_ssh(start, self._number, self._base, granted, options)
            self._containers = node_containers.NodeContainers(self._state)
            self._containers.start(start, entry, names)
        spec = allocation.granted(spec, tasks, _to_choose(granted, self._node), self._node, str(entry))
        self._publish(spec, ssh)
        scheduler.admit(self._jobs, self._agent, self._own.name)

    def _enter(self, ssh: Path) -> None:
        """Have this process, and what it starts, use the state folder and the ssh of this allocation."""
        for name in [name for name in os.environ if name.startswith(_SLURM) and name != "SLURM_CONF"]:
            del os.environ[name]
        os.environ[STATE_VARIABLE] = str(self._state)
        os.environ[IN_ALLOCATION] = str(os.getpid())
        os.environ[LEASES_VARIABLE] = str(self._state / "leases")
        os.environ["PATH"] = f"{ssh.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"

    def _publish(self, spec: JobSpec, ssh: Path) -> None:
        shared = self._shared
        caller = records.read_caller(shared)
        environment = {name: value for name, value in caller.environment.items() if not name.startswith(_SLURM)}
        for name, value in (*((name, str(ssh)) for name in _SHELLS), ("HYDRA_LAUNCHER", "ssh"), ("HYDRA_RMK", "user")):
            environment.setdefault(name, value)
        if spec.code is not None:  # the ranks of all nodes get it from this one
            (self._state / "snapshots").symlink_to(shared.path.parent.parent / "snapshots")
        with self._jobs.create(shared.name) as draft:
            draft.agent.symlink_to(self._agent)
            records.write_spec(draft, spec)
            records.write_caller(draft, caller.replace(environment=environment))
            events = untrusted.read(shared.events, _MOST_EVENTS)
            self._copied = len(events)
            draft.events.write_bytes(events)
            draft.logs.rmdir()
            draft.logs.symlink_to(shared.logs)
            self._jobs.mark(shared.name)
            self._own = self._jobs.publish(draft, shared.name)

    def follow(self) -> None:
        """Copy events and requests until the job has ended, or is suspended.

        Raises:
            UnusableError: its hosts could not be used for minutes.
        """
        look_at = alive_at = 0.0
        idle_since = time.monotonic()
        is_stopping = False
        while True:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _REQUESTS_SECONDS
                with contextlib.suppress(OSError):
                    slurm_job.note_number(self._shared, self._id, self._number)
                self._copy_requests()
            if self._terminated is not None and not is_stopping:
                is_stopping = True
                records.write_request(self._own.stop, StopRequest("Slurm", signal.SIGTERM))
                self._wake()
            record = records.record(self._own)
            if now >= alive_at:
                alive_at = now + _ALIVE_SECONDS
                record = recovery.current_record(self._own)
            late = now - self._terminated_at > _TERM_SECONDS  # Slurm ends what is left, on all nodes
            if record.state.is_terminal or record.state is JobState.SUSPENDED or late:
                return
            idle_since = idle_since if record.state is JobState.QUEUED else now
            if now - idle_since > _IDLE_SECONDS:
                words = "; ".join(f"{host}: {why}" for host, why in record.waiting) or "no reason is known"
                raise UnusableError(f"its hosts could not be used for {_IDLE_SECONDS:g} s: {words}")
            self._copy_events()
            time.sleep(_STEP_SECONDS)

    def _copy_requests(self) -> None:
        for ours, theirs in ((self._own.stop, self._shared.stop), (self._own.suspend, self._shared.suspend)):
            with contextlib.suppress(OSError):
                request = records.read_request(self._shared, theirs)
                if request is not None and request != records.read_request(
                    self._own, ours
                ):  # a second has a shorter time
                    records.write_request(ours, request)
                    if theirs == self._shared.suspend:
                        theirs.unlink()
                    self._wake()

    def _wake(self) -> None:
        """Have a job that waits for its next attempt look at what is asked of it."""
        recovery.current_record(self._own)

    def _copy_events(self, without: Optional[str] = None) -> None:
        """Append the new events to the job's record; with `without`, those of that kind are left out."""
        with contextlib.suppress(OSError):
            data = untrusted.read(self._own.events, _MOST_EVENTS)[self._copied :]
            complete = data[: data.rfind(b"\n") + 1]
            self._copied += len(complete)
            if without is not None:
                lines = complete.splitlines(keepends=True)
                complete = b"".join(line for line in lines if f'"kind": "{without}"'.encode() not in line)
            self._unwritten += complete.replace(f"{self._own.path}/logs".encode(), f"{self._shared.path}/logs".encode())
        with contextlib.suppress(OSError):  # the shared folder may be full for a while: what was written is not again
            target = untrusted.open_regular(self._shared.events, os.O_WRONLY | os.O_APPEND)
            try:
                while self._unwritten:
                    self._unwritten = self._unwritten[os.write(target, self._unwritten) :]
            finally:
                os.close(target)

    def failed(self, error: TacoLaunchError) -> None:
        """Record an end of a job that could not be started here."""
        self._copy_events()
        end = SlurmEnd(JobState.FAILED, JobEnd.HOST_NOT_READY, f"{self._node}: {error.message}")
        slurm_job.record_end(self._shared, self._terminated or end)

    def close(self) -> int:
        """Copy the last events, remove what the nodes keep of the job, and return the job's exit code."""
        record = records.record(self._own) if self._own.events.exists() else None
        if self._terminated is not None and (record is None or record.state not in _OWN_ENDS):
            self._copy_events(without=state.ENDED)
            slurm_job.expect_end(self._shared, self._terminated)  # why, Slurm tells once this process is gone
        else:
            self._copy_events()
        until = time.monotonic() + _TERM_SECONDS
        while self._unwritten and time.monotonic() < until:
            time.sleep(_REQUESTS_SECONDS)
            self._copy_events()
        if record is not None and record.state is JobState.SUSPENDED:
            self._shared.slurm.unlink(missing_ok=True)  # `resume` submits it again
        if records.record(self._shared).state.is_terminal:
            self._shared.caller.unlink(missing_ok=True)
        with contextlib.suppress(OSError), open(self._shared.debug, "ab", opener=untrusted.opener) as target:
            target.write(untrusted.read(self._own.debug, _MOST_EVENTS)[-(1 << 20) :])
        if self._containers is not None:
            self._containers.close()
        if self._terminated is not None:
            _kill_children()
        self._clean()
        return records.record(self._shared).exit_code or 0

    def _clean(self) -> None:
        """Remove the job's folder from its nodes, and those of earlier jobs that Slurm ended with all of their processes."""
        with contextlib.suppress(HostError):
            others = (job.number for job in programs.jobs().values() if job.lives or job.waits)
            living = " ".join(str(number) for number in others if number != self._number)
            self._remove(("sh", "-c", _SWEEP, "sh", str(self._base), living, str(self._number)))
            return
        self._remove(("rm", "-rf", "--", str(self._state)))

    def _remove(self, argv: Tuple[str, ...]) -> None:
        every = (f"--nodes={self._count}", f"--ntasks={self._count}", "--ntasks-per-node=1")
        command = ("srun", f"--jobid={self._number}", "--overlap", *every, "--quiet")
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                (*command, *argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_CLEAN_SECONDS,
                check=False,
            )
        shutil.rmtree(self._state, ignore_errors=True)


def _patiently(ask: Callable[[_Asked], _Answer], about: _Asked) -> _Answer:
    """Ask Slurm again for a minute where it does not answer: the nodes are granted already. Raises as `ask` does."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask(about)
        except HostError:
            if time.monotonic() > until:
                raise
            time.sleep(_REQUESTS_SECONDS)


def _kill_children() -> None:
    """End the supervisor, which may wait for guards that Slurm has ended."""
    for child in processes.children(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(child.pid, signal.SIGKILL)


def _make_base(base: Path) -> None:
    """Make the folder for the jobs of this user.

    Raises:
        HostError: another user has made it.
    """
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    there = base.lstat()
    if there.st_uid != os.geteuid() or not stat.S_ISDIR(there.st_mode) or there.st_mode & 0o022:
        raise HostError(f"{base} is no folder of this user alone", hint=f"have it removed on {socket.gethostname()}")


def _to_choose(granted: Dict[str, Tuple[int, ...]], node: str) -> Dict[str, Tuple[int, ...]]:
    """Return the GPUs by host where jobs see all of a node's; where they see their own alone there is nothing to choose."""
    if node not in granted:
        return {}
    with contextlib.suppress(HostError):
        seen = gpus.listed(needed=False)
        if seen is not None and len(seen) <= len(granted[node]):
            return {}
    return granted


def _write_ssh(
    path: Path, number: int, base: Path, granted: Mapping[str, Tuple[int, ...]], options: Sequence[str] = ()
) -> None:
    """Write the script that stands for ssh; a step sees only the GPUs that it requests, and gets these options of srun."""
    cases: Dict[int, List[str]] = {}
    for name, indices in granted.items():
        cases.setdefault(len(indices), []).append(name)
    lines = [f"  {'|'.join(names)}) gres=--gres=gpu:{count} ;;" for count, names in sorted(cases.items())]
    conf = os.environ.get("SLURM_CONF")
    words = {"conf": f"export SLURM_CONF={shell((conf,))}\n" if conf else "", "srun": shutil.which("srun") or "srun"}
    text = _SSH.replace("{conf}", words["conf"]).replace("{srun}", words["srun"])
    text = text.replace("{cases}", "\n".join(lines) or "  '') ;;").replace("{job}", str(number))
    text = text.replace("{options}", f"{shell(options)} " if options else "")
    path.write_text(text.replace("{remote}", _REMOTE).replace("{base}", str(base)), encoding="utf-8")
    path.chmod(0o700)


def _planned_end(text: str) -> Optional[float]:
    """Return when Slurm ends the job at the latest, in seconds since the epoch; None where it has no limit."""
    words = parse_pairs(text)
    if words.get("TimeLimit") in (None, "UNLIMITED"):
        return None
    with contextlib.suppress(ValueError, KeyError, OverflowError):
        return time.mktime(time.strptime(words["EndTime"], "%Y-%m-%dT%H:%M:%S"))
    return None
