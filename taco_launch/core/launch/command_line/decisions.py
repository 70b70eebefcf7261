"""What the facts, the inventory and the command line amount to for a placed job: the names that a profile can use.

CONDITIONS are what an entry's `when` may name, VALUES what its words may hold in braces.
"""

import math
import zlib
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from taco_launch.core.launch.command_line.gpu_local_hcas import near_hcas
from taco_launch.core.model.host.versions import OWN_GID, version
from taco_launch.core.model.job_facts import FabricFacts, JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement

VALUES = {
    "np": "number of ranks",
    "hosts": "hosts and their ranks, in the form of -H",
    "hostfile": "path of a hostfile with the same hosts and ranks",
    "concurrent": "how many ssh connections mpirun opens at a time: one per host, at most 256",
    "interface": "network interface between the hosts",
    "network": "the same interface, or the CIDR of its addresses where its name differs from host to host",
    "hcas": "RDMA ports that NCCL is to use, in the form of NCCL_IB_HCA",
    "gid_index": "GID index of the RDMA ports",
    "address_range": "CIDR of the RDMA ports' addresses, where the GID index differs and NCCL finds it within that range",
    "daemon_ports": "ports for mpirun and its daemons, such as 40000,40001",
    "first_port": "first of the ports for the ranks",
    "port_count": "how many ports the ranks have",
    "ranks_per_host": "ranks of each host, where all hosts have the same number",
    "threads": "cores for each rank, on the host that has the fewest; not with --per-host or where the caller sets OMP_NUM_THREADS",
}
CONDITIONS = {
    "root": "mpirun runs as root",
    "openmpi4": "Open MPI is older than 5.0",
    "openmpi5": "Open MPI is 5.0 or newer",
    "several_hosts": "ranks run on more than one host",
    "many_hosts": "ranks run on 64 hosts or more",
    "elsewhere": "ranks run on a host that is not the head",
    "fqdn": "a host other than the head has a name with a domain",
    "ipv4": "no host of the job has an IPv6 address",
    "nccl": "NCCL has something to do: GPUs, or several hosts",
    "rdma": "RDMA is requested, by --transport rdma or network.rdma",
    "tcp": "TCP is requested, by --transport tcp or network.rdma: off, or RDMA is not available on every host",
    "gdr": "GPUDirect RDMA is requested, by --gdr or network.gdr, or it is available on every host",
    "no_gdr": "GPUDirect RDMA is refused, by --no-gdr or network.gdr: off, or it is not available on every host",
    "gid_needed": "the GID index has to be given: NCCL does not find it by itself, or the inventory names one",
    "one_interface": "the interface has the same name on all hosts, or its names are not known",
    "light": "--light",
    "lightcc": "the image provides LightCC",
    "net_by_name": "NCCL is 2.10 or newer, which accepts a network by its name, or its version is not known",
    "library_path": "LD_LIBRARY_PATH is set where mpirun runs, or the head is a container on another machine",
    "no_single_copy": "on a host, processes may not read each other's memory",
    "crowded": "a host has more ranks than CPUs",
}

# From as many hosts on horovodrun does not let mpirun's ssh branch out either (horovod/runner/mpi_run.py, 0.28).
_MANY_HOSTS = 64
# More ssh processes at a time than this only compete for the head's cores and descriptors.
_MOST_CONCURRENT = 256
_MOST_DAEMON_PORTS = 256
# One would do, were no program of somebody else's to take it in the same moment.
_DAEMON_PORTS = 2
# The first NCCL that reads NCCL_NET (its env.rst).
_NET_BY_NAME = (2, 10)
# Which source counts where several decide together.
_RANK = {"user": 0, "inventory": 1, "fact": 2, "launcher": 3, "default": 4}


@dataclass(frozen=True)
class Decision:
    """A value, its source as in Token, and why it is this one."""

    text: str
    source: str
    why: str


