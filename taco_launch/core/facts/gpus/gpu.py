"""Reads what nvidia-smi and the kernel say of GPUs: the driver, the GPUs, MIG instances, who uses them."""

import re
from dataclasses import replace
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from taco_launch.core.facts.gpus import smi_csv
from taco_launch.core.facts.gpus.pcie_acs import parse_board
from taco_launch.core.facts.system.pci import parse_pci
from taco_launch.core.facts.text.sections import PROBE, Failure, Sections, failure, section_summary, unasked
from taco_launch.core.facts.text.strip_terminal import lines, plain, shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown, known_value, not_told, was_requested
from taco_launch.core.model.host.hardware import Board, Driver, Gpu, GpuProcess, Gpus, MigInstance, PciDevice

T = TypeVar("T")

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LISTED = re.compile(rf"GPU ([0-9]+): (\S.*?) \(UUID: (GPU-{_UUID})\)\s*")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+[0-9]+: \(UUID: (MIG-[0-9A-Za-z/-]+)\)\s*")
_VERSION = r"[0-9]+\.[0-9]+(?:\.[0-9]+)*"
_LOADED = re.compile(rf"NVRM version: NVIDIA .*?Kernel Module(?: for \S+)?\s+({_VERSION})(?=\s)")
_CUDA = re.compile(rf"CUDA (?:UMD )?Version\s*:\s*({_VERSION})(?=\s)")
# The head of nvidia-smi's table: | NVIDIA-SMI 535.216.01   Driver Version: 535.216.01   CUDA Version: 12.2 |
# Of nvidia-smi's table, and of nvidia-smi -q.
TABLE_HEAD = re.compile(
    rf"^(?:\| NVIDIA-SMI .*\b(?:Driver|KMD) Version: |Driver Version +: )({_VERSION})(?: |$)", re.MULTILINE
)
_FABRIC = re.compile(rf"Fabric Manager version is\s*:\s*({_VERSION})\s")
# What keeps clocks low, by its bit (nvml.h, nvmlClocksEventReason*); 1 says that the GPU is idle.
_REASONS = (
    (0x2, "ApplicationsClocksSetting"),
    (0x4, "SwPowerCap"),
    (0x8, "HwSlowdown"),
    (0x10, "SyncBoost"),
    (0x20, "SwThermalSlowdown"),
    (0x40, "HwThermalSlowdown"),
    (0x80, "HwPowerBrakeSlowdown"),
    (0x100, "DisplayClockSetting"),
)
# what nvidia-smi says instead of an answer
_REFUSED = re.compile(
    r"NVIDIA-SMI has failed.*|Failed to initialize NVML.*|Driver/library version mismatch.*|NVML library version.*|"
    r"Unable to determine the device handle.*|.*GPU is lost.*|No devices (?:were )?found.*|Insufficient Permissions.*"
)


class ListedGpus(NamedTuple):
    """What `nvidia-smi -L` lists: (index, name, UUID) of GPUs, MIG instances, its words on GPUs it cannot reach."""

    gpus: Tuple[Tuple[int, str, str], ...]
    instances: Tuple[MigInstance, ...]
    lost: Tuple[str, ...]


def parse_gpu(sections: Sections) -> Found[Gpus]:
    """Read the probe's sections gpu.*; each that failed is Unknown by itself, with the tool's own words.

    Absent where there is neither nvidia-smi nor a driver, and no GPU that could take one.
    """
    missing = unasked(sections, "gpu")
    if missing is not None:
        return missing
    listed = _asked(sections, "gpu.list", read_list)
    queried = _asked(sections, "gpu.query", read_query)
    driver = Driver(
        loaded=_missing(sections, "gpu.driver_loaded") or loaded(sections["gpu.driver_loaded"].stdout),
        installed=_missing(sections, "gpu.driver_installed") or _version(sections["gpu.driver_installed"].stdout),
        cuda=_asked(sections, "gpu.smi", cuda),
        open=is_open(sections),
        fabric_manager=_fabric_manager(sections),
        fabric_version=_fabric_version(sections),
    )
    board = parse_board(sections)
    if all(isinstance(part, Absent) for part in (listed, queried, driver.loaded, driver.installed)):
        nothing = "neither nvidia-smi nor a driver is there"
        if not isinstance(board, Board) or not board.gpus:
            return Absent(nothing)
        without = Unknown(f"{len(board.gpus)} on PCI, and {nothing}")
        return Gpus(driver, without, Absent(nothing), Absent(nothing), board=board)
    known = (listed, queried, driver.loaded, driver.installed, driver.cuda, driver.open)
    if sections[PROBE].exit_code is None and all(isinstance(part, (Absent, Unknown)) for part in known):
        return Unknown("the probe's answer was cut off within it")
    found = assemble(driver, queried, listed, _asked(sections, "gpu.processes", read_processes))
    return replace(located(_remapped(found, sections), parse_pci(sections)), board=board)


