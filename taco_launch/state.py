"""reduce(events) -> JobRecord: the one place that says what a job's events amount to, pure."""

import signal
from dataclasses import replace
from typing import Iterable, Optional, Sequence, Tuple

from taco_launch.errors import FAILED, NO_JOB, OK, SIGNAL_BASE
from taco_launch.model.codec import from_json
from taco_launch.model.jobs import Event, Finding, JobRecord, JobState, RankEnd

SUBMITTED = "submitted"  # data: id
PLACED = "placed"  # data: np, hosts, line, warnings
LAUNCHED = "launched"  # data: boot, roots: mpirun has started
RUNNING = "running"  # data: boot, roots: every rank has started; it may be that one has ended already
RANK_FAILED = "rank-failed"  # data: rank, host, exit_code: a rank that did not end with 0
STOPPING = "stopping"
ENDED = "ended"  # data: state, exit_code; rank, host where a rank's failure is the reason; findings where there are any

_LAST_SIGNAL = 64  # SIGRTMAX, signal(7)


def reduce(events: Iterable[Event]) -> JobRecord:
    """Fold the events, oldest first. What comes after the first `ended` changes nothing."""
    record = JobRecord(id="", state=JobState.QUEUED)
    for event in events:
        if record.state.is_terminal:
            break
        record = _step(record, event)
    return record


def _step(record: JobRecord, event: Event) -> JobRecord:
    data = event.data
    if event.kind == SUBMITTED:
        return replace(record, id=str(data["id"]), submitted=event.time, reason=event.reason)
    if event.kind == PLACED:
        hosts = tuple(str(host) for host in data["hosts"])
        return replace(
            record,
            state=JobState.STOPPING if record.state is JobState.STOPPING else JobState.STARTING,
            np=int(data["np"]),
            hosts=hosts,
            line=str(data["line"]),
            warnings=tuple(str(warning) for warning in data.get("warnings", ())),
            started=event.time,
            reason=event.reason,
        )
    if event.kind == RUNNING and record.state is not JobState.STOPPING:
        return replace(record, state=JobState.RUNNING, reason=event.reason)
    if event.kind == STOPPING:
        return replace(record, state=JobState.STOPPING, reason=event.reason)
    if event.kind == ENDED:
        state, code = JobState(data["state"]), int(data["exit_code"])
        failure = None
        if data.get("rank") is not None:
            failure = RankEnd(int(data["rank"]), str(data["host"]), code, event.reason)
        return replace(
            record,
            state=state,
            exit_code=code,
            ended=event.time,
            reason=event.reason,
            first_failure=failure,
            findings=tuple(from_json(Finding, entry) for entry in data.get("findings", ())),
        )
    return record


def culprit(failures: Sequence[RankEnd], launcher_code: int) -> Optional[RankEnd]:
    """Say which of the ranks that failed, in the order in which they did, is the reason of the others' failure.

    Not one whose own last words blame another, where there is another; and not one that ended by TERM, which is how
    mpirun ends the rest, unless mpirun says the same of the job (143).
    """
    term = SIGNAL_BASE + signal.SIGTERM
    own = [end for end in failures if end.exit_code != term or launcher_code == term]
    return next((end for end in own if not end.consequence), own[0] if own else None)


def verdict(
    np: int,
    started: int,
    first_failure: Optional[RankEnd],
    launcher_code: int,
    cut_short: Optional[Tuple[JobState, int, str]] = None,
) -> Tuple[JobState, int, str]:
    """Say how a job ended: (state, exit code, reason).

    `started` counts the ranks that started; `launcher_code` is the launcher's return code, -n for signal n;
    `cut_short` is the answer already settled when we ended the job ourselves (a stop, a deadline). The job's exit code
    is the first failing rank's, or 125 when no rank ever ran.
    """
    if cut_short is not None:
        return cut_short
    if started == 0:
        return JobState.FAILED, NO_JOB, f"the launcher {_ending(launcher_code)} before any rank started"
    if first_failure is not None:
        where = f"rank {first_failure.rank} on {first_failure.host}"
        how = first_failure.reason or ending(first_failure.exit_code)
        return JobState.FAILED, first_failure.exit_code, f"{where} {how}"
    if launcher_code:
        code = SIGNAL_BASE - launcher_code if launcher_code < 0 else launcher_code
        return JobState.FAILED, code, f"the launcher {_ending(launcher_code)} while its ranks ran"
    if started < np:
        return JobState.FAILED, FAILED, f"only {started} of {np} ranks started, though the launcher exited with 0"
    return JobState.SUCCEEDED, OK, "every rank exited with 0"


def explained(reason: str, started: int, findings: Sequence[Finding], last_words: str) -> str:
    """Give a failed job's reason: where none of its ranks started, the cause that the launcher's log tells of.

    Where nothing known explains the failure, what the rank to blame wrote last is added.
    """
    if findings:
        return reason if started else f"no rank started: {findings[0].cause}"
    return f"{reason}; its last words: {last_words}" if last_words else reason


def ending(exit_code: int) -> str:
    """Say in words what a shell's exit code means."""
    if SIGNAL_BASE < exit_code <= SIGNAL_BASE + _LAST_SIGNAL:
        return f"was ended by {_signal(exit_code - SIGNAL_BASE)}"
    return f"exited with code {exit_code}"


def _ending(return_code: int) -> str:
    return ending(SIGNAL_BASE - return_code if return_code < 0 else return_code)


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
