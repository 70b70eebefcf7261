"""reduce(events) -> JobRecord: the one place that says what a job's events amount to, pure."""

import math
import signal
from dataclasses import replace
from typing import Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from taco_launch.core.errors import SIGNAL_BASE, DamagedRecordError, JobEnd, code_of_process
from taco_launch.core.lifecycle.event_values import check_time, count, few, name, names, shares
from taco_launch.core.model.codec import from_json
from taco_launch.core.model.jobs import (
    LATEST,
    Event,
    Finding,
    JobRecord,
    JobState,
    RankEnd,
    Transition,
    VerifiedRun,
)
from taco_launch.core.model.stalls import Stall

SUBMITTED = "submitted"  # data: id; suspend where it waits for `resume`
WAITING = "waiting"  # data: hosts: why it has no place, (host, why); trying: an attempt still looks for one
SUSPENDED = "suspended"
RESUMED = "resumed"
PLACED = "placed"  # data: np, hosts, line, warnings, mark, attempt, shares
RESIZED = "resized"  # data: np, hosts, shares: an elastic job has lost or gained hosts
COPIED = "copied"  # data: bytes, seconds, notes: the job's code is on its hosts
LAUNCHED = "launched"  # data: boot, roots: mpirun has started
RUNNING = "running"  # data: boot, roots: every rank has started; it may be that one has ended already
RANK_FAILED = "rank-failed"  # data: rank, host, exit_code: a rank that did not end with 0
SOME_ENDED = "some-ended"  # data: ranks: those that have ended well, where others have continued for a while
STALLED = "stalled"  # data: since, ranks: no rank makes progress
SEEN = "seen"  # data: since, ranks, hung: what the ranks did at the timeout
VERIFIED = "verified"  # data: status, why, next
STIRRED = "stirred"  # it continues after that
ABSENT = "absent"  # a host of it does not answer, or answers again
SLOW_START = "slow-start"  # what it has been waiting for since it was placed
SIGNALLED = "signalled"  # data: signal, stops: whether the ranks are ended after it
NOT_CAUGHT = "signal-not-caught"  # data: ranks
STOPPING = "stopping"
RESTARTING = "restarting"  # data: delay (seconds), left_out, lost, counts, blamed, exit_code; rank, host as of `ended`
ENDED = "ended"  # data: state, exit_code; rank, host where a rank's failure is the reason; findings where there are any

_LAST_SIGNAL, _KILLED = 64, SIGNAL_BASE + signal.SIGKILL  # SIGRTMAX, signal(7)
# The reason of a job that waits for slots, whoever finds that it does: what is on its hosts is told beside it.
FOR_SLOTS = "waiting for slots"


def reduce(events: Iterable[Event]) -> JobRecord:
    """Fold the events, oldest first. What comes after the first `ended` changes nothing.

    Raises:
        DamagedRecordError: no agent writes such an event.
    """
    record = JobRecord(id="", state=JobState.QUEUED)
    changes: List[Transition] = []
    for event in events:
        if record.state.is_terminal:
            break
        after = _step(record, event)
        if after is not record and after.reason == event.reason:
            after = replace(after, hint=event.hint)
        if after.state is not record.state or not (changes or after.id == record.id):
            changes.append(Transition(event.time, after.state, event.reason))
        record = after
    return replace(record, transitions=tuple(changes))


def _step(record: JobRecord, event: Event) -> JobRecord:
    step = _STEPS.get(event.kind)
    try:
        check_time(event.time)
        return record if step is None else step(record, event)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedRecordError(f"its event {event.kind[:40]!r}: {error!r:.200}") from None


def _submitted(record: JobRecord, event: Event) -> JobRecord:
    if record.id:
        return record
    found, waits = name(event.data["id"]), bool(event.data.get("suspend"))
    begin = JobState.SUSPENDED if waits else JobState.QUEUED
    return replace(record, id=found, mark=found, state=begin, submitted=event.time, reason=event.reason, admitted=waits)


def _waiting(record: JobRecord, event: Event) -> JobRecord:
    waiting = tuple((name(host), str(why)) for host, why in few(event.data["hosts"]))
    admitted = record.admitted or not event.data.get("trying")
    return replace(record, state=JobState.QUEUED, waiting=waiting, reason=event.reason, admitted=admitted)


def _suspended(record: JobRecord, event: Event) -> JobRecord:
    # As with Kubernetes' Job the time that it may run starts over.
    again = replace(record, state=JobState.SUSPENDED, started=None, waiting=(), not_before=None)
    return replace(again, reason=event.reason, admitted=True)


def _resumed(record: JobRecord, event: Event) -> JobRecord:
    if record.state is not JobState.SUSPENDED:
        return record
    return replace(record, state=JobState.QUEUED, reason=event.reason)


