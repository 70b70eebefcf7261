"""The peermem stage: the module by which HCAs reach GPU memory (GPUDirect RDMA), loaded now and after every boot."""

from collections.abc import Iterator

from taco_launch.core.command import shell
from taco_launch.core.facts import MADE
from taco_launch.core.facts.rdma.peermem import MODULES, SERVICE
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import DockerFacts, HostFacts
from taco_launch.core.model.host.hardware import Gpus, PeerMemory, Rdma
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.setup.model.host_files import files_of
from taco_launch.setup.model.ops import Op, PlanContext, Problem, Removal, StageRules
from taco_launch.setup.stage_parts.peermem_ops import (
    OFF,
    PeermemModule,
    boot,
    branch,
    install,
    listed,
    load,
    options,
    others,
    problem,
    service_off,
)

# The driver that first has nvidia_peermem.
_WITH_MODULE = 470
# The NCCL that first knows DMA-BUF.
_WITH_DMABUF = (2, 13)


def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Plan that a host's HCAs reach its GPUs' memory; nothing where it has not both, or DMA-BUF does it."""
    inventory = cluster.inventory
    if "off" in (inventory.network.gdr, inventory.network.rdma, inventory.peermem.use):
        return
    gpu, rdma = facts.gpu, facts.rdma
    if _none(gpu) or _none(rdma) or _none(getattr(gpu, "gpus", gpu)) or _none(getattr(rdma, "hcas", rdma)):
        return
    if not isinstance(gpu, Gpus) or not isinstance(gpu.gpus, tuple):
        yield _unread("the GPUs", getattr(gpu, "gpus", gpu))
    elif not isinstance(rdma, Rdma) or not isinstance(rdma.hcas, tuple):
        yield _unread("the RDMA devices", getattr(rdma, "hcas", rdma))
    else:
        way = _choose(gpu, rdma, inventory)
        if isinstance(way, Problem):
            yield way
        elif way is not None:
            yield from _there(host, facts, rdma, way, cluster)


def _none(value: object) -> bool:
    return isinstance(value, Absent) or value == ()


def _unread(what: str, why: object) -> Problem:
    hint = "look at the host: taco-launch -i FILE facts --only gpu --only rdma"
    return problem(f"{what}: {getattr(why, 'reason', '') or 'cannot be read'}", f"{hint}; {OFF}")


# --- which one --------------------------------------------------------------------------------------------------------


def _choose(gpu: Gpus, rdma: Rdma, inventory: Inventory) -> PeermemModule | Problem | None:
    """Return the module that is to be loaded; None where there is nothing to be loaded."""
    use, dmabuf = inventory.peermem.use, rdma.peer_memory.dmabuf
    if use == "dmabuf":
        return None if dmabuf is True else _no_dmabuf(rdma.peer_memory)
    old = _knows_no_dmabuf(inventory)
    if use == "auto":
        found = _found(rdma.peer_memory)
        if dmabuf is True and not old:
            return None
        if found is not None or isinstance(rdma.ofed, Absent):  # the kernel's own driver takes no such module
            return found
    driver = gpu.driver.loaded
    if not isinstance(driver, str) or not branch(driver):
        return _unread("the NVIDIA driver", driver)
    why = (
        f"NCCL {old} does not support DMA-BUF"
        if dmabuf is True
        else "DMA-BUF requires Linux 5.12 and open kernel modules"
    )
    return _by_driver(driver, use, why)


def _found(peer: PeerMemory) -> PeermemModule | None:
    """Return the module that is loaded already, or that others than set-up have loaded at boot."""
    if isinstance(peer.loaded, str):
        return PeermemModule(peer.loaded, f"{peer.loaded} is already loaded")
    for place, module in listed(peer.at_boot):
        if place != paths.PEERMEM and module in listed(peer.exists):
            return PeermemModule(module, f"{place} already loads it at boot")
    return None


def _by_driver(driver: str, use: str, why: str) -> PeermemModule | Problem:
    """Return the module that belongs to a driver, or that is requested; `why` says why it takes one."""
    new = branch(driver) >= _WITH_MODULE
    if use == "nvidia_peermem" and not new:
        return problem(
            f"peermem.use is nvidia_peermem, which comes with the NVIDIA driver from {_WITH_MODULE} on: here it is {driver}",
            "set peermem: {use: nv_peer_mem} (or auto) in the inventory, or update the driver",
        )
    if use != "auto":
        return PeermemModule(use, f"peermem.use is {use}")
    if new:
        return PeermemModule("nvidia_peermem", f"included in NVIDIA driver {driver}; {why}")
    return PeermemModule(
        "nv_peer_mem",
        f"NVIDIA driver {driver} does not include nvidia_peermem, which comes with drivers from {_WITH_MODULE} on; {why}",
    )


def _knows_no_dmabuf(inventory: Inventory) -> str:
    """Return the NCCL of the inventory if it is too old for DMA-BUF."""
    nccl = dict(inventory.versions).get("nccl", "")
    return nccl if nccl and tuple(int(part) for part in nccl.split(".")[:2]) < _WITH_DMABUF else ""


def _no_dmabuf(peer: PeerMemory) -> Problem:
    why = peer.dmabuf.reason if isinstance(peer.dmabuf, Unknown) else "not with this kernel and driver"
    return problem(
        f"peermem.use is dmabuf, and DMA-BUF is not possible here: {why}",
        "it requires Linux 5.12 and the open kernel modules of the NVIDIA driver; peermem: {use: auto} uses what exists",
    )


# --- what it takes ----------------------------------------------------------------------------------------------------


def _there(
    host: Host, facts: HostFacts, rdma: Rdma, way: PeermemModule, cluster: PlanContext
) -> Iterator[Op | Problem]:
    """Plan that the module is on the disk, in the kernel, and loaded at boot; and the other one is not."""
    peer = rdma.peer_memory
    present = _present(rdma)
    if not isinstance(present, tuple) or not isinstance(peer.at_boot, tuple):
        yield _unread("what is loaded", present) if not isinstance(present, tuple) else _unread("boot", peer.at_boot)
        return
    if way.module not in present and not isinstance(peer.exists, tuple):
        yield _unread("the kernel modules", peer.exists)
        return
    refusal = _conflict(facts, peer, way) or (_busy(facts, way, cluster) if way.other in present else None)
    if refusal is not None:
        yield refusal
        return
    if way.module not in present and way.module not in listed(peer.exists):
        built = install(host, facts, rdma, way, cluster)
        yield built
        if isinstance(built, Problem):
            return
        facts = built.expect(facts)
    for op in options(facts, way, present):
        yield op
        facts = op.expect(facts)
    if present != (way.module,):
        loaded = load(host, peer, way, present)
        yield loaded
        facts = loaded.expect(facts)
    if _undone(facts, peer, way):
        off = service_off(f"it came with a package that set-up installed, but {way.module} must be loaded ({way.why})")
        yield off
        facts = off.expect(facts)
    yield from boot(facts, way)


def _present(rdma: Rdma) -> tuple[str, ...] | Unknown:
    """Name those of the two modules that are in the kernel."""
    loaded = rdma.peer_memory.loaded
    if isinstance(loaded, str):
        return (loaded,)
    if isinstance(loaded, Absent):
        return ()
    both = isinstance(rdma.modules, tuple) and all(name in rdma.modules for name in MODULES)
    return MODULES if both else loaded


def _conflict(facts: HostFacts, peer: PeerMemory, way: PeermemModule) -> Problem | None:
    """Return what of others' would load the other module at boot, or keep this one out: that is theirs to change."""
    ours = (paths.PEERMEM, *((SERVICE,) if _undone(facts, peer, way) else ()))
    place = next((each for each, name in listed(peer.at_boot) if name == way.other and each not in ours), None)
    if place is not None:
        gone = f"systemctl disable {place}" if place == SERVICE else f"take that line out of {place}"
        return problem(
            f"{place} loads {way.other} at every boot, but {way.module} must be loaded ({way.why}), and only one of the two may be",
            f"{gone} on the host, or keep it: peermem: {{use: {way.other}}} in the inventory",
        )
    place = next((each for each, name in listed(peer.blocked) if name == way.module), None)
    if place is not None and not others(facts, way):
        return problem(
            f"{place} keeps {way.module} from being loaded at boot",
            f"take that line out of it, on the host; {OFF}",
        )
    return None