def assemble(
    driver: Driver, queried: "Found[QueriedGpus]", listed: Found[ListedGpus], processes: Found[Tuple[GpuProcess, ...]]
) -> Gpus:
    """Put together what the query and the list say of the same GPUs; where they contradict each other, Unknown."""
    gpus: Found[Tuple[Gpu, ...]] = queried.gpus if isinstance(queried, QueriedGpus) else queried
    instances: Found[Tuple[MigInstance, ...]] = listed.instances if isinstance(listed, ListedGpus) else listed
    lost: Tuple[str, ...] = queried.lost if isinstance(queried, QueriedGpus) else ()
    if isinstance(listed, ListedGpus):
        lost = tuple(dict.fromkeys([*lost, *listed.lost]))
        if isinstance(gpus, tuple):
            gpus = _agreed(gpus, listed)
        elif listed.gpus:
            why = gpus if isinstance(gpus, Unknown) else not_told("nvidia-smi -L does not say")
            with_instances = {instance.gpu for instance in listed.instances}
            gpus = tuple(
                Gpu(index, uuid, name, why, why, why, True if index in with_instances else why, why, why)
                for index, name, uuid in listed.gpus
            )
    elif isinstance(listed, Unknown) and not was_requested(gpus):
        gpus = listed
    return Gpus(driver, gpus, processes, instances, lost)


def located(gpus: Gpus, devices: Found[Tuple[PciDevice, ...]]) -> Gpus:
    """Fill in each GPU's NUMA node, which sysfs knows and nvidia-smi does not."""
    if not isinstance(gpus.gpus, tuple):
        return gpus
    found: List[Gpu] = []
    for gpu in gpus.gpus:
        numa: Found[int] = Unknown(f"{gpu.pci} is not in the list of PCI devices")
        if isinstance(devices, tuple):
            device = next((one for one in devices if one.kind == "gpu" and one.address == gpu.pci), None)
            if device is not None:
                numa = Absent("the platform names no node") if device.numa is None else device.numa
        else:
            numa = devices
        found.append(replace(gpu, numa=numa))
    return replace(gpus, gpus=tuple(found))


class QueriedGpus(NamedTuple):
    """What `nvidia-smi --query-gpu` says, and its words on GPUs that it cannot reach."""

    gpus: Found[Tuple[Gpu, ...]]
    lost: Tuple[str, ...]
    driver: Found[str]


def read_query(text: str) -> "Found[QueriedGpus]":
    """Read `nvidia-smi --query-gpu=... --format=csv`: whichever columns there are, `index` among them."""
    rows, lost, fault = smi_csv.rows(text)
    if fault is not None:
        return refusal(text) or fault
    gpus: List[Gpu] = []
    for row in rows:
        index, name, uuid, bus = row.number("index"), row.text("name"), row.text("uuid"), row.text("pci.bus_id")
        if not isinstance(index, int):
            return Unknown(f"which GPU is which is not reported: {index.reason}")
        gpus.append(
            Gpu(
                index=index,
                uuid=known_value(uuid) or "",
                name=known_value(name) or "",
                pci=pci_address(bus) if isinstance(bus, str) else bus,
                memory=row.size("memory.total"),
                memory_used=row.size("memory.used"),
                mig=row.flag("mig.mode.current"),
                numa=not_told("nvidia-smi --query-gpu does not say"),
                ecc_uncorrected=row.number("ecc.errors.uncorrected.volatile.total"),
                ecc=row.flag("ecc.mode.current"),
                persistence=row.flag("persistence_mode"),
                temperature=row.number("temperature.gpu"),
                width=row.number("pcie.link.width.current"),
                max_width=row.number("pcie.link.width.max"),
                slowdowns=_slowdowns(row.text("clocks_event_reasons.active")),
            )
        )
    twice = _twice([gpu.index for gpu in gpus])
    if twice is not None:
        return Unknown(f"GPU {twice} is there twice")
    counts = {row.number("count") for row in rows if "count" in row.cells}
    if not rows or (counts and counts != {len(rows) + len(lost)}):
        return refusal(text) or Unknown(
            f"{len(rows)} rows are there: the query's output is cut off or covers only some of the GPUs"
        )
    versions = list(dict.fromkeys(row.text("driver_version") for row in rows))
    driver = next((version for version in versions if not isinstance(version, str)), versions[0])
    if isinstance(driver, str) and len(versions) > 1:
        driver = Unknown(f"the rows show different driver versions: {', '.join(map(str, versions))}")
    asks = (
        f"GPU {row.cells['index']} requires a reset" for row in rows if "[GPU requires reset]" in row.cells.values()
    )
    return QueriedGpus(tuple(sorted(gpus, key=lambda gpu: gpu.index)), (*lost, *asks), driver)


