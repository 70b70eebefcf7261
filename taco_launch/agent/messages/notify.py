"""`agent notify`: sends a job's end, hang, lost host or difference from its plan to all who want it, beside what looks after the job."""

import socket
from typing import Iterator, Tuple

from taco_launch.agent.messages.deliver import deliver
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.errors import OK, TacoLaunchError
from taco_launch.core.launch.masking import Masker
from taco_launch.core.lifecycle import state
from taco_launch.core.messages.address import shown
from taco_launch.core.messages.occasions import NOT_NOTIFIED, OF_JOB
from taco_launch.core.model.host.hosts import Notice
from taco_launch.core.model.jobs import Event, JobState, Policy


def main(folder: JobFolder, event_time: str) -> int:
    """Send the event of that time (seconds, as `repr` writes them); a delivery that fails is an event of the job, and nothing more."""
    try:
        spec, events = records.read_spec(folder), records.read_events(folder)
    except TacoLaunchError:  # the job was deleted meanwhile
        return OK
    place = next((i for i, event in enumerate(events) if repr(event.time) == event_time), None)
    if place is None:
        return OK
    record = state.reduce(events[: place + 1])
    event = events[place]
    found = record.findings[:1] if event.kind == state.ENDED else ()
    more = [line for finding in found for line in (f"cause: {finding.cause}", f"next: {finding.next}")]
    mask = Masker(spec, {}).text
    message = {
        "name": folder.name,
        "state": record.state.value,
        "event": event.kind,
        "reason": mask("\n".join((event.reason, *more))),
        "hosts": record.hosts,
        "cluster": spec.cluster,
        "from": socket.gethostname(),
    }
    for called, notice in _notices(spec.policy):
        if not notice.wants(_occasions(event, record.state)):
            continue
        problem = deliver(notice.to, message)
        if problem:
            to = "" if called == "--notify" else f"{shown(notice.to)}: "
            records.Events(folder).add(
                NOT_NOTIFIED, f"{called}: {to}the message of {event.kind} was not delivered: {problem}"
            )
    return OK


def _notices(policy: Policy) -> Iterator[Tuple[str, Notice]]:
    if policy.notify is not None:
        yield "--notify", Notice(policy.notify, OF_JOB)
    for notice in policy.notices:
        yield "notify", notice


def _occasions(event: Event, job: JobState) -> Tuple[str, ...]:
    if event.kind == state.ENDED:
        return ("job-end", "job-failure") if job in (JobState.FAILED, JobState.LOST) else ("job-end",)
    if event.kind == state.STALLED:
        return ("hang",)
    return ("not-as-planned",) if event.kind == state.VERIFIED else ("lost-host",)
