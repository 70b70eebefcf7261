"""What people want to see of a host: one short text per fact, in the order of the subjects."""

from collections import Counter
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple, TypeVar

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown
from taco_launch.core.model.host.facts import DockerFacts, HostFacts, Interface, NetworkFacts, Software, System
from taco_launch.core.model.host.hardware import Adapters, Gpus, PeerMemory, Port, Rdma, Topology

T = TypeVar("T")
# Clocks further apart than this make logs and certificates lie; what node health checks of clusters ask for.
MAX_CLOCK_OFFSET = 1.0
# A disk with less than this part of it free is shown unasked: node health checks of clusters fail at 90 to 95 % full.
_FULL_DISK = 0.05
_ACCESS = {"user": "an ordinary user, so facts that require root are unknown (see --ask-sudo-password)"}
# From the nearest on, as nvidia-smi's legend has them.
_NEAREST = ("PIX", "PXB", "PHB", "NODE", "SYS")
_KINDS = frozenset(("physical", "bond", "vlan"))


@dataclass(frozen=True)
class SummaryRow:
    """One fact of one host as text.

    `same` says that hosts of one cluster should agree on it; `wide` that it is shown only where more is requested.
    """

    subject: str
    name: str
    text: str
    same: bool = True
    wide: bool = False


def rows(facts: HostFacts) -> Tuple[SummaryRow, ...]:
    """Return the facts of a host as rows; a subject that is unknown or absent as a whole is one row."""
    found = []
    for subject in SUBJECTS:
        value = getattr(facts, subject)
        if isinstance(value, (Unknown, Absent)):
            found.append(SummaryRow(subject, subject, text(value)))
            continue
        found += list(_ROWS[subject](value))
    return tuple(found)


_SKIPPED = f"unknown: {NOT_ASKED.reason}"


def is_asked(row: SummaryRow) -> bool:
    """Return whether the row tells anything: somebody requested it, or captured it."""
    return not row.text.startswith(_SKIPPED)


def text(value: Found[T], show: Callable[[T], str] = str) -> str:
    """Return a value as text; `show` is called for a value that is there."""
    if isinstance(value, Unknown):
        return f"unknown: {value.reason}"
    if isinstance(value, Absent):
        return f"none ({value.reason})" if value.reason else "none"
    return show(value)


