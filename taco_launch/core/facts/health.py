"""Reads what only a health check asks for: Xids of the kernel log, counters of two looks, memory errors, NVLinks, mounts."""

import re
from typing import Dict, List, Optional, Tuple

from taco_launch.core.facts.gpus import smi_csv
from taco_launch.core.facts.gpus.gpu import refusal
from taco_launch.core.facts.site_programs import provided
from taco_launch.core.facts.system.disks import disk
from taco_launch.core.facts.text.sections import Sections, answer, failure, files, unasked
from taco_launch.core.facts.text.strip_terminal import lines, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.health import (
    Counters,
    ErrorCounter,
    GpuMemory,
    HealthFacts,
    MemoryErrors,
    Mount,
    NvLinks,
    Xid,
)
from taco_launch.core.model.host.paths import DRAIN, MOST_DRAIN_BYTES
from taco_launch.core.model.slots import Drain, read_drain

# [ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.
_XID = re.compile(r"(?:\[ *([0-9]+\.[0-9]+)\] )?.*NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): ([0-9]{1,4}), ?(.*)")
_BEGINS = re.compile("log starts at ([0-9]{1,12})")
_COUNTER = re.compile(
    r"/sys/class/(?:infiniband/([^/]+)/ports/([0-9]+)/(?:hw_)?counters|net/([^/]+)(?:/statistics)?)/(\w+)"
)
_GPU, _LINK = re.compile(r"GPU ([0-9]+): "), re.compile(r"\s*Link ([0-9]+): (.*)")


def parse_health(sections: Sections) -> Found[HealthFacts]:
    """Read the probe's sections health.*; each that failed is Unknown by itself, with the tool's own words."""
    missing = unasked(sections, "health")
    if missing is not None:
        return missing
    return HealthFacts(
        xids=_xids(answer(sections, "health.xids")),
        counters=_counters(sections),
        memory=_memory(sections),
        mounts=_mounts(answer(sections, "health.mounts"), answer(sections, "health.inodes")),
        nvlinks=_nvlinks(answer(sections, "health.nvlink"), answer(sections, "health.nvlink_errors")),
        gpus=_gpus(answer(sections, "health.gpus")),
        provided=provided(sections),
        drain=_drain(answer(sections, "health.drain")),
    )


def _drain(text: Found[str]) -> Found[Drain]:
    if not isinstance(text, str):
        return text
    return read_drain(text.encode()[:MOST_DRAIN_BYTES], DRAIN) if text.strip() else Absent()


def _xids(text: Found[str]) -> Found[Tuple[Xid, ...]]:
    """Read the log's lines; the journal and the kernel's buffer may both have one."""
    if not isinstance(text, str):
        return Unknown(text.reason)  # a kernel without a log is not one without errors
    result: Dict[Tuple[str, ...], Xid] = {}
    begins = ""
    for line in text.split("\n"):
        match = _XID.match(line)
        if match:
            seconds, device, number, words = match.groups()
            one = Xid(int(number), device, float(seconds or 0), words.strip())
            result.setdefault((device, number, words, seconds or ""), one)
        elif "NVRM: Xid" in line:
            return Unknown(f"a line of the kernel log is of an unknown form: {line:.120}")
        elif (wrapped := _BEGINS.fullmatch(line)) is not None:
            begins = wrapped[1]
    if begins and not result:
        return Unknown(
            f"the kernel log starts {begins} s after the boot: earlier lines were overwritten, and no journal is kept"
        )
    return tuple(result.values())


def _counters(sections: Sections) -> Found[Counters]:
    looks: List[Dict[str, int]] = []
    times: List[float] = []
    for name in ("health.before", "health.after"):
        parsed = files(sections, name)
        if parsed.failed is not None:
            return parsed.failed
        uptime = re.fullmatch(r"([0-9]+\.[0-9]+) [0-9.]+", str(parsed.text("/proc/uptime")).strip())
        if parsed.cut is not None or uptime is None:
            return Unknown("the second look at the counters is missing from the probe's answer")
        times.append(float(uptime[1]))
        looks.append({path: int(text) for path, text in parsed.texts.items() if re.fullmatch("[0-9]{1,20}", text)})
    before, after = looks
    result: List[ErrorCounter] = []
    for path, total in after.items():
        match = _COUNTER.fullmatch(path)
        if match and path in before:
            device = f"{match[1]} port {match[2]}" if match[1] else match[3]
            # A counter that was set back counts from 0 again.
            gained = total - before[path] if total >= before[path] else total
            result.append(ErrorCounter(device, match[4], total, gained))
    if times[1] <= times[0]:
        return Unknown("no time has passed between the two looks at the counters")
    return Counters(tuple(result), round(times[1] - times[0], 2), times[1])


