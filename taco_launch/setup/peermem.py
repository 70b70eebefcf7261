"""The peermem stage: the module by which HCAs reach GPU memory (GPUDirect RDMA), loaded now and after every boot."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from taco_launch.command import shell
from taco_launch.facts.peermem import MODULES, SERVICE
from taco_launch.model.facts import Docker, HostFacts, System
from taco_launch.model.found import Absent, Unknown
from taco_launch.model.hardware import Gpus, PeerMemory, Rdma
from taco_launch.model.hosts import Host, Inventory
from taco_launch.setup import packages, paths
from taco_launch.setup.made import differing, files_of, with_files, without
from taco_launch.setup.ops import Cluster, File, Op, Problem
from taco_launch.setup.scripts import text
from taco_launch.signatures.system import words

# The driver that first has nvidia_peermem.
_WITH_MODULE = 470
# The NCCL that first knows DMA-BUF.
_WITH_DMABUF = (2, 13)
_PACKAGES = {"apt-get": "nvidia-peer-memory-dkms"}
_RPM = ("nvidia_peer_memory", ("dnf", "yum", "zypper"))
_BUILD_SECONDS = 1800.0
_OFF = "or leave GPUDirect RDMA alone: network: {gdr: off} in the inventory"


@dataclass(frozen=True)
class _Way:
    """The module that is to be loaded, and why that one."""

    module: str
    why: str

    @property
    def other(self) -> str:
        return next(each for each in MODULES if each != self.module)


def plan(host: Host, facts: HostFacts, cluster: Cluster) -> Iterator[Op | Problem]:
    """Plan that a host's HCAs reach its GPUs' memory; nothing where it has not both, or DMA-BUF does it."""
    inventory = cluster.inventory
    if "off" in (inventory.network.gdr, inventory.network.rdma, inventory.peermem.use) or host.gpus == "none":
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
    return _problem(f"{what}: {getattr(why, 'reason', '') or 'cannot be read'}", f"{hint}; {_OFF}")


def _problem(message: str, hint: str) -> Problem:
    return Problem("peermem", message, hint)


# --- which one --------------------------------------------------------------------------------------------------------


def _choose(gpu: Gpus, rdma: Rdma, inventory: Inventory) -> _Way | Problem | None:
    """Give the module that is to be loaded; None where there is nothing to be loaded."""
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
    if not isinstance(driver, str) or not re.match("[0-9]+", driver):
        return _unread("the NVIDIA driver", driver)
    why = f"NCCL {old} knows no DMA-BUF" if dmabuf is True else "DMA-BUF takes Linux 5.12 and open kernel modules"
    return _by_driver(driver, use, why)


def _found(peer: PeerMemory) -> _Way | None:
    """Give the module that is loaded already, or that others than set-up have loaded at boot."""
    if isinstance(peer.loaded, str):
        return _Way(peer.loaded, f"{peer.loaded} is the one that is loaded")
    for place, module in peer.at_boot if isinstance(peer.at_boot, tuple) else ():
        if place != paths.PEERMEM and isinstance(peer.exists, tuple) and module in peer.exists:
            return _Way(module, f"{place} names it already")
    return None


def _by_driver(driver: str, use: str, why: str) -> _Way | Problem:
    """Give the module that belongs to a driver, or that is asked for; `why` says why it takes one."""
    new = int(driver.partition(".")[0]) >= _WITH_MODULE
    if use == "nvidia_peermem" and not new:
        return _problem(
            f"peermem.use is nvidia_peermem, which comes with the NVIDIA driver from {_WITH_MODULE} on: here it is {driver}",
            "say peermem: {use: nv_peer_mem} (or auto) in the inventory, or update the driver",
        )
    if use != "auto":
        return _Way(use, f"peermem.use is {use}")
    if new:
        return _Way("nvidia_peermem", f"NVIDIA driver {driver} brings it; {why}")
    return _Way(
        "nv_peer_mem", f"NVIDIA driver {driver} brings no nvidia_peermem, as those from {_WITH_MODULE} on do; {why}"
    )


def _knows_no_dmabuf(inventory: Inventory) -> str:
    """Give the NCCL of the inventory if it is too old for DMA-BUF."""
    nccl = dict(inventory.versions).get("nccl", "")
    return nccl if nccl and tuple(int(part) for part in nccl.split(".")[:2]) < _WITH_DMABUF else ""


def _no_dmabuf(peer: PeerMemory) -> Problem:
    why = peer.dmabuf.reason if isinstance(peer.dmabuf, Unknown) else "not with this kernel and driver"
    return _problem(
        f"peermem.use is dmabuf, and DMA-BUF is not possible here: {why}",
        "it takes Linux 5.12 and the open kernel modules of the NVIDIA driver; peermem: {use: auto} takes what there is",
    )


# --- what it takes ----------------------------------------------------------------------------------------------------


def _there(host: Host, facts: HostFacts, rdma: Rdma, way: _Way, cluster: Cluster) -> Iterator[Op | Problem]:
    """Plan that the module is on the disk, in the kernel, and loaded at boot; and the other one is not."""
    peer = rdma.peer_memory
    present = _present(rdma)
    if not isinstance(present, tuple) or not isinstance(peer.at_boot, tuple):
        yield _unread("what is loaded", present) if not isinstance(present, tuple) else _unread("boot", peer.at_boot)
        return
    if way.module not in present and not isinstance(peer.exists, tuple):
        yield _unread("the kernel modules", peer.exists)
        return
    problem = _conflict(facts, peer, way) or (_busy(facts, way, cluster) if way.other in present else None)
    if problem is not None:
        yield problem
        return
    if way.module not in present and way.module not in _tuple(peer.exists):
        install = _install(host, facts, rdma, way, cluster)
        yield install
        if isinstance(install, Problem):
            return
        facts = install.expect(facts)
    if present != (way.module,):
        load = _load(host, peer, way, present)
        yield load
        facts = load.expect(facts)
    if _undone(facts, peer, way):
        undo = _undo(way)
        yield undo
        facts = undo.expect(facts)
    yield from _boot(facts, way)


def _present(rdma: Rdma) -> tuple[str, ...] | Unknown:
    """Name those of the two modules that are in the kernel."""
    loaded = rdma.peer_memory.loaded
    if isinstance(loaded, str):
        return (loaded,)
    if isinstance(loaded, Absent):
        return ()
    both = isinstance(rdma.modules, tuple) and all(name in rdma.modules for name in MODULES)
    return MODULES if both else loaded


def _conflict(facts: HostFacts, peer: PeerMemory, way: _Way) -> Problem | None:
    """Say what of others' would load the other module at boot, or keep this one out: that is theirs to change."""
    assert isinstance(peer.at_boot, tuple)
    ours = (paths.PEERMEM, *((SERVICE,) if _undone(facts, peer, way) else ()))
    place = next((each for each, name in peer.at_boot if name == way.other and each not in ours), None)
    if place is not None:
        gone = f"systemctl disable {place}" if place == SERVICE else f"take that line out of {place}"
        return _problem(
            f"{place} loads {way.other} at every boot, and {way.module} is to be loaded ({way.why}): only one may be",
            f"{gone} on the host, or keep it: peermem: {{use: {way.other}}} in the inventory",
        )
    others = [each for each, name in peer.at_boot if name == way.module and each != paths.PEERMEM]
    blocked = peer.blocked if isinstance(peer.blocked, tuple) else ()
    place = next((each for each, name in blocked if name == way.module), None)
    if place is not None and not others:
        return _problem(
            f"{place} keeps {way.module} from being loaded at boot",
            f"take that line out of it, on the host; {_OFF}",
        )
    return None


