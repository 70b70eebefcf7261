"""Judges what hosts need besides GPUs and links: disks, limits, memory, the clock, the container, programs of the site."""

import shlex
from typing import Iterator, List, Optional, Sequence, Tuple

from taco_launch.core.facts.reports.health.verdict import (
    FAULT,
    NOT_POSSIBLE,
    OK,
    WARNING,
    HealthVerdict,
    plain,
    which,
)
from taco_launch.core.facts.reports.summary import size
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value, was_requested
from taco_launch.core.model.host.facts import NO_ANSWER, Disk, HostFacts
from taco_launch.core.model.host.hardware import Rdma
from taco_launch.core.model.host.health import HealthFacts

_NHC = "NHC and gcm: a disk that is 95 % full"
_DISK = "taco-launch: less than 1 % free, and logs, images and jobs fail"
_MOUNTS = "Linux: a file system is set read-only after errors of its disk (errors=remount-ro)"
# The wildcard does not hold for root (limits.conf(5)).
_RAISE_MEMLOCK = "printf '%s - memlock unlimited\\n' '*' root >/etc/security/limits.d/90-memlock.conf"
_MEMLOCK = "NCCL and Open MPI: RDMA requires an unlimited memlock"
_SHM = "NCCL user guide, troubleshooting: shared memory of at least 1 GiB"
_EDAC = "Linux EDAC: an uncorrected error is lost data"
_RETIRED = "NVIDIA dynamic page retirement: pending pages require a reset; 60 or more are a reason to replace the GPU"
_PCIE = "PCIe: a device that works uses its highest speed"
_CONTAINER = "taco-launch setup: jobs run in the container, and start by its sshd"
# Programs of the site that judge a host by themselves, and what shows more of it.
_SHOWN_BY = {
    "DCGM": "dcgmi health -c shows it",
    "NHC": "nhc -l - -v MARK_OFFLINE=0 shows it",
    "gcm": "health_checks CHECK shows it",
}
_RIGHTS = "log in as root, or add --ask-sudo-password"
_FIREWALL = "taco-launch setup: jobs start by the container's sshd, and their processes connect to one another"
# What Linux gives programs that ask for no port of their own.
_EPHEMERAL = (32768, 60999)
_PAIR = 2
_GIB = 1 << 30
_NEARLY_FULL, _FULL, _MOST_INODES = 0.05, 0.01, 95
_MOST_CORRECTED, _MOST_RETIRED = 1000, 60


@dataclass(frozen=True)
class Expected:
    """What the inventory expects of each host: the training container (None without one) and the port of its sshd.

    `port_range` are the ports that jobs may listen on (None: any that the kernel gives); `hosts` is how many it names.
    """

    container: Optional[str] = None
    ssh_port: int = 0
    rdma: str = "auto"
    gdr: str = "auto"
    port_range: Optional[Tuple[int, int]] = None
    hosts: int = 1
    # the limit of locked memory that the container gets, in bytes: -1 for none, None if the inventory sets none
    memlock: Optional[int] = -1


