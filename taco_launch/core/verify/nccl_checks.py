"""What NCCL does between hosts, compared with the plan: transport, HCAs, GID index, GPUDirect RDMA."""

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from taco_launch.core.model.run.observed import NcclConnection, NcclProcess
from taco_launch.core.model.run.planned import NcclPlan, PlannedTransport, RunPlan
from taco_launch.core.model.run.verified import Mismatch
from taco_launch.core.verify.finding import Missing
from taco_launch.core.verify.nccl_ranks import NcclRank

Found = Iterator[Union[Mismatch, Missing]]
NcclCheck = Callable[[RunPlan, NcclPlan, Sequence[NcclRank]], Found]


class _Carried(NamedTuple):
    seat: NcclRank
    connection: NcclConnection


def transport(plan: RunPlan, nccl: NcclPlan, seats: Sequence[NcclRank]) -> Found:
    """Compare the network that each process chose, and that each of its connections takes."""
    if nccl.transport is None or len(plan.hosts) == 1:
        return
    for seat in seats:
        used = [one for one in seat.process.connections if one.is_network and one.transport != "COLLNET"]
        wrong = next((one for one in used if one.transport != nccl.transport.value), None)
        chosen = wrong.transport if wrong is not None else "" if used else seat.process.network
        if chosen and chosen != nccl.transport.value:
            rank = wrong.told_by if wrong is not None and seat.rank is not None else seat.rank
            why = of_transport(seat.process, nccl.transport, seat.place)
            yield Mismatch(
                "transport",
                seat.place,
                rank,
                f"NET/{nccl.transport.value}",
                f"NET/{chosen}",
                why.cause,
                why.next_step,
            )
        elif not chosen and not seat.process.hcas and not seat.process.interfaces:
            yield from _not_said(seat, "which network it uses")
    yield from _hosts_without_connections(plan, seats)


def hcas(plan: RunPlan, nccl: NcclPlan, seats: Sequence[NcclRank]) -> Found:
    """Compare the HCAs that NCCL lists with those of the plan."""
    if nccl.transport is not PlannedTransport.IB or len(plan.hosts) == 1:
        return
    for seat in seats:
        if seat.host is None or seat.host.hcas is None:
            continue
        if not seat.process.hcas:
            yield from _not_said(seat, "which HCAs it uses")
            continue
        there = {hca.name for hca in seat.process.hcas}
        if there != set(seat.host.hcas):
            lacking = sorted(set(seat.host.hcas) - there)
            yield Mismatch(
                "HCAs",
                seat.place,
                seat.rank,
                ",".join(sorted(seat.host.hcas)),
                ",".join(sorted(there)),
                f"The port of {', '.join(lacking)} is not active, or not visible in the container."
                if lacking
                else "NCCL_IB_HCA did not reach the ranks: NCCL uses every HCA with an active port.",
                f"Compare `taco-launch facts {seat.place} --only rdma` with NCCL_IB_HCA in `taco-launch run --dry-run --explain -- COMMAND`.",
            )
    yield from _silent_hosts(plan, seats, "HCAs")


def gid_index(plan: RunPlan, nccl: NcclPlan, seats: Sequence[NcclRank]) -> Found:
    """Compare the GID index of the connections, or what the environment sets."""
    if nccl.transport is not PlannedTransport.IB or len(plan.hosts) == 1:
        return
    told: Set[str] = set()
    for seat in seats:
        if seat.host is None or seat.host.gid_index is None:
            continue
        env = dict(seat.process.env).get("NCCL_IB_GID_INDEX", "")
        used = [index for index in seat.process.gid_indices if index >= 0]
        used = used or ([int(env)] if env.isascii() and env.isdecimal() else [])
        if used:
            told.add(seat.host.name)
        wrong = next((index for index in used if index != seat.host.gid_index), None)
        if wrong is not None:
            yield Mismatch(
                "GID index",
                seat.place,
                seat.rank,
                str(seat.host.gid_index),
                str(wrong),
                "NCCL_IB_GID_INDEX did not reach the rank, or /etc/nccl.conf or the image sets another one.",
                f"taco-launch facts {seat.place} --only rdma shows the GIDs; taco-launch run --dry-run --explain shows the index.",
            )
    for host in plan.hosts:
        if host.gid_index is not None and host.name not in told:
            yield Missing(f"GID index that NCCL uses on {host.name} not known (NCCL_DEBUG_SUBSYS must include NET)")


