"""How many ranks a run has and where each is: by what the ranks' libraries say, and by NCCL's communicators."""

from typing import Dict, Iterator, List, Optional, Tuple, Union

from taco_launch.core.model.run.observed import NcclProcess, SeenRun
from taco_launch.core.model.run.planned import PlannedHost, RunPlan
from taco_launch.core.model.run.verified import Mismatch
from taco_launch.core.verify.finding import Missing, matching
from taco_launch.core.verify.nccl_ranks import NcclRank, hosts_of_ranks, seats

Found = Iterator[Union[Mismatch, Missing]]
_SINGLE_CAUSE = (
    "Every rank is a world of its own: mpirun does not belong to the MPI that the program was built with, or the program "
    "does not initialize its library."
)
_SINGLE_NEXT = (
    "Horovod requires --launcher mpirun. Run horovodrun --check-build and `which mpirun` in the image, and set the "
    "inventory's `mpirun` to the one that fits. With torch, the program must call init_process_group."
)


def world_size(plan: RunPlan, seen: SeenRun) -> Found:
    """Compare the world size that each rank's own library, and NCCL, has."""
    told = sorted((one for one in seen.ranks if one.world_size is not None), key=lambda one: one.rank)
    if plan.np > 1 and len(told) > 1 and all(one.world_size == 1 for one in told):
        yield _separate(plan, told[0].host, len(told), told[0].world_source)
    for one in told:
        if one.world_size != plan.np:
            source = f" ({one.world_source})" if one.world_source else ""
            yield Mismatch(
                "world size",
                one.host,
                one.rank,
                str(plan.np),
                f"{one.world_size}{source}",
                "The launcher started fewer or more ranks than planned: a host was dropped, or another hostfile is read.",
                "taco-launch run --dry-run --explain shows the line; unset OMPI_MCA_* and PRTE_MCA_*, and remove your own hostfiles.",
            )
    yield from _nccl_sizes(plan, seen)
    unknown = [one.rank for one in seen.ranks if one.world_size is None]
    if told and unknown and plan.nccl is None:
        yield Missing(f"world size of rank {matching(unknown)} not known")


def _nccl_sizes(plan: RunPlan, seen: SeenRun) -> Found:
    if plan.nccl is None:
        return
    found = seats(plan, seen.nccl)
    largest = [
        (max(one.ranks for one in seat.process.communicators), seat) for seat in found if seat.process.communicators
    ]
    if plan.np > 1 and len(largest) > 1 and all(size == 1 for size, _seat in largest):
        # Groups of one rank are made by programs, too: what has connections to other hosts is one world.
        if any(one.sockets for one in seen.ranks):
            yield Missing("NCCL has communicators of one rank only, so far")
        else:
            yield _separate(plan, largest[0][1].place, len(largest), "NCCL's nranks")
    for size, seat in largest:
        is_whole = not plan.nccl.one_world or size == plan.np
        if size > plan.np or not is_whole:
            yield Mismatch(
                "world size",
                seat.place,
                None,
                str(plan.np),
                f"{size} (NCCL's nranks)",
                "The ranks did not find all other ranks of this job, or found additional ones.",
                "taco-launch run --dry-run --explain shows the line; check whether another job has the same MASTER_ADDR and port.",
            )


def _separate(plan: RunPlan, host: str, count: int, source: str) -> Mismatch:
    seen = f"{count} separate runs of 1 rank ({source})" if source else f"{count} separate runs of 1 rank"
    return Mismatch("world size", host, None, f"{plan.np} ranks in one world", seen, _SINGLE_CAUSE, _SINGLE_NEXT)


def nccl_world(plan: RunPlan, seen: SeenRun) -> Found:
    """Compare which rank is where, by the communicator of all ranks; each rank of it has to be there once, on a GPU of its own."""
    if plan.nccl is None:
        return
    if seen.nccl.cut:
        yield Missing("NCCL's log is too long: only a part of it was read")
    members: Dict[int, List[NcclRank]] = {}
    gpus: Dict[Tuple[str, str], NcclRank] = {}
    planned = hosts_of_ranks(plan)
    for seat in seats(plan, seen.nccl):
        for one in seat.process.communicators:
            if one.ranks == plan.np and one.complete:
                mine = seat._replace(rank=one.rank)
                members.setdefault(one.rank, []).append(mine)
                yield from _on_planned_host(planned.get(one.rank), mine)
                yield from _alone_on_gpu(gpus, mine, one.bus_id)
    absent = [rank for host in plan.hosts for rank in host.ranks if rank not in members]
    if absent:
        yield Missing(
            f"NCCL's communicator of {plan.np} ranks: rank {matching(absent)} has not logged that it is complete"
        )
    unplaced = [rank for rank, found in members.items() if found[0].host is None]
    if unplaced and len(plan.hosts) > 1:
        name = members[unplaced[0]][0].process.host
        yield Missing(
            f"rank {matching(unplaced)} is on a host that calls itself {name}: no host of the plan has that name"
        )
    yield from _versions(iter(seen.nccl.processes))


def _on_planned_host(planned: Optional[PlannedHost], seat: NcclRank) -> Found:
    if planned is not None and seat.host is not None and seat.host.name != planned.name:
        yield Mismatch(
            "host",
            seat.host.name,
            seat.rank,
            planned.name,
            seat.host.name,
            "The launcher placed its ranks in another order than planned.",
            "taco-launch run --dry-run --explain shows -H and --map-by; your own hostfile or rankfile overrides both.",
        )


def _alone_on_gpu(gpus: Dict[Tuple[str, str], NcclRank], seat: NcclRank, bus_id: str) -> Found:
    # Hosts that are not known may have one name: then the same address is not the same GPU.
    known = bus_id and seat.host is not None
    other = gpus.setdefault((seat.process.host, bus_id), seat) if known else seat
    if other.rank != seat.rank:
        yield Mismatch(
            "GPUs",
            seat.place,
            seat.rank,
            "a GPU of its own",
            f"the GPU of rank {other.rank} ({bus_id})",
            "Two ranks chose the same GPU: the program does not use its local rank, or CUDA_VISIBLE_DEVICES is not the same for both.",
            "Call torch.cuda.set_device(local_rank) before any other CUDA call.",
        )


def _versions(processes: Iterator[NcclProcess]) -> Found:
    told: Dict[str, str] = {}
    for process in processes:
        if process.version:
            told.setdefault(process.version, process.host)
    if len(told) > 1:
        (first, one), (second, other) = list(told.items())[:2]
        yield Mismatch(
            "version of NCCL",
            other,
            None,
            f"{first}, as on {one}",
            second,
            "The hosts have different images, or LD_LIBRARY_PATH finds another libnccl.so there.",
            f"taco-launch facts --only image compares the hosts; then run taco-launch setup -H {other} --only image,container",
        )
