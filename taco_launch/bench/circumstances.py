"""What a run was made on, as facts that can be kept and compared: of its hosts, its image, its line and its code."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from taco_launch.bench.runs import Circumstances
from taco_launch.command import shell
from taco_launch.facts.summary import counted, text, yes
from taco_launch.launch.between import between
from taco_launch.model.facts import Docker, HostFacts, Interface, Network, Software, System
from taco_launch.model.found import Absent, Found, Unknown
from taco_launch.model.hardware import Adapters, Gpu, Gpus, Hca, Rdma
from taco_launch.model.jobs import JobRecord, JobSpec

# Before the name of a variable or an MCA parameter of the line (`knob NCCL_DEBUG`), of an interface, of an HCA.
KNOB, NIC_RATE, HCA_RATE, NIC_FIRMWARE = "knob", "NIC rate", "HCA rate", "NIC firmware"
# The value of a variable that is passed on as the caller has it.
PASSED_ON = "(as the caller has it)"
# What every job has of its own: which ports its daemons take, how many and which of its ranks there are.
_OWN = frozenset(
    (
        *("oob_tcp_dynamic_ipv4_ports", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"),
    )
)
# Options of mpirun whose next word says where ranks run, which a run's hosts say themselves.
_WHERE = frozenset(("-np", "-H", "--hostfile"))
_MCA = frozenset(("--mca", "-mca", "--prtemca", "--pmixmca"))
T = TypeVar("T")
Fact = tuple[str, str, str]


def of_run(hosts: Sequence[HostFacts], spec: JobSpec, record: JobRecord, commit: str = "") -> Circumstances:
    """Give the circumstances of a job: all that its hosts' facts, its spec and its record tell.

    `hosts` are looked at as far as the job had ranks there, all of them where it never began. `commit` is that of the
    folder that its command ran in, "" where it is in none. What is not known is left out; what is known not to be there
    is `none`.
    """
    ran = [one for one in hosts if not record.shares or one.host in {share.host for share in record.shares}]
    found = [*_of_job(spec, record, commit), *_of_image(ran, spec)]
    for host in ran:
        found += [(host.host, what, value) for what, value in _of_host(host) if value]
    gids: dict[str, list[str]] = {}
    for host_name, index in between(ran).gids if ran else ():
        gids.setdefault(host_name, []).append(str(index))
    found += [(host_name, "GID index", ", ".join(indices)) for host_name, indices in gids.items()]
    return Circumstances(tuple(sorted(set(found))))


def gpu_model(hosts: Sequence[HostFacts]) -> str:
    """Give the one model of all GPUs of hosts, "" where there are none or several."""
    found = [host.gpu.gpus for host in hosts if isinstance(host.gpu, Gpus)]
    names = {gpu.name for gpus in found if isinstance(gpus, tuple) for gpu in gpus}
    return names.pop() if len(names) == 1 else ""


def _of_job(spec: JobSpec, record: JobRecord, commit: str) -> Iterator[Fact]:
    yield "", "command", shell(spec.command)
    yield "", "launcher", spec.launcher
    yield "", "profile", spec.profile.name
    yield "", "LightCC", yes(spec.asked.light)
    if commit:
        yield "", "commit", commit
    options, knobs = _line(record.line, spec)
    if options:
        yield "", "mpirun options", shell(options)
    for name, value in knobs.items():
        if name not in _OWN:
            yield "", f"{KNOB} {name}", value
    for share in record.shares:
        gpus = [slot for slot in share.slots if not slot.startswith("slot-")]
        if gpus:
            yield share.host, "GPUs used", ", ".join(sorted(gpus))


def _line(line: str, spec: JobSpec) -> tuple[list[str], dict[str, str]]:
    """Give the options of a launch line that are no knobs, and the knobs: name and value, as the line sets them.

    A job that never began has no line: what its spec sets stands for it.
    """
    asked = {name: PASSED_ON if value is None else value for name, value in spec.env}
    words = shlex.split(line)
    if not words:
        return [], {**asked, **dict(spec.mca)}
    if words[0] == "env":
        pairs = [word.partition("=") for word in words[1:]]
        end = next((place for place, pair in enumerate(pairs) if not pair[1] or pair[0].startswith("-")), len(pairs))
        return [], {name: value for name, _, value in pairs[:end]}
    if spec.launcher != "mpirun":
        return [], asked
    options, knobs, place = [], {}, 1
    end = len(words) - len(spec.command)
    while place < end:
        word, following = words[place], words[place + 1 : end]
        if word in _MCA and len(following) > 1:
            knobs[following[0]] = following[1]
            place += 3
        elif word == "-x" and following:
            name, given, value = following[0].partition("=")
            knobs[name] = value if given else PASSED_ON
            place += 2
        elif word in _WHERE:
            place += 2
        else:
            options.append(word)
            place += 1
    return options, knobs


def _of_image(hosts: Sequence[HostFacts], spec: JobSpec) -> Iterator[Fact]:
    if spec.container is None:
        yield "", "image", "none: on the hosts themselves"
        return
    told = False
    for host in hosts:
        images = host.docker.images if isinstance(host.docker, Docker) else ()
        for one in images if isinstance(images, tuple) else ():
            if one.reference == spec.container.image:
                told = True
                yield host.host, "image", one.digest or one.id
    if not told:
        yield "", "image", spec.container.image


def _of_host(host: HostFacts) -> Iterator[tuple[str, str]]:
    yield from _each(host.system, System, _system)
    yield from _each(host.network, Network, _network)
    yield from _each(host.gpu, Gpus, _gpus)
    yield from _each(host.rdma, Rdma, _rdma)
    for what, subject in (("GPU model", host.gpu), ("HCAs", host.rdma)):
        if isinstance(subject, Absent):
            yield what, "none"
    yield from _each(host.image, Software, _software)


def _each(value: Any, kind: type[T], told: Callable[[T], Iterator[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    if isinstance(value, kind):
        yield from told(value)


def _known(value: Found[T], show: Callable[[T], str] = str) -> str:
    """Give a value as text, `none` where it is known not to be there, "" where it is not known."""
    if isinstance(value, Unknown):
        return ""
    return "none" if isinstance(value, Absent) else text(value, show)


def _system(of: System) -> Iterator[tuple[str, str]]:
    yield "kernel", _known(of.kernel)
    yield "OS", _known(of.os, lambda found: found.name)
    yield "CPU", _known(of.cpu, lambda cpu: f"{cpu.model}, {cpu.cores} cores, {cpu.threads} threads")


def _network(of: Network) -> Iterator[tuple[str, str]]:
    if not isinstance(of.interfaces, tuple):
        return
    physical = [one for one in of.interfaces if one.kind == "physical"]
    yield "MAC addresses", ", ".join(sorted(one.mac for one in physical))
    carrying = (of.default_interface, of.reached_by)  # in a container that is one end of a veth
    used = [
        one
        for one in of.interfaces
        if one.state != "down" and (one.kind in ("physical", "bond", "vlan") or one.name in carrying)
    ]
    yield "NICs", ", ".join(one.name for one in used) or "none"
    for one in used:
        yield f"{NIC_RATE} {one.name}", _interface(one)
    if isinstance(of.bonds, tuple):
        halves = [f"{bond.name} {one.name} down" for bond in of.bonds for one in bond.members if not one.up]
        yield "bonds", "; ".join(halves) or "whole"


def _interface(of: Interface) -> str:
    speed = f"{of.speed:g} Gb/s, " if of.speed is not None else ""
    return f"{speed}MTU {of.mtu}" + (f", slowed by {of.shaping}" if of.shaping else "")


def _gpus(of: Gpus) -> Iterator[tuple[str, str]]:
    yield "driver", _known(of.driver.loaded)
    yield "CUDA of the driver", _known(of.driver.cuda)
    yield "open kernel modules", _known(of.driver.open, yes)
    yield "fabric manager", _known(of.driver.fabric_manager)
    if not isinstance(of.gpus, tuple):
        return
    yield "GPU model", counted([gpu.name for gpu in of.gpus])
    yield "GPUs", ", ".join(sorted(gpu.uuid for gpu in of.gpus))
    yield (
        "GPU clocks held back by",
        _of_gpus(of.gpus, lambda gpu: _known(gpu.slowdowns, lambda why: ", ".join(why) or "none")),
    )
    yield "GPU PCIe lanes", _of_gpus(of.gpus, lambda gpu: _known(gpu.width))
    yield "ECC", _of_gpus(of.gpus, lambda gpu: _known(gpu.ecc, yes))
    yield "persistence mode", _of_gpus(of.gpus, lambda gpu: _known(gpu.persistence, yes))
    yield "MIG", _of_gpus(of.gpus, lambda gpu: _known(gpu.mig, yes))


def _of_gpus(gpus: Sequence[Gpu], told: Callable[[Gpu], str]) -> str:
    """Give what all GPUs say, or each by its index; "" where none says anything."""
    values = [(gpu.index, told(gpu)) for gpu in gpus]
    alike = {value for _, value in values}
    if len(alike) <= 1:
        return alike.pop() if alike else ""
    return "; ".join(f"GPU {index} {value}" for index, value in values if value)


def _rdma(of: Rdma) -> Iterator[tuple[str, str]]:
    yield "OFED", _known(of.ofed)
    if isinstance(of.adapters, Adapters):
        yield "mlx5_core", _known(of.adapters.loaded)
    yield "peer memory", _known(of.peer_memory.loaded)
    if not isinstance(of.hcas, tuple):
        return
    yield "HCA GUIDs", ", ".join(sorted(filter(None, (_known(hca.guid) for hca in of.hcas))))
    yield "HCAs", ", ".join(hca.name for hca in of.hcas) or "none"
    for hca in of.hcas:
        yield f"{NIC_FIRMWARE} {hca.name}", _known(hca.firmware)
        yield f"{HCA_RATE} {hca.name}", _ports(hca)


def _ports(of: Hca) -> str:
    told = [(_known(port.rate, "{:g} Gb/s".format), _known(port.state)) for port in of.ports]
    return ", ".join(" ".join(filter(None, port)) for port in told)


def _software(of: Software) -> Iterator[tuple[str, str]]:
    for what, value in (
        ("NCCL", of.nccl),
        ("CUDA", of.cuda),
        ("mpirun", of.mpirun),
        ("Open MPI", of.openmpi),
        ("UCX", of.ucx),
        ("torch", of.torch),
        ("Horovod", of.horovod),
        ("Python", of.python),
        ("LightCC library", of.lightcc),
        ("/etc/nccl.conf", of.nccl_conf),
    ):
        yield what, _known(value)
