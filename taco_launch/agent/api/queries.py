"""Calls about what exists: list, live, get, metrics, top, prune."""

import contextlib
import subprocess
import time
from dataclasses import replace
from typing import Callable, Dict, Iterator, Sequence, Type, Union

from taco_launch.agent.api.view import current_view
from taco_launch.agent.host import occupancy
from taco_launch.agent.processes import agent_program
from taco_launch.agent.ssh import commands as ssh
from taco_launch.agent.store import usage_series
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.agent.upkeep import job_counters, job_index, removal
from taco_launch.core.errors import TacoLaunchError, last_line
from taco_launch.core.lifecycle.goodput import time_spent, trained_share
from taco_launch.core.model.job_rows import decoded, encoded, last_run
from taco_launch.core.model.job_view import HostUsages, LiveJob
from taco_launch.core.model.jobs import JobState
from taco_launch.core.protocol.calls import Notice, Reply, Request
from taco_launch.core.protocol.calls.hosts import HostSize, SlotsReply, Top
from taco_launch.core.protocol.calls.job_list import Counted, List, Live, LiveJobs, Metrics, Prune, Rows
from taco_launch.core.protocol.calls.jobs import Get, GetUsage, JobReply, UsageReply

# nvidia-smi alone has 30 seconds on a host.
_SLOTS_SECONDS = 40.0
# What a host used longer ago than this is not what it uses.
_OLDEST_SECONDS = 60.0


def _list(jobs: Jobs, _agent: str, _request: List) -> Iterator[Reply]:
    found = job_index.current_rows(jobs)
    yield Rows(rows=found.rows)
    for warning in found.warnings:
        yield Notice(text=warning)


def _live(jobs: Jobs, _agent: str, _request: Live) -> Iterator[Reply]:
    found = job_index.current_rows(jobs)
    yield Rows(rows=found.rows)
    running = []
    for row in map(decoded, found.rows):
        if row.state is JobState.RUNNING:
            with contextlib.suppress(TacoLaunchError):  # it has been removed meanwhile
                folder = jobs.get(row.name)
                view = current_view(folder, events=True)
                spent = time_spent(view.record, view.events, time.time(), view.first_step)
                running.append(LiveJob(row.name, trained_share(spent), _usage(folder, view.record.state)))
    for warning in found.warnings:
        yield Notice(text=warning)
    yield LiveJobs(jobs=running)


def _get(jobs: Jobs, _agent: str, request: Get) -> Iterator[Reply]:
    folder = jobs.get(request.name)
    view = current_view(folder, events=True)
    view = replace(view, usage=_usage(folder, view.record.state))
    if view.progress is not None and view.progress.rate is not None:
        rows = {row.name: row for row in map(decoded, job_index.current_rows(jobs).rows)}
        if request.name in rows:
            view = replace(view, last_run=last_run(rows[request.name], rows.values()))
    yield JobReply(job=view)


def _usage(folder: JobFolder, state: JobState) -> HostUsages:
    """Return what a running job uses on each host that reported it lately; nothing for a job in another state."""
    if state is JobState.RUNNING:
        with contextlib.suppress(TacoLaunchError):  # a damaged file is replaced by the next sample
            usage = usage_series.read(folder)
            since = time.time() - _OLDEST_SECONDS
            return () if usage is None else tuple((host, last) for host, last in usage.hosts if last.time > since)
    return ()


def _series(jobs: Jobs, _agent: str, request: GetUsage) -> Iterator[Reply]:
    yield UsageReply(usage=usage_series.read(jobs.get(request.name)))


def _metrics(jobs: Jobs, _agent: str, _request: Metrics) -> Iterator[Reply]:
    found, tally, last = job_counters.counted(jobs)
    for warning in found.warnings:
        yield Notice(text=warning)
    live = []
    for row in (row for row in map(decoded, found.rows) if row.state is JobState.RUNNING):
        with contextlib.suppress(TacoLaunchError):  # it has been removed meanwhile
            if hosts := _usage(jobs.get(row.name), row.state):
                live.append(LiveJob(row.name, row.goodput, hosts))
    yield Counted(rows=found.rows, removed=tally, last=last, live=live)


def _top(_jobs: Jobs, agent: str, request: Top) -> Iterator[Reply]:
    def slots(host: HostSize) -> SlotsReply:
        words = occupancy.arguments(host.slots, host.gpus)
        answer = _slots_here(agent, words) if host.name == request.here else _slots_there(host.name, agent, words)
        found = SlotsReply(host=host.name, problem=answer) if isinstance(answer, str) else answer
        return found.replace(host=host.name)

    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - no other call needs it, and `submit` would wait

    with ThreadPoolExecutor(max(1, min(len(request.hosts), ssh.MOST_AT_ONCE))) as pool:
        yield from pool.map(slots, request.hosts)


def _slots_here(agent: str, words: Sequence[str]) -> Union[SlotsReply, str]:
    try:
        done = subprocess.run(
            agent_program.argv(agent, "slots", *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SLOTS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_SLOTS_SECONDS:g} s"
    return ssh.understood(done.stdout, SlotsReply) or last_line(done.stderr) or f"exit {done.returncode}"


def _slots_there(host: str, agent: str, words: Sequence[str]) -> Union[SlotsReply, str]:
    """Ask another host; one that has not got this agent yet is given it first, as at the start of a job."""
    ((_host, answer),) = ssh.ask([host], agent, SlotsReply, "slots", *words, seconds=_SLOTS_SECONDS)
    if not (isinstance(answer, str) and ssh.lacks_agent(answer)):
        return answer
    put = ssh.AgentUpload(host, agent)
    problem = put.problem()
    while problem is None:
        time.sleep(0.05)
        problem = put.problem()
    put.close()
    return problem or ssh.ask([host], agent, SlotsReply, "slots", *words, seconds=_SLOTS_SECONDS)[0][1]


def _prune(jobs: Jobs, agent: str, request: Prune) -> Iterator[Reply]:
    now = time.time()
    gone = []
    for row in map(decoded, job_index.current_rows(jobs).rows):
        if row.ended is None or now - row.ended < request.since:
            continue
        if request.owner is not None and row.owner not in ("", request.owner):
            continue
        try:
            if not request.dry_run:
                for warning in removal.remove(jobs, agent, jobs.get(row.name)):
                    yield Notice(text=warning)
            gone.append(encoded(row))
        except TacoLaunchError as error:  # somebody else was faster
            yield Notice(text=error.message)
    yield Rows(rows=gone)


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {
    List: _list,
    Live: _live,
    Get: _get,
    GetUsage: _series,
    Metrics: _metrics,
    Top: _top,
    Prune: _prune,
}
