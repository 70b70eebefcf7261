"""Judges links: NVLink, and the counters of RDMA ports and network interfaces, of which what comes now counts most."""

from collections import Counter
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from taco_launch.core.facts.reports.health.verdict import (
    FAULT,
    NOT_POSSIBLE,
    OK,
    WARNING,
    HealthVerdict,
    plain,
    which,
)
from taco_launch.core.facts.reports.summary import duration
from taco_launch.core.model.host.fact_value import Absent, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.health import Counters, ErrorCounter

_CABLE = "check cable and transceiver (mlxlink -d mlx5_0 -m, or ethtool -m), and the port of the switch"
_FABRIC = "look at the switch: packets are lost between the hosts (for RoCE: PFC and ECN on every hop)"
_KERNEL = "the kernel's counters of InfiniBand ports (Documentation/ABI/stable/sysfs-class-infiniband)"
_AZURE = "Azure node health checks: link flaps and port errors"
_OWN = "taco-launch: errors that come while one looks"


class Rule(NamedTuple):
    """The verdict on counters of one kind: `level` if they grow by `least` per second or more; with 0, by any amount."""

    check: str
    names: Tuple[str, ...]
    level: str
    least: float
    source: str
    hint: str


RULES = (
    Rule(
        "port errors",
        (
            *("symbol_error", "link_downed", "link_error_recovery", "local_link_integrity_errors"),
            *("port_rcv_errors", "excessive_buffer_overrun_errors", "rx_icrc_encapsulated"),
        ),
        *(FAULT, 0, _AZURE, _CABLE),
    ),
    Rule(
        "lost packets",
        ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "port_xmit_discards"),
        *(WARNING, 0, _AZURE, _FABRIC),
    ),
    # NCCL's traffic makes some at every all-reduce of many hosts.
    Rule("congestion", ("np_cnp_sent", "rp_cnp_handled"), WARNING, 10_000, _OWN, _FABRIC),
    Rule("link flaps", ("carrier_changes",), FAULT, 0, _AZURE, _CABLE),
    # Kernels count frames of unknown protocols as dropped.
    Rule("interface errors", ("rx_errors", "tx_errors"), WARNING, 0, _OWN, _CABLE),
    Rule("dropped packets", ("rx_dropped", "tx_dropped"), WARNING, 100, _OWN, "ethtool -S shows where; ethtool -G makes the rings larger"),
)  # fmt: skip
# So many losses of a link in so many hours of uptime, or more often, are a warning though it holds now.
_MOST_FLAPS, _HOURS = 5, 6
_LOSSES = {"link_downed": 1, "carrier_changes": 2}


def counters(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge the counters of ports and interfaces; virtual interfaces come and go, and are left out."""
    health = known_value(facts.health)
    if health is None:
        return
    if isinstance(health.counters, (Absent, Unknown)):
        for name in (rule.check for rule in RULES):
            yield HealthVerdict(name, NOT_POSSIBLE, health.counters.reason, _KERNEL)
        return
    of_interfaces = _interfaces(facts)
    for rule in RULES:
        each = [one for one in health.counters.each if one.name in rule.names and _is_judged(one, of_interfaces)]
        if each:
            yield _by(rule, each, health.counters)


def _by(rule: Rule, each: List[ErrorCounter], looks: Counters) -> HealthVerdict:
    now: Dict[str, List[str]] = {}
    often: List[str] = []
    for one in each:
        if one.gained and one.gained / looks.seconds >= rule.least:
            now.setdefault(one.device, []).append(f"{one.name} +{one.gained}")
        elif (flaps := _flaps(one, looks.uptime)) is not None:
            often.append(f"{one.device} {one.name} {one.total} ({flaps})")
    if now:
        states = ", ".join(f"{device} {' '.join(counts)}" for device, counts in now.items())
        return HealthVerdict(rule.check, rule.level, f"{states} in {looks.seconds:g} s", rule.source, rule.hint)
    if often:
        return HealthVerdict(rule.check, WARNING, ", ".join(often), rule.source, rule.hint)
    return HealthVerdict(rule.check, OK, f"none in {looks.seconds:.0f} s", rule.source)


def _flaps(one: ErrorCounter, uptime: float) -> Optional[str]:
    losses = one.total // _LOSSES[one.name] if one.name in _LOSSES else 0
    if losses < _MOST_FLAPS or losses * _HOURS * 3600 < _MOST_FLAPS * uptime:
        return None
    return f"{losses} times in {duration(uptime)} of uptime"


def _is_judged(one: ErrorCounter, interfaces: Tuple[str, ...]) -> bool:
    return " port " in one.device or one.device in interfaces


def _interfaces(facts: HostFacts) -> Tuple[str, ...]:
    network = known_value(facts.network)
    every = known_value(network.interfaces) if network else None
    own = [one for one in every or () if one.kind in ("physical", "bond") or (one.kind == "veth" and one.addresses)]
    return tuple(one.name for one in own)


_NVLINK = "NVIDIA: nvidia-smi nvlink -s and -e; the links of a host's GPUs are all up, and count no errors"


def nvlinks(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge NVLinks: a GPU that has more links down than most of its host; boards without a bridge have all of them down."""
    health = known_value(facts.health)
    states = health.nvlinks if health else Absent()
    if not isinstance(states, tuple):
        yield from plain("NVLink links", [states], "", _NVLINK)
        return
    usual = Counter(len(one.down) for one in states).most_common(1)[0][0]
    down = [f"{which([one.gpu])}: {which(one.down, 'link')} down" for one in states if len(one.down) > usual]
    hint = "nvidia-smi nvlink -s and dmesg -T | grep -i -e xid -e nvlink show why; reset the GPU or reboot, and if that does not help, have it replaced"
    if down:
        yield HealthVerdict("NVLink links", FAULT, ", ".join(down), _NVLINK, hint)
    else:
        yield HealthVerdict("NVLink links", OK, "as many on each GPU", _NVLINK)
    errors = [f"GPU {one.gpu} link {link} {name} {count}" for one in states for link, name, count in one.errors]
    if errors:
        few = ", ".join(errors[:4]) + (f" and {len(errors) - 4} more" if len(errors) > 4 else "")
        again = "the counts are since the driver was loaded: see whether they grow; nvidia-smi nvlink -r sets them to 0"
        yield HealthVerdict("NVLink errors", WARNING, few, _NVLINK, again)
    else:
        yield HealthVerdict("NVLink errors", OK, "none since the driver was loaded", _NVLINK)
