"""bench ladder and bench run: the runs of a ladder, one job after the other, each kept in the history as it ends."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import IO

from taco_launch.agent.store import untrusted
from taco_launch.agent.store.folders import make_private, private
from taco_launch.bench.history.history import History, Ladder, LadderKind
from taco_launch.bench.logs import MOST_BYTES
from taco_launch.bench.logs.parse import NoSample
from taco_launch.bench.model.ladder import LadderStep, remaining_steps
from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.model.runs import Cell, Measurement, Run
from taco_launch.bench.run import ladder_time
from taco_launch.bench.run.run_environment import EnvironmentProbe
from taco_launch.core.errors import HOST_FAILED, HostError, NoJobError, TacoLaunchError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.job_facts_from import job_facts_from
from taco_launch.core.launch.missing_facts import free_slots
from taco_launch.core.lifecycle.goodput import time_spent
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.job_view import JobView, WaitReasons
from taco_launch.core.model.jobs import JobSpec, JobState
from taco_launch.jobs.backend import Backend, FollowListener, LogQuery

# What follows a ladder's id in the names of its jobs.
_RUN = re.compile(r"-r[1-9][0-9]*")
DONE, TIME_BUDGET, GIVEN_UP = "done", "time budget", "given up"
_LOCK = ".{:.32}.lock"
INTERRUPTED, HEAD_LOST = "interrupted", "the head was lost"
_STEM = 40
_EVIDENCE_LINES = 15
# A line of the merged log that is not a rank's.
_OF_LAUNCHER = re.compile(r"\S+/[a-z]+ *\|")

Reader = Callable[[Cell, str], tuple[Measurement, ...] | NoSample]


@dataclass(frozen=True)
class LadderPlan:
    """A ladder as it is to be run.

    `specs` holds the job of each cell, whatever its name; `read` makes readings of a run's log, or says why it cannot;
    `logs` is the folder for copies of the logs; `budget` is how many seconds the runs may take together, those of
    earlier calls among them, None for no end. With `ends_unread` it ends after a run that ended well and cannot be read: all
    print the same lines.
    """

    ladder: Ladder
    steps: tuple[LadderStep, ...]
    specs: Mapping[Cell, JobSpec]
    read: Reader
    logs: Path
    budget: float | None = None
    ends_unread: bool = False


@dataclass(frozen=True)
class LadderProgress:
    """How far a ladder is: the run that continues, the `number`th of `of`; `state` of its job and its last line.

    `left` is how many seconds this run and those after it will take, None where nobody knows. `run` is there when it has
    ended, with the last lines of its log as `evidence` where it gave no sample.
    """

    step: LadderStep
    number: int
    of: int
    left: float | None
    state: str = ""
    line: str = ""
    warnings: tuple[str, ...] = ()
    run: Run | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class LadderResult:
    """What a ladder has come to: the runs that count, how it ended, and in `error` what broke it off.

    `hosts_failed` says that each of its runs failed for hosts that could not be used.
    """

    runs: tuple[Run, ...]
    outcome: str
    error: HostError | None = None
    hosts_failed: bool = False


@dataclass(frozen=True)
class LadderListener:
    """Who is told what: `progress` how far it is, `say` what happens to jobs and connections besides."""

    progress: Callable[[LadderProgress], None]
    say: Callable[[str], None]


def slots(spec: JobSpec, facts: Sequence[HostFacts]) -> int:
    """Count the slots of a job's hosts, were nobody to have any; `facts` tell those that the inventory does not.

    Raises:
        UsageError: nothing tells a host's slots.
    """
    free = free_slots(spec, job_facts_from(JobFacts(root=True), spec, facts))
    unknown = next((entry.host for entry in free if not entry.all and not entry.lacks), None)
    if unknown is not None:
        raise UsageError(
            f"host {unknown}: its slots are not declared, and its number of GPUs is unknown",
            hint=f"slots: 8 in the inventory, slots=8 in a hostfile, or -H {unknown}:8",
        )
    return sum(entry.all for entry in free)


def digest(kind: LadderKind, matrix: Matrix, specs: Mapping[Cell, JobSpec]) -> str:
    """Return what stands for a ladder: the same text, the same numbers, and the same job in each cell (SHA-256)."""
    cells = [[*astuple(cell), to_json(spec)] for cell, spec in specs.items()]
    text = json.dumps([kind.value, matrix.digest, matrix.repeats, matrix.warm_ups, matrix.seed, cells], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def ladder_id(name: str, letters: str) -> str:
    """Make a ladder's id, of which the names of its jobs are made."""
    return f"{name[:_STEM]}-{letters}"


