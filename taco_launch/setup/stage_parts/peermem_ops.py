"""What the peermem stage does to a host: have a module built, loaded, and loaded at boot by one place; and what is then so."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from taco_launch.core.facts.rdma.peermem import MODULES, SERVICE
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Found, known_value
from taco_launch.core.model.host.facts import HostFacts, System
from taco_launch.core.model.host.hardware import Gpus, PeerMemory, Rdma
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.signatures.known.system import words
from taco_launch.setup.model import packages
from taco_launch.setup.model.host_files import differing, files_of, with_files, without
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem
from taco_launch.setup.scripts import text

T = TypeVar("T")

OFF = "or turn GPUDirect RDMA off in the inventory: network: {gdr: off}"
_PACKAGES = {
    "apt-get": "nvidia-peer-memory-dkms",
    **dict.fromkeys(("dnf", "yum", "zypper"), "nvidia_peer_memory"),
}
# A boot loads what it did, as long as the other module has not been loaded.
_AGAIN = ", then run this command again, because only that changes what is loaded at boot"
_BUILD_SECONDS = 1800.0
# What nvidia_peermem takes for the peer memory of OFED before 5.1 (nvidia-peermem.c: "legacy, for example MLNX_OFED 4.9 LTS");
# of the drivers' READMEs that of 515 is the first which tells of it.
_OPTION, _WITH_OPTION, _PLAIN_OFED = "peerdirect_support=1", 515, (5, 1)


@dataclass(frozen=True)
class PeermemModule:
    """The module that is to be loaded, and why that one."""

    module: str
    why: str

    @property
    def other(self) -> str:
        """The one that is not."""
        return next(each for each in MODULES if each != self.module)


def problem(message: str, hint: str) -> Problem:
    """Return why this stage cannot be, and what to do."""
    return Problem("peermem", message, hint)


def listed(value: Found[tuple[T, ...]]) -> tuple[T, ...]:
    """Return a tuple of facts; empty where it is not known, or not there."""
    return known_value(value) or ()


def install(host: Host, facts: HostFacts, rdma: Rdma, way: PeermemModule, cluster: PlanContext) -> Op | Problem:
    """Plan to have nv_peer_mem built for the running kernel, or say why the module cannot be had."""
    system = facts.system
    kernel = system.kernel if isinstance(system, System) and isinstance(system.kernel, str) else "that runs"
    if way.module == "nvidia_peermem":
        return problem(
            f"there is no module nvidia_peermem for the kernel {kernel} ({way.why})",
            f"reinstall the same driver version while OFED is installed, so that the module is built; {OFF}",
        )
    manager = system.package_manager if isinstance(system, System) else ""
    usual = _PACKAGES.get(str(manager))
    if usual is None:
        return problem(
            f"nv_peer_mem is not installed ({way.why}), and set-up does not support this host's package manager",
            f"build it by hand (dkms, from the sources of nv_peer_memory), then run setup again; {OFF}",
        )
    of = cluster.inventory.peermem
    package = of.package or usual
    files = packages.given(str(manager), cluster.peermem_packages)
    if of.packages is not None and not files:
        return problem(
            f"nv_peer_mem is not installed, and {of.packages} holds no {packages.ending(str(manager))} file for {manager}",
            "put its packages for this system there, with dkms, the headers of the kernel, and all that they depend on",
        )
    told = _failure_text("kernel-headers", kernel=kernel, host=host.name)
    limit = "1.1" if _before(rdma.ofed, (5, 0)) else ""
    peer = rdma.peer_memory
    mark = "" if (SERVICE, way.module) in listed(peer.at_boot) else paths.NV_PEER_MEM
    why = [f"nv_peer_mem does not exist for the kernel {kernel}", way.why]
    why += ["version 1.1 is the last one for OFED 4.9"] if limit else []
    why += ["the missing kernel headers are installed too"] if peer.headers is False else []
    why += ["Secure Boot is on, so the signing key of dkms must be enrolled"] if peer.secure_boot is True else []
    return Op(
        "peermem",
        f"install {f'{len(files) - 1} package files from the controller' if files else package}, to build nv_peer_mem",
        "; ".join(why),
        "".join(map(text, ("dpkg.sh", "packages.sh", "reload.sh", "peermem_install.sh"))),
        (str(manager), package, limit, told, mark, *((packages.GIVEN,) if files else ())),
        files,
        seconds=_BUILD_SECONDS,
        expect=_with_peer(lambda peer: replace(peer, exists=(*listed(peer.exists), way.module), headers=True)),
    )


def _failure_text(known: str, more: str = "", **values: str) -> str:
    """Return what a script tells of a known failure: why, and on a line of its own what is to be done, and `more` of that."""
    cause, step = words(known, **values)
    return f"{cause}\nhint: {step.rstrip('.')}{more}; {OFF}"


def load(host: Host, peer: PeerMemory, way: PeermemModule, present: tuple[str, ...]) -> Op:
    """Plan to load the module, and first unload the other one where it is loaded."""
    swap = way.other in present
    failed = way.module not in present and (paths.PEERMEM, way.module) in listed(peer.at_boot)
    name = f"load {way.module}{f' in place of {way.other}' if swap else ''}"
    if way.module in present:
        name = f"unload {way.other}: it and {way.module} are both loaded, but only one may be"
    return Op(
        "peermem",
        name,
        f"{paths.PEERMEM} lists it, but it is not loaded: loading failed, or it was unloaded; {way.why}"
        if failed
        else way.why,
        text("idle.sh") + text("peermem_load.sh"),
        (
            way.module,
            way.other,
            _failure_text("peermem-not-built", module=way.module, why="Invalid argument"),
            _failure_text("peermem-symbols", module=way.module),
            _failure_text("module-key", module=way.module, host=host.name),
            _failure_text("peermem-in-use", _AGAIN, module=way.other, host=host.name),
        ),
        expect=lambda facts: _loaded(facts, way),
    )


def service_off(why: str) -> Op:
    """Plan that the service, which came with the package that set-up installed, loads nothing at boot any more."""
    return Op(
        "peermem",
        f"keep {SERVICE} from loading a module at boot",
        why,
        text("reload.sh") + text("peermem_service.sh"),
        (SERVICE, paths.NV_PEER_MEM),
        expect=lambda facts: without(_with_peer(_without_service)(facts), (paths.NV_PEER_MEM,)),
    )


def _without_service(peer: PeerMemory) -> PeerMemory:
    return _only_at_boot(peer, (each for each in listed(peer.at_boot) if each[0] != SERVICE))


def options(facts: HostFacts, way: PeermemModule, present: tuple[str, ...]) -> Iterator[Op]:
    """Plan that nvidia_peermem is loaded as an old OFED takes it; `present` are those of the two that are loaded.

    What is loaded already, and not at boot by us, is left as it is. Where OFED or the driver is not known nothing is done.
    """
    assert isinstance(facts.gpu, Gpus)
    assert isinstance(facts.rdma, Rdma)
    old, driver = _before(facts.rdma.ofed, _PLAIN_OFED), facts.gpu.driver.loaded
    if way.module != "nvidia_peermem" or old is False or (isinstance(driver, str) and branch(driver) < _WITH_OPTION):
        if paths.PEERMEM_OPTIONS in (files_of(facts) or {}):
            yield _gone(paths.PEERMEM_OPTIONS, f"{way.module} does not need it here")
        return
    if not old or not isinstance(driver, str) or (present == (way.module,) and others(facts, way)):
        return
    file = FileTarget(paths.PEERMEM_OPTIONS, f"# by taco-launch setup\noptions {way.module} {_OPTION}\n".encode())
    if differing(facts, (file,)):
        yield Op(
            "peermem",
            f"have {way.module} loaded with {_OPTION}",
            f"{facts.rdma.ofed} is older than 5.1, and has the old interface for peer memory",
            files=(file,),
            expect=lambda facts: with_files(facts, (file,)),
        )


def branch(driver: str) -> int:
    """Return the branch of an NVIDIA driver: 535 of 535.104.05; 0 where it names none."""
    found = re.match("[0-9]+", driver)
    return int(found[0]) if found else 0


def _before(ofed: Found[str], first: tuple[int, int]) -> bool | None:
    """Return whether OFED is older than a release; the kernel's own driver is none. None where that is not known."""
    if isinstance(ofed, Absent):
        return False
    version = re.search(r"-([0-9]+)\.([0-9]+)-", ofed) if isinstance(ofed, str) else None
    return None if version is None else (int(version[1]), int(version[2])) < first