def disk_space(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge the space of the folders that jobs and set-up write to."""
    system = known_value(facts.system)
    if system is None or not isinstance(system.disks, tuple):
        yield from plain("disk space", [system.disks] if system else [], "", _NHC)
        return
    yield from space(system.disks)


def space(disks: Sequence[Disk]) -> Iterator[HealthVerdict]:
    """Judge how much is free on disks."""
    none_left = [disk for disk in disks if disk.free < disk.size * _FULL]
    low = none_left or [disk for disk in disks if disk.free < disk.size * _NEARLY_FULL]
    words = ", ".join(f"{disk.path} has {size(disk.free)} free of {size(disk.size)}" for disk in low)
    full = " ".join(shlex.quote(disk.path) for disk in low)
    hint = f"du -xh --max-depth=2 {full} | sort -h shows what fills it; taco-launch prune --older-than 30d deletes old jobs, docker system prune images"
    if none_left:
        yield HealthVerdict("disk space", FAULT, words, _DISK, hint)
    elif low:
        yield HealthVerdict("disk space", WARNING, words, _NHC, hint)
    elif disks:
        yield HealthVerdict("disk space", OK, "5 % or more free", _NHC)


_READ_ONLY_BY_DESIGN = frozenset(("/usr", "/sysroot", "/boot"))


def mounts(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge inodes, and file systems that became read-only."""
    health = known_value(facts.health)
    if health is None or not isinstance(health.mounts, tuple):
        yield from plain("file systems", [health.mounts] if health else [], "", _MOUNTS)
        return
    # Image-based systems have these read-only (ostree, Flatcar).
    closed = [mount.path for mount in health.mounts if mount.read_only and mount.path not in _READ_ONLY_BY_DESIGN]
    full = [
        mount
        for mount in health.mounts
        if not mount.read_only and isinstance(mount.inodes, int) and mount.inodes >= _MOST_INODES
    ]
    if closed:
        hint = "dmesg -T | grep -i -e ext4 -e xfs -e 'I/O error' shows why; a mount that is meant to be so can be left"
        level = FAULT if "/" in closed else WARNING
        yield HealthVerdict("file systems", level, f"read-only: {', '.join(closed)}", _MOUNTS, hint)
    if full:
        folders = " ".join(shlex.quote(mount.path) for mount in full)
        hint = f"find {folders} -xdev -type f | cut -d/ -f1-4 | sort | uniq -c | sort -n shows which folder has so many files"
        text = ", ".join(f"{mount.path} {mount.inodes} %" for mount in full)
        yield HealthVerdict("file systems", WARNING, f"inodes in use: {text}", _NHC, hint)
    if not closed and not full:
        yield from plain("file systems", [mount.inodes for mount in health.mounts] or [()], "writable", _MOUNTS)
        if health.mounts and all(isinstance(mount.inodes, Absent) for mount in health.mounts):
            yield HealthVerdict("file systems", OK, "writable", _MOUNTS)


def limits(facts: HostFacts, expected: Expected) -> Iterator[HealthVerdict]:
    """Judge memlock and /dev/shm where jobs run: in the container, or else on the host."""
    image = known_value(facts.image)
    if image is None:
        # Before set-up there is no container to look into.
        yield from plain("memlock", [facts.image] if expected.container else [], "", _MEMLOCK)
        return
    where = "host" if image.where == "host" else f"container {image.where}"
    if isinstance(facts.rdma, Rdma) and isinstance(facts.rdma.hcas, tuple) and facts.rdma.hcas:
        if isinstance(image.memlock, int):
            why, hint = _memlock(facts, image.where, expected)
            yield HealthVerdict("memlock", WARNING, f"{size(image.memlock)} ({where}){why}", _MEMLOCK, hint)
        elif image.memlock is None:
            yield HealthVerdict("memlock", OK, "unlimited", _MEMLOCK)
        else:
            yield from plain("memlock", [image.memlock], "", _MEMLOCK)
    if isinstance(image.shm, int) and image.shm < _GIB:
        hint = "shm_size in the inventory's container, then: taco-launch setup"
        yield HealthVerdict("shared memory", WARNING, f"{size(image.shm)} ({where})", _SHM, hint)
    else:
        yield from plain("shared memory", [image.shm], "1 GiB or more", _SHM)


def _memlock(facts: HostFacts, where: str, expected: Expected) -> Tuple[str, str]:
    """Return why locked memory is limited, as far as that is known, and what to do."""
    if where == "host":
        return "", f"type on the host, as root, and log in again: {_RAISE_MEMLOCK}"
    if expected.memlock not in (None, -1):
        return (
            ", as the inventory says",
            "write container: {ulimits: {memlock: -1}} in the inventory, then: taco-launch setup",
        )
    state = known_value(facts.made)
    capabilities = known_value(state.capabilities) if state else None
    if capabilities is not None and "SYS_RESOURCE" not in capabilities:
        hint = (
            "if this host is itself a container, start it with --ulimit memlock=-1; otherwise give its engine "
            "LimitMEMLOCK=infinity (systemctl edit docker); then recreate the container"
        )
        return ": this host does not have the capability SYS_RESOURCE", hint
    look = f"on the host: docker inspect -f '{{{{.HostConfig.Ulimits}}}}' {where} shows what the container was created with"
    return "", f"{look}; taco-launch setup --check shows whether that differs from the inventory"


def memory(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge the errors of the host's memory. A host that does not count them is not one without them."""
    health = known_value(facts.health)
    if health is None:
        return
    if not isinstance(health.memory, tuple):
        yield HealthVerdict("memory errors", NOT_POSSIBLE, health.memory.reason, _EDAC)
        return
    lost = [f"{one.controller} {one.uncorrected} uncorrected" for one in health.memory if one.uncorrected]
    many = [f"{one.controller} {one.corrected} corrected" for one in health.memory if one.corrected >= _MOST_CORRECTED]
    hint = "dmesg -T | grep -i edac, or ras-mc-ctl --errors, names the DIMM; drain the host and have it replaced"
    if lost or many:
        yield HealthVerdict("memory errors", FAULT if lost else WARNING, ", ".join((*lost, *many)), _EDAC, hint)
    else:
        yield HealthVerdict("memory errors", OK, "none uncorrected", _EDAC)


def gpu_memory(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge the retired pages of GPUs before Ampere; later ones remap rows."""
    health = known_value(facts.health)
    if health is None or not isinstance(health.gpus, tuple):
        yield from plain("retired pages", [health.gpus] if health else [], "", _RETIRED)
        return
    pending = [one.gpu for one in health.gpus if one.pending is True]
    many = [one.gpu for one in health.gpus if isinstance(one.retired, int) and one.retired >= _MOST_RETIRED]
    if many:
        text = f"{_MOST_RETIRED} or more on {which(many)}"
        yield HealthVerdict("retired pages", FAULT, text, _RETIRED, "have it replaced")
    elif pending:
        hint = "when no job runs on it: nvidia-smi --gpu-reset -i N, or reboot"
        yield HealthVerdict("retired pages", FAULT, f"pending on {which(pending)}", _RETIRED, hint)
    else:
        yield from plain("retired pages", [one.retired for one in health.gpus], "few, and none pending", _RETIRED)


def pcie_speed(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge the speed of HCAs, and of GPUs that work: an idle GPU slows its link by design."""
    health = known_value(facts.health)
    slow: List[str] = []
    words: List[Found[object]] = []
    for one in known_value(health.gpus) or () if health else ():
        words.append(one.generation)
        if (
            isinstance(one.generation, int)
            and isinstance(one.max_generation, int)
            and one.generation < one.max_generation
        ):
            slow.append(f"GPU {one.gpu} generation {one.generation} of {one.max_generation}")
    for device in known_value(facts.pci) or ():
        if device.kind == "hca" and device.speed is not None and device.max_speed is not None:
            words.append(device.speed)
            if device.speed < device.max_speed:
                slow.append(f"{device.name} {device.speed:g} of {device.max_speed:g} GT/s")
    if slow:
        hint = "reseat the card or its riser; see the BIOS setting of the slot, and dmesg -T | grep 'available PCIe bandwidth'"
        yield HealthVerdict("PCIe speed", WARNING, ", ".join(slow), _PCIE, hint)
    else:
        yield from plain("PCIe speed", words, "as high as it can be", _PCIE)


def container(facts: HostFacts, expected: Expected) -> Iterator[HealthVerdict]:
    """Judge the training container, and whether its sshd listens; nothing where jobs run on the host itself."""
    if expected.container is None or not was_requested(facts.docker):
        return
    docker = known_value(facts.docker)
    held = docker.containers if docker else Unknown(getattr(facts.docker, "reason", ""))
    if not isinstance(held, tuple):
        # why no engine answers is known of its version
        why = docker.version if docker and held == NO_ANSWER and not isinstance(docker.version, str) else held
        hint = _RIGHTS if "permission denied" in why.reason.lower() else ""
        yield HealthVerdict("container", NOT_POSSIBLE, why.reason or "no engine answers", _CONTAINER, hint)
        return
    state = next((one.state for one in held if one.name == expected.container), "missing")
    setup = "taco-launch setup --check shows why; taco-launch setup repairs it"
    if state != "running":
        yield HealthVerdict("container", FAULT, f"{expected.container} is {state}", _CONTAINER, setup)
        return
    yield HealthVerdict("container", OK, "running", _CONTAINER)
    listeners = facts.network.listeners if not isinstance(facts.network, (Absent, Unknown)) else facts.network
    if not isinstance(listeners, tuple):
        yield from plain("sshd", [listeners], "", _CONTAINER)
    elif any(one.port == expected.ssh_port for one in listeners):
        yield HealthVerdict("sshd", OK, f"listens on port {expected.ssh_port}", _CONTAINER)
    else:
        text = f"nothing listens on port {expected.ssh_port}, the container's sshd"
        yield HealthVerdict("sshd", FAULT, text, _CONTAINER, f"docker logs {expected.container} shows why; {setup}")


def firewall(facts: HostFacts, expected: Expected) -> Iterator[HealthVerdict]:
    """Judge whether the other hosts reach what jobs need of this one; nothing where it is the only host, or needs no port."""
    network = known_value(facts.network)
    if network is None or expected.container is None or expected.hosts < _PAIR:
        return
    if not isinstance(network.firewalls, tuple):
        yield from plain("firewall", [network.firewalls], "", _FIREWALL)
        return
    ephemeral = known_value(network.port_range) or _EPHEMERAL
    needed = (("the container's sshd", (expected.ssh_port,) * 2), ("jobs", expected.port_range or ephemeral))
    for wall in network.firewalls:
        parts = [(what, ports, _within(ports, wall.closed)) for what, ports in needed]
        closed = [(what, ports, within) for what, ports, within in parts if within]
        if closed:
            words = " and ".join(f"{', '.join(_span(*each) for each in within)} ({what})" for what, _, within in closed)
            allowed = ", ".join(_span(*ports) for _, ports, _ in closed)
            hint = (
                f"allow TCP {allowed} from the cluster's hosts, or let set-up do it: network: {{firewall: manage}} in the "
                "inventory, then: taco-launch setup"
            )
            if expected.port_range:
                hint += f". Set-up also opens TCP {_span(*ephemeral)}, from which the kernel gives NCCL and Gloo their ports"
            # A job that gets one of few closed ports fails, most others do not.
            most = any(2 * sum(map(_count, within)) > _count(ports) for _, ports, within in closed)
            text = f"no other host can connect to TCP {words}: {wall.detail}"
            yield HealthVerdict("firewall", FAULT if most else WARNING, text, _FIREWALL, hint)
            return
    yield HealthVerdict("firewall", OK, "closes no port that jobs need", _FIREWALL)


def _within(ports: Tuple[int, int], closed: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Return the parts of a range of ports that are in others."""
    parts = [(max(ports[0], first), min(ports[1], last)) for first, last in closed]
    return [part for part in parts if part[0] <= part[1]]


def _count(ports: Tuple[int, int]) -> int:
    return ports[1] - ports[0] + 1


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def provided(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Yield the verdicts of the site's own health programs, under their names; nothing of one that is not installed."""
    health: Optional[HealthFacts] = known_value(facts.health)
    for program, words in health.provided if health else ():
        source = f"{program}, which the site has installed"
        if isinstance(words, Unknown):
            yield HealthVerdict(program, NOT_POSSIBLE, words.reason, source)
        elif not isinstance(words, Absent):
            yield HealthVerdict(
                program, words.level, words.text, source, "" if words.level == OK else _SHOWN_BY[program]
            )
