"""What may make a run slower than another, and where it is read: one row for each cause, the largest suspects first."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from taco_launch.core.command import shell
from taco_launch.core.facts.reports.summary import counted, text, yes_no
from taco_launch.core.frozen import dataclass
from taco_launch.core.launch.fabric_facts import between
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts, Interface, NetworkFacts, Software, System
from taco_launch.core.model.host.hardware import Adapters, Gpu, Gpus, Hca, Rdma
from taco_launch.core.model.jobs import JobRecord, JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.model.run.verified import Truth

# The value of a variable that is passed on as the caller has it.
PASSED_ON = "(as the caller has it)"
# What every job has of its own: which ports its daemons take, how many and which of its ranks there are.
_OWN = frozenset(
    (
        *(
            "oob_tcp_dynamic_ipv4_ports",
            "oob_tcp_dynamic_ipv6_ports",
            "MASTER_ADDR",
            "MASTER_PORT",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
        ),
        *("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"),
    )
)
# Options of mpirun whose next word says where ranks run, which a run's hosts say themselves.
_WHERE = frozenset(("-np", "-H", "--hostfile"))
_MCA = frozenset(("--mca", "-mca", "--prtemca", "--pmixmca"))
# What stands before the name of a variable or an MCA parameter of the line: `knob NCCL_DEBUG`.
KNOB = "knob"
T = TypeVar("T")


@dataclass(frozen=True)
class MeasuredJob:
    """A job that was measured: its hosts as far as it had ranks there, and the commit of its folder, "" for none."""

    hosts: tuple[HostFacts, ...]
    spec: JobSpec
    record: JobRecord
    commit: str = ""


# Returns (host, part, value): "" for the host of the whole job, and "" for the part of a cause that has only one.
Read = Callable[[MeasuredJob], Iterable[tuple[str, str, str]]]


@dataclass(frozen=True)
class SlowdownCause:
    """A thing that may differ between two runs; without `read` it is found by comparing hosts (differences.py)."""

    name: str
    read: Read | None = None


def _of_job(show: Callable[[MeasuredJob], str]) -> Read:
    """Return what reads one value of the whole job, left out where it is empty."""
    return lambda job: [("", "", value)] if (value := show(job)) else []


def _of_hosts(
    subject: Callable[[HostFacts], object], kind: type[T], show: Callable[[T], str], absent: str = ""
) -> Read:
    """Return what reads one value of a subject of each host, `absent` where a host has none of it; no empty one."""
    return _parts_of_hosts(subject, kind, lambda found: [("", show(found))], absent)


def _parts_of_hosts(
    subject: Callable[[HostFacts], object],
    kind: type[T],
    show: Callable[[T], Iterable[tuple[str, str]]],
    absent: str = "",
) -> Read:
    """Return what reads several values of a subject, each of a part: an interface, an HCA."""

    def read(job: MeasuredJob) -> Iterator[tuple[str, str, str]]:
        for host in job.hosts:
            found = subject(host)
            if isinstance(found, kind):
                yield from ((host.host, part, value) for part, value in show(found) if value)
            elif absent and isinstance(found, Absent):
                yield host.host, "", absent

    return read


def _system(show: Callable[[System], str]) -> Read:
    return _of_hosts(lambda host: host.system, System, show)


def _gpu(show: Callable[[Gpus], str], absent: str = "") -> Read:
    return _of_hosts(lambda host: host.gpu, Gpus, show, absent)


def _each_gpu(show: Callable[[Gpu], str]) -> Read:
    return _gpu(lambda of: _of_gpus(of.gpus, show) if isinstance(of.gpus, tuple) else "")


def _rdma(show: Callable[[Rdma], str], absent: str = "") -> Read:
    return _of_hosts(lambda host: host.rdma, Rdma, show, absent)


def _software(show: Callable[[Software], Found[str]]) -> Read:
    return _of_hosts(lambda host: host.image, Software, lambda of: _known(show(of)))


def _network(show: Callable[[NetworkFacts], str]) -> Read:
    return _of_hosts(lambda host: host.network, NetworkFacts, show)


def _known(value: Found[T], show: Callable[[T], str] = str) -> str:
    """Return a value as text, `none` where it is known not to be there, "" where it is not known."""
    if isinstance(value, Unknown):
        return ""
    return "none" if isinstance(value, Absent) else text(value, show)


def _used(of: NetworkFacts) -> list[Interface]:
    """Return the interfaces that may carry a job's messages."""
    if not isinstance(of.interfaces, tuple):
        return []
    carrying = (of.default_interface, of.reached_by)  # in a container that is one end of a veth
    return [
        one
        for one in of.interfaces
        if one.state != "down" and (one.kind in ("physical", "bond", "vlan") or one.name in carrying)
    ]


def _nics(of: NetworkFacts) -> str:
    return ", ".join(one.name for one in _used(of)) or ("none" if isinstance(of.interfaces, tuple) else "")


def _macs(of: NetworkFacts) -> str:
    there = of.interfaces if isinstance(of.interfaces, tuple) else ()
    return ", ".join(sorted(one.mac for one in there if one.kind == "physical"))


