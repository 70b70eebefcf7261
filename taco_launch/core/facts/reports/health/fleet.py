"""Judges hosts beside one another: how many GPUs, which ports, versions and clocks they have; most of them are right."""

from collections import Counter
from statistics import median
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict
from taco_launch.core.facts.reports.summary import MAX_CLOCK_OFFSET, duration
from taco_launch.core.model.host.fact_value import Found, known_value, was_requested
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Gpus, Rdma

Told = Tuple[str, HealthVerdict]
_SAME = "Imbue cluster health: driver, kernel and OFED are the same on all hosts"
_COUNT = "taco-launch: hosts of one cluster have as many GPUs as most of them"
_CABLED = "taco-launch: a port that most other hosts use is in use"
# Beyond this, logins by Kerberos fail (RFC 4120, 3.2.3), and certificates, apt and make misjudge what is new.
_MOST_SKEW = 300.0
_SKEW = "RFC 4120: clocks differ by less than 5 min"
_CLOCK = "NHC and gcm: clocks differ by less than 1 s"
# A majority needs this many hosts.
_FEW = 3
# GPUs of a machine, as vendors build them.
_BUILT_WITH = (1, 2, 4, 8, 10, 16)


def _of_gpus(of: Callable[[Gpus], Found[str]]) -> Callable[[HostFacts], Optional[str]]:
    return lambda facts: known_value(of(facts.gpu)) if isinstance(facts.gpu, Gpus) else None


def _kernel(facts: HostFacts) -> Optional[str]:
    system = known_value(facts.system)
    return known_value(system.kernel) if system else None


_VERSIONS: Tuple[Tuple[str, Callable[[HostFacts], Optional[str]]], ...] = (
    ("kernel", _kernel),
    ("driver", _of_gpus(lambda gpus: gpus.driver.loaded)),
    ("OFED", lambda facts: known_value(facts.rdma.ofed) if isinstance(facts.rdma, Rdma) else None),
)


def fleet(hosts: Sequence[HostFacts]) -> Iterator[Told]:
    """Yield (host, verdict) of what only the others show; nothing of a single host but its clock."""
    yield from _clocks(hosts)
    if len(hosts) > 1:
        yield from _versions(hosts)
        yield from _gpu_counts(hosts)
        yield from _ports(hosts)


def _versions(hosts: Sequence[HostFacts]) -> Iterator[Told]:
    wrong: Dict[str, List[str]] = {}
    judged = set()
    for name, read in _VERSIONS:
        values = [(facts.host, version) for facts in hosts if (version := read(facts)) is not None]
        judged |= {host for host, _ in values}
        counts = Counter(version for _, version in values).most_common()
        for host, version in values:
            others = [f"{count} with {other}" for other, count in counts if other != version]
            if others and (version != counts[0][0] or counts[0][1] == counts[1][1]):
                wrong.setdefault(host, []).append(f"{name} {version} ({others[0]})")
    hint = "make them equal: taco-launch facts shows all of them side by side"
    for facts in hosts:
        if facts.host in wrong:
            text = ", ".join(wrong[facts.host])
            yield facts.host, HealthVerdict("versions", WARNING, text, _SAME, hint)
        elif facts.host in judged:
            yield facts.host, HealthVerdict("versions", OK, "those of most hosts", _SAME)


def _gpu_counts(hosts: Sequence[HostFacts]) -> Iterator[Told]:
    counts = [
        (facts.host, len(facts.gpus), facts.gpu.lost)
        for facts in hosts
        if isinstance(facts.gpu, Gpus) and isinstance(facts.gpus, tuple)
    ]
    usual = Counter(count for _, count, _ in counts).most_common(1)
    most = max((count for _, count, _ in counts), default=0) if len(counts) < _FEW else usual[0][0]
    for host, count, lost in counts:
        if count < most and not lost:  # what the driver calls lost is said already
            text = f"{count}, and {'the other host has' if len(hosts) < _FEW else 'most hosts have'} {most}"
            hint = "lspci -d 10de: and dmesg -T | grep -i -e nvrm -e xid show whether it is on the bus; reboot, then reseat or replace it"
            # Machines are built with these numbers: a smaller one may belong to the cluster.
            level = WARNING if count in _BUILT_WITH else FAULT
            yield host, HealthVerdict("GPUs present", level, text, _COUNT, hint)
        else:
            yield host, HealthVerdict("GPUs present", OK, str(count), _COUNT)


def _ports(hosts: Sequence[HostFacts]) -> Iterator[Told]:
    """Judge ports by name: one that is down may have no cable on purpose, unless most hosts use theirs."""
    states: Dict[str, Dict[str, str]] = {}
    for facts in hosts:
        for hca in known_value(facts.hcas) or ():
            for port in hca.ports:
                if isinstance(port.state, str):
                    states.setdefault(f"{hca.name} port {port.number}", {})[facts.host] = port.state
    for facts in hosts:
        down = [
            f"{name} is {of[facts.host]}"
            for name, of in states.items()
            if of.get(facts.host, "ACTIVE") != "ACTIVE"
            and 2 * sum(state == "ACTIVE" for state in of.values()) > len(of) - 1
        ]
        if down:
            hint = "ibstat; ip -br link: is the cable plugged in, is the switch port up, and, for InfiniBand, is a subnet manager running?"
            text = f"{', '.join(down)}; on most other hosts it is ACTIVE"
            yield facts.host, HealthVerdict("ports in use", FAULT, text, _CABLED, hint)
        elif any(facts.host in of for of in states.values()):
            yield facts.host, HealthVerdict("ports in use", OK, "those of most hosts", _CABLED)


def _clocks(hosts: Sequence[HostFacts]) -> Iterator[Told]:
    """Judge clocks by the median of three hosts or more, else by the controller's."""
    values: List[Tuple[str, float, float]] = []
    for facts in hosts:
        system = known_value(facts.system)
        if system is None or not was_requested(system.clock_offset):
            continue
        if isinstance(system.clock_offset, float) and isinstance(system.clock_error, float):
            values.append((facts.host, system.clock_offset, system.clock_error))
        else:
            why = getattr(system.clock_offset, "reason", "") or "the host's clock is not known"
            yield facts.host, HealthVerdict("clock", NOT_POSSIBLE, why, _CLOCK)
    by_hosts = len(values) >= _FEW
    middle = median(offset for _, offset, _ in values) if by_hosts else 0.0
    of = "most hosts" if by_hosts else "the controller"
    for host, offset, error in values:
        apart = offset - middle
        if abs(apart) - error > MAX_CLOCK_OFFSET:
            side = "ahead of" if apart > 0 else "behind"
            hint = (
                "timedatectl shows whether it is synchronised; chronyc makestep, or systemctl restart systemd-timesyncd"
            )
            text = f"{duration(abs(apart))} {side} {of}"
            far = abs(apart) - error > _MOST_SKEW
            yield host, HealthVerdict("clock", FAULT if far else WARNING, text, _SKEW if far else _CLOCK, hint)
        elif abs(apart) + error > MAX_CLOCK_OFFSET:
            yield host, HealthVerdict("clock", NOT_POSSIBLE, f"the answer took {duration(2 * error)}", _CLOCK)
        else:
            yield host, HealthVerdict("clock", OK, f"within {MAX_CLOCK_OFFSET:g} s of {of}", _CLOCK)