def job_name(ladder: Ladder, position: int) -> str:
    """Return the name of the job of a run: by it the jobs of a ladder that broke off are found."""
    return f"{ladder.id}-r{position + 1}"


def is_measured(folder: Path, key: str) -> bool:
    """Return whether a process on this machine has the `exclusive_lock` of a ladder."""
    return untrusted.is_locked(folder / _LOCK.format(key))


@contextlib.contextmanager
def exclusive_lock(folder: Path, digest: str) -> Iterator[None]:
    """Have nobody else measure the same ladder for as long as the block lasts; `folder` is that of all ladders.

    Raises:
        TacoLaunchError: somebody does.
    """
    make_private(folder)
    with open(folder / _LOCK.format(digest), "a+", encoding="ascii", opener=private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "unknown"
            raise TacoLaunchError(
                f"the same sweep is being measured already, by process {who} on this machine",
                hint="wait until it ends; `taco-launch bench history` shows what it has measured so far",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def run(
    backend: Backend,
    plan: LadderPlan,
    history: History,
    around: EnvironmentProbe,
    environ: Mapping[str, str],
    tell: LadderListener,
) -> LadderResult:
    """Make the runs of a ladder that the history does not have yet, each a job, and add them to it.

    A run that fails, cannot be placed or gives no sample is kept with the reason, and the next one starts. Ctrl-C stops
    the job that runs; a head that is lost breaks the ladder off: both can continue later. What counts is as in
    `History.counted_runs`.

    Raises:
        HostError: the head was lost before anything was measured.
        TacoLaunchError: the history cannot be written.
    """
    done = dict(history.runs(plan.ladder.id))
    to_do = remaining_steps(plan.steps, done)
    hosts_failed, block = not done, None
    outcome, lost = DONE, None
    try:
        if to_do:
            end_leftovers(backend, plan.ladder, set(done), tell.say)
        for step in to_do:
            if (
                plan.budget is not None
                and done
                and ladder_time.spent(done) + ladder_time.of_step(step, done) > plan.budget
            ):
                outcome = TIME_BUDGET
                break
            if step.block != block:
                around.refresh()
                block = step.block
            made, failed, unread = _one(backend, plan, step, done, around, environ, tell)
            hosts_failed = hosts_failed and failed
            history.add(plan.ladder.id, step.position, made)
            done[step.position] = made
            if unread and plan.ends_unread:
                break
    except KeyboardInterrupt:
        outcome = INTERRUPTED
    except HostError as error:
        if not any(run.readings for run in done.values()):
            raise
        outcome, lost = HEAD_LOST, error
    counted = history.counted_runs(plan.ladder)
    return LadderResult(counted, outcome, lost, hosts_failed=hosts_failed and outcome == DONE)


def end_leftovers(backend: Backend, ladder: Ladder, done: set[int], say: Callable[[str], None]) -> None:
    """End and remove the jobs of a ladder that broke off while they ran; those of runs that are kept stay."""
    kept = {job_name(ladder, position) for position in done}
    rows, _warnings = backend.list()
    for row in rows:
        own = row.name.startswith(ladder.id) and _RUN.fullmatch(row.name[len(ladder.id) :])
        if own and row.name not in kept:
            if not row.state.is_terminal:
                say(f"ending job {row.name}, which is left over from the interrupted sweep {ladder.id}")
                _stop(backend, row.name, "taco-launch bench: its sweep was interrupted")
            _delete(backend, row.name, say)


def _one(
    backend: Backend,
    plan: LadderPlan,
    step: LadderStep,
    done: Mapping[int, Run],
    around: EnvironmentProbe,
    environ: Mapping[str, str],
    tell: LadderListener,
) -> tuple[Run, bool, bool]:
    """Make one run; say whether it failed for its hosts, and whether its job ended well and its log cannot be read.

    Raises:
        HostError: the head is lost.
        KeyboardInterrupt: somebody ended it.
    """
    name = job_name(plan.ladder, step.position)
    spec = replace(plan.specs[step.cell], name=name)
    log = plan.logs / f"{name}.log"
    here = LadderProgress(step, len(done) + 1, len(plan.steps), ladder_time.left(plan.steps, done, plan.budget))
    started, begun = time.time(), time.monotonic()
    job, why, code = None, "", None
    try:
        job = _follow(backend, spec, log, here, environ, tell)
    except HostError:
        raise
    except TacoLaunchError as error:
        why, code = "; ".join(filter(None, (error.message, error.hint))), error.exit_code
    queued = 0.0 if job is None else time_spent(job.record, (), time.time())["queued"]
    seconds = max(0.0, time.monotonic() - begun - queued)
    text = _text(log)
    readings = None if job is None else _readings(plan.read, step.cell, job, text)
    if isinstance(readings, NoSample):
        why = readings.why
    made = Run(
        cell=step.cell,
        repeat=step.repeat,
        warm_up=step.warm_up,
        job=name,
        started=started,
        seconds=seconds,
        hosts=() if job is None else tuple(share.host for share in job.record.shares),
        gpu="" if job is None else around.gpu(job),
        readings=readings if isinstance(readings, tuple) else (),
        why=why,
        log=str(log) if text else "",
        circumstances=around.circumstances(spec, job),
    )
    if made.readings:
        _delete(backend, name, tell.say)
    tell.progress(
        replace(
            here,
            left=ladder_time.left(plan.steps, {**done, step.position: made}, plan.budget),
            run=made,
            evidence=() if made.readings else _evidence(text),
        )
    )
    unread = not made.readings and job is not None and job.record.state is JobState.SUCCEEDED
    return made, HOST_FAILED in (code, job and job.record.exit_code), unread


def _follow(
    backend: Backend, spec: JobSpec, log: Path, here: LadderProgress, environ: Mapping[str, str], tell: LadderListener
) -> JobView:
    """Run a job to its end, its log copied to a file; with Ctrl-C until nothing of it is left."""

    def output(chunk: bytes) -> None:
        copy.write(chunk)
        line = chunk.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")
        tell.progress(replace(here, state="RUNNING", line=line))

    def started(job: JobView) -> None:
        tell.progress(replace(here, state=job.record.state.value, warnings=job.record.warnings))

    def waits(words: WaitReasons) -> None:
        why = "; ".join(f"{host}: {why}" if host else why for host, why in words)
        tell.progress(replace(here, state="QUEUED", line=why))

    def state(name: str) -> None:
        tell.progress(replace(here, state=name))

    tell.progress(here)
    make_private(log.parent)
    watch = FollowListener(job=started, state=state, waits=waits, say=tell.say)
    with open(log, "wb", opener=private) as file:
        copy = _LogCopy(file)
        try:
            return backend.run(spec, environ, output, watch)
        except KeyboardInterrupt:
            with contextlib.suppress(NoJobError):  # there is none yet
                _stop(backend, spec.name, "Ctrl-C")
                _delete(backend, spec.name, lambda _warning: None)
            log.unlink()
            raise


class _LogCopy:
    """Copies the log of a run, up to MOST_BYTES: a rank that writes for ever fills no disk."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write to an empty file."""
        self._file = file
        self._size = 0
        # Where the last whole line ends: the first half of a number would be another number.
        self._whole = 0
        self._full = False
        self._note = f"taco-launch: log truncated: only its first {MOST_BYTES >> 20} MiB are kept\n".encode()

    def write(self, chunk: bytes) -> None:
        """Write the next chunk; where it is too much, whole lines only, and a last one that says so."""
        if self._full:
            return
        fits = chunk[: MOST_BYTES - len(self._note) - self._size]
        self._file.write(fits)
        if b"\n" in fits:
            self._whole = self._size + fits.rindex(b"\n") + 1
        self._size += len(fits)
        if len(fits) < len(chunk):
            self._full = True
            self._file.seek(self._whole)
            self._file.truncate()
            self._file.write(self._note)


def _text(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def _stop(backend: Backend, name: str, by: str) -> None:
    backend.stop([name], by, signal.SIGINT).job(name)
    backend.follow(LogQuery(name, tail=0), lambda _data: None)  # until nothing of it is left


def _delete(backend: Backend, name: str, say: Callable[[str], None]) -> None:
    deleted = backend.delete([name])
    deleted.existing(name)
    for warning in deleted.warnings:
        say(warning)


def _readings(read: Reader, cell: Cell, job: JobView, text: str) -> tuple[Measurement, ...] | NoSample:
    record = job.record
    if record.state is not JobState.SUCCEEDED:
        cause = [finding.cause for finding in record.findings[:1] if finding.cause not in record.reason]
        return NoSample("; ".join((f"job {job.spec.name} {record.state.value}: {record.reason}", *cause)))
    return read(cell, text)


def _evidence(text: str) -> tuple[str, ...]:
    """Return the last lines of a log; what the launcher says of a rank's failure only where no rank said anything."""
    lines = text.rstrip().splitlines()
    own = [line for line in lines if not _OF_LAUNCHER.match(line)]
    return tuple((own or lines)[-_EVIDENCE_LINES:])