def boot(facts: HostFacts, way: PeermemModule) -> Iterator[Op]:
    """Plan that one place loads the module at boot: another's where there is one, else our own file."""
    assert isinstance(facts.rdma, Rdma)
    at_boot = listed(facts.rdma.peer_memory.at_boot)
    theirs = others(facts, way)
    file = FileTarget(paths.PEERMEM, f"# by taco-launch setup\n{way.module}\n".encode())
    if theirs and paths.PEERMEM in (files_of(facts) or {}):
        op = _gone(paths.PEERMEM, f"{theirs[0]} loads {way.module} at boot")
        yield replace(op, expect=lambda facts: _with_boot(op.expect(facts), ()))
    elif not theirs and differing(facts, (file,)):
        yield Op(
            "peermem",
            f"load {way.module} at every boot",
            "nothing loads it at boot" if not at_boot else f"{at_boot[0][0]} loads {at_boot[0][1]}",
            text("peermem_boot.sh"),
            (way.module, paths.PEERMEM),
            (file,),
            expect=lambda facts: _with_boot(with_files(facts, (file,)), ((paths.PEERMEM, way.module),)),
        )


def _gone(path: str, why: str) -> Op:
    """Plan to take away a file of ours."""
    return Op(
        "peermem", f"take away {path}", why, 'rm -f -- "$1"\n', (path,), expect=lambda facts: without(facts, (path,))
    )


