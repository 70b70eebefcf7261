"""The first phase of an attempt: allocate hosts, plan the launch, deliver code, start the launcher."""

import os
from pathlib import Path
from typing import Iterator, Sequence

from taco_launch.agent.gang import descriptors
from taco_launch.agent.host import containers, facts
from taco_launch.agent.processes import agent_program
from taco_launch.agent.store import records
from taco_launch.agent.supervisor import start
from taco_launch.agent.supervisor.ranks import restarts
from taco_launch.agent.supervisor.supervised_attempt import SupervisedAttempt
from taco_launch.core.launch import plan
from taco_launch.core.launch.command_line.env import relevant
from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.launch.missing_facts import missing_facts
from taco_launch.core.lifecycle import state
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.launchers import launcher_of


def _moved(attempt: SupervisedAttempt, hosts: Sequence[str]) -> Iterator[str]:
    """Tell of a retry on hosts that have nothing of what the attempt before wrote."""
    before = attempt.record.hosts
    new = [host for host in hosts if host not in before]
    if before and new:
        told = f"attempt {attempt.number} runs on {', '.join(new[:3])}{' and more' if len(new) > 3 else ''}"
        why = f"files that attempt {attempt.number - 1} wrote on its hosts alone are not there"
        yield f"{told}: {why}; use a folder that all hosts share, or --retry-on same-host"


def launch(attempt: SupervisedAttempt) -> None:
    """Start an attempt.

    Raises:
        PlacementError: there is no place for it now.
        UnusableError: too few of its hosts can be used.
        TacoLaunchError: it cannot start, or was stopped or suspended meanwhile.
    """
    caller, attempt.spec = containers.inherited(records.read_caller(attempt.folder), attempt.spec)
    spec, environment = attempt.spec, caller.environment
    asked = (bool(missing_facts(spec)) or spec.container is not None) and launcher_of(spec).is_open_mpi
    known = JobFacts(
        root=os.geteuid() == 0,
        environment=relevant(environment),
        openmpi=facts.openmpi(spec.mpirun, environment) if asked else None,
    )
    placement, known = attempt.gang.allocate(known, attempt.note)
    placement = plan.processes(spec, placement)
    descriptors.provide(len(placement.shares), placement.np)
    wrapper = agent_program.wrapper(attempt.folder.agent, plan.wrapper_op(spec), attempt.folder.path)
    launch = plan.plan(spec, attempt.id, placement, known, wrapper, str(attempt.folder.path), attempt.gang.port)
    for file in launch.files:
        Path(file.path).write_text(file.text, encoding="utf-8")
        Path(file.path).chmod(file.mode)
    attempt.events.add(
        state.PLACED,
        placement.why,
        np=placement.np,
        hosts=[share.host for share in placement.shares],
        line=mpirun.line(launch.tokens),
        warnings=(*launch.warnings, *_moved(attempt, [share.host for share in placement.shares])),
        mark=attempt.id,
        attempt=attempt.number,
        shares=start.recorded(placement),
    )
    undelivered = start.deliver_code(
        attempt.gang,
        spec,
        placement,
        attempt.events,
        attempt.note,
        lambda: _check_while_copying(attempt),
    )
    attempt.cut_short, attempt.lost_host = undelivered
    attempt.check_requests_early()
    suspended = state.suspension(attempt.record, attempt.number)
    attempt.ranks.place(
        placement, attempt.gang.here, attempt.number, launcher_of(spec), suspended, restarts=restarts(spec)
    )
    planned = start.Attempt(
        spec,
        attempt.folder,
        attempt.id,
        attempt.number,
        placement,
        launch,
        attempt.gang.port,
    )
    attempt.verification.begin(placement, launch, known)
    start.prepare(planned, attempt.gang, attempt.ranks, caller.umask, attempt.limits.stall_after)
    if spec.tensorboard is not None:
        from taco_launch.agent.tensorboard import board  # noqa: PLC0415 - few jobs have one

        board.start(attempt.folder, attempt.agent)
    attempt.orphans.launcher_starts()
    attempt.launcher, told, roots = start.start(planned, attempt.gang, attempt.ranks, caller)
    if spec.elastic:
        from taco_launch.agent.supervisor.elastic import ElasticWorld  # noqa: PLC0415 - few jobs are

        attempt.world = ElasticWorld(attempt, planned, known, caller, wrapper)
    attempt.events.add(state.LAUNCHED, told, boot=attempt.gang.here.boot, roots=roots, agent=attempt.agent)


def _check_while_copying(attempt: SupervisedAttempt) -> None:
    """Act on requests while the code is copied, and tell what is waited for. Raises as `check_requests_early` does."""
    attempt.check_requests_early()
    missing = (link.name for link in attempt.gang.links if link.answers.fetched is None)
    attempt.slow_start.step(lambda: f"its code on {', '.join(missing)}")
