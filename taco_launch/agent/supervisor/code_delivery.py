"""A job's code on all of its hosts before a rank starts: each host takes it from the one before it, as it arrives there."""

import time
from typing import Callable, List, Optional, Sequence, Tuple

from taco_launch import state
from taco_launch.agent.store import records
from taco_launch.agent.supervisor import teardown
from taco_launch.agent.supervisor.guard_connection import GuardConnection, RemoteGuardConnection
from taco_launch.agent.supervisor.guard_pool import GuardPool, Note
from taco_launch.errors import HOST_FAILED
from taco_launch.model.jobs import JobSpec, JobState
from taco_launch.protocol.guard_messages import CodeFetched, FetchCode
from taco_launch.state import JobOutcome


def deliver(
    gang: GuardPool,
    spec: JobSpec,
    agent: str,
    hosts: Sequence[str],
    events: records.Events,
    note: Note,
    meanwhile: Callable[[], None],
) -> Tuple[Optional[JobOutcome], str]:
    """Have every placed host bring the job's code; where not all have it, return how the job ends and the host to blame.

    That is "" where it is the head.

    `meanwhile` is called while it goes on. Raises what that does.
    """
    links = _links(gang, hosts)
    begun = time.monotonic()
    for link, order in zip(links, _orders(gang, spec, agent, links)):
        link.order(order)
    while any(link.answers.fetched is None for link in links):
        gang.pump(note)
        meanwhile()
        for remote in gang.remote:
            remote.lost_after(spec.policy.host_loss_timeout, gang.looked)
        gone = next((link for link in links if link.gone), None)
        if gone is not None:
            return teardown.end_of(gone, gang.here), "" if gone is gang.here else gone.name
        failed = next((link for link in links if link.answers.fetched is not None and link.answers.fetched.error), None)
        if failed is not None:
            return _failed(gang, failed)
    answers = [link.answers.fetched or CodeFetched() for link in links]
    notes = [f"{link.name}: {words}" for link, answer in zip(links, answers) for words in answer.notes]
    received, seconds = sum(answer.received for answer in answers), time.monotonic() - begun
    count = "1 host" if len(links) == 1 else f"{len(links)} hosts"
    words = f"the code is on {count} after {seconds:.2f} s; {received} bytes of it were copied between hosts"
    events.add(state.COPIED, words, bytes=received, seconds=seconds, notes=notes)
    return None, ""


def _links(gang: GuardPool, hosts: Sequence[str]) -> List[GuardConnection]:
    """Return the guards of hosts, each once: this host may be among them under two names."""
    found: List[GuardConnection] = []
    for name in hosts:
        link = gang.link(name)
        if link not in found:
            found.append(link)
    return found


def _orders(gang: GuardPool, spec: JobSpec, agent: str, links: Sequence[GuardConnection]) -> List[FetchCode]:
    """Return what each host is told: whom to ask first, then the head, where the code is whole."""
    code, found, before = spec.code, [], ""
    for link in links:
        remote = isinstance(link, RemoteGuardConnection)
        head = spec.head or gang.here.name
        order = FetchCode(
            snapshot="" if code is None else code.id,
            agent=agent,
            sources=list(dict.fromkeys(filter(None, (before, head)))) if remote else [],
            tree=code is not None and bool(code.source),
            at="" if code is None else code.at,
            workdir=spec.workdir,
            cwd="" if remote else spec.cwd,
        )
        found.append(order)
        before = link.name if remote else ""
    return found


def _failed(gang: GuardPool, link: GuardConnection) -> Tuple[JobOutcome, str]:
    answer = link.answers.fetched or CodeFetched()
    where = link.name or "this host"
    outcome = JobOutcome(JobState.FAILED, HOST_FAILED, f"{where}: {answer.error}", answer.hint)
    return outcome, "" if link is gang.here else link.name