def _placed(record: JobRecord, event: Event) -> JobRecord:
    data = event.data
    return replace(
        record,
        state=JobState.STOPPING if record.state is JobState.STOPPING else JobState.STARTING,
        np=count(data["np"]),
        hosts=names(data["hosts"]),
        line=str(data["line"]),
        warnings=tuple(str(warning) for warning in data.get("warnings", ())),
        started=event.time if record.started is None else record.started,
        reason=event.reason,
        mark=name(data.get("mark", record.id)),
        attempt=count(data.get("attempt", 1)),
        waiting=(),
        not_before=None,
        shares=shares(data.get("shares", ())),
        admitted=True,
        stalled=None,
        verified=None,
        done=(),
    )


def _resized(record: JobRecord, event: Event) -> JobRecord:
    data = event.data
    return replace(
        record,
        np=count(data["np"]),
        hosts=names(data["hosts"]),
        shares=shares(data["shares"]),
        reason=event.reason,
        stalled=None,
        verified=None,
        done=(),
    )


def _copied(record: JobRecord, event: Event) -> JobRecord:
    notes = tuple(str(note) for note in event.data.get("notes", ()))
    return replace(record, warnings=(*record.warnings, *notes)) if notes else record


def _running(record: JobRecord, event: Event) -> JobRecord:
    if record.state is JobState.STOPPING:
        return record
    return replace(record, state=JobState.RUNNING, reason=event.reason)


def _some_ended(record: JobRecord, event: Event) -> JobRecord:
    if record.state is not JobState.RUNNING:
        return record
    return replace(record, reason=event.reason, done=tuple(map(count, few(event.data["ranks"]))))


def _stalled(record: JobRecord, event: Event) -> JobRecord:
    if record.state is not JobState.RUNNING:
        return record
    return replace(record, stalled=replace(from_json(Stall, event.data), seen=event.time), reason=event.reason)


def _stirred(record: JobRecord, event: Event) -> JobRecord:
    return record if record.stalled is None else replace(record, stalled=None, reason=event.reason)


def _signalled(record: JobRecord, event: Event) -> JobRecord:
    to = JobState.STOPPING if event.data.get("stops") else record.state
    return replace(record, state=to, reason=event.reason)


def _stopping(record: JobRecord, event: Event) -> JobRecord:
    return replace(record, state=JobState.STOPPING, reason=event.reason)


def _restarting(record: JobRecord, event: Event) -> JobRecord:
    delay = float(event.data["delay"])
    if not 0 <= delay < math.inf:
        raise ValueError(f"the delay {delay:g}")
    return replace(
        record,
        state=JobState.RESTARTING,
        reason=event.reason,
        first_failure=_failure(event),
        not_before=min(event.time + delay, float(LATEST)),
        left_out=names(event.data.get("left_out", ())),
        lost=name(event.data.get("lost", "")),
        excused=record.excused + (not event.data.get("counts", True)),
        blamed=from_json(Finding, event.data["blamed"]) if event.data.get("blamed") else None,
    )


def _ended(record: JobRecord, event: Event) -> JobRecord:
    return replace(
        record,
        state=JobState(event.data["state"]),
        exit_code=count(event.data["exit_code"]),
        ended=event.time,
        reason=event.reason,
        waiting=(),
        first_failure=_failure(event),
        findings=tuple(from_json(Finding, entry) for entry in event.data.get("findings", ())),
    )


def _failure(event: Event) -> Optional[RankEnd]:
    data = event.data
    if data.get("rank") is None:
        return None
    end = RankEnd(count(data["rank"]), name(data["host"]), count(data["exit_code"]), event.reason)
    return replace(end, log=str(data.get("log", "")), lines=tuple(map(str, data.get("lines", ()))))


_STEPS: Mapping[str, Callable[[JobRecord, Event], JobRecord]] = {
    SUBMITTED: _submitted,
    WAITING: _waiting,
    SUSPENDED: _suspended,
    RESUMED: _resumed,
    PLACED: _placed,
    RESIZED: _resized,
    COPIED: _copied,
    RUNNING: _running,
    SOME_ENDED: _some_ended,
    STALLED: _stalled,
    SEEN: lambda record, event: replace(record, stalled=from_json(Stall, event.data)),
    VERIFIED: lambda record, event: replace(record, verified=from_json(VerifiedRun, event.data)),
    STIRRED: _stirred,
    **dict.fromkeys((ABSENT, SLOW_START), lambda record, event: replace(record, reason=event.reason)),
    SIGNALLED: _signalled,
    STOPPING: _stopping,
    RESTARTING: _restarting,
    ENDED: _ended,
}


def mark(job_id: str, attempt: int) -> str:
    """Return the id by which the processes of an attempt are known: what an earlier one left is never taken for it."""
    return job_id if attempt == 1 else f"{job_id}.{attempt}"


