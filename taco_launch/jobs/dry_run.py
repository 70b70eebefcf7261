"""The plan of a job without starting anything (--dry-run)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from taco_launch.core import trace
from taco_launch.core.errors import UsageError
from taco_launch.core.facts.gpus.hca_distance import nearest, nearest_first
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch import plan
from taco_launch.core.launch.command_line.env import VISIBLE_GPUS, relevant
from taco_launch.core.launch.command_line.gpu_local_hcas import ports_of
from taco_launch.core.launch.job_facts_from import job_facts_from
from taco_launch.core.launch.missing_facts import free_slots, missing_facts, needs_probe, on_host, unused
from taco_launch.core.launch.spec_for_head import spec_for_head
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.model.job_facts import JobFacts, LocalHcas
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.plans import LaunchPlan, Placement, PlanFile, Share, wanted_of
from taco_launch.core.model.slots import Occupancy
from taco_launch.core.placement.bandwidth import DEFAULT, figures_of
from taco_launch.core.placement.gpu_constraints import allowed, place_alike
from taco_launch.core.placement.host_gpus import explained
from taco_launch.core.placement.mesh import GpuMesh, mesh_of
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.jobs.backend import HeadFacts

_HCAS = "NCCL_IB_HCA"
_UNSEEN = f"no host was contacted: the job looks for RDMA ports when it starts, and adds those that it finds to the line ({_HCAS})"
_AT_START = (
    f"{_HCAS} lists the ports near the GPUs that the job would get now if no other job had any: when it starts, it lists "
    "the ports near the GPUs that the job really gets"
)


@dataclass(frozen=True)
class NearHcas:
    """The HCAs that are the nearest to the GPU of a local rank, of those that the job uses, and the link to them."""

    local_rank: int
    gpu: int
    link: str
    hcas: tuple[str, ...]


@dataclass(frozen=True)
class Planned:
    """The plan, and what to know of it beside: `notes`, a sentence each, on what is only known when the job starts.

    `choices` are (host, why these) of the hosts whose links between GPUs are known, or of whose GPUs it takes some;
    `nearest` is by host.
    """

    plan: LaunchPlan
    choices: tuple[tuple[str, GpuChoice], ...] = ()
    nearest: tuple[tuple[str, tuple[NearHcas, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def dry_run(
    spec: JobSpec,
    environ: Mapping[str, str],
    ask: Callable[[tuple[str, ...]], HeadFacts],
    ask_hosts: Callable[[tuple[str, ...]], tuple[Sequence[HostFacts], Sequence[str]]],
    *,
    root: bool,
    folder: str = "",
    explain: bool = False,
    facts: Sequence[HostFacts] = (),
) -> Planned:
    """Plan the job as the head would, were all of its hosts free of other jobs.

    `ask(missing)` asks the agent of this machine for its facts, `ask_hosts(missing)` gives those of hosts over SSH, and what
    is wrong with hosts that gave none; each is told what is missing, and not called where all is declared. `folder` is
    where the files will lie that the line names; with `explain` hosts are asked for their GPUs, too, where a job takes
    some of them. The line is the same without. Nobody is asked where `facts` of its hosts are given. Jobs in containers run as
    root.

    Raises:
        UsageError: a host's slots are neither declared nor known, or the launcher cannot be given its name.
        PlacementError: it does not fit.
    """
    if spec.container is not None:
        spec = spec_for_head(spec)
    local = spec.container is None and any(host.connection == "local" for host in spec.hosts)
    known = JobFacts(root=root or spec.container is not None, environment=relevant(environ) if local else None)
    missing, problems = () if facts else missing_facts(spec), list[str]()
    links: dict[str, Topology] = {}

    def facts_for(missing: tuple[str, ...]) -> JobFacts:
        if local:
            answer = ask(missing)
            problems.extend(filter(None, [answer.problem] if launcher_of(spec).is_open_mpi else []))
            if answer.topology is not None:
                links.update((host.name, answer.topology) for host in spec.hosts if host.connection == "local")
            return on_host(JobFacts(known.root, known.environment, answer.openmpi), spec, answer.host)
        hosts, silent = ask_hosts(missing)
        problems.extend(silent)
        links.update((host.host, host.topology) for host in hosts if isinstance(host.topology, Topology))
        return job_facts_from(known, spec, hosts)

    trace.decision(
        "facts: %s: from %s; all else comes from the inventory or the caller",
        ", ".join(missing) or "nothing more is needed",
        ("the agent of this machine" if local else "a probe of each host") if missing else "nobody",
    )
    if missing or facts:
        known = job_facts_from(known, spec, facts) if facts else facts_for(missing)
    free = free_slots(spec, known)
    unknown = next((entry.host for entry in free if not entry.all and not entry.lacks), None)
    if unknown is not None:
        raise UsageError(
            f"host {unknown}: its slots are not declared, and its number of GPUs is unknown",
            hint="; ".join([*problems, ""]) + f"slots: 8 in the inventory, slots=8 in a hostfile, or -H {unknown}:8",
        )
    wrapper = ("agent", plan.wrapper_op(spec), spec.name, "--")
    placed, models = place_alike(wanted_of(spec), spec.hosts, free, _by_name(spec, known))
    if models:
        spec = replace(
            spec,
            hosts=tuple(replace(host, constraints=replace(host.constraints, models=models)) for host in spec.hosts),
        )
    placed = plan.in_rank_order(spec, placed)
    seen, choices = known, placed.shares
    if links or (explain and _takes_some(placed, _by_name(spec, known))):
        seen = known if missing else facts_for(("how GPUs are linked",))
        choices = explained(spec.hosts, placed, _by_name(spec, seen), _meshes(seen, links)).shares
    pinned, chosen = _pinned(spec, placed, _by_name(spec, known))
    known = replace(known, near=_near(spec, choices, _by_name(spec, seen), links), pinned=pinned)
    placement = plan.processes(spec, placed)
    port = (*plan.own_ports(spec), plan.ANY_PORT)[0]
    made = plan.plan(spec, "<id>", placement, known, wrapper, folder, port)
    made = replace(made, warnings=(*problems, *made.warnings))
    notes = (*_of_gpus(spec, made, known, chosen), *_notes(spec, placement, made, known, asked=bool(missing or facts)))
    if not explain:
        return Planned(made, notes=notes)
    return Planned(
        made,
        tuple((share.host, share.choice) for share in choices if share.choice is not None),
        tuple(_nearest(spec, choices, _by_name(spec, seen), known, links)),
        notes,
    )


def may_choose(spec: JobSpec) -> bool:
    """Return whether a job may take some of a host's GPUs, and leave others of them: then its line hangs on how they are linked."""
    return not spec.exclusive and (spec.np is not None or spec.slots_per_host is not None)