def gdr(plan: RunPlan, nccl: NcclPlan, seats: Sequence[NcclRank]) -> Found:
    """Compare whether data is received straight into GPU memory. Sending is not judged: NCCL decides by GPU about that."""
    if nccl.gdr is None or nccl.transport is PlannedTransport.SOCKET or len(plan.hosts) == 1:
        return
    received: Dict[Tuple[str, int, int], Set[bool]] = {}
    where: Dict[Tuple[str, int, int], _Carried] = {}
    for seat in seats:
        if nccl.gdr and any(not able for _hca, able in seat.process.gdr_of_hca):
            hca = next(hca for hca, able in seat.process.gdr_of_hca if not able)
            yield _not_gdr(seat, f"disabled for {hca}")
        for one in seat.process.connections:
            if one.direction == "receive" and one.transport in ("IB", "OFI", "COLLNET"):
                key = (seat.process.host, seat.process.pid, one.device or 0)
                received.setdefault(key, set()).add(one.gdr)
                where.setdefault(key, _Carried(seat, one))
    for key, states in received.items():
        seat, connection = where[key]
        # The same GPU and HCA cannot do it and not do it: a line was cut.
        if len(states) > 1:
            yield Missing(f"GPUDirect RDMA on {seat.place}: NCCL's log shows it both used and not used")
        elif nccl.gdr and not connection.gdr:
            yield _not_gdr(seat, f"NET/{connection.transport}/{connection.device} without GDRDMA", connection.told_by)
        elif not nccl.gdr and connection.gdr:
            yield Mismatch(
                "GPUDirect RDMA",
                seat.place,
                seat.rank,
                "off",
                "used",
                "NCCL_NET_GDR_LEVEL did not reach the rank.",
                "-x NCCL_NET_GDR_LEVEL=LOC turns it off.",
            )
    yield from _hosts_without_connections(plan, seats)


def _not_gdr(seat: NcclRank, seen: str, rank: Optional[int] = None) -> Mismatch:
    why = of_gdr(seat.process, seat.place)
    known = seat.rank if seat.rank is not None else rank
    return Mismatch("GPUDirect RDMA", seat.place, known, "used", seen, why.cause, why.next_step)


def _not_said(seat: NcclRank, what: str) -> Found:
    """Yield that a rank of the world has not said something; other processes may never say it."""
    if seat.rank is not None:
        yield Missing(f"rank {seat.rank} on {seat.place} has not logged {what}")


def _silent_hosts(plan: RunPlan, seats: Sequence[NcclRank], what: str) -> Found:
    there = {seat.host.name for seat in seats if seat.host is not None}
    for host in plan.hosts:
        if host.name not in there:
            yield Missing(f"{what} that NCCL uses on {host.name} not known")


def _hosts_without_connections(plan: RunPlan, seats: Sequence[NcclRank]) -> Found:
    reached: Set[str] = set()
    for seat in seats:
        if seat.host is not None and any(one.direction == "receive" for one in seat.process.connections):
            reached.add(seat.host.name)
    silent: List[str] = [host.name for host in plan.hosts if host.name not in reached]
    if silent:
        told = ", ".join(silent[:4]) + (", ..." if len(silent) > 4 else "")
        yield Missing(f"NCCL has not logged a connection from another host on {told}")


