"""Jobs in the tables of Arena's `list` and `get`: pure, given the time."""

from collections.abc import Sequence

from taco_launch.cli.output import job_tables
from taco_launch.cli.output.render import age, columns
from taco_launch.core.model.instances import Instance, instances
from taco_launch.core.model.job_rows import JobRow, row_of
from taco_launch.core.model.job_view import JobView
from taco_launch.core.model.launchers import LAUNCHERS, launcher_of

_NONE = "N/A"


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
    table = columns(["NAME", "STATUS", "AGE", "IS_CHIEF", "GPU(Requested)", "NODE"], lines)
    blocks = (
        job_tables.headed(header),
        f"Instances:\n{table}" if lines else "",
        job_tables.headed(job_tables.why(job)),
        *job_tables.below(job, now),
    )
    return "\n\n".join(block for block in blocks if block)


def _of_gpus(number: int, part: Instance, job: JobView) -> tuple[str, str]:
    """Return whether an instance is the chief, the first one, and how many slots it asks for."""
    slots = 0 if launcher_of(job.spec).is_mpi and number == 0 else len(part.ranks) // job.spec.procs_per_gpu
    return str(number == 0).lower(), str(slots)