def _undone(facts: HostFacts, peer: PeerMemory, way: PeermemModule) -> bool:
    """Return whether the other module is loaded at boot by the service of the package that set-up itself installed."""
    return (SERVICE, way.other) in listed(peer.at_boot) and paths.NV_PEER_MEM in (files_of(facts) or {})


def _busy(facts: HostFacts, way: PeermemModule, cluster: PlanContext) -> Problem | None:
    """Return what may use the module that is to be unloaded, unless that is allowed."""
    if cluster.disrupt == "host":
        return None
    uses = [*_containers(facts), *_processes(facts)]
    if not uses:
        return None
    typed = ("taco-launch", "-i", cluster.inventory.source, "setup", "--only", "peermem", "--disrupt", "host")
    return problem(
        f"{way.other} is loaded, but {way.module} must be ({way.why}); set-up does not unload it while jobs may be running: {', '.join(uses)}",
        f"when no job runs there: {shell(typed)}; or keep it: peermem: {{use: {way.other}}} in the inventory",
    )


def _containers(facts: HostFacts) -> Iterator[str]:
    if isinstance(facts.docker, DockerFacts) and isinstance(facts.docker.containers, tuple):
        running = [each.name for each in facts.docker.containers if each.state in ("running", "paused", "restarting")]
        yield from (f"container {name} runs" for name in running[:3])
        if len(running) > 3:
            yield f"{len(running) - 3} more containers run"
    elif not isinstance(facts.docker, Absent):
        yield "docker does not report which containers run"


def _processes(facts: HostFacts) -> Iterator[str]:
    assert isinstance(facts.gpu, Gpus)
    processes = facts.gpu.processes
    if isinstance(processes, tuple) and processes:
        yield f"{len(processes)} process{'es use' if len(processes) > 1 else ' uses'} the GPUs"
    elif isinstance(processes, Unknown):
        yield "the driver does not report which processes use the GPUs"


def take_back(removal: Removal) -> Iterator[Op]:
    """Plan that nothing of ours loads a module at boot any more."""
    if not removal.is_last:
        return
    stays = "no other cluster uses it; a loaded module stays loaded until a reboot"
    if ours := [path for path in (paths.PEERMEM, paths.PEERMEM_OPTIONS) if path in removal.files]:
        yield Op("peermem", f"remove {' and '.join(ours)}", stays, 'rm -f -- "$@"\n', tuple(ours))
    if paths.NV_PEER_MEM in removal.files:
        yield service_off(f"set-up installed it, and {stays}; the package stays")


STAGE = StageRules(
    ("system", "docker", "gpu", "rdma", MADE),
    plan,
    after=("toolkit",),
    changes=("system", "rdma", MADE),
    take_back=take_back,
)
