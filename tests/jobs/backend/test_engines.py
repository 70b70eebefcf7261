"""The engines that an inventory may name: each is one row and one module, and is what the cluster's calls go to."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from click.testing import CliRunner

import taco_launch
from taco_launch.api import Cluster
from taco_launch.cli.main import cli
from taco_launch.core.errors import SpecError, UsageError
from taco_launch.core.model.engines import ENGINES
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_rows import JobRow
from taco_launch.hosts.inventory.load import load
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.jobs.backend import connect
from taco_launch.jobs.backend.agent import AgentBackend
from taco_launch.jobs.backend.agent_client import AgentClient
from taco_launch.jobs.backend.slurm import SlurmBackend
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
    def connect_to(
        inventory: Inventory, _access: Credentials, environ: Mapping[str, str], typed: str
    ) -> Iterator[FakeBackend]:
        seen.append(f"open {inventory.cluster} {environ['A']} {typed}")
        yield Memory()
        seen.append("closed")

    module = ModuleType("taco_launch.jobs.backend.memory")
    monkeypatch.setattr(module, "connect", connect_to, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = Inventory("c", "gpu1", (Host("gpu1", "gpu1"),), engine="memory")
    with Cluster(found, environ={"A": "b"}, typed="taco-launch -i c.yaml") as cluster:
        assert seen == []
        assert cluster.jobs() == cluster.jobs() == ()
        assert seen == ["open c b taco-launch -i c.yaml"]
    assert seen[1:] == ["closed"]


# --- engines of other packages

PLUGIN = """
from contextlib import contextmanager

class Slurm:
    name, typed, containers = "pbs", "taco-launch", None
    def list(self):
        return (), ()

@contextmanager
def connect(inventory, access, environ, typed):
    yield Slurm()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that installs a package with an entry point, and gives an inventory that names its engine."""

    def write(text: str, *, package: str = "taco_pbs", value: str = "", engine: str = "pbs") -> Path:
        site = tmp_path / package
        info = site / f"{package}-1.2.dist-info"
        info.mkdir(parents=True)
        (site / f"{package}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[taco_launch.backends]\n{engine} = {value or f'{package}:connect'}\n")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, package, raising=False)
        file = tmp_path / "c.yaml"
        file.write_text(f"cluster: c\nengine: {engine}\nhosts: {{gpu1: {{slots: 2}}}}\n")
        return file

    return write


@pytest.mark.parametrize("engine", ["pbs", "our-pbs", "dialogue"])
def test_another_package_brings_an_engine(install: Callable[..., Path], engine: str) -> None:
    with Cluster(str(install(PLUGIN, engine=engine)), environ={}) as cluster:
        assert (cluster.jobs(), cluster.variants()) == ((), ())
        assert cluster.backend.name == "pbs"


def test_an_unknown_engine_is_told_with_those_that_are_installed(install: Callable[..., Path]) -> None:
    file = install(PLUGIN)
    file.write_text(file.read_text().replace("engine: pbs", "engine: pbss"))
    with pytest.raises(SpecError, match=r"'pbss': must be 'agent' or 'slurm' or 'pbs' \(did you mean 'pbs'\?\)"):
        load(str(file), {})


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("import nothing_of_this_name\n", "", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def connect(\n", "", r"SyntaxError: .*"),
        ("raise RuntimeError('no licence')\n", "", "RuntimeError: no licence"),
        ("", "", "AttributeError: module 'taco_pbs' has no attribute 'connect'"),
        ("connect = 1\n", "", "it is no function"),
        ("", "taco_pbs_missing:connect", "ModuleNotFoundError: No module named 'taco_pbs_missing'"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_named(
    install: Callable[..., Path], text: str, value: str, why: str
) -> None:
    file = install(text, value=value)
    entry = f"entry point {value or 'taco_pbs:connect'} of taco_pbs 1.2 cannot be loaded"
    with pytest.raises(UsageError, match=rf"^engine pbs: {entry}: {why}"):
        _ = Cluster(str(file), environ={}).backend
    done = CliRunner().invoke(cli, ("-i", str(file), "list"))
    assert isinstance(done.exception, UsageError)


def test_a_plug_in_that_is_gone_or_there_twice(install: Callable[..., Path]) -> None:
    gone = Inventory("c", "gpu1", (Host("gpu1", "gpu1"),), engine="pbs")
    with pytest.raises(UsageError, match="engine pbs: no installed package provides it"):
        connect(gone, None, {}, "taco-launch")
    install(PLUGIN)
    install(PLUGIN, package="other_pbs")
    with pytest.raises(UsageError, match=r"other_pbs 1\.2 and taco_pbs 1\.2 both provide it"):
        connect(gone, None, {}, "taco-launch")


def test_a_plug_in_does_not_replace_what_is_built_in(install: Callable[..., Path]) -> None:
    file = install("raise RuntimeError\n", engine="agent")
    assert isinstance(Cluster(str(file), environ={}).backend, AgentBackend)


# --- no branch on a name

_ASKS = re.compile(
    rf"(?:engine|backend)\w*\)? *(?:==|!=|in|not in) *[\(\[{{]?\"(?:{'|'.join(ENGINES)})\""
    r"|isinstance\([^)]*Backend\b|\bjobs\.backend\.agent\b"
)


def test_a_backend_is_asked_for_what_it_can_do_and_not_for_its_name() -> None:
    root = Path(taco_launch.__file__).parent
    asking = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if path.parent.name != "backend"  # one may be made of another
        for line in path.read_text("utf-8").splitlines()
        if _ASKS.search(line)
    ]
    assert asking == []
    assert _ASKS.search('if inventory.engine == "agent":')
    assert _ASKS.search("return backend if isinstance(backend, AgentBackend) else None")


def test_an_inventory_file_has_no_states_of_slurm() -> None:
    inventory = Inventory(
        cluster="c", head="login", hosts=(Host("login", "login", slots=2),), source="hosts.yaml", engine="slurm"
    )
    (login,) = SlurmBackend(cast(AgentClient, None), Credentials()).nodes(inventory)
    assert (login.occupancy, login.problem) == (
        None,
        "this inventory has no states of Slurm: use the inventory slurm:, or sinfo",
    )
