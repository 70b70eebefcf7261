"""Which interface carries the traffic between hosts, compared with the plan: NCCL's sockets, and those of MPI and Gloo."""

from typing import Iterator, List, Optional, Set, Tuple, Union

from taco_launch.model.run.observed import InterfaceTraffic, SeenRank, SeenRun
from taco_launch.model.run.planned import PlannedHost, RunPlan, Transport
from taco_launch.model.run.verified import Mismatch
from taco_launch.verify.finding import Missing
from taco_launch.verify.seats import Seat, seats

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
            yield from _of_nccl(plan, seat, seat.host, seat.host.interface)
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


def _of_nccl(plan: RunPlan, seat: Seat, host: PlannedHost, planned: str) -> Found:
    process = seat.process
    carries = process.network == "Socket" or (plan.nccl is not None and plan.nccl.transport is Transport.SOCKET)
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
