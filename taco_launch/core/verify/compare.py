"""Holds the plan of a run against what is seen of it: verified, the first mismatch, or why it is not known."""

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

from taco_launch.core.model.run.observed import InterfaceTraffic, SeenRank, SeenRun
from taco_launch.core.model.run.planned import PlannedHost, PlannedTransport, RunPlan
from taco_launch.core.model.run.verified import Mismatch, Truth, Verified
from taco_launch.core.verify import nccl_checks, worlds
from taco_launch.core.verify.finding import Missing, matching
from taco_launch.core.verify.nccl_ranks import NcclRank, hosts_of_ranks, seats

_MOST_WHY = 3
# Which GPUs a process may use (CUDA C++ Programming Guide, "CUDA Environment Variables").
_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


class _Check(NamedTuple):
    """What is compared, by whom, and whether anything of it was planned."""

    name: str
    run: Callable[[RunPlan, SeenRun], Iterator[Union[Mismatch, Missing]]]
    planned: Callable[[RunPlan], bool]


def verify(plan: RunPlan, seen: SeenRun) -> Verified:
    """Return the condition.

    False with the first mismatch, in the order of the checks and then of the ranks, whatever else is not known yet. True
    only where every planned value was compared for every rank or host that has one, and no log was cut. Else Unknown.
    """
    missing: List[str] = []
    checked: List[str] = []
    for check in _CHECKS:
        before = len(missing)
        for found in check.run(plan, seen):
            if isinstance(found, Mismatch):
                return Verified(Truth.FALSE, str(found), found, (*checked, check.name))
            missing.append(found.why)
        if len(missing) == before and check.planned(plan):
            checked.append(check.name)
    if missing:
        more = len(missing) - _MOST_WHY
        told = missing[:_MOST_WHY] + ([f"{more} more"] if more > 0 else [])
        return Verified(Truth.UNKNOWN, "; ".join(told), None, tuple(checked))
    return Verified(Truth.TRUE, "", None, tuple(checked))


def _ranks(plan: RunPlan, seen: SeenRun) -> Iterator[Union[Mismatch, Missing]]:
    planned = hosts_of_ranks(plan)
    places: Dict[int, List[str]] = {}
    for one in seen.ranks:
        places.setdefault(one.rank, []).append(one.host)
    for rank, hosts in sorted(places.items()):
        if rank not in planned:
            yield Mismatch(
                "number of ranks",
                hosts[0],
                rank,
                str(plan.np),
                f"a rank {rank}",
                "More ranks were started than planned.",
                "taco-launch run --dry-run shows the line; a launcher inside the command starts ranks of its own.",
            )
        elif len(hosts) > 1:
            yield Mismatch(
                "number of ranks",
                " and ".join(hosts),
                rank,
                "one process of that rank",
                str(len(hosts)),
                "Two processes have the same rank: each launcher started its own world.",
                "taco-launch run --dry-run shows the line; use one launcher for all hosts.",
            )
        elif hosts[0] != planned[rank].name:
            yield Mismatch(
                "host",
                hosts[0],
                rank,
                planned[rank].name,
                hosts[0],
                "The launcher placed its ranks in another order than planned.",
                "taco-launch run --dry-run --explain shows -H and --map-by; your own hostfile or rankfile overrides both.",
            )
    yield from _not_seen([rank for rank in planned if rank not in places], "rank")


def _libraries(_plan: RunPlan, seen: SeenRun) -> Iterator[Union[Mismatch, Missing]]:
    """Compare the libraries that ranks have loaded: those of most ranks are right."""
    versions: Dict[str, Dict[str, List[SeenRank]]] = {}
    for one in seen.ranks:
        for name, version in one.libraries:
            versions.setdefault(name, {}).setdefault(version, []).append(one)
    for name, found in sorted(versions.items()):
        (usual, those), *others = sorted(found.items(), key=lambda entry: -len(entry[1]))
        for version, ranks in others:
            host = ranks[0].host
            yield Mismatch(
                f"library {name}",
                host,
                ranks[0].rank,
                f"{usual} as on {those[0].host}",
                version,
                f"{host} has another installation of {name} than {those[0].host}, or another LD_LIBRARY_PATH.",
                f"taco-launch facts --only image compares the hosts; then run taco-launch setup -H {host} --only image,container",
            )