class NcclCause(NamedTuple):
    """A likely cause and the next step, a sentence each."""

    cause: str
    next_step: str


def of_transport(process: NcclProcess, planned: PlannedTransport, host: str) -> NcclCause:
    """Explain why another network than the planned one is used on a host."""
    env = dict(process.env)
    warnings = " ".join(process.warnings)
    if planned is PlannedTransport.SOCKET:
        return NcclCause(
            f"NCCL found a faster network on {host}.", "-x NCCL_NET=Socket keeps it on TCP; or use --transport rdma."
        )
    if env.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        return NcclCause(
            f"NCCL_IB_DISABLE={env['NCCL_IB_DISABLE']} reached the ranks on {host}.",
            "Remove it from -x, the job file, the image's environment and /etc/nccl.conf there.",
        )
    if env.get("NCCL_NET", "").lower() == "socket":
        return NcclCause(f"NCCL_NET=Socket reached the ranks on {host}.", "Remove it, or set -x NCCL_NET=IB.")
    if "libibverbs" in warnings:
        return NcclCause(
            f"The image on {host} has no libibverbs, which NCCL loads for RDMA.",
            "Install rdma-core (libibverbs1, ibverbs-providers) in the image.",
        )
    if planned is PlannedTransport.OFI:
        return NcclCause(
            f"NCCL's libfabric plugin was not loaded on {host}.",
            f"On {host}, run fi_info -p efa where the ranks run; LD_LIBRARY_PATH must contain the folder of libnccl-net.so.",
        )
    if "NCCL_IB_HCA" in env and process.no_ib:
        return NcclCause(
            f"No HCA of {host} matches NCCL_IB_HCA={env['NCCL_IB_HCA']}, or its port is not active.",
            f"taco-launch facts {host} --only rdma shows its HCAs and the state of their ports.",
        )
    if process.no_ib:
        return NcclCause(
            f"NCCL finds no RDMA device on {host}: none is visible in the container, or no port is active.",
            f"Run taco-launch facts {host} --only rdma, and ls /dev/infiniband and ibv_devinfo where the ranks run.",
        )
    return NcclCause(
        f"NCCL on {host} chose another network than planned.",
        f"Run taco-launch facts {host} --only rdma,network; with -x NCCL_NET=IB, NCCL fails instead of falling back.",
    )


def of_gdr(process: NcclProcess, host: str) -> NcclCause:
    """Explain why GPUDirect RDMA is not used on a host."""
    env = dict(process.env)
    if any(not enabled for _hca, enabled in process.gdr_of_hca):
        return NcclCause(
            f"No peer memory module is loaded on {host}, and DMA-BUF cannot be used there.",
            f"Run taco-launch setup -H {host} --only peermem, then lsmod | grep -E 'nvidia_peermem|nv_peer_mem' there.",
        )
    for name, off in (("NCCL_NET_GDR_LEVEL", ("LOC", "0")), ("NCCL_IB_CUDA_SUPPORT", ("0",))):
        if env.get(name) in off:
            return NcclCause(
                f"{name}={env[name]} turns GPUDirect RDMA off on {host}.",
                f"Remove {name} from -x, the job file, the image's environment and /etc/nccl.conf there.",
            )
    if process.gdr_of_hca or process.too_far:
        told = f" ({process.too_far})" if process.too_far else ""
        return NcclCause(
            f"The HCAs of {host} support GPUDirect RDMA, but are farther from the GPU than NCCL_NET_GDR_LEVEL allows{told}.",
            f"taco-launch facts {host} --only topology,rdma shows the distances; -x NCCL_NET_GDR_LEVEL=PHB or SYS allows more.",
        )
    return NcclCause(
        f"The peer memory module is not loaded on {host}, or the HCA is too far from the GPU.",
        f"Run taco-launch facts {host} --only rdma; with -x NCCL_DEBUG_SUBSYS=INIT,NET, NCCL logs which it is.",
    )