def size(count: float) -> str:
    """Return a number of bytes in the largest unit that leaves at least 1: `39.6 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time span in the unit that suits it, to one decimal: `90 s`, `2.5 h`, `3 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{round(seconds / length, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"


def counted(names: Sequence[str]) -> str:
    """Return `8x A` for eight equal names, and `4x A, 4x B` for others; `none` for none."""
    return ", ".join(f"{count}x {name}" for name, count in Counter(names).items()) or "none"


def _all(words: Sequence[str]) -> str:
    """Return the word that all are, or how many are which."""
    return words[0] if len(set(words)) == 1 else counted(words)


def _on(value: bool) -> str:
    return "on" if value else "off"


def yes_no(value: bool) -> str:
    """Return a truth as a word."""
    return "yes" if value else "no"


def _clock(of: System) -> SummaryRow:
    """Return how far the clock is from the controller's, as far as the delay of the host's answer lets that be known."""
    offset, error = of.clock_offset, of.clock_error
    if not isinstance(offset, float) or not isinstance(error, float):
        return SummaryRow("system", "clock", text(offset))
    if abs(offset) - error > MAX_CLOCK_OFFSET:
        side = "ahead of" if offset > 0 else "behind"
        return SummaryRow("system", "clock", f"{duration(abs(offset))} {side} the controller")
    if abs(offset) + error > MAX_CLOCK_OFFSET:
        return SummaryRow("system", "clock", f"unknown: the answer took {duration(2 * error)}", same=False)
    return SummaryRow("system", "clock", f"within {MAX_CLOCK_OFFSET:g} s of the controller")


def _system(of: System) -> Iterator[SummaryRow]:
    yield SummaryRow("system", "os", text(of.os, lambda found: found.name))
    yield SummaryRow("system", "kernel", text(of.kernel))
    yield SummaryRow(
        "system", "cpu", text(of.cpu, lambda cpu: f"{cpu.model}, {cpu.cores} cores, {cpu.threads} threads")
    )
    yield SummaryRow("system", "numa nodes", text(of.numa, lambda nodes: str(len(nodes))))
    yield SummaryRow("system", "memory", text(of.memory, lambda memory: size(memory.total)))
    yield SummaryRow(
        "system", "memory free", text(of.memory, lambda memory: size(memory.available)), same=False, wide=True
    )
    yield SummaryRow("system", "swap", text(of.memory, lambda memory: size(memory.swap) if memory.swap else "off"))
    if isinstance(of.disks, tuple):
        for disk in of.disks:
            shown = f"{size(disk.free)} free of {size(disk.size)} ({disk.type})"
            full = disk.free < disk.size * _FULL_DISK
            yield SummaryRow("system", f"disk {disk.path}", shown, same=False, wide=disk.path != "/" and not full)
    else:
        yield SummaryRow("system", "disks", text(of.disks))
    if isinstance(of.limits, tuple):
        for limit in of.limits:
            yield SummaryRow("system", f"limit {limit.name}", _limit(limit.name, limit.soft, limit.hard))
    else:
        yield SummaryRow("system", "limits", text(of.limits))
    yield _clock(of)
    yield SummaryRow("system", "clock synchronised", text(of.clock_synchronised, yes_no))
    yield SummaryRow("system", "selinux", text(of.selinux), wide=of.selinux == Absent() or of.selinux == "disabled")
    yield SummaryRow("system", "access", text(of.access, lambda found: _ACCESS.get(found, found)))
    yield SummaryRow("system", "logind RemoveIPC", text(of.remove_ipc, yes_no), wide=True)
    yield SummaryRow("system", "logind KillUserProcesses", text(of.kill_user_processes, yes_no), wide=True)
    yield SummaryRow("system", "init", text(of.init), wide=True)
    yield SummaryRow("system", "virtualization", text(of.virtualization), wide=True)
    yield SummaryRow("system", "package manager", text(of.package_manager), wide=True)


def _limit(name: str, soft: Any, hard: Any) -> str:
    values = [
        "unlimited" if value is None else size(value) if name in ("memlock", "stack") else str(value)
        for value in (soft, hard)
    ]
    return values[0] if values[0] == values[1] else f"{values[0]} (may be raised to {values[1]})"


def _network(of: NetworkFacts) -> Iterator[SummaryRow]:
    if isinstance(of.interfaces, tuple):
        for interface in of.interfaces:
            is_own = interface.kind in _KINDS or (interface.kind == "veth" and bool(interface.addresses))
            plain = is_own and interface.state != "down"
            yield SummaryRow("network", interface.name, _interface(interface), same=plain, wide=not plain)
            addresses = ", ".join(address.address for address in interface.addresses) or "none"
            yield SummaryRow("network", f"{interface.name} addresses", addresses, same=False, wide=True)
    else:
        yield SummaryRow("network", "interfaces", text(of.interfaces))
    if isinstance(of.bonds, tuple):
        for bond in of.bonds:
            members = ", ".join(f"{member.name} {'up' if member.up else 'DOWN'}" for member in bond.members)
            yield SummaryRow("network", f"bond {bond.name}", f"{bond.mode}: {members}")
    elif isinstance(of.bonds, Unknown):
        yield SummaryRow("network", "bonds", text(of.bonds))
    yield SummaryRow("network", "default route", text(of.default_interface))
    yield SummaryRow("network", "reached by", text(of.reached_by))
    yield SummaryRow(
        "network",
        "firewall",
        text(of.firewalls, lambda found: _firewalls([wall.detail for wall in found if wall.active])),
    )
    yield SummaryRow("network", "port range", text(of.port_range, lambda found: f"{found[0]}-{found[1]}"))
    yield SummaryRow("network", "listening", text(of.listeners, _listeners), same=False, wide=True)


def _firewalls(details: Sequence[str]) -> str:
    return "; ".join(details) or "none active"


def _listeners(found: Sequence[Any]) -> str:
    return ", ".join(f"{entry.port} {entry.process or '?'}" for entry in found) or "none"


def _interface(of: Interface) -> str:
    speed = f", {of.speed:g} Gb/s" if of.speed is not None else ""
    master = f", in {of.master}" if of.master else ""
    shaping = f", slowed by {of.shaping}" if of.shaping else ""
    return f"{of.kind}, {of.state}, MTU {of.mtu}{speed}{shaping}{master}"


def _cdi_devices(names: Tuple[str, ...]) -> str:
    """Name the one that stands for all of its kind, as a GPU has several names; say how many others there are."""
    first = next((name for name in names if name.endswith("=all")), names[0] if names else "none")
    others = len(names) - 1
    return first if others < 1 else f"{first} and {others} other name{'s' if others > 1 else ''}"


def _docker(of: DockerFacts) -> Iterator[SummaryRow]:
    yield SummaryRow("docker", "engine", text(of.version, lambda version: f"{of.flavour} {version}"))
    yield SummaryRow("docker", "runtimes", text(of.runtimes, ", ".join))
    yield SummaryRow("docker", "container toolkit", text(of.toolkit))
    yield SummaryRow(
        "docker", "CDI devices", text(of.cdi, _cdi_devices), wide=not isinstance(of.cdi, tuple) or not of.cdi
    )
    storage = text(of.storage, lambda driver: f"{driver} on {text(of.root)}")
    yield SummaryRow("docker", "storage", storage, wide=True)
    cgroup = text(of.cgroup_version, lambda version: f"v{version} ({text(of.cgroup_driver)})")
    yield SummaryRow("docker", "cgroup", cgroup, wide=True)
    yield SummaryRow("docker", "live restore", text(of.live_restore, yes_no), wide=True)
    if isinstance(of.containers, tuple):
        states = [f"{container.name} ({container.state})" for container in of.containers]
        yield SummaryRow("docker", "containers", ", ".join(states) or "none", same=False)
    else:
        yield SummaryRow("docker", "containers", text(of.containers), wide=True)
    images = text(of.images, lambda found: ", ".join(image.reference for image in found) or "none")
    yield SummaryRow("docker", "images", images, wide=True)


def _gpu(of: Gpus) -> Iterator[SummaryRow]:
    yield SummaryRow("gpu", "gpus", text(of.gpus, lambda found: counted([gpu.name for gpu in found])))
    if isinstance(of.gpus, tuple):
        yield SummaryRow("gpu", "memory", counted([text(gpu.memory, size) for gpu in of.gpus]), wide=True)
        used = ", ".join(text(gpu.memory_used, size) for gpu in of.gpus)
        yield SummaryRow("gpu", "memory used", used, same=False, wide=True)
        faulty = [gpu.index for gpu in of.gpus if isinstance(gpu.ecc_uncorrected, int) and gpu.ecc_uncorrected]
        unread = next(
            (text(gpu.ecc_uncorrected) for gpu in of.gpus if isinstance(gpu.ecc_uncorrected, Unknown)), "none"
        )
        told = f"uncorrected, on GPU {', '.join(map(str, faulty))}" if faulty else unread
        yield SummaryRow("gpu", "ECC errors", told, wide=not faulty)
        yield SummaryRow("gpu", "persistence", _all([text(gpu.persistence, _on) for gpu in of.gpus]), wide=True)
        yield SummaryRow("gpu", "ECC", _all([text(gpu.ecc, _on) for gpu in of.gpus]), wide=True)
    else:  # that there is no GPU is said once
        for name in ("memory", "memory used", "ECC errors", "persistence", "ECC", "MIG"):
            yield SummaryRow("gpu", name, _SKIPPED)
    yield SummaryRow("gpu", "driver", text(of.driver.loaded))
    loaded = isinstance(of.driver.loaded, str) and of.driver.installed == of.driver.loaded
    yield SummaryRow("gpu", "driver on disk", "as loaded" if loaded else text(of.driver.installed), wide=loaded)
    yield SummaryRow("gpu", "cuda", text(of.driver.cuda))
    yield SummaryRow("gpu", "open kernel modules", text(of.driver.open, yes_no), wide=True)
    yield SummaryRow(
        "gpu", "fabric manager", text(of.driver.fabric_manager), wide=isinstance(of.driver.fabric_manager, Absent)
    )
    modes = {gpu.mig for gpu in of.gpus} if isinstance(of.gpus, tuple) else set()
    if True in modes:
        instances = of.mig_instances
        on = counted([each.profile for each in instances]) if isinstance(instances, tuple) and instances else ""
        none = ", no instances" if instances == () else ""
        yield SummaryRow("gpu", "MIG", f"on: {on}" if on else f"on{none}")
    elif modes and all(mode is False or isinstance(mode, Absent) for mode in modes):
        yield SummaryRow("gpu", "MIG", "off", wide=True)
    processes = text(of.processes, lambda found: ", ".join(f"{one.name} ({one.pid})" for one in found) or "none")
    yield SummaryRow("gpu", "processes", processes, same=False)


def _topology(of: Topology) -> Iterator[SummaryRow]:
    count = len(of.gpus)
    between = [of.links[one][other] for one in range(count) for other in range(one)]
    yield SummaryRow("topology", "GPU to GPU", counted(sorted(between)))
    nics = [of.links[gpu][nic] for gpu in range(count) for nic in range(count, len(of.links))]
    if nics:
        yield SummaryRow("topology", "GPU to HCA", counted(sorted(nics)))
        yield SummaryRow("topology", "nearest HCAs", ", ".join(_near(of, gpu) for gpu in range(count)), wide=True)


def _near(of: Topology, gpu: int) -> str:
    links = of.links[gpu][len(of.gpus) :]
    nearest = min(links, key=lambda link: _NEAREST.index(link) if link in _NEAREST else len(_NEAREST))
    names = [name for name, link in zip(of.nics, links) if link == nearest]
    return f"{of.gpus[gpu]} {'+'.join(names)} ({nearest})"


def _rdma(of: Rdma) -> Iterator[SummaryRow]:
    if isinstance(of.hcas, tuple):
        ports = [_port(port) for hca in of.hcas for port in hca.ports]
        if any(ports) or not ports:
            yield SummaryRow("rdma", "ports", counted([port or "unknown" for port in ports]))
        yield SummaryRow("rdma", "HCAs", ", ".join(hca.name for hca in of.hcas) or "none")
        yield SummaryRow(
            "rdma", "firmware", ", ".join(sorted({text(hca.firmware) for hca in of.hcas})) or "none", wide=True
        )
    else:
        yield SummaryRow("rdma", "HCAs", text(of.hcas))
    yield SummaryRow("rdma", "OFED", text(of.ofed))
    if isinstance(of.adapters, Adapters):
        yield SummaryRow("rdma", "mlx5_core", text(of.adapters.loaded), wide=True)
    yield SummaryRow("rdma", "peer memory", _peer_memory(of.peer_memory))
    yield SummaryRow("rdma", "devices", text(of.devices, ", ".join), same=False, wide=True)


def _port(of: Port) -> str:
    told = (text(of.link_layer), text(of.rate, "{:g} Gb/s".format), text(of.state))
    return " ".join(one for one in told if not one.startswith(_SKIPPED))


def _peer_memory(of: PeerMemory) -> str:
    dmabuf = ", DMA-BUF possible" if of.dmabuf is True else ""
    loaded = text(of.loaded, lambda name: f"{name} loaded")
    if isinstance(of.loaded, Absent):
        loaded = text(of.exists, lambda names: f"not loaded ({', '.join(names)} there)" if names else "no module")
    by = text(of.comes_back)
    if isinstance(of.loaded, Absent) and isinstance(of.comes_back, str):
        return f"{loaded}: not loaded now, though {by} loads it at boot: loading failed, or it was unloaded{dmabuf}"
    back = "" if isinstance(of.comes_back, Absent) or by.startswith(_SKIPPED) else f", returns by {by}"
    if isinstance(of.loaded, str) and isinstance(of.comes_back, Absent):
        back = ", gone after a reboot"
    if isinstance(of.loaded, Unknown):
        return loaded
    return f"{loaded}{back}{dmabuf}"


def _image(of: Software) -> Iterator[SummaryRow]:
    yield SummaryRow("image", "where", of.where)
    for name in ("openmpi", "nccl", "cuda", "python", "torch", "horovod", "lightcc"):
        yield SummaryRow("image", name, text(getattr(of, name)))
    for name in ("mpirun", "ucx", "sshd"):
        yield SummaryRow("image", name, text(getattr(of, name)), wide=True)
    yield SummaryRow("image", "horovod built with", text(of.horovod_build, ", ".join), wide=True)
    yield SummaryRow("image", "verbs providers", text(of.verbs, ", ".join), wide=True)
    conf = text(of.nccl_conf, lambda found: "; ".join(found.split("\n")))
    yield SummaryRow("image", "/etc/nccl.conf", conf, wide=isinstance(of.nccl_conf, Absent))
    yield SummaryRow("image", "shared memory", text(of.shm, size), wide=True)


_ROWS: Dict[str, Callable[[Any], Iterator[SummaryRow]]] = {
    "system": _system,
    "network": _network,
    "docker": _docker,
    "gpu": _gpu,
    "topology": _topology,
    "rdma": _rdma,
    "image": _image,
}
