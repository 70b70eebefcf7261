"""Space on a host's disks: where docker keeps its images, what is free there, and whether set-up can write at all."""

from collections.abc import Iterator

from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Found, known_value
from taco_launch.core.model.host.facts import Disk, HostFacts, SetupState, System
from taco_launch.core.model.host.hosts import DockerEngine, Inventory
from taco_launch.setup.files import daemon_json
from taco_launch.setup.model.ops import Problem

# Where the engine keeps images unless it is told.
DATA_ROOT = "/var/lib/docker"
# Less than that, and neither a container nor a job's logs can be made.
_LEAST = 64 << 20


def full(facts: HostFacts, inventory: Inventory) -> Iterator[Problem]:
    """Yield which disks are full, that of set-up's and jobs' own files and that of docker; nothing of what is not known."""
    told = set()
    for folder in (paths.STATE, data_root(facts, inventory.docker)):
        disk = None if folder is None else disk_of(facts.system, folder)
        if folder is not None and disk is not None and disk.free < _LEAST and disk.path not in told:
            told.add(disk.path)
            yield Problem(
                "hardware",
                f"the disk of {folder} is full: {disk.path} has {disk.free / (1 << 20):.0f} MiB free",
                f"free some space, on the host: du -xh --max-depth=2 {folder} | sort -h | tail; docker system df",
            )


def data_root(facts: HostFacts, engine: DockerEngine) -> str | None:
    """Return the folder that docker keeps images in once it has its settings; None where the probe did not look at it."""
    looked_at = [engine.data_root, _written(facts.made), DATA_ROOT]
    docker = known_value(facts.docker)
    root = None if docker is None else known_value(docker.root)
    if engine.data_root is not None or root is None:
        return next(filter(None, looked_at))
    return root if root in looked_at else None


def _written(made: Found[SetupState]) -> str | None:
    """Return the data root that daemon.json names."""
    if not isinstance(made, SetupState) or not isinstance(made.daemon_json, str):
        return None
    try:
        named = daemon_json.read(made.daemon_json).get("data-root")
    except daemon_json.NotOursError:
        return None
    return named if isinstance(named, str) else None


def too_small(facts: HostFacts, root: str | None, need: int) -> str:
    """Return that the disk of the engine's data root lacks space; empty where it does not, or is not among the facts."""
    disk = None if root is None else disk_of(facts.system, root)
    if disk is None or disk.free >= need:
        return ""
    return f"{disk.path} has {gib(disk.free)} free" + (f" (docker's {root})" if disk.path != root else "")


def gib(size: int) -> str:
    """Return bytes as people read them."""
    return f"{size / (1 << 30):.1f} GiB"


def disk_of(system: Found[System], folder: str) -> Disk | None:
    """Return the disk that a folder lies on, as far as the probe looked at it."""
    there = known_value(system)
    disks = () if there is None else known_value(there.disks) or ()
    over = [disk for disk in disks if f"{folder}/".startswith(f"{disk.path.rstrip('/')}/")]
    return max(over, key=lambda disk: len(disk.path), default=None)