def _environment(plan: RunPlan, seen: SeenRun) -> Iterator[Union[Mismatch, Missing]]:
    ranks = _planned_ranks(plan, seen)
    for name, value in plan.env:
        unread = []
        for one in ranks:
            if one.env is None:
                unread.append(one.rank)
                continue
            there = dict(one.env)
            if there.get(name) != value:
                yield Mismatch(
                    "environment",
                    one.host,
                    one.rank,
                    f"{name}={value}",
                    f"{name}={there[name]}" if name in there else f"no {name}",
                    "The launcher does not pass it on, or a script, the shell or the image on that host sets another value.",
                    f"Set -x {name}={value}; taco-launch exec NAME --rank {one.rank} -- env shows what is set there.",
                )
        if unread:
            yield from _not_seen(unread, f"{name} of rank")


def _gpus(plan: RunPlan, seen: SeenRun) -> Iterator[Union[Mismatch, Missing]]:
    """Compare which GPUs the ranks see with those that the job has; a rank may narrow them to its own."""
    planned = hosts_of_ranks(plan)
    unread, numbered = [], []
    for one in _planned_ranks(plan, seen):
        host = planned[one.rank]
        if host.gpus is None:
            continue
        if one.env is None:
            unread.append(one.rank)
            continue
        value = dict(one.env).get(_VISIBLE_GPUS)
        found = set(value.split(",")) - {""} if value is not None else {"all"}
        if not found - set(host.gpus) or host.all_gpus:
            continue
        if all(gpu.isdecimal() for gpu in found) and not host.gpus[0].isdecimal():
            numbered.append(one.rank)
            continue
        yield Mismatch(
            "GPUs",
            one.host,
            one.rank,
            ",".join(host.gpus),
            "all GPUs of the host" if value is None else value,
            f"The program, a script or the image sets another {_VISIBLE_GPUS}: other jobs may use these GPUs.",
            "Do not set it there; choose the GPU by the local rank: torch.cuda.set_device(local_rank).",
        )
    yield from _not_seen(unread, f"{_VISIBLE_GPUS} of rank")
    if numbered:
        yield Missing(f"rank {matching(numbered)} names GPUs by number: whether the job has these is not known")


def _planned_ranks(plan: RunPlan, seen: SeenRun) -> List[SeenRank]:
    planned = hosts_of_ranks(plan)
    return sorted((one for one in seen.ranks if one.rank in planned), key=lambda one: one.rank)


def _not_seen(ranks: List[int], what: str) -> Iterator[Missing]:
    if ranks:
        yield Missing(f"{what} {matching(ranks)} not known" if what != "rank" else f"rank {matching(ranks)} not seen")


def _nccl(check: nccl_checks.NcclCheck) -> Callable[[RunPlan, SeenRun], Iterator[Union[Mismatch, Missing]]]:
    def run(plan: RunPlan, seen: SeenRun) -> Iterator[Union[Mismatch, Missing]]:
        if plan.nccl is not None:
            yield from check(plan, plan.nccl, seats(plan, seen.nccl))

    return run


def _of_nccl(plan: RunPlan) -> bool:
    return plan.nccl is not None


def _between_hosts(plan: RunPlan) -> bool:
    return len(plan.hosts) > 1 and any(host.interface is not None for host in plan.hosts)


Found = Iterator[Union[Mismatch, Missing]]
# Less than a rank's start exchanges says nothing: another interface may have carried the launcher's own messages.
_LEAST_BYTES = 64 << 10