def _bonds(of: NetworkFacts) -> str:
    if not isinstance(of.bonds, tuple) or not isinstance(of.interfaces, tuple):
        return ""
    halves = [f"{bond.name} {one.name} down" for bond in of.bonds for one in bond.members if not one.up]
    return "; ".join(halves) or "whole"


def _interface(of: Interface) -> str:
    speed = f"{of.speed:g} Gb/s, " if of.speed is not None else ""
    return f"{speed}MTU {of.mtu}" + (f", slowed by {of.shaping}" if of.shaping else "")


def _hcas(of: Rdma) -> tuple[Hca, ...]:
    return of.hcas if isinstance(of.hcas, tuple) else ()


def _ports(of: Hca) -> str:
    told = [(_known(port.rate, "{:g} Gb/s".format), _known(port.state)) for port in of.ports]
    return ", ".join(" ".join(filter(None, port)) for port in told)


def _of_gpus(gpus: Sequence[Gpu], told: Callable[[Gpu], str]) -> str:
    """Return what all GPUs say, or each by its index; "" where none says anything."""
    values = [(gpu.index, told(gpu)) for gpu in gpus]
    alike = {value for _, value in values}
    if len(alike) <= 1:
        return alike.pop() if alike else ""
    return "; ".join(f"GPU {index} {value}" for index, value in values if value)


def _gpus(of: Gpus) -> tuple[Gpu, ...]:
    return of.gpus if isinstance(of.gpus, tuple) else ()


def _none(hcas: object) -> str:
    return "none" if isinstance(hcas, tuple) else ""


def _gids(job: MeasuredJob) -> Iterator[tuple[str, str, str]]:
    found: dict[str, list[str]] = {}
    for host, index in between(job.hosts).gids if job.hosts else ():
        found.setdefault(host, []).append(str(index))
    yield from ((host, "", ", ".join(indices)) for host, indices in found.items())


def _image(job: MeasuredJob) -> Iterator[tuple[str, str, str]]:
    if job.spec.container is None:
        yield "", "", "none: on the hosts themselves"
        return
    told = False
    for host in job.hosts:
        docker = known_value(host.docker)
        for one in () if docker is None else known_value(docker.images) or ():
            if one.reference == job.spec.container.image:
                told = True
                yield host.host, "", one.digest or one.id
    if not told:
        yield "", "", job.spec.container.image


def _code(job: MeasuredJob) -> str:
    """Return which copy of its code a job had, and of which commit that is."""
    code = job.spec.code
    if code is None:
        return ""
    commit = f"commit {code.commit[:12]}" if code.commit else "no commit"
    return f"{code.id[:12]} ({commit}{f', changed: {code.dirty}' if code.dirty else ''})"


def _commit(job: MeasuredJob) -> str:
    """Return the commit of a job's code, or of the folder that its command was typed in."""
    code = job.spec.code
    if code is None or not code.commit:
        return "" if code is not None and code.source else job.commit
    return f"{code.commit[:12]}{'-dirty' if code.dirty else ''}"


def _as_planned(job: MeasuredJob) -> str:
    """Return whether a job ran as planned, "" where that was not found out."""
    found = job.record.verified
    return {Truth.TRUE.value: "yes", Truth.FALSE.value: f"no: {found.why}"}.get(found.status, "") if found else ""


def _gpus_used(job: MeasuredJob) -> Iterator[tuple[str, str, str]]:
    for share in job.record.shares:
        gpus = [slot for slot in share.slots if not slot.startswith("slot-")]
        if gpus:
            yield share.host, "", ", ".join(sorted(gpus))


def _knobs(job: MeasuredJob) -> Iterator[tuple[str, str, str]]:
    _options, knobs = _line(job.record.line, job.spec)
    yield from (("", name, value) for name, value in knobs.items() if name not in _OWN)


def _line(line: str, spec: JobSpec) -> tuple[list[str], dict[str, str]]:
    """Return the options of a launch line that are no knobs, and the knobs: name and value, as the line sets them.

    A job that never started has no line: what its spec sets stands for it.
    """
    asked = {name: PASSED_ON if value is None else value for name, value in spec.env}
    words = shlex.split(line)
    if not words:
        return [], {**asked, **dict(spec.mca)}
    if words[0] == "env":
        pairs = [word.partition("=") for word in words[1:]]
        end = next((place for place, pair in enumerate(pairs) if not pair[1] or pair[0].startswith("-")), len(pairs))
        return [], {name: value for name, _, value in pairs[:end]}
    if not launcher_of(spec).is_single:
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


