"""Measure a nightly run on the hosts that are not drained: their keys have a baseline of their own."""

from collections.abc import Sequence

from taco_launch.bench.model.matrix import Matrix
from taco_launch.bench.run.matrix_file import request_of
from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass
from taco_launch.jobs.backend import HostOccupancy


@dataclass(frozen=True)
class OpenHosts:
    """The hosts that a nightly run measures: `names` are words of -H, empty for all; `remark` names those left out and why.

    `waited` is for how many seconds they were waited for, `waited_for` why.
    """

    names: tuple[str, ...] = ()
    remark: str = ""
    waited: float = 0.0
    waited_for: str = ""


def open_hosts(nodes: Sequence[HostOccupancy], matrix: Matrix) -> OpenHosts:
    """Leave out drained hosts, unless the matrix itself names the hosts of a job.

    Raises:
        HostError: no host is left.
    """
    drained = {node.host.name: node.occupancy.drain for node in nodes if node.occupancy and node.occupancy.drain}
    if not drained or any(
        request_of(matrix, workload.name, variant.name).host
        for workload in matrix.workloads
        for variant in matrix.variants
    ):
        return OpenHosts()
    rest = tuple(node.host.name for node in nodes if node.is_used and node.host.name not in drained)
    why = "; ".join(f"{name} (by {drain.by}: {drain.reason})" for name, drain in drained.items())
    if not rest:
        raise HostError(f"all hosts are drained: {why}", hint="taco-launch host resume HOST")
    return OpenHosts(rest, f"measured without drained hosts: {why}")
