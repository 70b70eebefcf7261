"""Tables of hosts and their slots. Pure."""

from collections.abc import Sequence
from typing import Any

from taco_launch.cli.output.render import age, columns, printable
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.slots import describe_holders, is_gpu
from taco_launch.jobs.backend import HostOccupancy


def top_nodes(nodes: Sequence[HostOccupancy], *, wide: bool) -> str:
    """Return the table of `top node`. Where no host has a GPU it counts slots; with `slots` in the inventory, GPUs that jobs may use."""
    gpus = have_gpus(nodes)
    limited = any(node.host.slots is not None for node in nodes)
    words = ("GPU slots" if limited else "GPUs") if gpus else "slots"
    cells = []
    held = total = 0
    for node in nodes:
        count, taken = slot_counts(node, gpus=gpus)
        total, held = total + count, held + taken
        line = [node.host.name, node.host.address, "head" if node.is_head else "", status(node), str(count), str(taken)]
        cells.append([*line, describe_holders(node.occupancy) if node.occupancy else ""][: None if wide else -1])
    header = ["NAME", "ADDRESS", "ROLE", "STATUS", words.upper(), "HELD", *(["HELD BY"] if wide else [])]
    others = [
        printable(f"{node.host.name}: {other}")
        for node in nodes
        if not wide and node.occupancy is not None and (other := describe_holders(node.occupancy, jobs=False))
    ]
    block = ("", f"{words} that no job can have:", *others) if others else ()
    percent = round(100 * held / total) if total else 0
    table = columns(header, cells, numbers=(words.upper(), "HELD"))
    return "\n".join((table, "", f"jobs hold {held} of {total} {words} ({percent} %)", *block))


def have_gpus(nodes: Sequence[HostOccupancy]) -> bool:
    """Return whether a host has a GPU."""
    return any(node.occupancy is not None and node.occupancy.gpus for node in nodes)


def slot_counts(node: HostOccupancy, *, gpus: bool) -> tuple[int, int]:
    """Return how many slots a host has, and how many of them jobs hold; with `gpus` GPUs alone."""
    slots = [] if node.occupancy is None else node.occupancy.slots
    counted = [slot for slot in slots if is_gpu(slot.name) or not gpus]
    return len(counted), sum(slot.holder is not None for slot in counted)


def status(node: HostOccupancy) -> str:
    """Return whether a host answers, and takes jobs."""
    if node.occupancy is None:
        return "notready"
    if node.occupancy.drain is None:
        return "ready"
    return "draining" if any(slot.holder for slot in node.occupancy.slots) else "drained"


def drains(nodes: Sequence[HostOccupancy], now: float) -> str:
    """Return the table of `host list`; `now` is in seconds since the epoch."""
    rows = []
    for node in nodes:
        record = None if node.occupancy is None else node.occupancy.drain
        words = ("-",) * 4
        if record is not None:
            words = (record.kind, age(now - record.since), record.author, record.reason)
        jobs = "" if node.occupancy is None else describe_holders(node.occupancy.only_held())
        rows.append([node.host.name, node.host.address, status(node), *words, jobs or "-"])
    return columns(("NAME", "ADDRESS", "STATUS", "KIND", "SINCE", "BY", "REASON", "JOBS"), rows)


def node_data(node: HostOccupancy) -> dict[str, Any]:
    """Return a host and its slots as JSON values."""
    slots = () if node.occupancy is None else node.occupancy.slots
    return {
        "name": node.host.name,
        "address": node.host.address,
        "role": "head" if node.is_head else "",
        "status": status(node),
        "problem": node.problem,
        "drain": None if node.occupancy is None else to_json(node.occupancy.drain),
        "gpus": 0 if node.occupancy is None else node.occupancy.gpus,
        "total": len(slots),
        "allocated": sum(slot.holder is not None for slot in slots),
        "free": sum(slot.is_free for slot in slots),
        "slots": to_json(slots),
    }
