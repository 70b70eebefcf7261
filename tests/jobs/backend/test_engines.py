"""The engines that an inventory may name: each is one row and one module, and is what the cluster's calls go to."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from taco_launch.api import Cluster
from taco_launch.core.errors import SpecError
from taco_launch.core.model.engines import ENGINES
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_rows import JobRow
from taco_launch.hosts.inventory.load import load
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend.agent import AgentBackend
from tests.support.fake_backend import FakeBackend


def test_each_has_a_module() -> None:
    assert all(callable(import_module(f"taco_launch.jobs.backend.{name}").connect) for name in ENGINES)


def test_an_inventory_has_the_agent_unless_it_names_another(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\nhosts: {gpu1: {slots: 2}}\n")
    assert load(str(file), {}).engine == Inventory("c", "gpu1", ()).engine == "agent"
    assert isinstance(Cluster(str(file), environ={}).backend, AgentBackend)
    file.write_text("cluster: c\nengine: agnet\nhosts: {gpu1: {slots: 2}}\n")
    with pytest.raises(SpecError, match=r"engine \(line 2\): 'agnet': must be 'agent'.* \(did you mean 'agent'\?\)"):
        load(str(file), {})


def test_a_cluster_goes_to_the_engine_of_its_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Memory(FakeBackend):
        def list(self) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
            return (), ()

    @contextmanager
    def connect(
        inventory: Inventory, _access: Credentials, environ: Mapping[str, str], typed: str
    ) -> Iterator[FakeBackend]:
        seen.append(f"open {inventory.cluster} {environ['A']} {typed}")
        yield Memory()
        seen.append("closed")

    module = ModuleType("taco_launch.jobs.backend.memory")
    monkeypatch.setattr(module, "connect", connect, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = Inventory("c", "gpu1", (Host("gpu1", "gpu1"),), engine="memory")
    with Cluster(found, environ={"A": "b"}, typed="taco-launch -i c.yaml") as cluster:
        assert seen == []
        assert cluster.jobs() == cluster.jobs() == ()
        assert seen == ["open c b taco-launch -i c.yaml"]
    assert seen[1:] == ["closed"]
