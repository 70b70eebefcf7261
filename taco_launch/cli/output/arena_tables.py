"""Jobs and hosts in the tables of Arena's `list`, `get` and `top`: pure, given the time."""

from collections.abc import Sequence

from taco_launch.cli.output import job_tables, node_tables
from taco_launch.cli.output.render import columns
from taco_launch.core.model.instances import Instance, instances
from taco_launch.core.model.job_rows import JobRow, row_of
from taco_launch.core.model.job_view import JobView, age
from taco_launch.core.model.launchers import LAUNCHERS, launcher_of
from taco_launch.jobs.backend import HostOccupancy

_NONE = "N/A"
# As long as the line of Arena's `top node`.
_RULE = "-" * 89


def job_list(rows: Sequence[JobRow], now: float) -> str:
    """Return the table of `arena list`, the newest job first; `now` is in seconds since the epoch."""
    cells = [
        [
            row.name,
            row.state.value,
            LAUNCHERS[row.launcher].trainer,
            job_tables.age_of(row, now),
            job_tables.nodes(row.nodes, _NONE),
        ]
        for row in rows
    ]
    return columns(["NAME", "STATUS", "TRAINER", "AGE", "NODE"], cells)


def one_job(job: JobView, now: float) -> str:
    """Return what `arena get` shows: the job, its instances with their GPUs, and why it waits or how it ended."""
    spec, record = job.spec, job.record
    row, training = row_of(spec, record), record.training(now)
    header = (
        ("Name", spec.name),
        ("Status", row.state.value),
        ("Namespace", spec.cluster),
        ("Priority", str(row.priority) if row.priority else _NONE),
        ("Trainer", LAUNCHERS[spec.launcher].trainer),
        ("Duration", _NONE if training is None else age(training)),
    )
    lines = [
        [
            part.name,
            row.state.value.capitalize(),
            job_tables.age_of(row, now),
            *_of_gpus(number, part, job),
            part.host or _NONE,
        ]
        for number, part in enumerate(() if record.state.waits else instances(spec, record))
    ]
    unit = "SLOT" if lines and not row.gpus else "GPU"
    table = columns(["NAME", "STATUS", "AGE", "IS_CHIEF", f"{unit}(Requested)", "NODE"], lines)
    blocks = (
        job_tables.headed(header),
        f"Instances:\n{table}" if lines else "",
        job_tables.headed(job_tables.why(job)),
        *job_tables.below(job, now),
    )
    return "\n\n".join(block for block in blocks if block)


def top_jobs(rows: Sequence[JobRow], now: float) -> str:
    """Return the table of `arena top job`, those with the most slots first; the totals leave out jobs that ended."""
    unit, words = ("GPU", "GPUs") if any(row.gpus for row in rows) else ("SLOT", "Slots")
    cells = [
        [
            row.name,
            _NONE if row.requested is None else str(row.requested),
            str(row.allocated),
            row.state.value,
            LAUNCHERS[row.launcher].trainer,
            job_tables.age_of(row, now),
            job_tables.nodes(row.nodes, _NONE),
        ]
        for row in sorted(rows, key=node_tables.most_slots_first)
    ]
    header = ["NAME", f"{unit}(Requests)", f"{unit}(Allocated)", "STATUS", "TRAINER", "AGE", "NODE"]
    totals = (
        f"Total Allocated {words} of Training Job:\n{sum(row.allocated for row in rows)}",
        f"Total Requested {words} of Training Job:\n{node_tables.total_requested(rows)}",
    )
    return "\n\n".join((columns(header, cells), *totals))


def top_nodes(nodes: Sequence[HostOccupancy]) -> str:
    """Return the table of `arena top node`. Where no host has a GPU it counts slots."""
    gpus = node_tables.have_gpus(nodes)
    unit, words = ("GPU", "GPUs") if gpus else ("SLOT", "Slots")
    counts = [node_tables.slot_counts(node, gpus=gpus) for node in nodes]
    cells = [
        [
            node.host.name,
            node.host.address,
            "head" if node.is_head else "<none>",
            node_tables.status(node),
            *map(str, count),
        ]
        for node, count in zip(nodes, counts, strict=True)
    ]
    total, held = (sum(each) for each in zip(*counts, (0, 0), strict=True))
    percent = round(100 * held / total) if total else 0
    header = ["NAME", "IPADDRESS", "ROLE", "STATUS", f"{unit}(Total)", f"{unit}(Allocated)"]
    return f"{columns(header, cells)}\n{_RULE}\nAllocated/Total {words} In Cluster:\n{held}/{total} ({percent}%)"


def _of_gpus(number: int, part: Instance, job: JobView) -> tuple[str, str]:
    """Return whether an instance is the chief, the first one, and how many slots it asks for."""
    slots = 0 if launcher_of(job.spec).is_mpi and number == 0 else len(part.ranks) // job.spec.procs_per_gpu
    return str(number == 0).lower(), str(slots)