def _undone(facts: HostFacts, peer: PeerMemory, way: _Way) -> bool:
    """Say whether the other module is loaded at boot by the service of the package that set-up itself installed."""
    return (SERVICE, way.other) in _tuple(peer.at_boot) and paths.NV_PEER_MEM in (files_of(facts) or {})


def _busy(facts: HostFacts, way: _Way, cluster: Cluster) -> Problem | None:
    """Say what may use the module that is to be unloaded, unless that is allowed."""
    if cluster.disrupt == "host":
        return None
    uses = [*_containers(facts), *_processes(facts)]
    if not uses:
        return None
    typed = ("taco-launch", "-i", cluster.inventory.source, "setup", "--only", "peermem", "--disrupt", "host")
    return _problem(
        f"{way.other} is loaded, {way.module} is to be ({way.why}), and it is not unloaded under jobs: {', '.join(uses)}",
        f"when no job runs there: {shell(typed)}; or keep it: peermem: {{use: {way.other}}} in the inventory",
    )


def _containers(facts: HostFacts) -> Iterator[str]:
    if isinstance(facts.docker, Docker) and isinstance(facts.docker.containers, tuple):
        running = [each.name for each in facts.docker.containers if each.state in ("running", "paused", "restarting")]
        yield from (f"container {name} runs" for name in running[:3])
        if len(running) > 3:
            yield f"{len(running) - 3} more containers run"
    elif not isinstance(facts.docker, Absent):
        yield "docker does not tell which containers run"