def read_list(text: str) -> Found[ListedGpus]:
    """Read `nvidia-smi -L`: GPUs and, below each, its MIG instances."""
    gpus: List[Tuple[int, str, str]] = []
    instances: List[MigInstance] = []
    found = lines(text)
    whole = plain(text).endswith("\n")
    for place, line in enumerate(found):
        gpu, instance = _LISTED.fullmatch(line), _INSTANCE.fullmatch(line)
        if gpu:
            gpus.append((int(gpu[1]), gpu[2], gpu[3]))
        elif instance and gpus:
            instances.append(MigInstance(gpus[-1][0], instance[1], instance[2]))
        elif re.match(r"\s*(GPU [0-9]|MIG )", line) and not smi_csv.is_lost(line):
            cut = "" if whole or place < len(found) - 1 else " (cut off?)"
            return Unknown(f"line {place + 1}: {shown(line)} is not understood{cut}")
    lost = tuple(line.strip() for line in found if smi_csv.is_lost(line))
    if not gpus and not lost:
        return refusal(text) or Unknown("no line of nvidia-smi -L (GPU 0: NAME (UUID: GPU-...)) is there")
    twice = _twice([index for index, _, _ in gpus])
    return ListedGpus(tuple(gpus), tuple(instances), lost) if twice is None else Unknown(f"GPU {twice} is there twice")


def read_processes(text: str) -> Found[Tuple[GpuProcess, ...]]:
    """Read `nvidia-smi --query-compute-apps=... --format=csv`, with the columns gpu_uuid and pid at least."""
    rows, _, fault = smi_csv.rows(text)
    if fault is not None:
        return refusal(text) or fault
    processes: List[GpuProcess] = []
    for number, row in enumerate(rows, 1):
        gpu, pid, name, memory = row.text("uuid"), row.number("pid"), row.text("process"), row.size("used_gpu_memory")
        if not isinstance(gpu, str) or not isinstance(pid, int):
            return Unknown(f"row {number} does not show the process ID or the GPU")
        if isinstance(name, Unknown) and "process" in row.cells:
            name = row.cells[
                "process"
            ]  # [Insufficient Permissions], and names that are cut off: nothing is decided by them
        processes.append(GpuProcess(gpu, pid, known_value(name) or "", known_value(memory)))
    return tuple(processes)


def loaded(text: str) -> Found[str]:
    """Read /proc/driver/nvidia/version: the version of the driver that is in the kernel."""
    found = _LOADED.search(plain(text))
    return found[1] if found else Unknown(f"/proc/driver/nvidia/version: {shown(text)} names no version")


def cuda(text: str) -> Found[str]:
    """Read the newest CUDA that the driver can run, from nvidia-smi's table or -q."""
    found = _CUDA.search(plain(text))
    return found[1] if found else refusal(text) or Unknown("nvidia-smi names no CUDA version")


def table_driver(text: str) -> Found[str]:
    """Read the version of the loaded driver from nvidia-smi's table."""
    found = TABLE_HEAD.search(plain(text))
    return found[1] if found else Unknown("nvidia-smi's table shows no driver version")


def is_open(sections: Sections) -> Found[bool]:
    """Return whether the open kernel modules run, or would: those on the disk count where none is loaded."""
    if failure(sections, "gpu.driver_loaded") is None:
        text = sections["gpu.driver_loaded"].stdout
        found = loaded(text)
        return "Open Kernel Module" in text if isinstance(found, str) else found
    missing = _missing(sections, "gpu.license")
    if missing is not None:
        return missing
    license_ = sections["gpu.license"].stdout.strip()
    known = {"NVIDIA": False, "Dual MIT/GPL": True}
    return known.get(license_, Unknown(f"modinfo -F license nvidia: {shown(license_)}"))


