"""Judges hosts by all checks: one row of a table for each."""

from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from taco_launch.core.facts.reports.health import fleet, hardware, links, system, xids
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.facts.reports.health.verdict import LEVELS, OK, HealthVerdict, Judged, folded
from taco_launch.core.model.host.facts import HostFacts

HostVerdicts = Tuple[str, Tuple[HealthVerdict, ...]]
# Each a column of the table of `check`, and the checks in it.
GROUPS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    (
        "GPU",
        (
            *("driver", "lost GPUs", "GPUs", "GPUs present", "ECC", "row remapping", "retired pages", "Xid", "clocks"),
            *("temperature", "persistence", "MIG", "DCGM diag", "nvbandwidth", "all_reduce_perf"),
        ),
    ),
    ("NVLINK", ("fabric manager", "NVLink", "NVLink links", "NVLink errors")),
    ("PCIE", ("PCIe width", "PCIe speed", "IOMMU", "ACS")),
    ("RDMA", ("RDMA ports", "ports in use", "port errors", "lost packets", "congestion", "OFED", "memlock")),
    (
        "NETWORK",
        (
            *("link flaps", "interface errors", "dropped packets", "sshd", "network rate", "network link"),
            *("packet loss", "firewall"),
        ),
    ),
    ("SPEED", ("CPU rate", "CPU rate, one core", "memory copy", "disk write", "disk read", "measurement")),
    ("SYSTEM", ("memory errors", "disk space", "file systems", "shared memory", "clock", "versions", "container")),
    ("SITE", ("DCGM", "NHC", "gcm")),
)
_ROWS: Tuple[Callable[[HostFacts, Expected], Iterator[HealthVerdict]], ...] = (
    lambda facts, expected: iter(hardware.verdicts(facts, expected.rdma, expected.gdr)),
    lambda facts, _: xids.xids(facts),
    lambda facts, _: system.gpu_memory(facts),
    lambda facts, _: links.nvlinks(facts),
    lambda facts, _: system.pcie_speed(facts),
    lambda facts, _: links.counters(facts),
    lambda facts, _: system.memory(facts),
    lambda facts, _: system.disk_space(facts),
    lambda facts, _: system.mounts(facts),
    system.limits,
    system.container,
    system.firewall,
    lambda facts, _: system.provided(facts),
)  # fmt: skip


def checked(hosts: Sequence[HostFacts], expected: Expected) -> Tuple[HostVerdicts, ...]:
    """Return each host with the verdicts of all checks, without what was not requested and what the host does not have."""
    by_host: Dict[str, List[HealthVerdict]] = {
        facts.host: [verdict for row in _ROWS for verdict in row(facts, expected)] for facts in hosts
    }
    for host, verdict in fleet.fleet(hosts):
        by_host[host].append(verdict)
    return tuple((host, tuple(verdicts)) for host, verdicts in by_host.items())


def judged(hosts: Sequence[HostFacts], expected: Expected) -> Judged:
    """Return each different verdict once with the hosts that it is of, the worst first."""
    return folded(checked(hosts, expected))


def worst(verdicts: Sequence[HealthVerdict]) -> str:
    """Return the worst level, and `ok` where there is no verdict."""
    return min((each.level for each in verdicts), key=LEVELS.index, default=OK)


def group_of(name: str) -> str:
    """Return the column that a check is in."""
    return next((group for group, names in GROUPS if name in names), "SYSTEM")
