"""Judges Xids, the errors of the NVIDIA driver in the kernel log, by the classes of NVIDIA's catalogue."""

from typing import Dict, Iterator, List, Tuple

from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, HealthVerdict
from taco_launch.core.facts.reports.summary import duration
from taco_launch.core.model.host.fact_value import Absent, Unknown, known_value
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Gpus
from taco_launch.core.model.host.health import HealthFacts, Xid

NAME = "Xid"
_SOURCE = "NVIDIA Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), immediate action"
_RESET = "drain the host; when no job runs there: nvidia-smi --gpu-reset -i N, or reboot; if it comes back, have the GPU replaced"
_REBOOT = "drain the host and reboot it; if it comes back, check power and riser, then have the GPU replaced"
_LINK = "nvidia-smi nvlink -s and -e show the link; drain the host and reboot it; if it comes back, have GPU and baseboard checked"
# By the catalogue's action. What it ends by restarting the application (RESTART_APP), or ignores, is a program's error
# and says nothing against the host: it is named in the text alone.
_FAULTS: Tuple[Tuple[str, Tuple[int, ...], str], ...] = (
    ("RESET_GPU", (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), _RESET),
    ("WORKFLOW_XID_48", (48,), _RESET),
    ("RESTART_BM", (79,), _REBOOT),
    ("WORKFLOW_NVLINK_ERR", (74,), _LINK),
    ("WORKFLOW_NVLINK5_ERR", (144, 145, 146, 147, 148, 149, 150), _LINK),
    ("CHECK_MECHANICALS", (54,), "check the power cables of the GPU board"),
)
# Errors of memory that the GPU has dealt with, which may be the first signs of more.
_WATCHED = {
    63: "memory rows were remapped or pages retired",
    92: "many corrected memory errors",
    94: "a memory error, contained to one program",
    157: "no spare memory is left to remap",
}
_APPLICATIONS = frozenset(
    (8, 13, 31, 32, 37, 38, 39, 40, 41, 42, 43, 44, 45, 60, 66, 67, *range(68, 73), 75, 76, 77, 80, *range(82, 87))
) | frozenset((88, 89, 93, *range(96, 109), 121, *range(126, 136), 137, 139, 141, 154, 160, 161))


def xids(facts: HostFacts) -> Iterator[HealthVerdict]:
    """Judge the Xids since the boot; nothing where no GPU is."""
    health = known_value(facts.health)
    if health is None or isinstance(facts.gpu, Absent):
        return
    if isinstance(health.xids, (Absent, Unknown)):
        yield HealthVerdict(NAME, NOT_POSSIBLE, f"the kernel log cannot be read: {health.xids.reason}", _SOURCE)
        return
    rules = {number: (action, hint) for action, numbers, hint in _FAULTS for number in numbers}
    wrong: Dict[Tuple[str, str], List[str]] = {}
    programs: List[int] = []
    for one in health.xids:
        if one.number in rules:
            wrong.setdefault((FAULT, rules[one.number][1]), []).append(_said(one, facts, health, rules[one.number][0]))
        elif one.number in _APPLICATIONS:
            programs.append(one.number)
        else:
            why = _WATCHED.get(one.number, "not in the catalog's classes that are known here")
            hint = "reset the GPU when no job runs on it; check it again after the next jobs"
            wrong.setdefault((WARNING, hint), []).append(_said(one, facts, health, why))
    for (level, hint), texts in wrong.items():
        yield HealthVerdict(NAME, level, "; ".join(dict.fromkeys(texts)), _SOURCE, hint)
    if not wrong:
        few = f" but those of programs ({', '.join(map(str, sorted(set(programs))))})" if programs else ""
        yield HealthVerdict(NAME, OK, f"none since the boot{few}", _SOURCE)


def _said(one: Xid, facts: HostFacts, health: HealthFacts, why: str) -> str:
    """Return `Xid 79 on GPU 3 3 h ago (RESTART_BM): GPU has fallen off the bus`; the GPU by its address where it is lost."""
    counters = known_value(health.counters)
    ago = f" {duration(max(counters.uptime - one.seconds, 0))} ago" if counters else ""
    where = one.device
    if isinstance(facts.gpu, Gpus):
        for gpu in known_value(facts.gpu.gpus) or ():
            if isinstance(gpu.pci, str) and gpu.pci.startswith(one.device.lower()):
                where = f"GPU {gpu.index}"
    return f"Xid {one.number} on {where}{ago} ({why}): {one.text}"
