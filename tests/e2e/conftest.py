"""Hosts for the tests of a module, and a job's name for each of its tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import has_ended
from tests.e2e import slurm
from tests.e2e.cluster import NAMES, STATE, Cluster, on_plain_hosts


@pytest.fixture(scope="module")
def kept() -> tuple[Path, ...]:
    """What hosts see of what is hidden from them."""
    return (Path(__file__).parent,)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, agent: Path, kept: tuple[Path, ...]) -> Iterator[Cluster]:
    with on_plain_hosts(NAMES, tmp_path_factory.mktemp("hosts"), agent, kept) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A name for a job; whatever is left of it is ended."""
    job = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:50]
    yield job
    for on in tuple(cluster.cut_off):
        cluster.link(on, "up")
    if cluster.path(f"{STATE}/jobs/{job}").exists():
        if not has_ended(cluster.events(job)):
            cluster.call("stop", names=[job], by="the test", signal=15, grace=0)
            cluster.ended(job, 60)
        cluster.call("delete", names=[job])
    for on, pid in cluster.victims():  # one test's failure is no other's
        cluster.kill(pid, on)


@pytest.fixture(scope="module")
def of_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a running Slurm of two nodes."""
    reason = slurm.why_not()
    if reason:
        pytest.skip(reason)
    with slurm.slurm(tmp_path_factory.mktemp("slurm")) as environ:
        yield environ
