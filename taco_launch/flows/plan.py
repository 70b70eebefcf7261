"""The plan of a job without starting anything (--dry-run)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taco_launch.errors import UsageError
from taco_launch.flows.jobs import for_elsewhere
from taco_launch.launch import plan
from taco_launch.launch.env import relevant
from taco_launch.launch.found import over_ssh
from taco_launch.launch.needs import free_slots, needs, on_host
from taco_launch.model.facts import HostFacts
from taco_launch.model.job_facts import JobFacts
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import File, LaunchPlan, wanted_of
from taco_launch.placement import place


def dry_run(
    spec: JobSpec,
    environ: Mapping[str, str],
    ask: Callable[[tuple[str, ...]], Mapping[str, Any]],
    look: Callable[[tuple[str, ...]], tuple[Sequence[HostFacts], Sequence[str]]],
    *,
    root: bool,
    folder: str = "",
) -> LaunchPlan:
    """Plan the job as the head would.

    `ask(missing)` asks the agent of this machine for its facts, `look(missing)` gives those of hosts over SSH, and what
    is wrong with hosts that gave none; each is told what is missing, and not called where all is declared. `folder` is
    where the files will lie that the line names. Jobs in containers run as root.

    Raises:
        UsageError: a host's slots are neither declared nor known, or the launcher cannot be given its name.
        PlacementError: it does not fit.
    """
    if spec.container is not None:
        spec = for_elsewhere(spec)
    local = spec.container is None and any(host.connection == "local" for host in spec.hosts)
    known = JobFacts(root=root or spec.container is not None, environment=relevant(environ) if local else None)
    missing, problems = needs(spec), list[str]()
    if missing and local:
        answer = ask(missing)
        known = JobFacts(known.root, known.environment, answer["openmpi"])
        known = on_host(known, spec, answer["host"])
        problems += filter(None, [answer["problem"]] if spec.launcher == "mpirun" else [])
    elif missing:
        hosts, silent = look(missing)
        known = over_ssh(known, spec, hosts)
        problems += silent
    free = free_slots(spec, known)
    unknown = next((entry.host for entry in free if entry.slots == 0), None)
    if unknown is not None:
        raise UsageError(
            f"host {unknown}: its slots are not declared, and nothing tells how many GPUs it has",
            hint="; ".join([*problems, ""]) + f"slots: 8 in the inventory, slots=8 in a hostfile, or -H {unknown}:8",
        )
    wrapper = ("agent", plan.wrapper_op(spec), spec.name, "--")
    placement = plan.processes(spec, place(wanted_of(spec), free))
    port = (*plan.own_ports(spec), plan.ANY_PORT)[0]
    found = plan.plan(spec, "<id>", placement, known, wrapper, folder, port)
    return replace(found, warnings=(*problems, *found.warnings))


def write_files(found: LaunchPlan, spec: JobSpec, folder: str) -> tuple[str, ...]:
    """Write into a folder the files that have to be there before the plan's line runs, and give their paths.

    Where a job has a line on each host, that is a file `HOST.sh`.
    """
    files = list(found.files)
    if spec.launcher != "mpirun":
        files += [
            File(f"{folder}/{command.host}.sh", f"#!/bin/sh\n{plan.line(command)}\n") for command in found.commands
        ]
    for file in files:
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_text(file.text, encoding="utf-8")
    return tuple(file.path for file in files)
