"""What the facts, the inventory and the command line amount to for a placed job: the names that a profile can use.

CONDITIONS are what an entry's `when` may name, VALUES what its words may hold in braces.
"""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from taco_launch.model.job_facts import JobFacts
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import Placement
from taco_launch.model.versions import OWN_GID, version

VALUES = {
    "np": "number of ranks",
    "hosts": "hosts and their ranks, as -H takes them",
    "hostfile": "path of a hostfile with the same",
    "concurrent": "how many ssh connections mpirun opens at a time: the hosts, at most 256",
    "interface": "network interface between the hosts",
    "gid_index": "GID index of the RDMA ports",
    "daemon_ports": "first and last of the ports for mpirun and its daemons, as 40000-40015",
    "first_port": "first of the ports for the ranks",
    "port_count": "how many ports the ranks have",
    "ranks_per_host": "ranks of each host, where all have as many",
}
CONDITIONS = {
    "root": "mpirun runs as root",
    "openmpi4": "Open MPI is older than 5.0",
    "openmpi5": "Open MPI is 5.0 or newer",
    "several_hosts": "ranks run on more than one host",
    "many_hosts": "ranks run on 64 hosts or more",
    "elsewhere": "ranks run on a host that is not the head",
    "fqdn": "such a host has a name with a domain",
    "nccl": "NCCL has something to do: GPUs, or several hosts",
    "rdma": "RDMA is asked for, by --transport rdma or network.rdma",
    "tcp": "TCP is asked for, by --transport tcp or network.rdma: off",
    "gdr": "GPUDirect RDMA is asked for, by --gdr or network.gdr",
    "no_gdr": "GPUDirect RDMA is refused, by --no-gdr or network.gdr: off",
    "gid_needed": "the GID index has to be given: NCCL is older than 2.21, or the inventory names one",
    "light": "--light",
    "lightcc": "the image provides LightCC",
    "net_by_name": "NCCL is 2.10 or newer, or not known: it takes a network by its name",
    "library_path": "LD_LIBRARY_PATH is set where mpirun runs, or the head is a container elsewhere",
    "no_single_copy": "processes may not read each other's memory there",
}

# From as many hosts on horovodrun does not let mpirun's ssh branch out either (horovod/runner/mpi_run.py, 0.28).
_MANY_HOSTS = 64
# More ssh processes at a time than this only compete for the head's cores and descriptors.
_MOST_CONCURRENT = 256
_MOST_DAEMON_PORTS = 16
# The first NCCL that reads NCCL_NET (its env.rst).
_NET_BY_NAME = (2, 10)
# Which source counts where several decide together.
_RANK = {"user": 0, "inventory": 1, "fact": 2, "launcher": 3, "default": 4}


