"""What modules of this folder share: labs, a cluster that is ready for jobs, and a second lab."""

from collections.abc import Iterator

import pytest

from tests.conftest import eventually
from tests.lab import shared
from tests.lab.rig import Cluster, Lab


def pytest_configure(config: pytest.Config) -> None:
    """Offer the shared labs."""
    if not config.pluginmanager.has_plugin(shared.NAME):
        config.pluginmanager.register(shared, shared.NAME)


@pytest.fixture(scope="session")
def cluster(four: Lab, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Two hosts of two slots ready to train, and a person with an inventory of them."""
    folder = tmp_path_factory.mktemp("jobs")
    made_ = four.inventory(
        folder / "cluster.yaml", "gpu1", "gpu2", cluster=f"{four.name}-jobs", state=folder / "state",
        container=four.training(ssh_port=12322), network={"port_range": "40000-40999"}, data_roots=["/srv"],
    )  # fmt: skip
    made_.ok("setup", "--yes", seconds=400)
    return made_


@pytest.fixture
def other(lab: Lab) -> Iterator[Lab]:
    """A second lab beside the first, not yet up."""
    user = Lab(f"{lab.name}-other", lab.state)
    yield user
    user.verb("down")


@pytest.fixture
def healthy(lab: Lab) -> Lab:
    """The lab with both hosts entered and no fault in force, whatever the test before left."""
    eventually(lambda: lab.answers("gpu1") and lab.answers("gpu2"), 20, "both hosts to answer")
    assert [host["faults"] for host in lab.status()["hosts"]] == [[], [], []]
    return lab
