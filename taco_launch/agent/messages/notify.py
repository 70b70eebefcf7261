"""`agent notify`: sends a job's end, hang, lost host or difference from its plan to all who want it, beside what looks after the job."""

import os
import shlex
import socket
from typing import Iterator, Tuple

from taco_launch.agent.messages.deliver import deliver
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.command import BARE, as_typed, shell
from taco_launch.core.errors import OK, TacoLaunchError
from taco_launch.core.launch.masking import Masker
from taco_launch.core.lifecycle import state
from taco_launch.core.messages.address import shown
from taco_launch.core.messages.occasions import NOT_NOTIFIED, OF_JOB
from taco_launch.core.model.host.hosts import Notice
from taco_launch.core.model.jobs import Event, JobState, Policy

# Of how taco-launch is called, in characters: an option, and a path of at most 4096 bytes (Linux, limits.h).
_MOST_TYPED = 4200

# What a message is about, by the kind of its event; all others are about a lost host.
_SUBJECTS = {
    state.ENDED: "the job's end",
    state.STALLED: "a hang",
    state.VERIFIED: "a difference from the plan",
}


def main(folder: JobFolder, event_time: str, spec_file: int, events_file: int) -> int:
    """Send the event of that time (seconds, as `repr` writes them); a delivery that fails is an event of the job, and nothing more.

    The files are open ones of the job, which may be deleted.
    """
    try:
        spec, events = records.read_open(folder, spec_file, events_file)
    except (TacoLaunchError, OSError):
        return OK
    place = next((i for i, event in enumerate(events) if repr(event.time) == event_time), None)
    if place is None:
        return OK
    record = state.reduce(events[: place + 1])
    event = events[place]
    if event.kind == state.ENDED and not record.admitted:
        return OK  # refused at the prompt of who submitted it: it leaves no record
    found = record.findings[:1] if event.kind == state.ENDED else ()
    more = [line for finding in found for line in (f"cause: {finding.cause}", f"next: {finding.next}")]
    mask = Masker(spec, {}).text
    typed = _typed(spec.policy.typed)
    message = {
        "name": folder.name,
        "state": record.state.value,
        "event": event.kind,
        "reason": as_typed(mask("\n".join((event.reason, *more))), typed),
        "hosts": record.hosts,
        "cluster": spec.cluster,
        "from": socket.gethostname(),
        "next": [f"{typed} get {folder.name}"] if _is_kept(folder, events_file) else [],
    }
    for called, notice in _notices(spec.policy):
        if not notice.wants(_occasions(event, record.state)):
            continue
        problem = deliver(notice.to, message)
        if problem and _is_kept(folder, events_file):
            to = "" if called == "--notify" else f"{shown(notice.to)}: "
            records.Events(folder).add(
                NOT_NOTIFIED,
                f"{called}: {to}the message about {_SUBJECTS.get(event.kind, 'a lost host')} was not delivered: {problem}",
            )
    return OK


def _typed(text: str) -> str:
    """Return how taco-launch is called; a user who submits a job cannot make another command of it, which others are to type."""
    try:
        words = shlex.split(text)
    except ValueError:
        return BARE
    fits = len(words) == 3 and words[:2] == [BARE, "-i"] and len(text) <= _MOST_TYPED and text.isprintable()
    return text if fits and shell(words) == text else BARE


def _is_kept(folder: JobFolder, events_file: int) -> bool:
    """Return whether the job is not deleted; another job may have its name by now."""
    try:
        return os.path.samestat(folder.events.stat(), os.fstat(events_file))
    except OSError:
        return False


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
