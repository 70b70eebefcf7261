"""What a matrix asks for -> the job of each of its cells, made as `run -f` makes one of a job file."""

from dataclasses import replace
from pathlib import Path

from taco_launch.api.cluster import Cluster
from taco_launch.bench.logs.workloads import read
from taco_launch.bench.model.matrix import Matrix, cells
from taco_launch.bench.model.runs import Cell
from taco_launch.bench.run.run_environment import EnvironmentProbe
from taco_launch.bench.run.run_ladder import Reader, slots
from taco_launch.cli.options.common import Settings
from taco_launch.cli.options.job_options import spec_of
from taco_launch.cli.output import render
from taco_launch.core.errors import UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import JobSpec
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.request.overlay import over

# (workload, variant), by their names.
_Way = tuple[str, str]


@dataclass(frozen=True)
class Prepared:
    """The job of each cell of a matrix, without a name, what is known of their hosts, and which sizes they are too few for.

    `cluster` has the code of these jobs.
    """

    cluster: Cluster
    specs: dict[Cell, JobSpec]
    around: EnvironmentProbe
    lacking: str


def prepared(
    settings: Settings, matrix: Matrix, hosts: tuple[str, ...], access: Credentials, *, look: bool = True
) -> Prepared:
    """Make the jobs of a matrix; `hosts` are the words of -H.

    Hosts are looked at in full; without `look` only where the inventory does not say how many slots they have, and no code
    is read.

    Raises:
        UsageError: a job cannot be as it is requested, or nothing tells a host's slots.
        SpecError: a variant, the inventory or a profile is wrong, or all sizes are larger than the hosts.
    """
    cluster = settings.cluster(access)
    jobs = _jobs(settings, matrix, hosts, cluster if look else None)
    every = tuple({host.name: host for spec in jobs.values() for host in spec.hosts}.values())
    around = EnvironmentProbe(settings.load(), every, access, str(Path.cwd()), settings.talk)
    if look or any(host.slots is None or host.constraints.models for host in every):
        around.refresh()
    # A variant's hosts are the same with every workload.
    found = cells(matrix, {variant: slots(spec, around.facts) for (_workload, variant), spec in jobs.items()})
    lacking = ""
    if found.dropped:
        sizes = ", ".join(str(ranks) for ranks in sorted({cell.ranks for cell in found.dropped}))
        lacking = f"left out because there are too few slots: {sizes} ranks"
        render.warning(settings, lacking)
    specs = {cell: replace(jobs[cell.workload, cell.variant], name="", np=cell.ranks) for cell in found.cells}
    return Prepared(cluster, specs, around, lacking)


def _jobs(settings: Settings, matrix: Matrix, hosts: tuple[str, ...], cluster: Cluster | None) -> "dict[_Way, JobSpec]":
    """Return the job of each workload in each variant, whatever its size; with its code where there is a cluster to have it."""
    from taco_launch.bench.run.matrix_file import request_of  # noqa: PLC0415 - pydantic takes long to import

    line = JobRequest(host=",".join(hosts) or None, written={"host": "-H"})
    found: dict[_Way, JobSpec] = {}
    for workload in matrix.workloads:
        for variant in matrix.variants:
            request = replace(over(request_of(matrix, workload.name, variant.name), line), source="")
            try:
                spec = spec_of(settings, request, sized=False)
                if cluster is not None:
                    spec = cluster.with_code(spec, request, same=bool(found))
            except UsageError as error:
                where = f"{matrix.source}: {workload.name} in variant {variant.name}"
                raise UsageError(f"{where}: {error.message}", error.hint) from None
            found[workload.name, variant.name] = spec
    return found


def reader(matrix: Matrix) -> Reader:
    """Return what reads the logs of a matrix's runs."""
    return lambda cell, text: read(matrix.workload(cell.workload), text, cell.ranks)
