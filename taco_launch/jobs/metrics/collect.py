"""Metrics of a cluster: collected from its head and its hosts, written where a collector finds them."""

import contextlib
import os
import tempfile
import threading
from pathlib import Path

import taco_launch
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.jobs.backend import Backend, HostOccupancy
from taco_launch.jobs.metrics import MONITORING, families

# How long a scrape waits for the hosts.
_PATIENCE_SECONDS = 5.0


def collect(backend: Backend, inventory: Inventory, *, mpi_operator: bool = False) -> tuple[bytes, tuple[str, ...]]:
    """Return the metrics as Prometheus reads them, and warnings: records and hosts of which nothing is known.

    With `mpi_operator` also under the names of the MPI Operator.

    Raises:
        HostError: the head cannot be reached.
    """
    return _collected(backend, backend.nodes(inventory), mpi_operator)


class Collector:
    """Collects again and again. A host that does not answer delays nobody for long: slots are as last looked at.

    Prometheus gives a target ten seconds, and ssh as many to a host that is switched off.
    """

    def __init__(self, backend: Backend, inventory: Inventory, *, mpi_operator: bool = False) -> None:
        """Ask nobody yet."""
        self._mpi_operator = mpi_operator
        self._backend = backend
        self._inventory = inventory
        self._nodes: tuple[HostOccupancy, ...] = ()
        self._looking: threading.Thread | None = None

    def collect(self) -> tuple[bytes, tuple[str, ...]]:
        """Return what `collect` does, of a head that does not answer that alone; not for two threads at once."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(target=self._refresh, daemon=True)
            self._looking.start()
        self._looking.join(_PATIENCE_SECONDS)
        try:
            return _collected(self._backend, self._nodes, self._mpi_operator)
        except HostError as error:
            return silent_head(self._inventory), (error.message,)

    def _refresh(self) -> None:
        with contextlib.suppress(TacoLaunchError):
            self._nodes = self._backend.nodes(self._inventory)


def rules() -> str:
    """Return the alert rules as a file of Prometheus."""
    return (MONITORING / "taco-launch.rules.yml").read_text("utf-8")


def silent_head(inventory: Inventory) -> bytes:
    """Return the metrics of a cluster whose head does not answer, so that an alert can tell of it."""
    return families.silent_head_text(inventory.head, taco_launch.__version__)


def _collected(backend: Backend, nodes: tuple[HostOccupancy, ...], mpi_operator: bool) -> tuple[bytes, tuple[str, ...]]:
    counters = backend.counters()
    nodes = tuple(node for node in nodes if node.is_head or node.is_used)
    silent = [f"host {node.host.name}: {node.problem}" for node in nodes if node.occupancy is None]
    hosts = {node.host.name: node.occupancy for node in nodes}
    version = taco_launch.__version__
    text = families.text(counters.rows, counters.removed, hosts, version, live=counters.live, mpi_operator=mpi_operator)
    return text, (*counters.warnings, *silent)


def write(path: Path, found: bytes) -> None:
    """Replace a file by what was collected, all at once: who reads it never sees half of it.

    Raises:
        UsageError: it cannot be written there.
    """
    part = None
    try:
        # The name does not end with .prom, so that node_exporter leaves it alone.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        part = Path(name)
        with open(descriptor, "wb") as out:
            out.write(found)
            os.fchmod(out.fileno(), 0o644)  # node_exporter is another user
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        hint = "name a file in node_exporter's --collector.textfile.directory, as NAME.prom"
        raise UsageError(f"{path}: {error.strerror or error}", hint) from None