@dataclass(frozen=True)
class Choice:
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

    `host_gids` holds (host, GID index) where each host has to be given its own.
    """

    values: Dict[str, Choice] = field(default_factory=dict)
    conditions: Dict[str, Condition] = field(default_factory=dict)
    missing: Dict[str, str] = field(default_factory=dict)
    host_gids: Tuple[Tuple[str, int], ...] = ()

    def holds(self, name: str) -> bool:
        """Say whether a condition is known to hold."""
        return name in self.conditions and self.conditions[name].holds


def decide(spec: JobSpec, placement: Placement, facts: JobFacts, folder: str) -> Decisions:
    """Decide all names; `folder` is where the files go that a line names."""
    made = Decisions()
    _hosts(made, spec, placement, folder)
    _interface(made, spec, facts)
    _transport(made, spec)
    _software(made, spec, facts)
    _gid(made, spec, placement, facts)
    return made


def strongest(sources: List[str]) -> str:
    """Give the source that counts most."""
    return min(sources, key=lambda source: _RANK[source])


def transport(spec: JobSpec) -> Choice:
    """Decide between `rdma`, `tcp` and `auto`, which leaves it to NCCL."""
    if spec.asked.transport is not None:
        return Choice(spec.asked.transport, "user", f"--transport {spec.asked.transport}")
    declared = spec.network.rdma
    return Choice({"on": "rdma", "off": "tcp"}.get(declared, "auto"), "inventory", f"network.rdma: {declared}")


def interface(spec: JobSpec) -> Optional[Choice]:
    """Give the interface that somebody has named, None where it is to be found."""
    if spec.asked.interface is not None:
        return Choice(spec.asked.interface, "user", "--interface")
    if spec.network.interface != "auto":
        return Choice(spec.network.interface, "inventory", "network.interface")
    return None


def reached(spec: JobSpec, placement: Placement) -> List[Tuple[str, int]]:
    """Give (name, ranks) of the placed hosts, by the names that mpirun has for them: its own machine is localhost."""
    local = {host.name for host in spec.hosts if host.connection == "local"}
    return [("localhost" if share.host in local else share.host, share.ranks) for share in placement.shares]


def hostfile_path(folder: str) -> str:
    """Name the hostfile of a job."""
    return f"{folder}/hostfile" if folder else "hostfile"


def versions(spec: JobSpec, facts: JobFacts) -> Dict[str, str]:
    """Give what is known of the versions of openmpi, nccl and horovod: what the inventory declares, else the facts."""
    found = {"openmpi": facts.openmpi, "nccl": facts.nccl, "horovod": facts.horovod, **dict(spec.versions)}
    return {name: told for name, told in found.items() if told is not None}


def _hosts(made: Decisions, spec: JobSpec, placement: Placement, folder: str) -> None:
    count = len(placement.shares)
    told = ("default", "every slot of the hosts") if spec.np is None else ("user", "--np")
    made.values["np"] = Choice(str(placement.np), *told)
    listed = ",".join(f"{name}:{ranks}" for name, ranks in reached(spec, placement))
    made.values["hosts"] = Choice(listed, "launcher", placement.why)
    made.values["hostfile"] = Choice(hostfile_path(folder), "launcher", placement.why)
    made.values["concurrent"] = Choice(str(min(count, _MOST_CONCURRENT)), "launcher", f"the job has {count} hosts")
    made.conditions["several_hosts"] = Condition(count > 1)
    made.conditions["many_hosts"] = Condition(count >= _MANY_HOSTS, why=f"the job has {count} hosts")
    made.conditions["elsewhere"] = Condition(any(share.host != spec.head for share in placement.shares))
    # Where only the head's own name has a domain, Open MPI 4.1.4 would not find itself among the hosts any more.
    others = [name for name, _ranks in reached(spec, placement) if name not in (spec.head, "localhost")]
    with_domain = next((name for name in others if "." in name and not name.replace(".", "").isdigit()), "")
    made.conditions["fqdn"] = Condition(bool(with_domain), why=f"such as {with_domain}")
    ranks = {share.ranks for share in placement.shares}
    if len(ranks) == 1:
        made.values["ranks_per_host"] = Choice(str(ranks.pop()), "launcher", "every host has as many ranks")


def _interface(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    found = {host.interface for host in facts.hosts if host.interface is not None}
    named = interface(spec)
    if named is not None:
        made.values["interface"] = named
    elif len(found) == 1:
        made.values["interface"] = Choice(found.pop(), "fact", "it carries the address of every host")
    else:
        made.missing["interface"] = (
            "the network interface between the hosts is not known: --interface eth0, for example"
        )
    if spec.network.port_range is not None:
        _ports(made, *spec.network.port_range)


def _ports(made: Decisions, first: int, last: int) -> None:
    """Divide the ports: mpirun listens on all it is given (seen with 4.1.4 and 5.0.11), and ranks need their own."""
    daemons = max(1, min(_MOST_DAEMON_PORTS, (last - first + 1) // 8))
    ports = {"daemon_ports": f"{first}-{first + daemons - 1}"}
    if last - first + 1 > daemons:
        ports.update(first_port=str(first + daemons), port_count=str(last - first + 1 - daemons))
    for name, text in ports.items():
        made.values[name] = Choice(text, "inventory", "network.port_range")


def _transport(made: Decisions, spec: JobSpec) -> None:
    network, asked = spec.network, spec.asked
    chosen = transport(spec)
    for name in ("rdma", "tcp"):
        made.conditions[name] = Condition(chosen.text == name, chosen.source, chosen.why)
    if asked.gdr is not None:
        gdr, source, why = "on" if asked.gdr else "off", "user", "--gdr" if asked.gdr else "--no-gdr"
    else:
        gdr, source, why = network.gdr, "inventory", f"network.gdr: {network.gdr}"
    for name, state in (("gdr", "on"), ("no_gdr", "off")):
        made.conditions[name] = Condition(gdr == state, source, why)
    made.conditions["light"] = Condition(asked.light, "user", "--light")


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
        why = 'the version of Open MPI is not known: versions: {openmpi: "4.1.4"} in an inventory'
        made.missing["openmpi4"] = made.missing["openmpi5"] = why
    else:
        source = _version_source(spec, "openmpi")
        new = version(openmpi) >= (5,)
        made.conditions["openmpi5"] = Condition(new, source, f"Open MPI {openmpi}")
        made.conditions["openmpi4"] = Condition(not new, source, f"Open MPI {openmpi}")


def _version_source(spec: JobSpec, name: str) -> str:
    return "inventory" if name in dict(spec.versions) else "fact"


def _library_path(made: Decisions, spec: JobSpec, facts: JobFacts) -> None:
    """Where nobody has looked into the container: training images set it, as those of NVIDIA do."""
    local = any(host.name == spec.head and host.connection == "local" for host in spec.hosts)
    if local or facts.environment is not None:
        condition = Condition("LD_LIBRARY_PATH" in dict(facts.environment or ()), "fact", "it is set here")
    else:
        condition = Condition(spec.container is not None, "default", "training images set it")
    made.conditions["library_path"] = condition


def _gid(made: Decisions, spec: JobSpec, placement: Placement, facts: JobFacts) -> None:
    """Hosts differ in the index where one has more addresses or VLANs than another (NVIDIA/nccl#1573)."""
    if spec.network.gid_index is not None:
        made.values["gid_index"] = Choice(str(spec.network.gid_index), "inventory", "network.gid_index")
        made.conditions["gid_needed"] = Condition(True, "inventory")
        return
    nccl = versions(spec, facts).get("nccl")
    layers = {host.host: host.link_layer for host in facts.hosts}
    if all(layers.get(share.host) == "InfiniBand" for share in placement.shares):
        no_gid = "InfiniBand: paths go by LIDs, and no GID index is chosen"
        made.conditions["gid_needed"] = Condition(False, "fact", no_gid)
        return
    if nccl is None and not made.holds("rdma"):
        made.conditions["gid_needed"] = Condition(False)  # nobody has said that there is RDMA at all
    elif nccl is None:
        made.missing["gid_needed"] = (
            "the version of NCCL is not known, and before 2.21 it does not find the index itself: "
            'versions: {nccl: "2.9.9"} in the inventory'
        )
    else:
        older = version(nccl) < OWN_GID
        made.conditions["gid_needed"] = Condition(older, _version_source(spec, "nccl"), f"NCCL {nccl}")
    by_host = {host.host: host.gid_index for host in facts.hosts}
    found = [(share.host, by_host.get(share.host)) for share in placement.shares]
    known = tuple((host, index) for host, index in found if index is not None)
    if len(known) < len(found):
        made.missing["gid_index"] = "it is not known: network: {gid_index: 3} in the inventory (show_gids tells it)"
    elif len({index for _host, index in known}) == 1:
        made.values["gid_index"] = Choice(str(known[0][1]), "fact", "RoCE v2 over IPv4 has this index on every host")
    elif made.holds("gid_needed") and made.holds("rdma"):
        made.host_gids = known
