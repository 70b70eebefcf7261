"""Tables of hosts and their slots, with the column names of Arena. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taco_launch.cli.output.render import columns, printable
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.slots import is_gpu

if TYPE_CHECKING:
    from taco_launch.jobs.backend import HostOccupancy

# As long as the line of Arena's `top node`.
_RULE = "-" * 89


def top_nodes(nodes: "Sequence[HostOccupancy]", *, wide: bool) -> str:
    """Return the table of `top node`. Where no host has a GPU it counts slots."""
    from taco_launch.core.model.slots import describe_holders

    gpus = any(node.occupancy is not None and node.occupancy.gpus for node in nodes)
    unit, words = ("GPU", "GPUs") if gpus else ("SLOT", "Slots")
    header = ["NAME", "IPADDRESS", "ROLE", "STATUS", f"{unit}(Total)", f"{unit}(Allocated)"]
    more = ["HELD BY"] if wide else []
    cells = []
    allocated = total = 0
    for node in nodes:
        slots = [] if node.occupancy is None else node.occupancy.slots
        counted = [slot for slot in slots if is_gpu(slot.name) or not gpus]
        taken = sum(slot.holder is not None for slot in counted)
        total, allocated = total + len(counted), allocated + taken
        status = "notready" if node.occupancy is None else "ready"
        line = [node.host.name, node.host.address, "head" if node.is_head else "<none>", status]
        cells.append(
            [
                *line,
                str(len(counted)),
                str(taken),
                *([describe_holders(node.occupancy) if node.occupancy else ""] if wide else []),
            ]
        )
    percent = round(100 * allocated / total) if total else 0
    footer = (_RULE, f"Allocated/Total {words} In Cluster:", f"{allocated}/{total} ({percent}%)")
    others = [
        printable(f"{node.host.name}: {other}")
        for node in nodes
        if not wide and node.occupancy is not None and (other := describe_holders(node.occupancy, jobs=False))
    ]
    block = ("", f"{words} In Use Outside of Jobs:", *others) if others else ()
    return "\n".join((columns(header + more, cells), *footer, *block))


def node_data(node: "HostOccupancy") -> dict[str, Any]:
    """Return a host and its slots as JSON values."""
    slots = () if node.occupancy is None else node.occupancy.slots
    return {
        "name": node.host.name,
        "address": node.host.address,
        "role": "head" if node.is_head else "",
        "status": "notready" if node.occupancy is None else "ready",
        "problem": node.problem,
        "gpus": 0 if node.occupancy is None else node.occupancy.gpus,
        "total": len(slots),
        "allocated": sum(slot.holder is not None for slot in slots),
        "free": sum(slot.is_free for slot in slots),
        "slots": to_json(slots),
    }