@dataclass(frozen=True)
class Condition:
    """Whether something holds, and where it is from; an empty `why` where the entry itself says enough."""

    holds: bool
    source: str = "launcher"
    why: str = ""


@dataclass
class Decisions:
    """What was decided, by name: `values`, `conditions`, and in `missing` which fact a name waits for.

    `host_env` holds (host, name, value) where each host has to be given its own.
    """

    values: Dict[str, Decision] = field(default_factory=dict)
    conditions: Dict[str, Condition] = field(default_factory=dict)
    missing: Dict[str, str] = field(default_factory=dict)
    host_env: Tuple[Tuple[str, str, str], ...] = ()

    def holds(self, name: str) -> bool:
        """Return whether a condition is known to hold."""
        return name in self.conditions and self.conditions[name].holds


def decide(spec: JobSpec, placement: Placement, facts: JobFacts, folder: str) -> Decisions:
    """Decide all names; `folder` is where the files go that a line names."""
    made = Decisions()
    _hosts(made, spec, placement, folder)
    _interface(made, spec, facts)
    _transport(made, spec, facts)
    _gdr(made, spec, facts)
    _software(made, spec, facts)
    _cpus(made, spec, placement, facts)
    if facts.between is not None and not made.holds("tcp"):
        _hcas(made, near_hcas(facts.between, placement, dict(facts.near)))
    _gid(made, spec, facts)
    return made


def strongest(sources: List[str]) -> str:
    """Return the source that counts most."""
    return min(sources, key=lambda source: _RANK[source])


def transport(spec: JobSpec) -> Decision:
    """Decide between `rdma`, `tcp` and `auto`, which leaves it to NCCL."""
    if spec.asked.transport is not None:
        return Decision(spec.asked.transport, "user", f"--transport {spec.asked.transport}")
    declared = spec.network.rdma
    return Decision({"on": "rdma", "off": "tcp"}.get(declared, "auto"), "inventory", f"network.rdma: {declared}")


def interface(spec: JobSpec) -> Optional[Decision]:
    """Return the interface that somebody has named, None where it is to be found."""
    if spec.asked.interface is not None:
        return Decision(spec.asked.interface, "user", "--interface")
    if spec.network.interface != "auto":
        return Decision(spec.network.interface, "inventory", "network.interface")
    return None


def reached(spec: JobSpec, placement: Placement) -> List[Tuple[str, int]]:
    """Return (name, ranks) of the placed hosts, by the names that mpirun has for them: its own machine is localhost."""
    local = {host.name for host in spec.hosts if host.connection == "local"}
    return [("localhost" if share.host in local else share.host, share.ranks) for share in placement.shares]


def gdr(spec: JobSpec) -> Decision:
    """Decide between GPUDirect RDMA `on`, `off` and `auto`, by facts."""
    if spec.asked.gdr is not None:
        return Decision("on" if spec.asked.gdr else "off", "user", "--gdr" if spec.asked.gdr else "--no-gdr")
    return Decision(spec.network.gdr, "inventory", f"network.gdr: {spec.network.gdr}")


def has_gpus(facts: JobFacts) -> bool:
    """Return whether a host is known to have GPUs."""
    return any(host.gpus for host in facts.hosts)


def _asked_size(spec: JobSpec) -> Tuple[str, str]:
    """Return who says how many ranks there are: (source, why)."""
    by_worker = ("--workers", spec.slots_per_worker), ("--gpus", spec.slots_per_worker)
    by_rank = (
        ("--np", spec.np),
        ("--hosts", spec.host_count),
        ("--slots-per-host", spec.slots_per_host or spec.most_per_host),
    )
    options = by_rank if spec.slots_per_worker is None else by_worker
    given = [option for option, count in options if count is not None]
    return ("user", " x ".join(given)) if given else ("default", "every slot of the hosts")


