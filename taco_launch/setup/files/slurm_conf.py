"""The settings of Slurm that all hosts of a cluster share: slurm.conf, gres.conf and cgroup.conf, from their facts."""

import re
from collections.abc import Callable, Mapping, Sequence

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import Found, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts, SetupState, System
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.host.paths import SLURM
from taco_launch.setup.files.gpu_devices import gpus
from taco_launch.setup.model.ops import FileTarget

# The first line, by which the probe knows whose a file is (core/facts/probe.sh: made_slurm).
_MARK = "# by taco-launch setup, cluster {cluster}\n"
# In MiB: the kernel that a host boots next may leave less memory, and a node with less than is written here is not used.
_STEP, _RESERVE = 256, 64
# slurm.conf(5). MEMLOCK: RDMA needs the limit of slurmd, not that of the session which submits a job.
_SLURM = """\
ClusterName={cluster}
SlurmctldHost={head}
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType={proctrack}
TaskPlugin={task}
ReturnToService=2
PropagateResourceLimitsExcept=MEMLOCK
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_CGROUP = """\
ConstrainCores=yes
ConstrainDevices=yes
"""
_BY_CGROUP = ("proctrack/cgroup", "task/cgroup,task/affinity")
_WITHOUT = ("proctrack/linuxproc", "task/affinity")


@dataclass(frozen=True)
class SlurmNode:
    """A host as slurm.conf names it: short host name, address, the rest of its line, and its GPUs' device files."""

    name: str
    hostname: str
    address: str
    hardware: str
    devices: tuple[str, ...]
    cgroup: bool


def node(host: Host, facts: HostFacts, address: Found[str]) -> SlurmNode | str:
    """Return a host as a node, or which fact is missing for it."""
    system, state = facts.system, known_value(facts.made)
    if not isinstance(system, System) or state is None:
        return "its system is not known"
    hostname, cpu, memory = known_value(system.hostname), known_value(system.cpu), known_value(system.memory)
    if hostname is None or cpu is None or memory is None:
        return "its host name, processors or memory are not known"
    if not isinstance(address, str):
        return f"its address is not known: {address.reason}"
    if host.gpus != "none" and isinstance(facts.gpus, Unknown):
        return f"its GPUs are not known: {facts.gpus.reason}"
    count, devices = len(gpus(host, facts)), _devices(state)
    if count and len(devices) != count:
        return f"it has {count} GPUs, but {len(devices)} device files /dev/nvidia[0-9]*"
    mib = memory.total >> 20
    words = [f"CPUs={cpu.threads}"]
    if cpu.sockets and cpu.cores % cpu.sockets == 0 and cpu.cores and cpu.threads % cpu.cores == 0:
        shape = cpu.sockets, cpu.cores // cpu.sockets, cpu.threads // cpu.cores
        words.append("Sockets={} CoresPerSocket={} ThreadsPerCore={}".format(*shape))
    words.append(f"RealMemory={(mib - mib // _RESERVE) // _STEP * _STEP or mib}")
    words += [f"Gres=gpu:{count}"] if count else []
    cgroup = ("cgroup", "2") in (known_value(state.slurm) or ())
    return SlurmNode(host.name, hostname.partition(".")[0], address, " ".join(words), devices if count else (), cgroup)


def _devices(state: SetupState) -> tuple[str, ...]:
    there = (path for path in known_value(state.devices) or () if re.fullmatch("/dev/nvidia[0-9]+", path))
    return tuple(sorted(there, key=lambda path: int(path.removeprefix("/dev/nvidia"))))


def files(cluster: str, head: str, nodes: Sequence[SlurmNode]) -> tuple[FileTarget, ...]:
    """Return the files of a cluster; `head` is the name of the node that runs slurmctld."""
    mark = _MARK.format(cluster=cluster)
    keeper = next(each for each in nodes if each.name == head)
    proctrack, task = _BY_CGROUP if all(each.cgroup for each in nodes) else _WITHOUT
    lines = "\n".join(
        f"NodeName={each.name} NodeHostname={each.hostname} NodeAddr={each.address} {each.hardware} State=UNKNOWN"
        for each in nodes
    )
    slurm = _SLURM.format(
        cluster=cluster, head=f"{keeper.hostname}({keeper.address})", proctrack=proctrack, task=task, nodes=lines
    )
    gres = "".join(f"NodeName={each.name} Name=gpu File={','.join(each.devices)}\n" for each in nodes if each.devices)
    texts = {"slurm": slurm, "gres": f"AutoDetect=off\n{gres}", "cgroup": _CGROUP}
    return tuple(FileTarget(f"{SLURM}/{name}.conf", f"{mark}{text}".encode()) for name, text in texts.items())


def configuration(
    inventory: Inventory, facts: Mapping[str, HostFacts], address: Callable[[Host, HostFacts], Found[str]]
) -> tuple[FileTarget, ...] | str:
    """Return the files for all hosts of an inventory, or what of a host is not known that they need."""
    nodes = []
    for host in inventory.hosts:
        of_host = facts.get(host.name)
        entry = "it does not answer" if of_host is None else node(host, of_host, address(host, of_host))
        if isinstance(entry, str):
            return f"{host.name}: {entry}"
        nodes.append(entry)
    return files(inventory.cluster, inventory.head, nodes)