def others(facts: HostFacts, way: PeermemModule) -> tuple[str, ...]:
    """Name the places by which others have the module loaded at boot."""
    assert isinstance(facts.rdma, Rdma)
    at_boot = listed(facts.rdma.peer_memory.at_boot)
    return tuple(place for place, name in at_boot if name == way.module and place != paths.PEERMEM)


def _with_peer(change: Callable[[PeerMemory], PeerMemory]) -> Callable[[HostFacts], HostFacts]:
    """Return what makes the facts those with peer memory as `change` gives it."""

    def changed(facts: HostFacts) -> HostFacts:
        if not isinstance(facts.rdma, Rdma):
            return facts
        return replace(facts, rdma=replace(facts.rdma, peer_memory=change(facts.rdma.peer_memory)))

    return changed


def _loaded(facts: HostFacts, way: PeermemModule) -> HostFacts:
    facts = _with_peer(lambda peer: replace(peer, loaded=way.module))(facts)
    if isinstance(facts.rdma, Rdma) and isinstance(facts.rdma.modules, tuple):
        kept = tuple(name for name in facts.rdma.modules if name not in MODULES)
        facts = replace(facts, rdma=replace(facts.rdma, modules=(*kept, way.module)))
    return facts


def _with_boot(facts: HostFacts, ours: tuple[tuple[str, str], ...]) -> HostFacts:
    def changed(peer: PeerMemory) -> PeerMemory:
        return _only_at_boot(peer, (*(each for each in listed(peer.at_boot) if each[0] != paths.PEERMEM), *ours))

    return _with_peer(changed)(facts)


def _only_at_boot(peer: PeerMemory, places: Iterable[tuple[str, str]]) -> PeerMemory:
    found = tuple(places)
    return replace(peer, at_boot=found, comes_back=found[0][0] if found else Absent("nothing loads it at boot"))
