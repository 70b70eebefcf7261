"""The lab of these tests, which all of them share: four hosts that two clusters were set up on."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from tests.faults import witness
from tests.faults.plugin import SECONDS
from tests.faults.site import HOSTS, LOSS_SECONDS, SLOTS, Person, Site
from tests.lab.conftest import LabUser, may_use_an_engine

Case = Callable[[Site], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every case as often as `scripts/faults --repeat` says, one round after the other."""
    rounds = metafunc.config.getoption("--repeat", default=1)
    if "round_" in metafunc.fixturenames and rounds > 1:
        metafunc.parametrize("round_", range(1, rounds + 1), indirect=True, scope="module")


@pytest.fixture(scope="module")
def round_(request: pytest.FixtureRequest) -> int:
    """Which time it is that the cases run, from 1 on."""
    number: int = getattr(request, "param", 1)
    return number


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Make the hosts, and set both clusters up on them: different names, ports and heads, and nothing else apart."""
    if not may_use_an_engine():
        pytest.skip("cannot: a lab takes root, or the right to use a Docker Engine")
    folder = tmp_path_factory.mktemp("faults")
    lab = LabUser(f"faults-{os.getpid()}", folder / "lab")
    try:
        up = lab.verb("up", "--hosts", str(len(HOSTS)), "--slots", str(SLOTS))  # with its training image
        assert up.returncode == 0, up.stderr
        source = Path(witness.__file__).read_text(encoding="utf-8")
        for host in HOSTS:  # what is mounted has to be there
            script = (
                f'mkdir -p {witness.FOLDER} && cd {witness.FOLDER} && rm -f twice ran && printf %s "$1" >witness.py'
            )
            assert lab.inside(host, "sh", "-c", script, "sh", source).returncode == 0
        one = _person(lab, folder / "one", lab.name, HOSTS[0], 12222)
        two = _person(lab, folder / "two", f"{lab.name}-two", HOSTS[1], 12223)
        for person in (one, two):
            person.done("setup", "--yes", seconds=600)
        yield Site(one, two)
    finally:
        lab.verb("down")


def _person(lab: LabUser, state: Path, cluster: str, head: str, port: int) -> Person:
    """Write an inventory as somebody who was told of the hosts would."""
    there = json.loads(lab.taco("-i", f"lab:{lab.name}", "inventory", "--json").stdout)
    registry = f"{{user: {there['container']['registry']['user']}, password_file: {lab.folder}/registry-password}}"
    hosts = "".join(
        f"  {host['name']}: {{address: {host['address']}, slots: {host['slots']}}}\n" for host in there["hosts"]
    )
    state.mkdir()
    inventory = state / "cluster.yaml"
    inventory.write_text(
        f"cluster: {cluster}\n"
        f"head: {head}\n"
        "container:\n"
        f"  image: '{there['container']['image']}'\n"
        f"  ssh_port: {port}\n"
        "  shm_size: 1g\n"
        f"  registry: {registry}\n"
        f"  mounts: ['{witness.FOLDER}:{witness.FOLDER}']\n"
        "network: {port_range: 40000-40999}\n"  # as a firewall between the hosts would leave open for both clusters
        f"ssh: {{user: root, identity_file: {lab.folder}/id_ed25519, known_hosts: {lab.folder}/known_hosts}}\n"
        f"host_loss_timeout: {LOSS_SECONDS}\n"
        f"hosts:\n{hosts}",
        encoding="utf-8",
    )
    return Person(lab, inventory, state / "state")


class Wave:
    """Cases that run beside each other, each with hosts or slots of its own."""

    def __init__(self, site: Site, cases: Mapping[str, Case], chosen: Sequence[str]) -> None:
        """Start the chosen ones."""
        self._site = site
        self._seconds: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(max(1, len(chosen)))
        self._running: dict[str, Future[None]] = {
            name: self._pool.submit(self._run, name, cases[name]) for name in chosen
        }

    def _run(self, name: str, case: Case) -> None:
        begin = monotonic()
        try:
            case(self._site)
        finally:
            self._seconds[name] = monotonic() - begin

    def result(self, case: str, node: pytest.Item) -> None:
        """Wait for a case; its own time goes into the report of its test."""
        try:
            self._running[case].result()
        finally:
            node.user_properties.append((SECONDS, self._seconds[case]))

    def end(self) -> None:
        """Wait for all; then nothing may be left on any host, whatever the cases looked at."""
        self._pool.shutdown()
        if any(case.exception() for case in self._running.values()):
            self._site.clear()
        self._site.is_quiet()


@pytest.fixture(scope="module")
def wave(site: Site, round_: int, request: pytest.FixtureRequest) -> Iterator[Wave]:
    """Run the cases of a module (its CASES) that were asked for, all at the same time."""
    del round_  # only to be made anew for each
    cases: Mapping[str, Case] = request.module.CASES
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = {item.callspec.params["case"] for item in items}
    running = Wave(site, cases, [name for name in cases if name in chosen])
    yield running
    running.end()


@pytest.fixture
def quiet(site: Site, round_: int) -> Iterator[None]:
    """Leave nothing to the case after, where this one failed; where it did not, there is nothing."""
    del round_
    yield
    if site.one.jobs() or site.two.jobs():
        site.clear()
    site.is_quiet()