# The order is that of how often and how far a thing moves the rate of a job when it changes, and how surely:
#
# 1. What is run: command, code and image hold all the software of a rank, and an image names it whole.
# 2. What computes and talks: GPU model, driver, then NCCL and CUDA, whose releases change algorithms and defaults.
# 3. The way between hosts: a link that came up at a quarter of its rate, a wrong GID (traffic over another interface) or
#    half a bond cost tens of percent at once; so does a job that does not use what was planned for it.
# 4. Other machines: a host or GPU swapped behind its name, other hosts than before.
# 5. Knobs and options of the line: what a person changed on purpose, and sees in the line itself.
# 6. The state of GPUs: clocks held back, lanes lost.
# 7. What seldom shows: OFED, firmware, mpirun, kernel, and last which of a host's GPUs a job happened to have.
CAUSES = (
    SlowdownCause("command", _of_job(lambda job: shell(job.spec.command))),
    SlowdownCause("code", _of_job(_code)),
    SlowdownCause("commit", _of_job(_commit)),
    SlowdownCause("image", _image),
    SlowdownCause("GPU model", _gpu(lambda of: counted([gpu.name for gpu in _gpus(of)]), "none")),
    SlowdownCause("driver", _gpu(lambda of: _known(of.driver.loaded))),
    SlowdownCause("NCCL", _software(lambda of: of.nccl)),
    SlowdownCause("CUDA", _software(lambda of: of.cuda)),
    SlowdownCause("CUDA of the driver", _gpu(lambda of: _known(of.driver.cuda))),
    SlowdownCause("torch", _software(lambda of: of.torch)),
    SlowdownCause("Horovod", _software(lambda of: of.horovod)),
    SlowdownCause("NICs", _network(_nics)),
    SlowdownCause(
        "NIC rate",
        _parts_of_hosts(
            lambda host: host.network, NetworkFacts, lambda of: [(one.name, _interface(one)) for one in _used(of)]
        ),
    ),
    SlowdownCause("HCAs", _rdma(lambda of: ", ".join(hca.name for hca in _hcas(of)) or _none(of.hcas), "none")),
    SlowdownCause(
        "HCA rate",
        _parts_of_hosts(lambda host: host.rdma, Rdma, lambda of: [(hca.name, _ports(hca)) for hca in _hcas(of)]),
    ),
    SlowdownCause("GID index", _gids),
    SlowdownCause("bonds", _network(_bonds)),
    SlowdownCause("runs as planned", _of_job(_as_planned)),
    SlowdownCause("hosts"),
    SlowdownCause("machine"),
    SlowdownCause("GPUs", _gpu(lambda of: ", ".join(sorted(gpu.uuid for gpu in _gpus(of))))),
    SlowdownCause(
        "HCA GUIDs", _rdma(lambda of: ", ".join(sorted(filter(None, (_known(hca.guid) for hca in _hcas(of))))))
    ),
    SlowdownCause("MAC addresses", _network(_macs)),
    SlowdownCause("launcher", _of_job(lambda job: job.spec.launcher)),
    SlowdownCause("profile", _of_job(lambda job: job.spec.profile.name)),
    SlowdownCause("LightCC", _of_job(lambda job: yes_no(job.spec.asked.light))),
    SlowdownCause(KNOB, _knobs),
    SlowdownCause("mpirun options", _of_job(lambda job: shell(_line(job.record.line, job.spec)[0]))),
    SlowdownCause("/etc/nccl.conf", _software(lambda of: of.nccl_conf)),
    SlowdownCause("LightCC library", _software(lambda of: of.lightcc)),
    SlowdownCause(
        "GPU clocks held back by",
        _each_gpu(lambda gpu: _known(gpu.slowdowns, lambda why: ", ".join(why) or "none")),
    ),
    SlowdownCause("GPU PCIe lanes", _each_gpu(lambda gpu: _known(gpu.width))),
    SlowdownCause("MIG", _each_gpu(lambda gpu: _known(gpu.mig, yes_no))),
    SlowdownCause("ECC", _each_gpu(lambda gpu: _known(gpu.ecc, yes_no))),
    SlowdownCause("persistence mode", _each_gpu(lambda gpu: _known(gpu.persistence, yes_no))),
    SlowdownCause("fabric manager", _gpu(lambda of: _known(of.driver.fabric_manager))),
    SlowdownCause("peer memory", _rdma(lambda of: _known(of.peer_memory.loaded))),
    SlowdownCause("open kernel modules", _gpu(lambda of: _known(of.driver.open, yes_no))),
    SlowdownCause("OFED", _rdma(lambda of: _known(of.ofed))),
    SlowdownCause(
        "mlx5_core", _rdma(lambda of: _known(of.adapters.loaded) if isinstance(of.adapters, Adapters) else "")
    ),
    SlowdownCause(
        "NIC firmware",
        _parts_of_hosts(
            lambda host: host.rdma, Rdma, lambda of: [(hca.name, _known(hca.firmware)) for hca in _hcas(of)]
        ),
    ),
    SlowdownCause("mpirun", _software(lambda of: of.mpirun)),
    SlowdownCause("Open MPI", _software(lambda of: of.openmpi)),
    SlowdownCause("UCX", _software(lambda of: of.ucx)),
    SlowdownCause("kernel", _system(lambda of: _known(of.kernel))),
    SlowdownCause("OS", _system(lambda of: _known(of.os, lambda found: found.name))),
    SlowdownCause(
        "CPU",
        _system(lambda of: _known(of.cpu, lambda cpu: f"{cpu.model}, {cpu.cores} cores, {cpu.threads} threads")),
    ),
    SlowdownCause("Python", _software(lambda of: of.python)),
    SlowdownCause("GPUs used", _gpus_used),
)
