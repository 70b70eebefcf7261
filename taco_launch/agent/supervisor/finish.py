"""How an attempt ended, recorded: the end of its job, or that the job is tried again."""

import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.agent.supervisor.deadlines import diverged
from taco_launch.agent.supervisor.ranks import WRAPPER_KILLED, Ranks
from taco_launch.agent.supervisor.start import Launcher
from taco_launch.core.errors import SIGNAL_BASE
from taco_launch.core.lifecycle import retries, state
from taco_launch.core.model.codec import from_json, to_json
from taco_launch.core.model.jobs import Finding, JobSpec, JobState, RankEnd

if TYPE_CHECKING:  # it has tables of what programs say, and a job that went well needs none of them
    from taco_launch.agent.supervisor.failure_analysis import FailureAnalysis

_ABORTED = SIGNAL_BASE + signal.SIGABRT
# CPU time for what the logs tell: of a whole job's, a second at most is used.
_EXPLAIN_SECONDS = 20
_SAME_MOMENT_SECONDS = 0.3


def failures_so_far(ranks: Ranks, launcher: Optional[Launcher], pump: Callable[[], object]) -> int:
    """Return how many ranks have failed; after a signal has ended the launcher, only one killed with its wrapper counts."""
    if ranks.failures or launcher is None or (launcher.poll() or 0) >= 0:
        return len(ranks.failures)
    until = time.monotonic() + _SAME_MOMENT_SECONDS  # guards may not have reported it yet
    while not ranks.failures and time.monotonic() < until:
        pump()
    return sum(end.reason.startswith(WRAPPER_KILLED) for end in ranks.failures[:1])


class AttemptEnd(NamedTuple):
    """The end of an attempt: what its recorded outcome is computed from."""

    # The ranks that were planned, and the host of each that has started.
    np: int
    started: Mapping[int, str]
    # The ranks' ends to blame, the first first.
    failures: Tuple[RankEnd, ...]
    # The launcher's exit code, -n for signal n.
    code: int
    # The outcome, where the attempt was ended early.
    cut_short: Optional[state.JobOutcome]
    # The host that was lost, "" for none.
    lost_host: str
    # The head, or the host whose own launcher failed.
    here: str
    # What the reason adds: lost logs, processes that are left.
    notes: Tuple[str, ...]
    # Whether it was ended since it hung.
    hung: bool
    # How often torchrun has started the ranks again that failed.
    restarted: int = 0


def record(folder: JobFolder, events: records.Events, spec: JobSpec, end: AttemptEnd) -> None:
    """Append the event; `folder` is that of the attempt. What the caller brought is removed with the last one."""
    from taco_launch.agent.supervisor import failure_analysis  # noqa: PLC0415 - loaded while the ranks ran

    failures = failure_analysis.blamed(folder, end.failures) if end.failures else ()
    failure = state.culprit(failures, end.code)
    each = spec.procs_per_gpu
    verdict = state.verdict(end.np, len(end.started), failure, end.code, end.cut_short, each)
    if verdict.state is JobState.SUCCEEDED:
        verdict = diverged(folder, spec.policy) or verdict
    job_state, code, reason = verdict[:3]
    told: Optional[FailureAnalysis] = None
    if job_state is JobState.FAILED:
        from taco_launch.agent.processes.cpu_limit import bounded  # noqa: PLC0415

        first = end.started.get(0, end.here)
        ended_itself = end.cut_short is None
        short = reason

        def explain() -> Any:
            found = failure_analysis.explained(
                folder, short, failure, len(end.started), first, ended_itself=ended_itself
            )
            return found[0], to_json(found[1].findings), found[1].line, found[1].possible

        answer = bounded(explain, _EXPLAIN_SECONDS)
        if answer is None:
            reason = f"{reason}; its logs could not be searched for the cause within {_EXPLAIN_SECONDS} s"
        else:
            reason, told = (
                answer[0],
                failure_analysis.FailureAnalysis(tuple(from_json(Finding, each) for each in answer[1]), *answer[2:]),
            )
    reason = "; ".join(filter(None, (reason, *end.notes)))
    data: Dict[str, Any] = {}
    host = end.lost_host
    if failure and not end.cut_short:
        log, lines = failure_analysis.last_lines(folder, spec, failure, 0 if told is None else told.line)
        data, host = {"rank": failure.rank, "host": failure.host, "log": log, "lines": lines}, failure.host
    # An exception ends a program with 1; what it leaves behind, such as threads of gloo, may abort it then.
    raised = code == _ABORTED and told is not None and told.line and told.findings[0].signature == "python-exception"
    finding = told.findings[0] if told is not None and len(told.findings) > told.possible else None
    result = retries.AttemptResult(
        job_state,
        code,
        host,
        hung=end.hung,
        raised=bool(raised),
        single_host=len(spec.hosts) == 1,
        restarted=end.restarted,
    )
    if finding is not None:
        named = finding.host if any(each.name == finding.host for each in spec.hosts) else host
        result = result._replace(host=named, signature=finding.signature, cause=finding.cause)
    decision = retries.decide(spec.policy, records.record(folder), result)
    again = decision.retry
    cause = finding.cause.rstrip(".") if finding is not None and again is not None else ""  # at its end `get` has more
    reason = "; ".join(filter(None, (reason, cause, decision.rule)))
    if again is not None:
        lost = end.lost_host if job_state is JobState.LOST else ""
        more: Dict[str, Any] = {"delay": again.delay, "left_out": again.left_out, "lost": lost, "exit_code": code}
        if finding is not None:
            more["blamed"] = to_json(replace(finding, host=result.host))
        events.add(state.RESTARTING, reason, **data, **more, counts=again.counts)
        return
    if told is not None and told.findings:
        data["findings"] = to_json(told.findings)
    folder.caller.unlink(missing_ok=True)
    records.ended(events, job_state, code, reason, hint=verdict.hint, **data)