def hostfile_path(folder: str) -> str:
    """Name the hostfile of a job."""
    return f"{folder}/hostfile" if folder else "hostfile"


def versions(spec: JobSpec, facts: JobFacts) -> Dict[str, str]:
    """Return what is known of the versions of openmpi, nccl and horovod: what the inventory declares, else the facts."""
    found = {"openmpi": facts.openmpi, "nccl": facts.nccl, "horovod": facts.horovod, **dict(spec.versions)}
    return {name: told for name, told in found.items() if told is not None}


def _hosts(made: Decisions, spec: JobSpec, placement: Placement, folder: str) -> None:
    count = len(placement.shares)
    made.values["np"] = Decision(str(placement.np), *_asked_size(spec))
    listed = ",".join(f"{name}:{ranks}" for name, ranks in reached(spec, placement))
    made.values["hosts"] = Decision(listed, "launcher", placement.why)
    made.values["hostfile"] = Decision(hostfile_path(folder), "launcher", placement.why)
    made.values["concurrent"] = Decision(str(min(count, _MOST_CONCURRENT)), "launcher", f"the job has {count} hosts")
    made.conditions["several_hosts"] = Condition(count > 1)
    made.conditions["many_hosts"] = Condition(count >= _MANY_HOSTS, why=f"the job has {count} hosts")
    made.conditions["elsewhere"] = Condition(any(share.host != spec.head for share in placement.shares))
    # Where only the head's own name has a domain, Open MPI 4.1.4 would not find itself among the hosts any more.
    others = [name for name, _ranks in reached(spec, placement) if name not in (spec.head, "localhost")]
    with_domain = next((name for name in others if "." in name and not name.replace(".", "").isdigit()), "")
    made.conditions["fqdn"] = Condition(bool(with_domain), why=f"such as {with_domain}")
    placed = {share.host for share in placement.shares}
    made.conditions["ipv4"] = Condition(not any(":" in host.address for host in spec.hosts if host.name in placed))
    ranks = {share.ranks for share in placement.shares}
    if len(ranks) == 1:
        made.values["ranks_per_host"] = Decision(
            str(ranks.pop()), "launcher", "every host has the same number of ranks"
        )