def _memory(sections: Sections) -> Found[Tuple[MemoryErrors, ...]]:
    result: Dict[str, Dict[str, int]] = {}
    for path, text in files(sections, "health.memory").texts.items():
        controller, _, name = path.rpartition("/")
        if re.fullmatch("[0-9]+", text):
            result.setdefault(controller.rpartition("/")[2], {})[name] = int(text)
    if not result:
        section = sections.get("health.memory")
        if section is None or section.exit_code is None:
            return failure(sections, "health.memory") or Absent()
        return Absent("the kernel counts no memory errors here: no EDAC driver is loaded")
    return tuple(
        MemoryErrors(name, counts.get("ce_count", 0), counts.get("ue_count", 0)) for name, counts in result.items()
    )


def _mounts(text: Found[str], inodes: Found[str]) -> Found[Tuple[Mount, ...]]:
    if not isinstance(text, str):
        return text
    parsed = disk(inodes) if isinstance(inodes, str) and inodes.strip() else inodes
    used: Dict[str, Optional[int]] = {}
    for row in parsed if isinstance(parsed, tuple) else ():
        used[row.path] = 100 - 100 * row.free // row.size if row.size else None
    result: Dict[str, Mount] = {}
    for line in text.split("\n"):
        words = line.split(" ")
        if len(words) > 3:
            path = words[1].replace("\\040", " ")
            share = used.get(path)
            count: Found[int] = share if share is not None else Absent("it has no limit of inodes")
            if isinstance(parsed, (Absent, Unknown)):
                count = Unknown(parsed.reason)
            result.setdefault(words[0], Mount(path, "ro" in words[3].split(","), count))
    return tuple(result.values())


def _nvlinks(status: Found[str], errors: Found[str]) -> Found[Tuple[NvLinks, ...]]:
    if not isinstance(status, str):
        return status
    if not isinstance(errors, str):
        return errors
    down: Dict[int, List[int]] = {}
    counts: Dict[int, List[Tuple[int, str, int]]] = {}
    for text, is_status in ((status, True), (errors, False)):
        gpu = None
        for line in lines(text):
            header, link = _GPU.match(line), _LINK.fullmatch(line)
            if header:
                gpu = int(header[1])
                down.setdefault(gpu, [])
            elif link and gpu is not None and is_status:
                down[gpu] += [int(link[1])] if "inactive" in link[2].lower() else []
            elif link and gpu is not None:
                name, _, value = link[2].rpartition(": ")
                if not re.fullmatch("[0-9]+|N/A|<inactive>", value.strip()):
                    return Unknown(f"nvidia-smi nvlink -e: {shown(line)} is not understood")
                if value.strip().isdigit() and int(value):
                    counts.setdefault(gpu, []).append((int(link[1]), name, int(value)))
    if not down:
        return refusal(status) or Absent("nvidia-smi reports no NVLink")
    return tuple(NvLinks(gpu, tuple(links), tuple(counts.get(gpu, ()))) for gpu, links in sorted(down.items()))


def _gpus(text: Found[str]) -> Found[Tuple[GpuMemory, ...]]:
    if not isinstance(text, str):
        return text
    rows, _, fault = smi_csv.rows(text)
    if fault is not None:
        return refusal(text) or fault
    result = []
    for row in rows:
        index, generation = row.number("index"), row.number("pcie.link.gen.current")
        if not isinstance(index, int):
            return Unknown(f"which GPU is which is not reported: {index.reason}")
        if row.text("pstate") != "P0":
            generation = Absent("the GPU is idle")
        retired, pending = row.number("retired_pages.double_bit.count"), row.flag("retired_pages.pending")
        result.append(GpuMemory(index, retired, pending, generation, row.number("pcie.link.gen.max")))
    return tuple(result)