def _by_name(spec: JobSpec, known: JobFacts) -> dict[str, Occupancy]:
    return {host.name: each for host, each in zip(spec.hosts, unused(spec, known), strict=True)}


def _takes_some(placed: Placement, found: Mapping[str, Occupancy]) -> bool:
    """Return whether a job takes some slots of a host, and not all."""
    return any(share.ranks < len(found[share.host].slots) for share in placed.shares)


def _pinned(
    spec: JobSpec, placed: Placement, found: Mapping[str, Occupancy]
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[str, ...]]:
    """Return the GPUs of hosts of which a job may have some, and has all of these; and the hosts where it has some of them."""
    constraints = {host.name: host.constraints for host in spec.hosts}
    pinned, chosen = list[tuple[str, tuple[int, ...]]](), list[str]()
    for share in placed.shares:
        here = found[share.host]
        every = allowed(constraints[share.host], here)
        gpus = tuple(number for number in every if number < here.gpus)
        if gpus and share.ranks < len(every):
            chosen.append(share.host)
        elif 0 < len(gpus) < here.gpus:
            pinned.append((share.host, gpus))
    return tuple(pinned), tuple(chosen)


def _meshes(known: JobFacts, links: Mapping[str, Topology]) -> dict[str, GpuMesh | None]:
    return {
        host.host: mesh_of(links[host.host], figures_of(host.models[0] if host.models else "") or DEFAULT)
        for host in known.hosts
        if host.host in links
    }


