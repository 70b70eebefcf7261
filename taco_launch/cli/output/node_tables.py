"""Tables of hosts and jobs, their slots and what they use: `top` and `host list`. Pure."""

from collections.abc import Sequence
from typing import Any

from taco_launch.cli.output import job_tables
from taco_launch.cli.output.render import age, columns, printable, with_inventory_option
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_rows import JobRow
from taco_launch.core.model.job_view import LiveJob, Usage
from taco_launch.core.model.slots import describe_holders, is_gpu
from taco_launch.core.usage.averages import over_hosts
from taco_launch.core.usage.cells import cells as usage_cells
from taco_launch.core.usage.hints import hints
from taco_launch.jobs.backend import HostOccupancy


def top_nodes(nodes: Sequence[HostOccupancy], *, wide: bool) -> str:
    """Return the table of `top node`. Where no host has a GPU it counts slots; with `slots` in the inventory, GPUs that jobs may use."""
    gpus = have_gpus(nodes)
    limited = any(node.host.slots is not None for node in nodes)
    words = ("GPU slots" if limited else "GPUs") if gpus else "slots"
    cells = []
    held = total = 0
    names, uses = usage_cells([node.usage for node in nodes])
    names = names if any(node.usage is not None for node in nodes) else ()
    for node, use in zip(nodes, uses, strict=True):
        count, taken = slot_counts(node, gpus=gpus)
        total, held = total + count, held + taken
        line = [node.host.name, node.host.address, "head" if node.is_head else "", status(node), str(count), str(taken)]
        line += use if names else []
        if wide:
            line.append(with_inventory_option(describe_holders(node.occupancy)) if node.occupancy else "")
        cells.append(line)
    header = ["NAME", "ADDRESS", "ROLE", "STATUS", words.upper(), "HELD", *names, *(["HELD BY"] if wide else [])]
    others = [
        printable(f"{node.host.name}: {with_inventory_option(other)}")
        for node in nodes
        if not wide and node.occupancy is not None and (other := describe_holders(node.occupancy, jobs=False))
    ]
    block = ("", f"{words} that no job can have:", *others) if others else ()
    percent = round(100 * held / total) if total else 0
    table = columns(header, cells, numbers=(words.upper(), "HELD", *names))
    return "\n".join((table, "", f"jobs hold {held} of {total} {words} ({percent} %)", *block))


def top_jobs(rows: Sequence[JobRow], now: float, *, wide: bool, live: Sequence[LiveJob] = ()) -> str:
    """Return the table of `top job`: jobs with the most slots first, then those that request most, then the newest.

    Jobs that ended are left out. The slots are called GPUs if any job has or had one. Of jobs in `live` it shows what they use,
    the mean of their hosts, and hints below the table.
    """
    words = "GPUs" if any(row.gpus for row in rows) else "slots"
    shown = sorted((row for row in rows if not row.state.is_terminal), key=most_slots_first)
    running = {job.name: job for job in live}
    measured = any(job.hosts for job in live)
    names, uses = usage_cells([job_usage(running.get(row.name)) for row in shown])
    header = ["NAME", "STATUS", "REQUESTED", "HELD", "LAUNCHER", "HOSTS", "AGE"]
    header += ["QUEUE", "PRIORITY", "OWNER", "VERIFIED"] if wide else []
    cells = []
    for row, use in zip(shown, uses, strict=True):
        requested = "-" if row.requested is None else str(row.requested)
        hosts = job_tables.nodes(row.nodes)
        line = [row.name, row.state.value, requested, str(row.allocated), row.launcher, hosts]
        line += [
            job_tables.age_of(row, now),
            *([row.queue, str(row.priority), row.owner, row.verified] if wide else []),
        ]
        job = running.get(row.name)
        goodput = "-" if job is None or job.goodput is None else f"{100 * job.goodput:.0f} %"
        cells.append([*line, *use, goodput, row.progress] if measured else [*line, *([row.progress] if wide else [])])
    header += [*names, "GOODPUT", "PROGRESS"] if measured else ["PROGRESS"] if wide else []
    held = sum(row.allocated for row in rows)
    table = columns(header, cells, numbers=("REQUESTED", "HELD", "PRIORITY", "GOODPUT", *names))
    total = f"{words} of jobs that have not ended: {total_requested(rows)} requested, {held} held"
    return "\n\n".join(
        filter(None, (table, total, *(job_tables.hint_lines(f"HINTS for {job.name}:", job.hosts) for job in live)))
    )


def job_usage(job: LiveJob | None) -> Usage | None:
    """Return the mean of a job's hosts; None where nothing was measured yet."""
    return over_hosts([usage for _host, usage in job.hosts]) if job is not None and job.hosts else None


def live_data(rows: Sequence[JobRow], live: Sequence[LiveJob]) -> list[dict[str, Any]]:
    """Return jobs as JSON values, with what those that run use, by host."""
    running = {job.name: job for job in live}
    none = LiveJob("", None, ())
    return [
        {
            **to_json(row),
            "goodput": job.goodput,
            "usage": {host: to_json(usage) for host, usage in job.hosts},
            "hints": list(hints(job.hosts)),
        }
        for row in rows
        for job in [running.get(row.name, none)]
    ]


def most_slots_first(row: JobRow) -> tuple[bool, int, int, float, str]:
    """Return what puts jobs in the order of `top job`."""
    return row.state.is_terminal, -row.allocated, -(row.requested or 0), -(row.submitted or 0), row.name


def total_requested(rows: Sequence[JobRow]) -> int:
    """Return the number of slots that jobs request; one that ended requests none."""
    return sum(row.requested or 0 for row in rows if not row.state.is_terminal)


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
        "usage": to_json(node.usage),
    }
