"""Which hosts a nightly run measures while some are drained."""

import pytest

from taco_launch.bench.model.matrix import ALL, LogFormat, Matrix, Variant, Workload
from taco_launch.bench.nightly.open_hosts import OpenHosts, open_hosts
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.slots import Drain, Occupancy
from taco_launch.jobs.backend import HostOccupancy

DRAIN = Drain("ops@head", 1.0, "Xid 79")


def node(name: str, drain: Drain | None = None) -> HostOccupancy:
    return HostOccupancy(Host(name, name), is_head=name == "gpu1", occupancy=Occupancy(name, (), drain=drain))


def matrix(*variants: Variant) -> Matrix:
    return Matrix("m", (Workload("w", LogFormat.HOROVOD, ("true",)),), variants, (ALL,))


def test_the_hosts_that_are_open() -> None:
    silent = HostOccupancy(Host("gpu4", "gpu4"), is_head=False, occupancy=None, problem="no route to host")
    nodes = (node("gpu1"), node("gpu2", DRAIN), node("gpu3"), silent)
    hosts = open_hosts(nodes, matrix(Variant("a"), Variant("b")))
    assert hosts.names == ("gpu1", "gpu3", "gpu4")  # that one does not answer is not hidden
    assert hosts.remark == "measured without drained hosts: gpu2 (by ops@head: Xid 79)"


def test_all_hosts_where_none_is_drained() -> None:
    assert open_hosts((node("gpu1"), node("gpu2")), matrix(Variant("a"))) == OpenHosts()


def test_hosts_that_the_matrix_names_stay() -> None:
    named = matrix(Variant("a"), Variant("b", job=JobRequest(host="gpu2")))
    assert open_hosts((node("gpu1"), node("gpu2", DRAIN)), named) == OpenHosts()


def test_all_are_drained() -> None:
    with pytest.raises(HostError, match="all hosts are drained: gpu1"):
        open_hosts((node("gpu1", DRAIN),), matrix(Variant("a")))
