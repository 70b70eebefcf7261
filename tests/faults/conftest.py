"""What these tests share: two clusters on the hosts of one lab, and how cases run beside each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults import witness
from tests.faults.site import HOSTS, LOSS_SECONDS, SLOTS, Person, Site
from tests.lab import shared
from tests.lab.rig import Lab

Case = Callable[[Site], None]


def pytest_configure(config: pytest.Config) -> None:
    """Offer the shared labs."""
    if not config.pluginmanager.has_plugin(shared.NAME):
        config.pluginmanager.register(shared, shared.NAME)


@pytest.fixture(scope="session")
def site(four: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Set two clusters up on the hosts: different names, ports and heads, and nothing else apart."""
    folder = tmp_path_factory.mktemp("faults")
    source = Path(witness.__file__).read_text(encoding="utf-8")
    script = f'mkdir -p {witness.FOLDER} && cd {witness.FOLDER} && rm -f twice ran && printf %s "$1" >witness.py'
    for host in HOSTS:  # what is mounted has to be there
        assert four.inside(host, "sh", "-c", script, "sh", source).returncode == 0
    one = _person(four, folder / "one", four.name, HOSTS[0], 12222)
    two = _person(four, folder / "two", f"{four.name}-two", HOSTS[1], 12223)
    for person in (one, two):
        person.ok("setup", "--yes", seconds=600)
    return Site(one, two)


def _person(lab: Lab, folder: Path, cluster: str, head: str, port: int) -> Person:
    written = lab.inventory(
        folder / "cluster.yaml",
        *HOSTS,
        cluster=cluster,
        slots=SLOTS,
        head=head,
        container=lab.training(ssh_port=port, mounts=[f"{witness.FOLDER}:{witness.FOLDER}"]),
        network={"port_range": "40000-40999"},  # as a firewall between the hosts would leave open for both clusters
        host_loss_timeout=LOSS_SECONDS,
    )
    return Person(lab, written.inventory, folder / "state")


class Wave:
    """Cases that run beside each other, each with hosts or slots of its own."""

    def __init__(self, site: Site, cases: Mapping[str, Case], chosen: Sequence[str]) -> None:
        """Start the chosen ones."""
        self._site = site
        self._pool = ThreadPoolExecutor(max(1, len(chosen)))
        self._running: dict[str, Future[None]] = {name: self._pool.submit(cases[name], site) for name in chosen}

    def result(self, case: str) -> None:
        """Wait for a case."""
        self._running[case].result()

    def end(self) -> None:
        """Wait for all; then nothing may be left on any host, whatever the cases looked at."""
        self._pool.shutdown()
        if any(case.exception() for case in self._running.values()):
            self._site.clear()
        self._site.is_quiet()


@pytest.fixture(scope="module")
def wave(site: Site, request: pytest.FixtureRequest) -> Iterator[Wave]:
    """Run the cases of a module (its CASES) that were requested, all at the same time."""
    cases: Mapping[str, Case] = request.module.CASES
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = {item.callspec.params["case"] for item in items}
    running = Wave(site, cases, [name for name in cases if name in chosen])
    yield running
    running.end()


@pytest.fixture
def quiet(site: Site) -> Iterator[None]:
    """Leave nothing to the case after, where this one failed; where it did not, there is nothing."""
    yield
    if site.one.jobs() or site.two.jobs():
        site.clear()
    site.is_quiet()