def _interface(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    named, between = interface(spec), facts.between
    made.conditions["one_interface"] = Condition(True)
    if named is not None:
        made.values["interface"] = made.values["network"] = named
    elif between is None:
        why = "the network interface between the hosts is not known; name it, such as --interface eth0"
        made.missing["interface"] = made.missing["network"] = why
    else:
        _interface_found(made, between)
    if spec.network.port_range is not None:
        _ports(made, facts.daemon_ports or daemon_ports(spec.name, *spec.network.port_range), *spec.network.port_range)


def _interface_found(made: Decisions, between: FabricFacts) -> None:
    for name, shared in (("interface", between.interface), ("network", between.network)):
        if shared.value is not None:
            made.values[name] = Decision(shared.value, "fact", shared.why)
        else:
            made.missing[name] = (
                f"no interface is common to the hosts: {shared.why}; name one, such as --interface eth0"
            )
    own = tuple(one for one in between.host_env if one[1] == "NCCL_SOCKET_IFNAME")
    made.conditions["one_interface"] = Condition(not own, "fact")
    made.host_env += own


def daemon_ports(name: str, first: int, last: int, taken: AbstractSet[int] = frozenset()) -> Tuple[int, ...]:
    """Return the ports of a job's mpirun and its daemons, of the eighth that all jobs have for that; none where all are taken.

    mpirun 4.1.4 listens on every free one that it is given, and passes over those that are taken: it is given two, or a
    second job would have none left. Jobs of different names start to look at different ones.
    """
    count = _daemon_ports_of_all(first, last)
    begin = zlib.crc32(name.encode("utf-8", "surrogateescape")) % count
    ports = [first + (begin + step) % count for step in range(count)]
    return tuple(sorted([port for port in ports if port not in taken][:_DAEMON_PORTS]))


def _daemon_ports_of_all(first: int, last: int) -> int:
    return max(1, min(_MOST_DAEMON_PORTS, (last - first + 1) // 8))


def _ports(made: Decisions, of_daemons: Sequence[int], first: int, last: int) -> None:
    """Divide the ports: some for the daemons, and of those that no job's daemons have all for the ranks."""
    daemons = _daemon_ports_of_all(first, last)
    ports = {"daemon_ports": ",".join(map(str, of_daemons))}
    if last - first + 1 > daemons:
        ports.update(first_port=str(first + daemons), port_count=str(last - first + 1 - daemons))
    for name, text in ports.items():
        made.values[name] = Decision(text, "inventory", "network.port_range")


def _transport(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    chosen, between = transport(spec), facts.between
    for name in ("rdma", "tcp"):
        made.conditions[name] = Condition(chosen.text == name, chosen.source, chosen.why)
    several = made.holds("several_hosts")
    if several and chosen.text == "auto" and between and between.rdma.able is False and between.hcas_there:
        made.conditions["tcp"] = Condition(True, "fact", between.rdma.why)
    made.conditions["light"] = Condition(spec.asked.light, "user", "--light")


def _gdr(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    chosen = gdr(spec)
    for name, state in (("gdr", "on"), ("no_gdr", "off")):
        made.conditions[name] = Condition(chosen.text == state, chosen.source, chosen.why)
    between = facts.between
    if between is None or chosen.text != "auto" or made.holds("tcp") or not between.hcas_there or not has_gpus(facts):
        return
    if between.gdr.able is not None and made.holds("several_hosts"):
        name = "gdr" if between.gdr.able else "no_gdr"
        made.conditions[name] = Condition(True, "fact", between.gdr.why)


def _hcas(made: Decisions, between: FabricFacts) -> None:
    """Without a list NCCL takes every ACTIVE port, those for management and storage too."""
    if between.hcas.value is not None:
        made.values["hcas"] = Decision(between.hcas.value, "fact", between.hcas.why)
    made.host_env += tuple(one for one in between.host_env if one[1] == "NCCL_IB_HCA")


def _software(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    provides = spec.container is not None and "lightcc" in spec.container.provides
    made.conditions["lightcc"] = Condition(provides, "inventory", "container.provides: lightcc")
    made.conditions["root"] = Condition(facts.root, "fact")
    _library_path(made, spec, facts)
    made.conditions["nccl"] = Condition(made.holds("several_hosts") or any(host.gpus for host in facts.hosts))
    forbidden = [host.host for host in facts.hosts if host.single_copy is False]
    made.conditions["no_single_copy"] = Condition(bool(forbidden), "fact", f"tried on {', '.join(forbidden)}")
    known = versions(spec, facts)
    nccl = known.get("nccl")
    by_name = nccl is None or version(nccl) >= _NET_BY_NAME
    made.conditions["net_by_name"] = Condition(by_name)
    openmpi = known.get("openmpi")
    if openmpi is None:
        why = 'the version of Open MPI is not known; declare it in an inventory, such as versions: {openmpi: "4.1.4"}'
        made.missing["openmpi4"] = made.missing["openmpi5"] = why
    else:
        source = _version_source(spec, "openmpi")
        new = version(openmpi) >= (5,)
        made.conditions["openmpi5"] = Condition(new, source, f"Open MPI {openmpi}")
        made.conditions["openmpi4"] = Condition(not new, source, f"Open MPI {openmpi}")


def _cpus(made: Decisions, spec: JobSpec, placement: Placement, facts: JobFacts) -> None:
    """Decide what hangs on how many CPUs the ranks have, on the hosts where that is known."""
    known = {host.host: host for host in facts.hosts}
    told = [(share, known[share.host]) for share in placement.shares if share.host in known]
    full = [
        f"{share.host} has {host.cpus} CPUs for {share.ranks} ranks"
        for share, host in told
        if share.ranks > (host.cpus or math.inf)
    ]
    made.conditions["crowded"] = Condition(bool(full), "fact", "; ".join(full[:3]))
    cores = [host.cores // share.ranks for share, host in told if host.cores is not None]
    if len(cores) < len(placement.shares) or spec.per_host or "OMP_NUM_THREADS" in dict(facts.environment or ()):
        return
    made.values["threads"] = Decision(str(max(1, min(cores))), "fact", "the cores of a host divided by its ranks")


def _version_source(spec: JobSpec, name: str) -> str:
    return "inventory" if name in dict(spec.versions) else "fact"


def _library_path(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    """Where nobody has looked into the container: training images set it, as those of NVIDIA do."""
    local = any(host.name == spec.head and host.connection == "local" for host in spec.hosts)
    if local or facts.environment is not None:
        condition = Condition("LD_LIBRARY_PATH" in dict(facts.environment or ()), "fact", "LD_LIBRARY_PATH is set here")
    else:
        condition = Condition(spec.container is not None, "default", "training images set LD_LIBRARY_PATH")
    made.conditions["library_path"] = condition


def _gid(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    """Hosts differ in the index where one has more addresses or VLANs than another (NVIDIA/nccl#1573)."""
    if spec.network.gid_index is not None:
        made.values["gid_index"] = Decision(str(spec.network.gid_index), "inventory", "network.gid_index")
        made.conditions["gid_needed"] = Condition(True, "inventory")
        return
    nccl, between = versions(spec, facts).get("nccl"), facts.between
    if between is not None and (between.link_layer == "InfiniBand" or not between.hcas_there):
        no_gid = "InfiniBand addresses ports by LID, and needs no GID index" if between.hcas_there else between.rdma.why
        made.conditions["gid_needed"] = Condition(False, "fact", no_gid)
        return
    own = tuple(one for one in between.host_env if one[1] == "NCCL_IB_GID_INDEX") if between is not None else ()
    known = between is not None and (between.gid_index.value is not None or bool(own))
    _gid_needed(made, spec, nccl, between if known else None)
    if between is None or not known:
        told = between.gid_index.why if between is not None and between.link_layer else "the GID index is not known"
        made.missing["gid_index"] = (
            f"{told}; declare it in the inventory, such as network: {{gid_index: 3}} (show_gids lists it)"
        )
    elif between.gid_index.value is not None:
        made.values["gid_index"] = Decision(between.gid_index.value, "fact", between.gid_index.why)
    elif made.holds("several_hosts") and not made.holds("tcp"):
        made.host_env += own
    if between is not None and between.address_range.value is not None and not made.holds("tcp"):
        made.values["address_range"] = Decision(between.address_range.value, "fact", between.address_range.why)


def _gid_needed(made: Decisions, spec: JobSpec, nccl: Optional[str], between: Optional[FabricFacts]) -> None:
    """`between` is None where the index is not known."""
    if nccl is not None:
        older = version(nccl) < OWN_GID
        led = between is None or between.gid_index.value is None or between.address_range.value is not None
        misled = not older and between is not None and not led and not between.finds_gid
        why = f"NCCL {nccl}" + (" would choose an address of another network" if misled else "")
        made.conditions["gid_needed"] = Condition(older or misled, _version_source(spec, "nccl"), why)
    elif between is not None:
        why = "the version of NCCL is not known; a version that finds the index by itself accepts this one as well"
        made.conditions["gid_needed"] = Condition(True, "fact", why)
    elif made.holds("rdma"):
        made.missing["gid_needed"] = (
            "the version of NCCL is not known, and before 2.21 it does not find the index itself; "
            'declare it in the inventory, such as versions: {nccl: "2.9.9"}'
        )
    else:
        made.conditions["gid_needed"] = Condition(False)  # nobody has said that there is RDMA at all