def _near(
    spec: JobSpec, shares: Sequence[Share], found: Mapping[str, Occupancy], links: Mapping[str, Topology]
) -> tuple[tuple[str, LocalHcas], ...]:
    """Return the HCAs near the GPUs that a job would have, as its guards would: of hosts some of whose GPUs it leaves."""
    constraints = {
        host.name: host.constraints for host in spec.hosts if host.constraints.topology and not spec.exclusive
    }
    near = list[tuple[str, LocalHcas]]()
    for share in shares:
        if share.host in constraints.keys() & links.keys():
            here = found[share.host]
            every = [number for number in allowed(constraints[share.host], here) if number < here.gpus]
            mine = every if share.choice is None else share.choice.gpus
            if 0 < len(mine) < here.gpus:
                near.append((share.host, nearest_first(links[share.host], mine)))
    return tuple(near)


def _nearest(
    spec: JobSpec,
    shares: Sequence[Share],
    found: Mapping[str, Occupancy],
    known: JobFacts,
    links: Mapping[str, Topology],
) -> Iterator[tuple[str, tuple[NearHcas, ...]]]:
    """Yield the HCAs nearest to each local rank's GPU, on hosts of which that is known.

    No rank is kept to them: NCCL itself takes the nearest for each GPU, and ranks see all GPUs of their job.
    """
    constraints = {host.name: host.constraints for host in spec.hosts}
    ports = {} if known.between is None else ports_of(known.between, [share.host for share in shares])
    for share in shares:
        if share.host in links and links[share.host].nics:
            topology, here = links[share.host], found[share.host]
            every = [number for number in allowed(constraints[share.host], here) if number < len(topology.gpus)]
            mine = every[: share.ranks] if share.choice is None else share.choice.gpus
            used = {port.rpartition(":")[0] for port in ports.get(share.host, ())} & set(topology.nics)
            among = tuple(used) or topology.nics
            rows = (NearHcas(rank, gpu, *nearest(topology, gpu, among)) for rank, gpu in enumerate(sorted(mine)))
            yield share.host, tuple(rows)


def _of_gpus(spec: JobSpec, made: LaunchPlan, known: JobFacts, chosen: Sequence[str]) -> Iterator[str]:
    """Yield which GPUs of the job its line does not name, where it is not the user who says which ranks see."""
    if VISIBLE_GPUS in {**dict(spec.env), **dict(known.environment or ())}:
        return
    first = "if you paste the line unchanged, its ranks see all GPUs of a host and use the first ones"
    named = any(token.source == "launcher" and token.text.startswith(VISIBLE_GPUS) for token in made.tokens)
    if chosen:
        yield (
            f"which GPUs of {fold(chosen)} the job gets is chosen when it starts, so the line does not name them: "
            f"{first} (to choose them: --gpu-ids)"
        )
    elif launcher_of(spec).is_single and known.pinned and not named:
        alike: dict[tuple[int, ...], list[str]] = {}
        for host, gpus in known.pinned:
            alike.setdefault(gpus, []).append(host)
        which = "; ".join(f"{','.join(map(str, gpus))} on {fold(hosts)}" for gpus, hosts in alike.items())
        yield f"the job's GPUs are not the same on all of its hosts ({which}), which an mpirun line cannot express: {first}"


def _notes(spec: JobSpec, placement: Placement, made: LaunchPlan, known: JobFacts, *, asked: bool) -> Iterator[str]:
    """Yield what of the line is only known when the job starts."""
    values = [name for _host, pairs in made.host_env for name, _value in pairs]
    named = _HCAS in values or any(
        token.text.startswith(f"{_HCAS}=") and token.source == "fact" for token in made.tokens
    )
    if named and known.near:
        yield _AT_START
    if not asked and len(placement.shares) > 1 and needs_probe(replace(spec, container=None)):
        yield _UNSEEN


def write_files(found: LaunchPlan, spec: JobSpec, folder: str) -> tuple[str, ...]:
    """Write into a folder the files that have to be there before the plan's line runs, and give their paths.

    Where a job has a line on each host, that is a file `HOST.sh`.
    """
    files = list(found.files)
    if not launcher_of(spec).is_single:
        files += [
            PlanFile(f"{folder}/{command.host}.sh", f"#!/bin/sh\n{plan.line(command)}\n") for command in found.commands
        ]
    for file in files:
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_text(file.text, encoding="utf-8")
        Path(file.path).chmod(file.mode | 0o044)
    return tuple(file.path for file in files)
