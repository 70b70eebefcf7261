"""Which GPUs of a host were chosen, and which were not, as a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taco_launch.cli.output.render import columns
from taco_launch.core.model.choices import GpuChoice, RejectedSet
from taco_launch.hosts.inventory.ranges import fold

if TYPE_CHECKING:
    from taco_launch.jobs.dry_run import NearHcas


def text(choice: GpuChoice) -> str:
    """Return as text the set that was chosen, and those that came next."""
    rows = [_row("chosen", choice), *(_row("lost", each) for each in choice.alternatives)]
    return columns(["", "GPUS", "RING", "GB/S", "SUM", "WHY"], rows, numbers=("GB/S", "SUM"))


def nearest(hosts: Sequence[tuple[str, tuple["NearHcas", ...]]]) -> str:
    """Return as text which HCAs are the nearest to the GPU of each local rank; hosts that are alike are told together."""
    alike: dict[tuple[NearHcas, ...], list[str]] = {}
    for host, ranks in hosts:
        alike.setdefault(ranks, []).append(host)
    told = []
    for ranks, names in alike.items():
        rows = [[str(each.local_rank), str(each.gpu), ",".join(each.hcas) or "-", each.link or "-"] for each in ranks]
        table = columns(["LOCAL RANK", "GPU", "HCA", "LINK"], rows, numbers=("LOCAL RANK", "GPU"))
        told.append(f"\nThe nearest HCAs on {fold(names)}, which NCCL chooses for each GPU by itself:\n{table}\n")
    return "".join(told)


def _row(what: str, each: GpuChoice | RejectedSet) -> list[str]:
    ring = "-".join(map(str, each.ring)) or "-"
    numbers = ["-" if number is None else f"{number:g}" for number in (each.bottleneck_gbps, each.sum_gbps)]
    return [what, ",".join(map(str, each.gpus)), ring, *numbers, each.why]