def pci_address(bus_id: str) -> Found[str]:
    """Return nvidia-smi's `00000000:1B:00.0` as sysfs writes it: `0000:1b:00.0`."""
    match = re.fullmatch(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", bus_id)
    return f"{int(match[1], 16):04x}:{match[2].lower()}" if match else Unknown(f"{shown(bus_id)} is no PCI address")


def refusal(text: str) -> Optional[Unknown]:
    """Return nvidia-smi's own words where they say why there is no answer."""
    refusals = [line.strip() for line in lines(text) if _REFUSED.fullmatch(line.strip())]
    return Unknown("; ".join(dict.fromkeys(refusals))) if refusals else None


def _twice(numbers: Sequence[int]) -> Optional[int]:
    return next((number for place, number in enumerate(numbers) if number in numbers[:place]), None)


def _slowdowns(found: Found[str]) -> Found[Tuple[str, ...]]:
    if not isinstance(found, str):
        return found
    return tuple(name for bit, name in _REASONS if int(found, 16) & bit)


def _remapped(gpus: Gpus, sections: Sections) -> Gpus:
    """Fill in what `nvidia-smi --query-remapped-rows` says, which drivers before 450 do not know."""
    if not isinstance(gpus.gpus, tuple):
        return gpus
    missing: Found[bool] = failure(sections, "gpu.remapped") or not_told("--query-remapped-rows does not say")
    if "gpu.remapped" in sections and sections["gpu.remapped"].exit_code == 2:
        missing = Absent("this driver does not report remapped rows")
    rows = smi_csv.rows(sections["gpu.remapped"].stdout)[0] if failure(sections, "gpu.remapped") is None else ()
    told = {row.text("uuid"): row for row in rows}
    return replace(
        gpus,
        gpus=tuple(
            replace(
                gpu,
                remap_pending=told[gpu.uuid].flag("remapped_rows.pending") if gpu.uuid in told else missing,
                remap_failed=told[gpu.uuid].flag("remapped_rows.failure") if gpu.uuid in told else missing,
            )
            for gpu in gpus.gpus
        ),
    )


def _agreed(gpus: Tuple[Gpu, ...], listed: ListedGpus) -> Found[Tuple[Gpu, ...]]:
    """Fill in what only the list tells; Unknown where it lists other GPUs."""
    told: Dict[int, Tuple[str, str]] = {index: (name, uuid) for index, name, uuid in listed.gpus}
    if sorted(told) != [gpu.index for gpu in gpus]:
        return Unknown(f"--query-gpu and -L list different GPUs ({len(gpus)} and {len(told)})")
    full: List[Gpu] = []
    for gpu in gpus:
        name, uuid = told[gpu.index]
        if gpu.uuid not in ("", uuid) or gpu.name not in ("", name):
            return Unknown(f"GPU {gpu.index} is {gpu.name} {gpu.uuid} in --query-gpu but {name} {uuid} in -L")
        full.append(replace(gpu, uuid=uuid, name=name))
    return tuple(full)


def _asked(sections: Sections, name: str, read: Callable[[str], Found[T]]) -> Found[T]:
    """Read what nvidia-smi answered; after a failure only where it names the GPUs that made it fail."""
    missing = failure(sections, name)
    if missing is None:
        return read(sections[name].stdout)
    section = sections.get(name)
    if section is None or section.exit_code is None or isinstance(missing, Absent):
        return missing
    found = read(section.stdout)
    return found if isinstance(found, (ListedGpus, QueriedGpus)) and found.lost else refusal(section.stdout) or missing


def _missing(sections: Sections, name: str) -> Optional[Failure]:
    """Return why a section of modinfo or of /proc holds nothing; that there is no such module is Absent."""
    missing = failure(sections, name)
    if (
        isinstance(missing, Unknown)
        and name in sections
        and re.search(r"(?i)module (?:alias |name )?'?nvidia'? not found", section_summary(sections[name]))
    ):
        return Absent(section_summary(sections[name]))
    return missing


def _version(text: str) -> Found[str]:
    found = plain(text).strip()
    return found if re.fullmatch(_VERSION, found) else Unknown(f"modinfo -F version nvidia: {shown(found)}")


def _fabric_manager(sections: Sections) -> Found[str]:
    """Return systemd's word on nvidia-fabricmanager, by LoadState and ActiveState of systemctl show."""
    missing = failure(sections, "gpu.fabric_manager")
    if missing is not None:
        return missing
    text = sections["gpu.fabric_manager"].stdout
    told = dict(line.partition("=")[::2] for line in lines(text))
    if told.get("LoadState") == "not-found":
        return Absent("there is no unit nvidia-fabricmanager")
    state = told.get("ActiveState", "")
    known = state in ("active", "inactive", "failed", "activating", "deactivating", "reloading")
    return state if known else Unknown(f"systemctl show nvidia-fabricmanager: {shown(text.strip())}")


def _fabric_version(sections: Sections) -> Found[str]:
    """Read nv-fabricmanager --version, which some releases say on stderr."""
    section = sections.get("gpu.fabric_version")
    found = _FABRIC.search(f"{section.stdout}\n{section.stderr}\n") if section is not None else None
    return (
        found[1] if found else failure(sections, "gpu.fabric_version") or Unknown("nv-fabricmanager names no version")
    )