def _processes(facts: HostFacts) -> Iterator[str]:
    assert isinstance(facts.gpu, Gpus)
    processes = facts.gpu.processes
    if isinstance(processes, tuple) and processes:
        yield f"{len(processes)} process{'es use' if len(processes) > 1 else ' uses'} the GPUs"
    elif isinstance(processes, Unknown):
        yield "the driver does not tell which processes use the GPUs"


# --- the operations ---------------------------------------------------------------------------------------------------


def _install(host: Host, facts: HostFacts, rdma: Rdma, way: _Way, cluster: Cluster) -> Op | Problem:
    """Plan to have nv_peer_mem built for the running kernel, or say why the module cannot be had."""
    system = facts.system
    kernel = system.kernel if isinstance(system, System) and isinstance(system.kernel, str) else "that runs"
    if way.module == "nvidia_peermem":
        return _problem(
            f"there is no module nvidia_peermem for the kernel {kernel} ({way.why})",
            f"install the driver of that version again, with OFED in place, so that it is built; {_OFF}",
        )
    manager = system.package_manager if isinstance(system, System) else ""
    rpm, managers = _RPM
    usual = _PACKAGES.get(str(manager)) or (rpm if manager in managers else None)
    if usual is None:
        return _problem(
            f"nv_peer_mem is not installed ({way.why}), and this host's package manager is none that set-up uses",
            f"build it by hand (dkms, from the sources of nv_peer_memory), then run setup again; {_OFF}",
        )
    of = cluster.inventory.peermem
    package = of.package or usual
    files = packages.given(str(manager), cluster.peermem_packages)
    if of.packages is not None and not files:
        return _problem(
            f"nv_peer_mem is not installed, and {of.packages} holds no {packages.ending(str(manager))} file for {manager}",
            "put its packages for this system there, with dkms, the headers of the kernel, and all that they depend on",
        )
    told = _told("kernel-headers", kernel=kernel, host=host.name)
    limit = "1.1" if isinstance(rdma.ofed, str) and "-4." in rdma.ofed else ""
    peer = rdma.peer_memory
    mark = "" if (SERVICE, way.module) in _tuple(peer.at_boot) else paths.NV_PEER_MEM
    why = [f"nv_peer_mem is not there for the kernel {kernel}", way.why]
    why += ["1.1 is the last for OFED 4.9"] if limit else []
    why += ["the kernel's headers are missing, and come with it"] if peer.headers is False else []
    why += ["Secure Boot is on, so the machine has to know the key of dkms"] if peer.secure_boot is True else []
    return Op(
        "peermem",
        f"install {f'{len(files) - 1} packages of the controller' if files else package}, by which nv_peer_mem is built",
        "; ".join(why),
        "".join(map(text, ("dpkg.sh", "packages.sh", "reload.sh", "peermem_install.sh"))),
        (str(manager), package, limit, told, mark, *((packages.GIVEN,) if files else ())),
        files,
        seconds=_BUILD_SECONDS,
        expect=_with_peer(lambda peer: replace(peer, exists=(*_tuple(peer.exists), way.module), headers=True)),
    )


def _told(known: str, **values: str) -> str:
    """Give what a script tells of a known failure: why, and on a line of its own what is to be done."""
    cause, step = words(known, **values)
    return f"{cause}\nhint: {step}"