def marks_same_job(one: str, other: str) -> bool:
    """Return whether two marks are of attempts of the same job."""
    return one.partition(".")[0] == other.partition(".")[0]


class PreviousAttempt(NamedTuple):
    """An attempt after which its job waits: RESTARTING as it failed, or SUSPENDED; and why."""

    attempt: int
    state: JobState
    reason: str


def past(record: JobRecord) -> Tuple[PreviousAttempt, ...]:
    """Return the attempts of a job after which it waited, the first first; one that failed may have been suspended then."""
    found, number = [], 0
    for change in record.transitions:
        number += change.state is JobState.STARTING
        if number and change.state in (JobState.RESTARTING, JobState.SUSPENDED):
            found.append(PreviousAttempt(number, change.state, change.reason))
    return tuple(found)


def suspension(record: JobRecord, attempt: int) -> str:
    """Return in one line why the job was suspended before this attempt; "" where it was not."""
    before = [entry for entry in past(record) if entry.attempt == attempt - 1 and entry.state is JobState.SUSPENDED]
    return " ".join(before[-1].reason.split()) if before else ""


def culprit(failures: Sequence[RankEnd], launcher_code: int) -> Optional[RankEnd]:
    """Return which of the ranks that failed, in the order in which they did, is the reason of the others' failure.

    Not one whose own last output blames another, where there is another; and not one that ended by TERM, which is how
    mpirun ends the rest, unless mpirun says the same of the job (143).
    """
    term = SIGNAL_BASE + signal.SIGTERM
    own = [end for end in failures if end.exit_code != term or launcher_code == term]
    return next((end for end in own if not end.consequence), own[0] if own else None)


class JobOutcome(NamedTuple):
    """How a job ends, and why; `hint` says what to type next, where that is known."""

    state: JobState
    exit_code: int
    reason: str
    hint: str = ""


def verdict(
    np: int,
    started: int,
    first_failure: Optional[RankEnd],
    launcher_code: int,
    cut_short: Optional[JobOutcome] = None,
    processes: int = 1,
) -> JobOutcome:
    """Return how a job ended.

    `started` counts the ranks that started; `launcher_code` is the launcher's return code, -n for signal n;
    `cut_short` is the answer already settled when we ended the job ourselves (a stop, a deadline). The job's exit code
    is the first failing rank's, or 125 when no rank ever ran. `processes` share each slot.
    """
    if cut_short is not None:
        return cut_short
    code = code_of_process(launcher_code)
    # A launcher that ends so by itself tells of a child that KILL ended, and that child has told us nothing.
    launcher = "a rank's wrapper was killed" if launcher_code == _KILLED else f"the launcher {ending(code)}"
    if started == 0:
        return JobOutcome(JobState.FAILED, JobEnd.NEVER_RAN, f"{launcher} before any rank started")
    if first_failure is not None:
        where = f"rank {numbered(first_failure.rank, processes)} on {first_failure.host}"
        how = first_failure.reason or ending(first_failure.exit_code)
        return JobOutcome(JobState.FAILED, first_failure.exit_code, f"{where} {how}")
    if launcher_code:
        return JobOutcome(JobState.FAILED, code, f"{launcher} while its ranks ran")
    if started < np:
        why = f"only {started} of {np} ranks started, though the launcher exited with 0"
        return JobOutcome(JobState.FAILED, JobEnd.INCOMPLETE, why)
    return JobOutcome(JobState.SUCCEEDED, JobEnd.SUCCEEDED, "every rank exited with 0")


def explained(reason: str, started: int, findings: Sequence[Finding], last_words: str) -> str:
    """Return a failed job's reason: where none of its ranks started, the cause that the launcher's log tells of.

    Where nothing known explains the failure, what the rank to blame wrote last is added.
    """
    if findings:
        return reason if started else f"no rank started: {findings[0].cause}"
    return f"{reason}; its last output: {last_words}" if last_words else reason


def numbered(rank: int, processes: int) -> str:
    """Tell a rank by its number; where `processes` of them share each slot, by the RANK and PROCESS_INDEX that they have."""
    return str(rank) if processes == 1 else f"{rank // processes}, process {rank % processes}"


def ending(exit_code: int) -> str:
    """Return in words what a shell's exit code means."""
    if SIGNAL_BASE < exit_code <= SIGNAL_BASE + _LAST_SIGNAL:
        return f"was ended by {_signal(exit_code - SIGNAL_BASE)}"
    return f"exited with code {exit_code}"


def exited_as(exit_code: int) -> str:
    """Return in words how a program ended that chose such a code itself, or had it of a command that a signal ended."""
    told = ending(exit_code)
    return told.replace("was ended by", f"exited with code {exit_code}, as a shell does after", 1)


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
