"""Prepare the job of each cell of a matrix, as `run -f` prepares one of a job file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from taco_launch.api.cluster import Cluster
from taco_launch.bench.model.matrix import Matrix, cells
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.run.matrix_file import request_of
from taco_launch.bench.run.run_environment import EnvironmentProbe
from taco_launch.bench.run.run_ladder import slots
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request.overlay import over


@dataclass(frozen=True)
class MatrixJobs:
    """The job of each cell of a matrix, without a name, the probe of their hosts, and which sizes they are too few for."""

    specs: dict[Cell, JobSpec]
    around: EnvironmentProbe
    lacking: str


def prepare_jobs(
    cluster: Cluster,
    matrix: Matrix,
    hosts: tuple[str, ...],
    *,
    resolve: Callable[[JobRequest], JobSpec],
    warn: Callable[[str], None],
    say: Callable[[str], None],
    look: bool = True,
) -> MatrixJobs:
    """Prepare the jobs of a matrix; `hosts` are the words of -H.

    Hosts are examined completely; without `look` only where the inventory does not say how many slots they have, and no
    code is read.

    Raises:
        UsageError: a job cannot be as it is requested, or nothing tells a host's slots.
        SpecError: a variant, the inventory or a profile is wrong, or all sizes are larger than the hosts.
    """
    jobs = _resolve_jobs(cluster, matrix, hosts, resolve, with_code=look)
    every = tuple({host.name: host for spec in jobs.values() for host in spec.hosts}.values())
    around = EnvironmentProbe(cluster.inventory, every, cluster.access, str(Path.cwd()), say)
    if look or any(host.slots is None or host.constraints.models for host in every):
        around.refresh()
    # A variant's hosts are the same with every workload.
    sized = cells(matrix, {variant: slots(spec, around.facts) for (_workload, variant), spec in jobs.items()})
    lacking = ""
    if sized.dropped:
        sizes = ", ".join(str(ranks) for ranks in sorted({cell.ranks for cell in sized.dropped}))
        lacking = f"left out because there are too few slots: {sizes} ranks"
        warn(lacking)
    specs = {}
    for cell in sized.cells:
        job = jobs[cell.workload, cell.variant]
        # The inventory's addresses get one message about the nightly run, and none about each of its jobs.
        specs[cell] = replace(job, name="", np=cell.ranks, policy=replace(job.policy, notices=(), typed=""))
    return MatrixJobs(specs, around, lacking)


def _resolve_jobs(
    cluster: Cluster,
    matrix: Matrix,
    hosts: tuple[str, ...],
    resolve: Callable[[JobRequest], JobSpec],
    *,
    with_code: bool,
) -> dict[tuple[str, str], JobSpec]:
    """Return the job of each workload in each variant, by their names, whatever its size.

    Raises:
        UsageError: a job of the matrix cannot be resolved.
    """
    line = JobRequest(host=",".join(hosts) or None, written={"host": "-H"})
    jobs: dict[tuple[str, str], JobSpec] = {}
    for workload in matrix.workloads:
        for variant in matrix.variants:
            # Slurm refuses a job without a size; each cell has its own. Of several ranks no launcher may be the program.
            asked = over(request_of(matrix, workload.name, variant.name), line)
            request = replace(asked, source="", np=matrix.most_ranks)
            try:
                spec = resolve(request)
                if with_code:
                    spec = cluster.with_code(spec, request, same=bool(jobs))
            except UsageError as error:
                where = f"{matrix.source}: {workload.name} in variant {variant.name}"
                raise UsageError(f"{where}: {error.message}", error.hint) from None
            jobs[workload.name, variant.name] = spec
    return jobs