def interfaces(plan: RunPlan, seen: SeenRun) -> Found:
    """Compare the interface of each host with those that its ranks use."""
    if len(plan.hosts) == 1:
        return
    told: Set[str] = set()
    for seat in seats(plan, seen.nccl):
        if seat.host is not None and seat.host.interface is not None:
            if seat.process.bootstrap or seat.process.oob or seat.process.interfaces:
                told.add(seat.host.name)
            yield from _of_nccl_interfaces(plan, seat, seat.host, seat.host.interface)
    named = {host.name: host for host in plan.hosts}
    for one in sorted(seen.ranks, key=lambda rank: rank.rank):
        host = named.get(one.host)
        if host is not None and host.interface is not None and one.sockets is not None:
            if any(traffic.connections for traffic in one.sockets):
                told.add(host.name)
            yield from _of_sockets(one, host.interface, one.sockets)
    for host in plan.hosts:
        if host.interface is not None and host.name not in told:
            yield Missing(f"interface that the ranks use on {host.name} not known")


def _of_nccl_interfaces(plan: RunPlan, seat: NcclRank, host: PlannedHost, planned: str) -> Found:
    process = seat.process
    carries = process.network == "Socket" or (plan.nccl is not None and plan.nccl.transport is PlannedTransport.SOCKET)
    listed = process.interfaces if carries and process.interfaces else ()
    for what, names in (("NET/Socket", listed), ("bootstrap", (process.bootstrap, process.oob))):
        wrong = next((name for name in names if name and name != planned), None)
        if wrong is not None:
            yield _mismatch(host.name, seat.rank, planned, f"{wrong} (NCCL's {what})")


def _of_sockets(one: SeenRank, planned: str, found: Tuple[InterfaceTraffic, ...]) -> Found:
    right = [traffic for traffic in found if planned in traffic.interface.split(",")]
    wrong = [traffic for traffic in found if traffic not in right and traffic.interface]
    most = max(wrong, key=lambda traffic: traffic.bytes or 0, default=None)
    if most is None:
        if any(not traffic.interface for traffic in found):
            yield Missing(f"rank {one.rank}: interface of its connections not known")
        return
    carried = _bytes(right)
    if most.bytes is None or carried is None:
        yield Missing(f"rank {one.rank}: bytes on {most.interface} not known")
    elif most.bytes > max(_LEAST_BYTES, carried):
        yield _mismatch(one.host, one.rank, planned, f"{most.interface} ({most.bytes} bytes, {carried} on {planned})")


def _bytes(found: List[InterfaceTraffic]) -> Optional[int]:
    told = [traffic.bytes for traffic in found]
    return None if None in told else sum(number for number in told if number is not None)


def _mismatch(host: str, rank: Optional[int], planned: str, seen: str) -> Mismatch:
    return Mismatch(
        "interface",
        host,
        rank,
        planned,
        seen,
        "The variable that names the interface did not reach the ranks, or matches several: names match as prefixes.",
        f"Set -x NCCL_SOCKET_IFNAME=={planned} -x GLOO_SOCKET_IFNAME={planned}; with mpirun also --mca btl_tcp_if_include {planned}",
    )


_CHECKS = (
    _Check("world size", worlds.world_size, _of_nccl),
    _Check("ranks and hosts", _ranks, lambda _plan: True),
    _Check("NCCL's ranks and hosts", worlds.nccl_world, _of_nccl),
    _Check("libraries", _libraries, lambda plan: len(plan.hosts) > 1),
    _Check("environment", _environment, lambda plan: bool(plan.env)),
    _Check("GPUs", _gpus, lambda plan: any(host.gpus is not None for host in plan.hosts)),
    _Check("transport", _nccl(nccl_checks.transport), _of_nccl),
    _Check("HCAs", _nccl(nccl_checks.hcas), _of_nccl),
    _Check("GID index", _nccl(nccl_checks.gid_index), _of_nccl),
    _Check("GPUDirect RDMA", _nccl(nccl_checks.gdr), _of_nccl),
    _Check("interface", interfaces, _between_hosts),
)