def _load(host: Host, peer: PeerMemory, way: _Way, present: tuple[str, ...]) -> Op:
    """Plan to load the module, and first unload the other one where it is loaded."""
    swap = way.other in present
    failed = way.module not in present and (paths.PEERMEM, way.module) in _tuple(peer.at_boot)
    name = f"load {way.module}{f' in place of {way.other}' if swap else ''}"
    if way.module in present:
        name = f"unload {way.other}: it and {way.module} are both loaded, and only one may be"
    return Op(
        "peermem",
        name,
        f"{paths.PEERMEM} names it, and it did not load at this boot; {way.why}" if failed else way.why,
        text("idle.sh") + text("peermem_load.sh"),
        (
            way.module,
            way.other,
            _told("peermem-not-built", module=way.module, why="Invalid argument"),
            _told("peermem-symbols", module=way.module),
            _told("module-key", module=way.module, host=host.name),
            _told("peermem-in-use", module=way.other, host=host.name),
        ),
        expect=lambda facts: _loaded(facts, way),
    )


def _undo(way: _Way) -> Op:
    """Plan that the service, which came with the package that set-up installed, loads nothing at boot any more."""
    return Op(
        "peermem",
        f"have {SERVICE} load nothing at boot",
        f"it came with what set-up installed, and {way.module} is to be loaded ({way.why})",
        'systemctl disable --no-reload "$1"\nrm -f -- "$2"\n',
        (SERVICE, paths.NV_PEER_MEM),
        expect=lambda facts: without(
            _with_peer(lambda peer: _only_at_boot(peer, (each for each in _tuple(peer.at_boot) if each[0] != SERVICE)))(
                facts
            ),
            (paths.NV_PEER_MEM,),
        ),
    )


def _boot(facts: HostFacts, way: _Way) -> Iterator[Op]:
    """Plan that one place loads the module at boot: another's where there is one, else our own file."""
    assert isinstance(facts.rdma, Rdma)
    at_boot = _tuple(facts.rdma.peer_memory.at_boot)
    others = [place for place, name in at_boot if name == way.module and place != paths.PEERMEM]
    file = File(paths.PEERMEM, f"# by taco-launch setup\n{way.module}\n".encode())
    if others and paths.PEERMEM in (files_of(facts) or {}):
        yield Op(
            "peermem",
            f"take away {paths.PEERMEM}",
            f"{others[0]} loads {way.module} at boot",
            'rm -f -- "$1"\n',
            (paths.PEERMEM,),
            expect=lambda facts: without(_with_boot(facts, ()), (paths.PEERMEM,)),
        )
    elif not others and differing(facts, (file,)):
        yield Op(
            "peermem",
            f"load {way.module} at every boot",
            "nothing loads it at boot" if not at_boot else f"{at_boot[0][0]} loads {at_boot[0][1]}",
            text("peermem_boot.sh"),
            (way.module, paths.PEERMEM),
            (file,),
            expect=lambda facts: _with_boot(with_files(facts, (file,)), ((paths.PEERMEM, way.module),)),
        )


def _with_peer(change: Callable[[PeerMemory], PeerMemory]) -> Callable[[HostFacts], HostFacts]:
    """Give what makes the facts those with peer memory as `change` gives it."""

    def changed(facts: HostFacts) -> HostFacts:
        if not isinstance(facts.rdma, Rdma):
            return facts
        return replace(facts, rdma=replace(facts.rdma, peer_memory=change(facts.rdma.peer_memory)))

    return changed


def _loaded(facts: HostFacts, way: _Way) -> HostFacts:
    facts = _with_peer(lambda peer: replace(peer, loaded=way.module))(facts)
    if isinstance(facts.rdma, Rdma) and isinstance(facts.rdma.modules, tuple):
        kept = tuple(name for name in facts.rdma.modules if name not in MODULES)
        facts = replace(facts, rdma=replace(facts.rdma, modules=(*kept, way.module)))
    return facts


def _with_boot(facts: HostFacts, ours: tuple[tuple[str, str], ...]) -> HostFacts:
    def changed(peer: PeerMemory) -> PeerMemory:
        return _only_at_boot(peer, (*(each for each in _tuple(peer.at_boot) if each[0] != paths.PEERMEM), *ours))

    return _with_peer(changed)(facts)


def _only_at_boot(peer: PeerMemory, places: Iterable[tuple[str, str]]) -> PeerMemory:
    found = tuple(places)
    return replace(peer, at_boot=found, comes_back=found[0][0] if found else Absent("nothing loads it at boot"))


def _tuple(value: object) -> tuple:  # type: ignore[type-arg]
    return value if isinstance(value, tuple) else ()
